"""Extractive reading: from examples to answers that are spans of the text, to the character."""

import json
import lzma
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data.labelled.examples import AnswerExample, Place
from qkv.data.labelled.examples import AnswerSpan as Accepted
from qkv.errors import InputError
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.tasks.answer import AnswerResult, AnswerTask
from qkv.tasks.answer_features import END, START, AnswerFeatures
from qkv.tasks.predictor import infer
from qkv.tasks.task import AnswerSettings, Calibration, Scores, Task
from qkv.tasks.transfer import TaskModel
from qkv.text.tokenizer import Tokenizer
from tests.support.folders import SMALL, make_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
PLAIN = AnswerSettings(max_answer_tokens=30, no_answer="no", scorer="squad")
WITH_NOTHING = AnswerSettings(max_answer_tokens=30, no_answer="yes", scorer="cmrc", overlap=6)


def asked(question: str, text: str, *answers: str) -> AnswerExample:
    return AnswerExample(question, text, tuple(Accepted(text.index(answer), answer) for answer in answers))


def small_model(seed: int = 0) -> TaskModel:
    torch.manual_seed(seed)
    return TaskModel(BertWithHeads(BertConfig(**SMALL, dropout=0.0, attention_dropout=0.0), ["span"]), "span")


def trained(task: AnswerTask, features: AnswerFeatures, steps: int) -> TaskModel:
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    units, draw, objective = np.arange(len(features.unit_tokens)), np.random.default_rng(0), task.objective()
    for _ in range(steps):
        batch = features.batch(units, draw)
        loss = objective.terms(model, batch)["answer"].loss / objective.counts(batch)["answer"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def perfect(features: AnswerFeatures, height: float = 20.0) -> Scores:
    """What a head would say that knows the targets."""
    begins = np.cumsum(features.rows.lengths) - features.rows.lengths
    scores = np.zeros((int(features.rows.lengths.sum()), 2), np.float32)
    for side in (0, 1):
        scores[begins + features.targets[side], side] = height
    return scores


LONG = (
    "今天天气很好。" * 3
    + "他 owes me 5 万元😀！"
    + "the cat sat on the mat, it was too tired. "
    + "中国的首都是北京，不是上海。"
)
TOY = [
    asked("他欠我?", LONG, "5 万元"),
    asked("cat?", LONG, "on the mat"),
    asked("首都?", LONG, "北京"),
    asked("😀?", LONG, "😀"),
    asked("狗?", LONG),  # no answer
    asked("huawei?", LONG),
    asked("首都?", "the capital of france is paris", "paris"),
    asked("狗?", "大狗爱吃鱼", "大狗"),
]


def test_a_small_model_learns_to_answer_in_windows_and_not_to_answer() -> None:
    tokenizer = make_tokenizer()
    task = AnswerTask.learn(TOY, AnswerSettings(overlap=8), tokenizer)
    assert (task.settings.max_answer_tokens, task.settings.no_answer) == (30, "yes")
    features = task.features(tokenizer, TOY, 32, training=True)
    assert features.rows.n_windows.max() > 2 and not features.faults()
    model = trained(task, features, 90)
    scores = infer(model, features, 256)
    results = task.decode(features, scores, {}, Calibration())
    assert [result.text for result in results] == [e.answers[0].text if e.answers else "" for e in TOY]
    assert all(result.text == e.text[result.start : result.end] for e, result in zip(TOY, results, strict=True))
    assert [result.n_windows for result in results] == features.rows.n_windows.tolist()
    scorer = task.scorer()
    scorer.add(TOY, results)
    assert scorer.result().values == dict.fromkeys(scorer.result().values, 1.0)
    assert task.losses(features, scores, {}, 1.0).max() < 0.7
    assert task.confidences(TOY, results).right.all()
    assert all(judged.right for judged in map(task.judge, TOY, results))


def test_the_loss_is_the_mean_of_two_cross_entropies_over_all_tokens_of_a_row() -> None:
    tokenizer, task = make_tokenizer(), AnswerTask(WITH_NOTHING)
    features = task.features(tokenizer, TOY, 32, training=True)
    model = small_model().eval()
    batch = features.batch(np.arange(len(features.units)), np.random.default_rng(0))
    term = task.objective().terms(model, batch)["answer"]
    expected, right = 0.0, 0
    for row, scores in enumerate(batch.rows(model.scores(batch))):
        start, end = int(batch.labels[START][row]), int(batch.labels[END][row])
        logs = scores.log_softmax(0)  # (T, 2)
        expected -= (logs[start, 0] + logs[end, 1]).item() / 2
        right += scores.argmax(0).tolist() == [start, end]
    assert term.loss.item() == pytest.approx(expected, rel=1e-5)
    assert int(term.correct) == right
    assert task.objective().counts(batch) == {"answer": len(features.units)}
    term.loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


CHARACTERS = Tokenizer.from_vocabulary([*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *" abi\u0307猫"], "character", True)
NASTY = st.one_of(
    st.text(max_size=40),
    st.text("aé我 \u0301한[MASK]İ\u200d😀👩‍👧ＡﬁاХ\n\x00", max_size=40),
    st.lists(st.sampled_from(["the", "unhappyness", "今天", "5g", "👍🏽", "\u3000", "。", "שלום", "e\u0301"])).map(
        " ".join
    ),
)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.lists(NASTY, max_size=3).map("".join), st.integers(0, 10**6), st.integers(0, 5))
@pytest.mark.parametrize("kind", ["wordpiece", "character"])
def test_answers_on_token_edges_come_back_to_the_character(kind: str, text: str, at: int, more: int) -> None:
    tokenizer = make_tokenizer() if kind == "wordpiece" else CHARACTERS
    spans = tokenizer.encode(text, special=False).offsets
    if not spans:
        return
    first = at % len(spans)
    start, end = spans[first][0], spans[min(first + more, len(spans) - 1)][1]
    example = AnswerExample("a", text, (Accepted(start, text[start:end]),))
    task = AnswerTask(PLAIN)
    task.check([example])
    features = task.features(tokenizer, [example], 20, training=False)
    # what is no longer than the overlap, and one more, lies whole in a window
    if features.last_tokens[0] - features.first_tokens[0] <= 20 // 3:
        assert features.reachable[0]
    if features.reachable[0]:
        assert features.faults() == []
        (result,) = task.decode(features, perfect(features), {}, Calibration())
        assert (result.start, result.end, result.text) == (start, end, text[start:end])
        assert result.n_tokens == len(spans) + 1 + 3


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(NASTY, st.integers(0, 99))
def test_whatever_the_scores_an_answer_stands_in_the_text(text: str, seed: int) -> None:
    task = AnswerTask(WITH_NOTHING)
    features = task.features(make_tokenizer(), [AnswerExample("the?", text)], 20, training=False)
    scores = np.random.default_rng(seed).normal(size=(int(features.rows.lengths.sum()), 2)).astype(np.float32)
    (result,) = task.decode(features, scores, {}, Calibration())
    spans = features.passages
    assert result.text == text[result.start : result.end]
    assert all(one.text == text[one.start : one.end] for one in result.n_best)
    assert all(one.start in spans.starts and one.end in spans.ends and one.text for one in result.n_best)
    given = [one.probability for one in result.n_best]
    assert given == sorted(given, reverse=True)
    assert sum(given) + result.no_answer_probability == pytest.approx(1)


