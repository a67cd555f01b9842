"""Calibration and evaluation on held-out examples.

Temperature, thresholds and the abstention threshold are fitted on the development set. To avoid optimistic figures,
each example is answered with the calibration of the folds it is not in; score, predictions and calibration error use
these answers. The saved calibration is fitted on all examples. A temperature is used only if it lowers both the
calibration error and the log loss of these answers: of few answers the error alone falls by chance as often as not.

Evaluation streams: it keeps counts, a few of the worst examples and counts by length, so memory is constant.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.data.labelled.examples import Example
from qkv.errors import InputError
from qkv.jobs.finetune.data import count_labels
from qkv.jobs.finetune.facts import CalibrationFacts, LengthBin, Shown
from qkv.metrics.calibration import (
    FEWEST_EXAMPLES,
    abstain_threshold,
    coverage_curve,
    expected_calibration_error,
    fit_temperature,
    folds,
    reliability_bins,
)
from qkv.tasks.table import AnyTask
from qkv.tasks.task import Calibration, Judgement, Scored, Scores, Sure

FOLDS = 5
FEWEST_TO_CALIBRATE = 10  # with fewer a temperature would be noise
NEVER_SURE = 2.0
"""As `Calibration.abstain_below`: no probability reaches the precision that was asked for, so none is enough."""


@dataclass(frozen=True)
class CalibrationFit:
    calibration: Calibration
    facts: CalibrationFacts | None  # None where there are no probabilities, or too few examples
    results: list[Any]  # one an example, in their order, each by what was fitted on others


@dataclass(frozen=True)
class _HeldOut:
    """Held-out examples with the scores of the head."""

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
        plain = Calibration(temperature)
        if not self.task.fits_thresholds:
            return plain
        examples = [example for example, is_chosen in zip(self.examples, chosen, strict=True) if is_chosen]
        results = [result for result, is_chosen in zip(self.results(plain), chosen, strict=True) if is_chosen]
        return replace(plain, thresholds=self.task.thresholds(examples, results))


def calibrate(
    task: AnyTask,
    features: Any,
    scores: Scores,
    extra: Mapping[str, NDArray[np.float32]],
    examples: Sequence[Any],
    target: float,
) -> CalibrationFit:
    held_out = _HeldOut(task, features, scores, extra, examples)
    plain = held_out.results(Calibration())
    if len(examples) < FEWEST_TO_CALIBRATE or held_out.losses(1.0) is None:
        return CalibrationFit(Calibration(), None, plain)
    tried = fit_temperature(held_out.losses)
    everything = np.ones(len(examples), bool)
    chosen = held_out.fitted(tried.temperature, everything)
    fold = folds(len(examples), FOLDS)
    by_fold = [held_out.fitted(tried.best(fold != number), fold != number) for number in range(FOLDS)]
    results = _by_fold(held_out, fold, by_fold)
    before, after = held_out.sure(plain), held_out.sure(results)
    if not (_error(after) < _error(before) and _lowers_loss(held_out, fold, by_fold)):
        chosen = held_out.fitted(1.0, everything)
        by_fold = [held_out.fitted(1.0, fold != number) for number in range(FOLDS)]
        results = _by_fold(held_out, fold, by_fold)
        after = held_out.sure(results)
    if not len(before.confidence) or not len(after.confidence):
        return CalibrationFit(chosen, None, results)
    least = None
    if task.abstains and len(after.confidence) >= FEWEST_EXAMPLES:
        least = abstain_threshold(after.confidence, after.right, target)
        rule = NEVER_SURE if least is None else least
        chosen = replace(chosen, abstain_below=rule)
        results = _by_fold(held_out, fold, [replace(each, abstain_below=rule) for each in by_fold])
    facts = CalibrationFacts(
        unit=task.unit,
        temperature=chosen.temperature,
        fitted_temperature=tried.temperature,
        error_before=_error(before),
        error_after=_error(after),
        before=reliability_bins(before.confidence, before.right),
        after=reliability_bins(after.confidence, after.right),
        coverage=coverage_curve(after.confidence, after.right) if task.abstains else (),
        target=target,
        abstain_below=least,
        answered=None if least is None else float((after.confidence >= least).mean()),
        thresholds=dict(chosen.thresholds),
    )
    return CalibrationFit(chosen, facts, results)


def _error(sure: Sure) -> float:
    return expected_calibration_error(sure.confidence, sure.right)


def _lowers_loss(held_out: _HeldOut, fold: NDArray[np.int64], by_fold: Sequence[Calibration]) -> bool:
    """Whether the sum of losses, each by its own fold's temperature, is below that without a temperature."""
    before, after = held_out.losses(1.0), np.zeros(len(fold))
    for number, calibration in enumerate(by_fold):
        losses = held_out.losses(calibration.temperature)
        assert losses is not None
        after[fold == number] = losses[fold == number]
    assert before is not None
    return bool(after.sum() < before.sum())


