"""Baselines: what they read, what they answer, and that they are as good as the usual ones."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qkv.cli.terminal import baseline_lines
from qkv.data.labelled.examples import AnswerExample, AnswerSpan, ChoiceExample, Span, TagExample, TextExample
from qkv.tasks import baselines
from qkv.tasks.answer import AnswerTask
from qkv.tasks.baselines import (
    BaselineScores,
    EntityBaseline,
    OverlapBaseline,
    TextBaseline,
    fit_baselines,
    score_constant,
    terms,
)
from qkv.tasks.choice import ChoiceTask
from qkv.tasks.classify import MultiLabel, Regression, SingleLabel
from qkv.tasks.table import AnyTask
from qkv.tasks.tag import TagLabels, TagTask
from qkv.tasks.task import AnswerSettings, ChoiceSettings, TagSettings
from qkv.tasks.texts import BEFORE_POOLING
from qkv.text.messages import translate

TASK = SingleLabel(("bad", "good"), BEFORE_POOLING, False)
WORDS = {
    "good": ("great stuff", "really great", "很好用", "真好用啊", "ＧＲＥＡＴ"),
    "bad": ("awful stuff", "really awful", "不能用", "真不能用", "awful!"),
}
TRAIN = [TextExample(f"{word} 手机", label=label) for label, words in WORDS.items() for word in words]


def test_words_and_characters_by_script() -> None:
    assert terms("I can't 退款😀 ＡＢＣ", False) == ["can", "退", "款", "退款", "ａｂｃ"]
    assert terms("", False) == [] and terms("…！", False) == [] and terms("", True) == []
    assert "ありが" in terms("ありがとう", False) and "한국어" in terms("한국어 좋아", False)
    assert terms("A \n好", True) == ["a", " ", "好", "a ", " 好", "a 好"]


ENGLISH = {
    "ask": ["Where's my order? I can't see it", "How do I get a refund?", "What does it cost, and when?", "Is it new?"],
    "say": ["I've got my order, thanks", "The refund is here.", "It costs 12.50 a month", "it is a new one, it is"],
    "do": ["Send me the order", "Please cancel it: now", "Give the refund to me", "Stop it!"],
}
CHINESE = {
    "问": ["订单到哪里了？我看不到", "怎么退款？", "这个多少钱，什么时候到？", "是新的吗？"],
    "说": ["订单收到了，谢谢。", "退款  已经到了。", "每月 12.50 元", "是新的，新的好"],
    "做": ["请把订单发给我！", "请取消：现在", "把退款给我 OK", "停下！"],
}


def _examples(texts: dict[str, list[str]]) -> list[TextExample]:
    return [TextExample(text, label=label) for label, found in texts.items() for text in found]


@pytest.mark.parametrize("outputs", [2, 3])
@pytest.mark.parametrize(
    ("texts", "asked", "form"),
    [
        (
            ENGLISH,
            ["When does the order come?", "It is a refund", "Cancel my order", "Zebra", "I"],
            {"ngram_range": (1, 2)},
        ),
        (
            CHINESE,
            ["订单什么时候到？", "收到了。", "取消订单！", "OK", "龘"],
            {"analyzer": "char", "ngram_range": (1, 3)},
        ),
    ],
)
def test_the_recipe_is_that_of_scikit_learn(
    texts: dict[str, list[str]], asked: list[str], form: dict[str, Any], outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without punctuation and with the logarithm of counts it was up to ten points below."""
    text: Any = pytest.importorskip("sklearn.feature_extraction.text")
    linear: Any = pytest.importorskip("sklearn.linear_model")
    monkeypatch.setattr(baselines, "_TOLERANCE", 1e-7)
    train = _examples(dict([*texts.items()][:outputs]))
    labels = tuple(sorted({str(one.label) for one in train}))
    own = TextBaseline.fit(SingleLabel(labels, BEFORE_POOLING, False), train)
    vectors = text.TfidfVectorizer(**form)
    peer = linear.LogisticRegression(C=10, tol=1e-9, max_iter=10_000)
    peer.fit(vectors.fit_transform([one.text for one in train]), [one.label for one in train])
    assert set(own.vocabulary.numbers) == set(vectors.vocabulary_)
    idf = {term: own.vocabulary.rarity[number] for term, number in own.vocabulary.numbers.items()}
    assert idf == pytest.approx({term: vectors.idf_[number] for term, number in vectors.vocabulary_.items()})
    every = [*(one.text for one in train), *asked]
    scores = np.exp(own.scores([TextExample(one) for one in every]))
    wanted = peer.predict_proba(vectors.transform(every))
    np.testing.assert_allclose(scores / scores.sum(1, keepdims=True), wanted, atol=1e-5)


