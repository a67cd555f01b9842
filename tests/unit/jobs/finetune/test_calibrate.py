"""What is fitted on held-out examples: never an answer by its own label, and a rule for when nothing is sure enough."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qkv.cli.terminal import ResultPrinter
from qkv.data.labelled.examples import AnswerExample, TextExample
from qkv.data.labelled.examples import AnswerSpan as Said
from qkv.jobs.finetune.evaluate import NEVER_SURE, CalibrationFit, calibrate
from qkv.jobs.finetune.facts import explain_threshold
from qkv.tasks.answer import AnswerTask
from qkv.tasks.classify import MultiLabel, Regression, SingleLabel
from qkv.tasks.task import AnswerSettings, Calibration, ClassifySettings
from tests.support.folders import make_tokenizer

TOKENIZER = make_tokenizer()
LABELS = ("x", "y", "z")
PASSAGE = "the cat sat on the mat"


def fitted(task: Any, examples: list[Any], scores: Any, target: float = 0.95) -> CalibrationFit:
    features = task.features(TOKENIZER, examples, 64, training=False)
    return calibrate(task, features, np.asarray(scores, np.float32), {}, examples, target)


def score(task: Any, examples: list[Any], results: list[Any]) -> float:
    scorer = task.scorer()
    scorer.add(examples, results)
    found: float = scorer.result().value
    return found


def many(count: int) -> tuple[MultiLabel, list[TextExample], Any]:
    """Labels that have nothing to do with the scores."""
    draw = np.random.default_rng(1)
    wanted = draw.random((count, 3)) < 0.2
    examples = [TextExample("the cat", label=tuple(np.array(LABELS)[row])) for row in wanted]
    return MultiLabel(LABELS, ClassifySettings(), False), examples, draw.normal(size=(count, 3))


def asked(count: int) -> tuple[AnswerTask, list[AnswerExample], Any]:
    draw = np.random.default_rng(2)
    answers = [(Said(4, "cat"),) if draw.random() < 0.5 else () for _ in range(count)]
    examples = [AnswerExample("it", PASSAGE, answer) for answer in answers]
    task = AnswerTask(AnswerSettings(max_answer_tokens=3, no_answer="yes", scorer="squad"))
    scores = draw.normal(size=(count, 10, 2))  # [CLS] it [SEP] the cat sat on the mat [SEP]
    scores[:, 4] += 4
    scores[:, 0] += draw.normal(size=(count, 1)) * 2 + 4
    return task, examples, scores.reshape(-1, 2)


def single(count: int, right: float) -> tuple[SingleLabel, list[TextExample], Any]:
    draw = np.random.default_rng(3)
    scores = draw.normal(size=(count, 2)) * 3
    truth = np.where(draw.random(count) < right, scores.argmax(1), scores.argmin(1))
    examples = [TextExample("the cat", label="ab"[number]) for number in truth]
    return SingleLabel(("a", "b"), ClassifySettings(), False), examples, scores


@pytest.mark.parametrize("make", [many, asked])
def test_no_example_is_answered_by_what_its_own_label_decided(make: Any) -> None:
    task, examples, scores = make(30)
    before = fitted(task, examples, scores)
    for number in (0, 7, 29):
        changed = list(examples)
        if isinstance(task, MultiLabel):
            changed[number] = replace(examples[number], label=tuple(set(LABELS) - set(examples[number].label)))
        else:
            changed[number] = replace(examples[number], answers=() if examples[number].answers else (Said(4, "cat"),))
        after = fitted(task, changed, scores)
        # the rule for not answering is one for all
        kept, again = (found.results[number].to_dict() | {"abstained": None} for found in (before, after))
        assert kept == again


@pytest.mark.parametrize("make", [many, asked])
def test_thresholds_do_not_flatter_the_score(make: Any) -> None:
    task, examples, scores = make(60)
    found = fitted(task, examples, scores)
    features = task.features(TOKENIZER, examples, 64, training=False)
    flattered = task.decode(features, np.asarray(scores, np.float32), {}, found.calibration)
    assert score(task, examples, found.results) < score(task, examples, flattered)
    assert len(found.results) == len(examples) and found.calibration.thresholds
    assert found.facts is not None and found.facts.thresholds == found.calibration.thresholds


def test_before_is_without_anything_fitted() -> None:
    task, examples, scores = asked(40)
    found = fitted(task, examples, scores)
    features = task.features(TOKENIZER, examples, 64, training=False)
    plain = task.decode(features, np.asarray(scores, np.float32), {}, Calibration())
    sure = task.confidences(examples, plain)
    assert found.facts is not None
    assert sum(right * n for _, right, n in found.facts.before) == pytest.approx(sure.right.sum())


def test_a_temperature_that_does_not_lower_the_error_is_not_used() -> None:
    """Scores that are calibrated already: a temperature fitted on a few of them makes the others worse."""
    random = np.random.default_rng(3)
    kept = used = 0
    for _ in range(20):
        margins = random.normal(size=40) * 2
        labels = np.where(random.random(40) < 1 / (1 + np.exp(-margins)), "a", "b").tolist()
        task, examples, _ = single(40, right=0.5)
        examples = [replace(example, label=label) for example, label in zip(examples, labels, strict=True)]
        found = fitted(task, examples, np.stack([margins, np.zeros(40)], 1))
        assert found.facts is not None and found.facts.error_after <= found.facts.error_before
        assert found.facts.temperature == found.calibration.temperature
        if found.calibration.temperature == 1.0:
            kept += 1
            assert found.facts.after == found.facts.before and found.facts.fitted_temperature != 1.0
        else:
            used += 1
            assert found.facts.error_after < found.facts.error_before
    assert kept > 3 * used > 0, "the error alone falls by chance in half of the draws"


def test_one_sentence_says_why_there_is_no_threshold() -> None:
    few, never = fitted(*single(12, right=1.0)).facts, fitted(*single(60, right=0.5)).facts
    some = fitted(*single(200, right=0.9), target=0.92).facts
    several = fitted(*many(30)).facts
    assert few and never and some and several
    said = [explain_threshold(json.loads(json.dumps(one.to_dict()))) for one in (few, never, some)]
    assert explain_threshold(several.to_dict()) is None, "each label has a threshold of its own"
    assert said[0] and said[1] and said[2]
    stated = explain_threshold({**few.to_dict(), "answers": 20, "abstain_below": 0.0, "answered": 1.0})
    assert stated and "20 answers are too few" in stated.en, "19 of 20 may be 76 % as well as 99 %"
    assert "12 answers are too few" in said[0].en and "No threshold reaches 95" in said[1].en
    assert "92" in said[2].en and "自动作答" in said[2].zh


def test_where_no_threshold_is_enough_everything_is_left_to_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    task, examples, scores = single(60, right=0.5)
    found = fitted(task, examples, scores)
    ResultPrinter().show(examples[0], found.results[0])
    shown = capsys.readouterr().out
    assert "(to be checked by a person)" in shown and "threshold" not in shown, "there is none"
    assert found.calibration.abstain_below == NEVER_SURE
    assert all(result.abstained for result in found.results)
    assert found.facts is not None and found.facts.abstain_below is None and found.facts.answered is None
    assert Calibration(**json.loads(json.dumps(found.calibration.to_dict()))) == found.calibration


def test_a_rule_is_kept_with_the_answers() -> None:
    task, examples, scores = single(200, right=0.9)
    found = fitted(task, examples, scores, target=0.92)
    least = found.calibration.abstain_below
    assert least is not None and found.facts is not None and found.facts.abstain_below == least
    answered = [not result.abstained for result in found.results]
    assert np.mean(answered) == pytest.approx(found.facts.answered)
    assert answered == [result.probability >= least for result in found.results]


def test_too_few_answers_make_no_rule() -> None:
    found = fitted(*single(19, right=0.5))
    assert found.calibration.abstain_below is None and not any(result.abstained for result in found.results)
    few = fitted(*single(9, right=0.5))
    assert few.facts is None and few.calibration == Calibration() and len(few.results) == 9


def test_labels_that_have_thresholds_need_no_rule() -> None:
    found = fitted(*many(60))
    assert found.facts is not None
    assert found.calibration.abstain_below is None and found.facts.coverage == () and found.facts.answered is None


def test_numbers_have_nothing_to_calibrate() -> None:
    examples = [TextExample("the cat", label=f"{number}.5") for number in range(30)]
    found = fitted(Regression(ClassifySettings(), False, 10.0, 2.0), examples, np.ones((30, 1)))
    assert found.facts is None and [result.value for result in found.results] == [12.0] * 30