def test_probabilities_are_a_softmax_over_candidates_divided_by_the_temperature() -> None:
    task = AnswerTask(AnswerSettings(max_answer_tokens=1, no_answer="yes", scorer="squad", n_best=2))
    features = task.features(make_tokenizer(), [asked("我", "猫 狗 鱼", "狗")], 64, training=False)
    # [CLS] 我 [SEP] 猫 狗 鱼 [SEP]
    scores = np.zeros((7, 2), np.float32)
    scores[0], scores[3], scores[4] = 0.5, (1, 1), (2, 1)
    scores[1] = 99  # the question is no answer
    (result,) = task.decode(features, scores, {}, Calibration(temperature=2.0))
    weights = np.exp(np.array([3.0, 2.0, 1.0]) / 2)
    expected = weights / weights.sum()
    assert [one.text for one in result.n_best] == ["狗", "猫"]
    assert [one.probability for one in result.n_best] == pytest.approx(expected[:2].tolist())
    assert result.no_answer_probability == pytest.approx(expected[2])
    assert (result.text, result.start, result.end) == ("狗", 2, 3)
    assert task.losses(features, scores, {}, 2.0).tolist() == pytest.approx([-math.log(expected[0])])
    judged = task.judge(features.examples[0], result)
    assert (judged.expected, judged.answered, judged.right) == ("狗", "狗", True)
    assert judged.loss == pytest.approx(-math.log(expected[0])) and judged.confidence == pytest.approx(expected[0])

    fitted = Calibration(2.0, thresholds={"no_answer": 0.1}, abstain_below=0.9)
    (silent,) = task.decode(features, scores, {}, fitted)
    assert (silent.text, silent.start, silent.end, silent.abstained) == ("", 0, 0, True)
    assert silent.probability == silent.no_answer_probability == pytest.approx(expected[2])
    assert task.judge(features.examples[0], silent).answered == "∅"
    (spoken,) = task.decode(features, scores, {}, Calibration(2.0, thresholds={"no_answer": 0.9}))
    assert spoken.text == "狗" and not spoken.abstained

    never = AnswerTask(AnswerSettings(max_answer_tokens=1, no_answer="no", scorer="squad", n_best=2))
    (result,) = never.decode(features, scores, {}, fitted)
    assert (result.text, result.no_answer_probability) == ("狗", 0.0)
    assert result.probability == pytest.approx(math.exp(1.5) / (math.exp(1.5) + math.exp(1)))
    json.dumps(result.to_dict())


