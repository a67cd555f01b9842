"""Honest confidence: a temperature, thresholds and a rule for not answering, fitted on held-out examples.

What is fitted on examples looks too good on the same ones. So every figure here is cross-fitted: an example's
probability comes from the temperature of the folds it is not in. What is saved is fitted on all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.metrics.calibration import (
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
FEWEST = 10  # examples; with fewer a temperature would be noise
UNITS = {"classify": "text", "tag": "entity", "answer": "question", "choice": "question"}


@dataclass(frozen=True)
class Calibrated:
    calibration: Calibration
    facts: CalibrationFacts | None  # None where there are no probabilities, or too few examples


def calibrated(
    task: AnyTask,
    features: Any,
    scores: Scores,
    extra: Mapping[str, NDArray[np.float32]],
    examples: Sequence[Any],
    target: float,
) -> Calibrated:
    if task.losses(features, scores, extra, 1.0) is None or len(examples) < FEWEST:
        return Calibrated(Calibration(), None)

    def losses(temperature: float) -> NDArray[np.float64]:
        found = task.losses(features, scores, extra, temperature)
        assert found is not None
        return found

    fitted = fit_temperature(losses)
    chosen = Calibration(temperature=fitted.temperature)
    if isinstance(task, MultiLabel):
        chosen = replace(chosen, thresholds=_thresholds(task, features, scores, extra, examples, chosen))
    if isinstance(task, Answer) and task.no_answer:
        results = task.decode(features, scores, extra, chosen)
        threshold = no_answer_threshold(task.settings.scorer, examples, results)
        chosen = replace(chosen, thresholds={NO_ANSWER: threshold})
    before = _sure(task, features, scores, extra, examples, Calibration(thresholds=chosen.thresholds))
    fold = folds(len(examples), FOLDS)
    temperatures = fitted.cross_fitted(fold)
    parts = []
    for number in range(FOLDS):
        here = np.flatnonzero(fold == number)
        if len(here):
            sure = _sure(
                task, features, scores, extra, examples, replace(chosen, temperature=float(temperatures[here[0]]))
            )
            kept = np.isin(sure.example, here)
            parts.append((sure.confidence[kept], sure.right[kept]))
    confidence, right = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    if not len(confidence) or not len(before.confidence):
        return Calibrated(chosen, None)
    least = abstain_threshold(confidence, right, target)
    chosen = replace(chosen, abstain_below=least)
    facts = CalibrationFacts(
        unit=UNITS[task.name],
        temperature=chosen.temperature,
        error_before=expected_calibration_error(before.confidence, before.right),
        error_after=expected_calibration_error(confidence, right),
        before=reliability(before.confidence, before.right),
        after=reliability(confidence, right),
        coverage=coverage_curve(confidence, right),
        target=target,
        abstain_below=least,
        answered=None if least is None else float((confidence >= least).mean()),
        thresholds=dict(chosen.thresholds),
    )
    return Calibrated(chosen, facts)


def _sure(
    task: AnyTask, features: Any, scores: Scores, extra: Any, examples: Sequence[Any], calibration: Calibration
) -> Sure:
    found = task.confidences(examples, task.decode(features, scores, extra, calibration))
    assert found is not None, "a task with losses has probabilities"
    return found


def _thresholds(
    task: MultiLabel, features: Any, scores: Scores, extra: Any, examples: Sequence[Any], calibration: Calibration
) -> dict[str, float]:
    """For every label the threshold with the best F1 on these examples."""
    results = task.decode(features, scores, extra, calibration)
    given = np.array([[result.probabilities[label] for label in task.labels] for result in results])
    wanted = np.zeros(given.shape, bool)
    for row, example in enumerate(examples):
        wanted[row, task.target(example, "")] = True
    return dict(zip(task.labels, best_threshold_f1(given, wanted).tolist(), strict=True))
