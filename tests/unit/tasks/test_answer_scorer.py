"""Figures of a reader: worked by hand, and split by whether there was anything to find."""

from dataclasses import dataclass

import pytest

from qkv.data.labelled.examples import AnswerExample, AnswerSpan
from qkv.metrics.intervals import wilson_interval
from qkv.tasks.answer import AnswerCandidate, AnswerScorer, is_right, no_answer_threshold


@dataclass(frozen=True)
class Said:
    text: str


@dataclass(frozen=True)
class Weighed:
    no_answer_probability: float
    n_best: tuple[AnswerCandidate, ...]


def asked(*accepted: str) -> AnswerExample:
    return AnswerExample("?", " ".join(accepted), tuple(AnswerSpan(0, text) for text in accepted))


def test_squad_by_hand() -> None:
    scorer = AnswerScorer("squad")
    # exact but for the article; half of the words: 2 · 1 · 0.5 / 1.5; nothing
    scorer.add([asked("cat"), asked("black cat", "dog")], [Said("The cat"), Said("cat")])
    scorer.add([asked("mat")], [Said("street")])
    result = scorer.result()
    assert (result.main, result.n) == ("f1", 3)
    assert result.values == {"em": pytest.approx(1 / 3), "f1": pytest.approx((1 + 2 / 3) / 3)}
    low, high = result.intervals["f1"]
    assert 0 <= low < result.value < high <= 1
    assert set(result.intervals) == set(result.values)


@pytest.mark.parametrize(("said", "right"), [("street", 0), ("cat", 4)])
def test_none_or_all_is_not_certainty(said: str, right: int) -> None:
    scorer = AnswerScorer("squad")
    scorer.add([asked("cat")] * 4, [Said(said)] * 4)
    result = scorer.result()
    assert result.intervals["f1"] == result.intervals["em"] == wilson_interval(right, 4)


def test_cmrc_counts_characters() -> None:
    scorer = AnswerScorer("cmrc")
    scorer.add([asked("1998年"), asked("北京")], [Said("在1998年"), Said("北京。")])
    assert scorer.result().values == {"em": 0.5, "f1": pytest.approx(0.9)}


def test_questions_without_an_answer_are_also_counted_by_themselves() -> None:
    scorer = AnswerScorer("squad")
    scorer.add([asked("cat"), asked("dog"), asked(), asked()], [Said("cat"), Said(""), Said(""), Said("mat")])
    values = scorer.result().values
    assert values == {
        "em": 0.5,
        "f1": 0.5,
        "has_answer_em": 0.5,
        "has_answer_f1": 0.5,
        "no_answer_em": 0.5,
        "no_answer_f1": 0.5,
    }


def test_memory_does_not_follow_the_number_of_examples() -> None:
    scorer = AnswerScorer("squad")
    scorer.add([asked("cat")] * 500, [Said("cat"), Said("dog")] * 250)
    assert len(scorer.counts) == 2
    assert scorer.result().values["em"] == 0.5


def test_nothing_scored_yet() -> None:
    assert AnswerScorer("squad").result().values == {"em": 0.0, "f1": 0.0}


def test_right_is_to_the_letter() -> None:
    assert is_right("squad", "", []) and not is_right("squad", "", ["cat"]) and not is_right("squad", "cat", [])


def test_the_threshold_that_gives_the_best_f1() -> None:
    def weighed(nothing: float, best: str) -> Weighed:
        return Weighed(nothing, (AnswerCandidate(best, 0, len(best), 1 - nothing),))

    examples = [asked(), asked(), asked("cat"), asked("dog"), asked()]
    results = [weighed(0.9, "x"), weighed(0.6, "x"), weighed(0.4, "cat"), weighed(0.2, "dog"), weighed(0.1, "x")]
    assert no_answer_threshold("squad", examples, results) == pytest.approx(0.5)
    # everything has an answer, and it is found: never say nothing
    assert no_answer_threshold("squad", examples[2:4], results[2:4]) > 1
    # nothing has an answer: always say nothing
    assert no_answer_threshold("squad", examples[:2], results[:2]) < 0.6
    assert no_answer_threshold("squad", [], []) > 0
