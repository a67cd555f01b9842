"""Questions as rows: the target of a window is exactly the answer's tokens, and what cannot be trained on is named."""

import numpy as np
import pytest

from qkv.data.labelled.examples import AnswerExample, AnswerSpan, Place
from qkv.errors import InputError
from qkv.models.gpt.tokenizer import TaskTokenizer
from qkv.tasks.answer import find_candidates
from qkv.tasks.answer_features import END, START, AnswerFeatures, Passages
from qkv.text.tokenizer import Tokenizer
from tests.support.folders import make_tokenizer

DRAW = np.random.default_rng(0)


def asked(question: str, text: str, *answers: str, line: int = 1) -> AnswerExample:
    found = tuple(AnswerSpan(text.index(answer), answer) for answer in answers)
    return AnswerExample(question, text, found, place=Place("train.json", line))


def built(*examples: AnswerExample, max_length: int = 64, overlap: int = 8) -> AnswerFeatures:
    return AnswerFeatures(make_tokenizer(), examples, max_length, overlap)


def test_a_row_is_question_and_passage_with_the_answers_tokens_as_target() -> None:
    batch = built(asked("capital of france?", "the capital of france is paris.", "paris")).batch(np.array([0]), DRAW)
    tokenizer = make_tokenizer()
    tokens = [tokenizer.token(number) for number in batch.ids.tolist()]
    assert " ".join(tokens) == "[CLS] capital of france ? [SEP] the capital of france is paris . [SEP]"
    assert batch.segments.tolist() == [0] * 6 + [1] * 8
    assert batch.labels[START].tolist() == batch.labels[END].tolist() == [tokens.index("paris")]


def test_an_answer_of_several_tokens_and_the_first_of_several_answers() -> None:
    text = "今天北京天气很好😀 5g"
    features = built(asked("气?", text, "很好😀", "北京"), asked("气?", text, "5g"))
    starts, ends = (target.tolist() for target in features.targets)
    # [CLS] 气 ? [SEP] 今 天 北 京 天 气 很 好 😀 5g [SEP]
    assert (starts, ends) == ([10, 13], [12, 13])
    assert len(features.passages.ids) == 1  # encoded once


def test_windows_without_the_whole_answer_point_at_cls() -> None:
    text = "我 你 他 她 欠 万 元 今 天 气 很 好 坏 中 国 的"
    features = built(asked("猫", text, "今 天"), asked("狗", text), max_length=13, overlap=4)
    rows = features.rows
    # 16 tokens; room for 9, of which 4 are shared: windows of 8
    assert rows.b.starts.tolist() == [0, 4, 8, 0, 4, 8]
    assert features.holds.tolist() == [False, True, False, False, False, False]  # 今 天 are tokens 7 and 8
    starts, ends = features.targets
    # [CLS] 猫 [SEP] 欠 万 元 今 天 …
    assert starts.tolist() == [0, 6, 0, 0, 0, 0]
    assert ends.tolist() == [0, 7, 0, 0, 0, 0]
    assert features.units.tolist() == list(range(6))  # all windows are trained on
    assert features.faults() == []
    cut = built(asked("猫", text, "气 很 好 坏"), max_length=13, overlap=4)
    assert cut.holds.tolist() == [False, False, True]


def test_batches_lead_back_to_rows() -> None:
    """Whoever kept vectors of rows finds them again by example and window."""
    features = built(
        asked("猫", "我 你 他 她 欠 " * 9, "他"), asked("我?", "猫 狗", "狗"), asked("我?", "猫 狗"), max_length=20
    )
    units = np.array([4, 0, 3, 1])
    batch = features.batch(units, DRAW)
    rows = features.rows.first_row[batch.examples.numpy()] + batch.windows.numpy()
    assert sorted(rows.tolist()) == sorted(features.units[units].tolist())
    assert batch.lengths == tuple(features.rows.lengths[rows].tolist()) == tuple(sorted(batch.lengths))
    assert batch.labels[START].tolist() == features.targets[0][rows].tolist()