def test_no_answer_is_the_least_over_windows() -> None:
    task = AnswerTask(WITH_NOTHING)
    features = task.features(make_tokenizer(), [asked("我", "猫 狗 鱼 大 小 " * 4)], 16, training=False)
    begins = np.cumsum(features.rows.lengths) - features.rows.lengths
    assert len(begins) > 2
    scores = np.zeros((int(features.rows.lengths.sum()), 2), np.float32)
    scores[begins] = 4
    (result,) = task.decode(features, scores, {}, Calibration())
    assert result.text == "" and task.judge(features.examples[0], result).right
    scores[begins[1]] = -4  # one window is sure that the answer is in it
    (result,) = task.decode(features, scores, {}, Calibration())
    assert result.text != "" and not task.judge(features.examples[0], result).right


def test_losses_where_the_right_answer_is_no_candidate() -> None:
    tokenizer = make_tokenizer()
    task = AnswerTask(AnswerSettings(max_answer_tokens=1, no_answer="no", scorer="squad", n_best=1))
    examples = [asked("我", "猫 狗", "狗"), asked("我", "猫 \u200b", "\u200b"), asked("我", "猫")]
    features = task.features(tokenizer, examples, 64, training=False)
    scores = np.zeros((int(features.rows.lengths.sum()), 2), np.float32)
    scores[3] = 1  # 猫 of the first
    weights = np.exp([2.0, 0.0])
    found = task.losses(features, scores, {}, 1.0)
    assert found.tolist() == pytest.approx([-math.log(weights[1] / weights.sum()), math.log(1e6), math.log(1e6)])
    other = scores.copy()
    other[3] = 0.5
    assert task.losses(features, other, {}, 1.0)[0] == pytest.approx(math.log(1 + math.e))  # not what was kept
    assert task.losses(features, scores, {}, 1.0).tolist() == found.tolist()


def test_a_temperature_undoes_scores_that_are_too_large() -> None:
    task = AnswerTask(PLAIN)
    features = task.features(make_tokenizer(), [asked("我", "猫 狗 鱼 大 小 人", "鱼")] * 20, 64, training=False)
    scores = np.random.default_rng(0).normal(size=(int(features.rows.lengths.sum()), 2)).astype(np.float32)
    plain = task.losses(features, scores, {}, 1.0)
    assert task.losses(features, scores * 8, {}, 8.0).tolist() == pytest.approx(plain.tolist(), rel=1e-5)
    assert task.losses(features, scores * 8, {}, 1.0).mean() > plain.mean()


def test_a_text_without_a_token() -> None:
    for settings_, probability in ((PLAIN, 0.0), (WITH_NOTHING, 1.0)):
        task = AnswerTask(settings_)
        features = task.features(make_tokenizer(), [AnswerExample("the?", " \u200b\n")], 64, training=False)
        scores = np.ones((int(features.rows.lengths.sum()), 2), np.float32)
        (result,) = task.decode(features, scores, {}, Calibration())
        assert (result.text, result.n_best, result.probability) == ("", (), probability)
    assert (
        task.decode(task.features(make_tokenizer(), [], 64, False), np.empty((0, 2), np.float32), {}, Calibration())
        == []
    )


