"""Honest confidence: a temperature, thresholds and a rule for not answering, fitted on held-out examples.

What is fitted on examples looks too good on the same ones. So each example is answered here with the temperature and
the thresholds of the folds it is not in: these answers are what the held-out score, the predictions and the calibration
error are made of. The rule for not answering is one number, chosen by the probabilities of all these answers together.
What is saved is fitted on all examples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.metrics.calibration import (
    FEWEST,
    abstain_threshold,
    best_threshold_f1,
    coverage_curve,
    expected_calibration_error,
    fit_temperature,
    folds,
    reliability,
)
from qkv.report.finetune_facts import CalibrationFacts
from qkv.tasks.answer import NO_ANSWER, Answer
from qkv.tasks.answer_scorer import no_answer_threshold
from qkv.tasks.multi_label import MultiLabel
from qkv.tasks.table import AnyTask
from qkv.tasks.task import Calibration, Scores, Sure

FOLDS = 5
FEWEST_EXAMPLES = 10  # with fewer a temperature would be noise
NEVER_SURE = 2.0
"""As `Calibration.abstain_below`: no probability reaches the precision that was asked for, so none is enough."""
UNITS = {"classify": "text", "tag": "entity", "answer": "question", "choice": "question"}


@dataclass(frozen=True)
class Calibrated:
    calibration: Calibration
    facts: CalibrationFacts | None  # None where there are no probabilities, or too few examples
    results: list[Any]  # one an example, in their order, each by what was fitted on others


@dataclass(frozen=True)
class _HeldOut:
    """Held-out examples with what the head said of them."""

    task: AnyTask
    features: Any
    scores: Scores
    extra: Mapping[str, NDArray[np.float32]]
    examples: Sequence[Any]

    def losses(self, temperature: float) -> NDArray[np.float64] | None:
        return self.task.losses(self.features, self.scores, self.extra, temperature)

    def results(self, calibration: Calibration) -> list[Any]:
        return self.task.decode(self.features, self.scores, self.extra, calibration)

    def sure(self, results: Sequence[Any]) -> Sure:
        found = self.task.confidences(self.examples, results)
        assert found is not None, "a task with losses has probabilities"
        return found

    def fitted(self, temperature: float, chosen: NDArray[np.bool_]) -> Calibration:
        """With the thresholds that are best for the chosen examples, (E,) of bool, where the task has any."""
        task, plain = self.task, Calibration(temperature)
        if not isinstance(task, MultiLabel) and not (isinstance(task, Answer) and task.no_answer):
            return plain
        examples = [example for example, is_chosen in zip(self.examples, chosen, strict=True) if is_chosen]
        results = [result for result, is_chosen in zip(self.results(plain), chosen, strict=True) if is_chosen]
        if isinstance(task, Answer):
            threshold = no_answer_threshold(task.settings.scorer, examples, results)
            return replace(plain, thresholds={NO_ANSWER: threshold})
        given = np.array([[result.probabilities[label] for label in task.labels] for result in results])
        wanted = np.zeros(given.shape, bool)
        for row, example in enumerate(examples):
            wanted[row, task.target(example, str(example.place))] = True
        return replace(plain, thresholds=dict(zip(task.labels, best_threshold_f1(given, wanted).tolist(), strict=True)))


def calibrated(
    task: AnyTask,
    features: Any,
    scores: Scores,
    extra: Mapping[str, NDArray[np.float32]],
    examples: Sequence[Any],
    target: float,
) -> Calibrated:
    held_out = _HeldOut(task, features, scores, extra, examples)
    plain = held_out.results(Calibration())
    if len(examples) < FEWEST_EXAMPLES or held_out.losses(1.0) is None:
        return Calibrated(Calibration(), None, plain)
    tried = fit_temperature(held_out.losses)
    chosen = held_out.fitted(tried.temperature, np.ones(len(examples), bool))
    fold = folds(len(examples), FOLDS)
    by_fold = [held_out.fitted(tried.best(fold != number), fold != number) for number in range(FOLDS)]
    results = _by_fold(held_out, fold, by_fold)
    before, after = held_out.sure(plain), held_out.sure(results)
    if not len(before.confidence) or not len(after.confidence):
        return Calibrated(chosen, None, results)
    least = None
    # of a text with any number of labels each has a threshold, which decides by itself
    abstains = not isinstance(task, MultiLabel)
    if abstains and len(after.confidence) >= FEWEST:
        least = abstain_threshold(after.confidence, after.right, target)
        rule = NEVER_SURE if least is None else least
        chosen = replace(chosen, abstain_below=rule)
        results = _by_fold(held_out, fold, [replace(each, abstain_below=rule) for each in by_fold])
    facts = CalibrationFacts(
        unit=UNITS[task.name],
        temperature=chosen.temperature,
        error_before=expected_calibration_error(before.confidence, before.right),
        error_after=expected_calibration_error(after.confidence, after.right),
        before=reliability(before.confidence, before.right),
        after=reliability(after.confidence, after.right),
        coverage=coverage_curve(after.confidence, after.right) if abstains else (),
        target=target,
        abstain_below=least,
        answered=None if least is None else float((after.confidence >= least).mean()),
        thresholds=dict(chosen.thresholds),
    )
    return Calibrated(chosen, facts, results)


def _by_fold(held_out: _HeldOut, fold: NDArray[np.int64], by_fold: Sequence[Calibration]) -> list[Any]:
    """Each example answered by its own fold's calibration."""
    found: list[Any] = [None] * len(fold)
    for number, calibration in enumerate(by_fold):
        results = held_out.results(calibration)
        for place in np.flatnonzero(fold == number).tolist():
            found[place] = results[place]
    return found