def test_what_cannot_be_trained_on_is_left_out_and_named() -> None:
    zero_width = "猫 \u200b 狗"
    features = built(
        asked("我", zero_width, "\u200b", line=3),
        asked("我", "欠 " * 40, "欠 " * 30, line=4),
        asked("我", "unhappyness", "happy", line=5),
        asked("我", "the cats", "cat", line=6),
        asked("我", " 猫 狗", " 猫", line=7),
        max_length=24,
    )
    assert {int(features.rows.examples[row]) for row in features.units} == {2, 3, 4}
    assert [(fault.place.line, fault.kind, fault.action) for fault in features.faults()] == [
        (3, "answer without a token", "dropped"),
        (4, "answer longer than a window", "dropped"),
        (7, "answer beside token edges", "noted"),
    ]
    widened = built(asked("我", "huaweis", "wei")).faults()
    assert "'wei'" in widened[0].message and "'huawei'" in widened[0].message


def test_a_question_that_leaves_no_room_is_refused_by_name() -> None:
    long = AnswerExample("猫 " * 20, "狗 " * 30, (), place=Place("train.json", 12))
    with pytest.raises(InputError, match=r"train.json, line 12: the question has 20 tokens, and at most 12 leave room"):
        built(long, max_length=24)
    with pytest.raises(InputError, match="Example 2: the question has 20 tokens"):
        built(AnswerExample("猫", "狗"), AnswerExample("猫 " * 20, "狗 " * 30), max_length=24)
    assert (
        len(built(AnswerExample("猫 " * 20, "狗", (), place=Place("a", 1)), max_length=24).rows) == 1
    )  # fits as it is


def test_tokens_of_spans_over_many_texts() -> None:
    """Against the plain definition: all tokens that share a character with the span."""
    tokenizer = Tokenizer.from_vocabulary("[PAD] [UNK] [CLS] [SEP] [MASK] i \u0307 a b".split(), "character", True)
    texts = ["", "abİİ a", "   ", "猫İ", "\u200b", "a b a b"]
    passages = Passages(tokenizer, texts)
    cases = [(n, i, j) for n, text in enumerate(texts) for i in range(len(text)) for j in range(i + 1, len(text) + 1)]
    which, starts, ends = np.array(cases).T
    first, last = passages.tokens_of(which, starts, ends)
    for case, a, b in zip(cases, first.tolist(), last.tolist(), strict=True):
        n, i, j = case
        spans = tokenizer.encode(texts[n], special=False).offsets
        sharing = [k for k, (start, end) in enumerate(spans) if start < j and end > i]
        assert list(range(a, b + 1)) == sharing, case


def test_a_very_long_passage() -> None:
    text = "今天天气很好。" * 14_286
    example = AnswerExample("天气?", text, (AnswerSpan(70_003, text[70_003:70_005]),))
    features = built(example, max_length=64, overlap=16)
    assert features.rows.n_tokens.tolist() == [100_002 + 3 + 3]
    assert features.holds.sum() in (1, 2)


def test_a_gpt_says_at_its_last_mark_that_the_answer_is_not_here() -> None:
    text, tokenizer = "我 你 他 她 欠 万 元 今 天 气 很 好 坏 中 国 的", TaskTokenizer(make_tokenizer())
    examples = [asked("猫", text, "今 天"), asked("狗", "我 你")]
    features = AnswerFeatures(tokenizer, examples, max_length=13, overlap=4)
    assert features.rows.lengths.tolist() == [12, 12, 12, 6] and features.nothing.tolist() == [11, 11, 11, 5]
    starts, ends = features.targets
    assert starts.tolist() == [11, 6, 11, 5] and ends.tolist() == [11, 7, 11, 5]
    batch = features.rows.collate(np.array([3]))
    assert [tokenizer.token(number) for number in batch.ids.tolist()] == [
        *("[SEP]", "狗", "<|delimiter|>", "我", "你", "<|extract|>")
    ]
    # and there it is asked when answers are searched for
    scores = np.zeros((int(features.rows.lengths.sum()), 2), np.float32)
    scores[[11, 23, 35]] = [[3, 4], [1, 2], [5, 6]]  # in every window of the first
    scores[-1] = [7, 8]
    found = find_candidates(features, scores, longest=5, n_best=2)
    assert found.nothing.tolist() == [3, 15]