def _by_fold(held_out: _HeldOut, fold: NDArray[np.int64], by_fold: Sequence[Calibration]) -> list[Any]:
    """Each example answered by its own fold's calibration."""
    found: list[Any] = [None] * len(fold)
    for number, calibration in enumerate(by_fold):
        results = held_out.results(calibration)
        for place in np.flatnonzero(fold == number).tolist():
            found[place] = results[place]
    return found


# Evaluation.

_SHOWN = 12  # of each kind
NUMBERS = 2_000  # drawn as a scatter
_LENGTHS = (16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class EvaluationResult:
    scored: Scored
    hardest: tuple[Shown, ...]
    confident_errors: tuple[Shown, ...]
    by_length: tuple[LengthBin, ...]
    labels: dict[str, int]
    tokens: int
    longest: int
    windowed: int
    most_windows: int
    numbers: NDArray[np.float64] | None = None  # of regression


class Worst:
    """The few examples with the largest keys, first come first kept."""

    def __init__(self, size: int = _SHOWN) -> None:
        self.size, self.count = size, 0
        self.kept: list[tuple[float, int, Shown]] = []

    def offer(self, key: float, make: Callable[[], Shown]) -> None:
        self.count += 1
        if len(self.kept) < self.size:
            heapq.heappush(self.kept, (key, -self.count, make()))
        elif key > self.kept[0][0]:
            heapq.heapreplace(self.kept, (key, -self.count, make()))

    def shown(self) -> tuple[Shown, ...]:
        return tuple(one for _, _, one in sorted(self.kept, key=lambda entry: (-entry[0], -entry[1])))


def evaluate_examples(
    task: AnyTask,
    parts: Iterable[tuple[Sequence[Example], Sequence[Any]]],
    progress: Callable[[int], None] | None = None,
    keep: Callable[[Example, Any, Judgement], None] | None = None,
) -> EvaluationResult:
    """Score examples with their results, a part at a time; `keep` is called with each, to write it to a file."""
    scorer = task.scorer()
    hardest, confident = Worst(), Worst()
    lengths: Counter[int] = Counter()
    rights: Counter[int] = Counter()
    labels: Counter[str] = Counter()
    tokens = longest = windowed = most_windows = 0
    numbers: list[tuple[float, float]] = []
    for chunk, results in parts:
        scorer.add(chunk, results)
        labels.update({} if task.numbers else count_labels(chunk))
        for example, result in zip(chunk, results, strict=True):
            judgement = task.judge(example, result)
            show = _Show(example, result, judgement)
            if not judgement.right or task.numbers:
                hardest.offer(judgement.loss, show)
                confident.offer(0.0 if math.isnan(judgement.confidence) else judgement.confidence, show)
            place = int(np.searchsorted(_LENGTHS, result.n_tokens))
            lengths[place] += 1
            rights[place] += judgement.right
            tokens += result.n_tokens
            longest = max(longest, result.n_tokens)
            windowed += result.n_windows > 1
            most_windows = max(most_windows, result.n_windows)
            if task.numbers and len(numbers) < NUMBERS:
                numbers.append((float(judgement.expected), float(result.value)))
            if keep is not None:
                keep(example, result, judgement)
        if progress is not None:
            progress(len(chunk))
    if not lengths:
        raise InputError("There is no example to evaluate on.")
    edges = (0, *_LENGTHS, longest)
    return EvaluationResult(
        scorer.result(),
        hardest.shown(),
        () if task.numbers else confident.shown(),
        tuple(
            LengthBin(
                edges[place] + 1, min(edges[place + 1], longest) if place < len(_LENGTHS) else longest, n, rights[place]
            )
            for place, n in sorted(lengths.items())
        ),
        dict(labels.most_common()),
        tokens,
        longest,
        windowed,
        most_windows,
        np.array(numbers) if numbers else None,
    )


@dataclass(frozen=True)
class _Show:
    """Makes what is shown, for the few that are kept."""

    example: Example
    result: Any
    judgement: Judgement

    def __call__(self) -> Shown:
        example = self.example
        return Shown(
            Path(example.place.file).name,
            example.place.line,
            example.text,
            example.beside,
            self.judgement,
            self.result.n_tokens,
            self.result.n_windows,
        )