def test_the_most_frequent_terms_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of many texts, none that one text has alone."""
    task, examples = SingleLabel(("ask", "do", "say"), BEFORE_POOLING, False), _examples(ENGLISH)
    whole = TextBaseline.fit(task, examples).vocabulary.numbers
    monkeypatch.setattr(baselines, "_MOST_SHARED", 3)
    fewer = TextBaseline.fit(task, examples).vocabulary
    assert fewer.width == 3 + len(examples) and {"it", "order", "refund", "cancel"} <= set(fewer.numbers)
    assert "my order" in whole and "my order" not in fewer.numbers
    monkeypatch.setattr(baselines, "_MOST_ALONE", 5)
    found = TextBaseline.fit(task, examples)
    assert set(found.vocabulary.numbers) == {"it", "order", "refund"} and len(found.answer(examples)) == len(examples)


def test_texts_of_two_scripts_are_cut_by_their_own() -> None:
    mixed = TextBaseline.fit(
        SingleLabel(("a", "b"), BEFORE_POOLING, False),
        [TextExample("好，很好。", label="a"), TextExample("The phone of 小米 is a very good one", label="b")],
    )
    found = mixed.vocabulary.numbers
    assert not mixed.vocabulary.by_character and {"，很", "very good", "小米"} <= set(found) and "v" not in found


def test_tf_idf_answers_texts_it_has_not_seen() -> None:
    asked = [TextExample(text) for text in ("so great", "so awful", "好用", "", "😀")]
    found = TextBaseline.fit(TASK, TRAIN).answer(asked)
    assert [one.label for one in found[:3]] == ["good", "bad", "good"]
    assert {one.label for one in found[3:]} <= {"good", "bad"}, "nothing known is no error"


def test_several_labels_and_pairs() -> None:
    several = MultiLabel(("slow", "rude"), BEFORE_POOLING, False)
    given = [("slow", ("slow",)), ("rude", ("rude",)), ("slow rude", ("slow", "rude")), ("fine", ())]
    examples = [TextExample(text, label=label) for text, label in given * 8]
    said = TextBaseline.fit(several, examples).answer([TextExample("slow and rude"), TextExample("fine")])
    assert [set(one.labels) for one in said] == [{"slow", "rude"}, set()]
    pairs = SingleLabel(("no", "yes"), BEFORE_POOLING, True)
    words = [letter * 2 for letter in "abcdefgh"]
    same = [TextExample(word, word, "yes") for word in words]
    same += [TextExample(one, other, "no") for one, other in zip(words, [*words[1:], words[0]], strict=True)]
    assert [one.label for one in TextBaseline.fit(pairs, same).answer(same)] == [one.label for one in same]


def test_too_much_text_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.key for one in fit_baselines(TASK, TRAIN)] == ["constant", "tf-idf"]
    monkeypatch.setattr(baselines, "MOST_CHARACTERS", 20)
    assert [one.key for one in fit_baselines(TASK, TRAIN)] == ["constant"] and baselines.is_too_large(TASK, TRAIN)


def test_numbers_are_compared_with_their_mean() -> None:
    task = Regression(BEFORE_POOLING, False)
    train = [TextExample("a", label=label) for label in ("1.0", "2.0", "6.0")]
    (mean,) = fit_baselines(task, train)
    assert "the mean (3)" in mean.name.en and "平均值（3）" in mean.name.zh
    scores = BaselineScores(task, [mean])
    scores.add([TextExample("b", label="1.5"), TextExample("c", label="5.5")])
    (found,) = scores.result()
    assert found.value == 0.0 and found.error == 2.0 and found.to_dict()["mean_absolute_error"] == 2.0


def test_thresholds_of_several_labels_are_fitted() -> None:
    """A rare label hardly reaches probability 0.5: a model with fitted thresholds was compared with that."""
    draw = np.random.default_rng(0)
    task, words = MultiLabel(("late", "rude"), BEFORE_POOLING, False), [f"w{n}" for n in range(30)]
    rows = []
    for _ in range(300):
        wanted = tuple(label for label in task.labels if draw.random() < 0.12)
        hints = [f"{label}{draw.integers(20)}" for label in wanted if draw.random() < 0.9]
        rows.append(TextExample(" ".join([*draw.choice(words, 8), *hints]), label=wanted))
    found = TextBaseline.fit(task, rows[:150])
    assert (found.thresholds < -0.5).all()
    plain = replace(found, thresholds=np.zeros(2))
    scores = BaselineScores(task, [found, plain])
    scores.add(rows[150:])
    fitted, at_half = scores.result()
    assert fitted.value > at_half.value + 0.1


def test_several_labels_are_compared_with_the_most_frequent_ones() -> None:
    """Without it a model that gives every text all labels was above the best baseline."""
    several = MultiLabel(("a", "b", "c"), BEFORE_POOLING, False)
    given = [("a", "b"), ("a", "b"), ("a",), ("b", "c"), ()]
    constant = fit_baselines(several, [TextExample("x", label=labels) for labels in given])[0]
    assert constant.key == "constant" and constant.answer([TextExample("y")])[0].labels == ("a", "b")
    assert "“a, b”" in constant.name.en and "“a, b”" in constant.name.zh


def test_choices_are_compared_with_the_most_frequent_place() -> None:
    task = ChoiceTask(ChoiceSettings())
    train = [ChoiceExample("", "q", ("x", "y", "z"), answer) for answer in (2, 0, 2)]
    dev = [ChoiceExample("", "q", ("x", "y", "z"), 2), ChoiceExample("", "q", ("x", "y"), 0)]
    found = score_constant(task, train, dev)
    assert found is not None and found.value == 0.5 and found.name.en == "always taking choice 3"


@pytest.mark.parametrize(("no_answer", "value"), [("yes", 0.5), ("no", None)])
def test_answers_are_compared_with_no_answer_where_it_is_allowed(no_answer: str, value: float | None) -> None:
    task = AnswerTask(AnswerSettings(max_answer_tokens=3, no_answer=no_answer, scorer="squad"))
    found = score_constant(
        task, [], [AnswerExample("q", "the cat", ()), AnswerExample("q", "cat", (AnswerSpan(0, "cat"),))]
    )
    assert (found and found.value) == value


def test_answers_are_compared_with_the_words_next_to_those_of_the_question() -> None:
    """Without questions that have no answer there was no baseline at all."""
    tower = "The park is old. The iron tower was built in 1889, by an engineer. It is high."
    city = "北京的公园很多。铁塔建于1889年，由工程师设计。"
    train = [
        AnswerExample("When was the bridge built?", "The bridge was built in 1901.", (AnswerSpan(24, "1901"),)),
        AnswerExample("Who built the house?", "The house was built by Anna.", (AnswerSpan(23, "Anna"),)),
        AnswerExample("What is in the park?", "There is a lake in the park.", (AnswerSpan(11, "lake"),)),
    ]
    found = OverlapBaseline.fit(train)
    assert found.length == 1 and found.passages == 3 and found.frequency["the"] == 3
    asked = [AnswerExample("Which tower was built?", tower), AnswerExample("Where?", "?!"), AnswerExample("谁", "")]
    assert [one.text for one in found.answer(asked)] == ["iron", "", ""], (
        "next to tower, the rarest of the shared words"
    )
    two = replace(found, length=2)
    (said,) = two.answer([AnswerExample("铁塔建于哪年？", city)])
    assert said.text == "1889年", "the sentence with 铁塔 and 塔建, and what is next to them up to the comma"
    whole = AnswerExample("the iron tower was built in by an engineer 1889", tower)
    assert two.answer([whole])[0].text == "", "every word is the question's own"
    task = AnswerTask(AnswerSettings(max_answer_tokens=3, no_answer="no", scorer="squad"))
    (fitted,) = fit_baselines(task, train)
    scores = BaselineScores(task, [fitted])
    scores.add(train)
    (scored,) = scores.result()
    assert scored.key == "overlap" and 0 < scored.value < 1
    (line,) = baseline_lines({"dev": [scored.to_dict()]}, "f1")[1:]
    assert scored.name.zh in translate(line, "zh")


def test_every_constant_answer_has_its_name_in_chinese() -> None:
    tasks: list[tuple[AnyTask, list[Any]]] = [
        (TASK, TRAIN),
        (MultiLabel(("a", "b"), BEFORE_POOLING, False), [TextExample("x", label=("a", "b"))]),
        (Regression(BEFORE_POOLING, False), [TextExample("x", label="1.5")]),
        (ChoiceTask(ChoiceSettings()), [ChoiceExample("", "q", ("x", "y"), 1)]),
        (AnswerTask(AnswerSettings(max_answer_tokens=3, no_answer="yes", scorer="squad")), []),
    ]
    for task, examples in tasks:
        constant = task.constant_answer(examples)
        assert constant is not None
        (line,) = baseline_lines({"dev": [{"name": constant.name.en, "value": 0.5}]}, task.main)[1:]
        assert constant.name.zh in translate(line, "zh"), line


def test_entities_are_found_by_the_longest_match_on_whole_words() -> None:
    train = [
        TagExample("New York beats York", (Span(0, 8, "LOC"), Span(15, 19, "ORG"))),
        TagExample("York is old", (Span(0, 4, "LOC"),)),
        TagExample("York wins", (Span(0, 4, "ORG"),)),
        TagExample("他在北京大学", (Span(2, 6, "ORG"),)),
        TagExample("北京很大", (Span(0, 2, "LOC"),)),
    ]
    found = EntityBaseline.fit(train)
    texts = ["new york, York and Yorkshire", "我爱北京大学和北京", "İ York"]
    said = found.answer([TagExample(text) for text in texts])
    assert said[0].spans == (Span(0, 8, "LOC"), Span(10, 14, "ORG")), "the more frequent label; not inside a word"
    assert said[1].spans == (Span(2, 6, "ORG"), Span(7, 9, "LOC"))
    assert said[2].spans == (), "a text that changes its length in lower case is compared as it is"


def test_scores_are_those_of_the_task() -> None:
    tagger = TagTask(TagLabels.of(["LOC"]), TagSettings(unit="word"))
    train = [TagExample("in Rome", (Span(3, 7, "LOC"),))]
    scores = BaselineScores(tagger, fit_baselines(tagger, train))
    scores.add(train)
    scores.add([TagExample("in Oslo", (Span(3, 7, "LOC"),))])
    (found,) = scores.result()
    assert found.key == "dictionary" and found.value == pytest.approx(2 / 3) and found.to_dict()["value"] == found.value
    both = BaselineScores(TASK, fit_baselines(TASK, TRAIN))
    both.add(TRAIN)
    assert [one.value for one in both.result()] == [0.5, 1.0]


def test_the_baseline_uses_the_weights() -> None:
    """Of two texts that contradict each other the heavier one wins."""
    rows = [*TRAIN, TextExample("zebra", label=TRAIN[0].label, weight=9.0), TextExample("zebra", label=TRAIN[-1].label)]
    assert TRAIN[0].label != TRAIN[-1].label
    for heavy, light in ((-2, -1), (-1, -2)):
        weighted = [*rows]
        weighted[heavy], weighted[light] = replace(rows[heavy], weight=9.0), replace(rows[light], weight=0.1)
        found = baselines.TextBaseline.fit(TASK, weighted).answer([TextExample("zebra")])
        assert found[0].label == rows[heavy].label