def test_what_is_learned_from_training_examples() -> None:
    tokenizer = make_tokenizer()
    long = "今 " * 50
    task = AnswerTask.learn([asked("我", long, long.strip())], AnswerSettings(), tokenizer)
    assert task.settings == AnswerSettings(128, 50, 20, "no", "cmrc")
    assert (
        AnswerTask.learn([asked("我", "今 " * 300, ("今 " * 300).strip())], AnswerSettings(), tokenizer).longest == 200
    )
    english = AnswerTask.learn(
        [asked("?", "the cat", "cat"), asked("?", "the cat")], AnswerSettings(n_best=3), tokenizer
    )
    assert english.settings == AnswerSettings(128, 30, 3, "yes", "squad")
    given = AnswerSettings(5, 7, 2, "no", "cmrc")
    assert AnswerTask.learn([asked("?", "the cat", "cat"), asked("?", "the cat")], given, tokenizer).settings == given
    with pytest.raises(InputError, match="None of the 2 training questions has an answer"):
        AnswerTask.learn([asked("?", "the cat")] * 2, AnswerSettings(), tokenizer)


def test_a_task_comes_back_from_its_record() -> None:
    task: Task[AnswerExample, AnswerResult] = AnswerTask(WITH_NOTHING)
    again = AnswerTask.restored(task.labels, json.loads(json.dumps(task.record())))
    assert again.settings == WITH_NOTHING
    assert (task.outputs, task.labels, task.main, dict(task.extra_tensors())) == (2, (), "f1", {})
    with pytest.raises(InputError, match="must be given"):
        AnswerTask.restored((), {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"no_answer": "yse"}, "Unknown no_answer 'yse'. Did you mean 'yes'?"),
        ({"scorer": "rouge"}, "Unknown scorer 'rouge'. Known: auto, squad, cmrc."),
        ({"overlap": -1}, "overlap must be at least 0"),
        ({"n_best": 0}, "at least 1"),
        ({"max_answer_tokens": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        AnswerSettings(**changes)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (None, "train.json, line 7: the question 'who' has no list of answers"),
        ((Accepted(4, "dog"),), "train.json, line 7: the answer 'dog' does not stand at character 4 .* 'cat' does"),
        ((Accepted(-3, "cat"),), "does not stand at character -3"),
        ((Accepted(40, "cat"),), "does not stand at character 40"),
        ((Accepted(0, ""),), "train.json, line 7: an answer is empty"),
    ],
)
def test_examples_that_cannot_be_used_are_named(answers: tuple[Accepted, ...] | None, message: str) -> None:
    example = AnswerExample("who", "the cat", answers, place=Place("train.json", 7))
    with pytest.raises(InputError, match=message):
        AnswerTask(PLAIN).check([example])
    if answers is None:
        AnswerTask(PLAIN).check([example], needs_labels=False)


def test_training_on_nothing_that_can_be_learned_is_refused() -> None:
    with pytest.raises(InputError, match="None of the 1 training answers can be learned"):
        AnswerTask(PLAIN).features(make_tokenizer(), [asked("?", "猫 \u200b", "\u200b")], 64, training=True)


def test_perfect_scores_on_cmrc_give_the_answers(shared_data: Path) -> None:
    """Real passages, windowed: all that is lost is where the tokenizer joins digits."""
    with lzma.open(shared_data / "cmrc2018" / "dev.json.xz") as stream:
        data = json.load(stream)["data"][:150]
    examples = [
        AnswerExample(qa["question"], paragraph["context"], (Accepted(paragraph["context"].find(text), text),))
        for article in data
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
        if (text := qa["answers"][0]["text"]) in paragraph["context"]
    ]
    tokenizer = Tokenizer.load(shared_data / "vocab" / "bert-base-chinese-vocab.txt")
    task = AnswerTask.learn(examples, AnswerSettings(max_answer_tokens=200), tokenizer)
    assert task.settings.scorer == "cmrc"
    task.check(examples)
    features = task.features(tokenizer, examples, 384, training=False)
    assert features.rows.n_windows.max() > 1
    results = task.decode(features, perfect(features), {}, Calibration())
    odd = {fault.message for fault in features.faults()}
    wrong = sum(r.text != e.answers[0].text for e, r in zip(examples, results, strict=True) if e.answers)
    assert wrong <= len(odd) < 0.01 * len(examples)
