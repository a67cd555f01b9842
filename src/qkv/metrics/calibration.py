"""Calibration of probabilities, and thresholds on them.

A model with confidence 0.9 should be right nine times out of ten. Dividing its scores by one number, the temperature,
fixes most of the gap (Guo et al. 2017, section 4.2) and changes no answer. Each task decides what to divide: here a
task is a function from a temperature to one loss per example.

A calibration error is unbiased only on examples that were not used for fitting: `folds` assigns the examples, and
`_Fitted.best` gives those of a fold the temperature of the others.

Shapes: E examples, G temperatures of the grid, M answers with a confidence, L labels.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qkv.metrics.intervals import FloatArray, IntegerArray

LOWEST, HIGHEST, STEPS = 0.05, 20.0, 33
FEWEST_EXAMPLES = 50
"""Minimum number of answers above an abstention threshold. The 95 % interval of 48 right of 50 begins at 87 %; that of
19 of 20, the same share, at 76 %, which is no support for a target of 95 %."""


@dataclass(frozen=True)
class _Fitted:
    """Losses at all temperatures, from which the best temperature of any subset follows without the model."""

    temperature: float  # best for all examples
    grid: FloatArray  # (G,), even steps of log temperature
    matrix: FloatArray  # (G, E) losses

    def best(self, mask: ArrayLike | None = None) -> float:
        """Return the temperature with the lowest loss over the examples of `mask`, (E,) bool.

        The minimum of the grid, refined by the parabola through it and its neighbours. (ln T)² / 2 is added to the
        sum of the losses, like one example that prefers 1: it matters only where the examples do not determine the
        temperature, for example if all answers are right and no temperature is low enough.
        """
        losses = self.matrix if mask is None else self.matrix[:, np.asarray(mask, np.bool_)]
        losses = losses[:, np.isfinite(losses).any(0)]  # an answer with probability 0 says nothing
        logs = np.log(self.grid)
        total = losses.sum(1) + logs**2 / 2
        total[~np.isfinite(total)] = np.inf  # the sum may overflow at a low temperature
        least = int(np.argmin(total))
        if least in (0, len(total) - 1) or not np.isfinite(total[least - 1 : least + 2]).all():
            return float(self.grid[least])
        before, here, after = total[least - 1 : least + 2]
        bend = before - 2 * here + after
        shift = (before - after) / (2 * bend) if bend > 0 else 0.0
        return float(np.exp(logs[least] + shift * (logs[1] - logs[0])))


def fit_temperature(losses: Callable[[float], FloatArray | None]) -> _Fitted:
    """Evaluate the losses at `STEPS` temperatures from `LOWEST` to `HIGHEST` and refine the best.

    `losses` maps a temperature to (E,): −log of the probability of the right answer with scores divided by it.

    >>> margins = np.array([8.0] * 90 + [-8.0] * 10)  # of two answers the right one scores 8 more, in 90 of 100
    >>> fitted = fit_temperature(lambda temperature: np.log1p(np.exp(-margins / temperature)))
    >>> round(fitted.temperature, 1)  # 8 / ln(90 / 10) = 3.64, at which the model says 0.9
    3.6
    """
    grid = np.geomspace(LOWEST, HIGHEST, STEPS)
    rows: list[FloatArray] = []
    for temperature in grid:
        row = losses(float(temperature))
        if row is None:
            raise ValueError("This task has no probabilities, so there is no temperature to fit.")
        rows.append(np.asarray(row, np.float64))
    matrix = np.stack(rows)
    return _Fitted(_Fitted(1.0, grid, matrix).best(), grid, matrix)


def folds(n: int, k: int, seed: int = 0) -> IntegerArray:
    """(n,): the fold (of k) of each example; sizes of folds differ by at most one."""
    return np.random.default_rng(seed).permutation(np.arange(n, dtype=np.int64) % max(1, k))


def reliability_bins(confidence: ArrayLike, right: ArrayLike, bins: int = 15) -> tuple[tuple[float, float, int], ...]:
    """Return mean confidence, accuracy and count of each bin of equal width, without empty bins.

    A bin includes its upper edge but not its lower one, except the first, which includes 0.

    >>> reliability_bins([0.55, 0.6, 0.95, 1.0], [False, True, True, True], bins=10)
    ((0.575, 0.5, 2), (0.975, 1.0, 2))
    """
    sure, hit = _pair(confidence, right)
    place = np.clip(np.ceil(sure * bins).astype(np.int64) - 1, 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    sums = np.bincount(place, sure, bins), np.bincount(place, hit, bins)
    return tuple(
        (float(sums[0][each] / counts[each]), float(sums[1][each] / counts[each]), int(counts[each]))
        for each in np.flatnonzero(counts)
    )


def expected_calibration_error(confidence: ArrayLike, right: ArrayLike, bins: int = 15) -> float:
    """Return the mean gap between confidence and accuracy over `reliability_bins`; NaN without examples.

    >>> round(expected_calibration_error([0.9] * 10, [True] * 7 + [False] * 3), 9)
    0.2
    """
    found = reliability_bins(confidence, right, bins)
    total = sum(count for _, _, count in found)
    return sum(abs(sure - share) * count for sure, share, count in found) / total if total else math.nan


def chance_calibration_error(bins: Sequence[tuple[float, float, int]]) -> float:
    """Return the calibration error that chance alone exceeds in one of twenty cases.

    It is simulated: answers as many and as sure as those of `reliability_bins`, each right as often as it says.

    >>> round(chance_calibration_error([(0.9, 0.8, 30)]), 2), round(chance_calibration_error([(0.9, 0.8, 3000)]), 2)
    (0.1, 0.01)
    """
    sure, _, counts = map(np.array, zip(*bins, strict=True))
    hits = np.random.default_rng(0).binomial(counts, np.clip(sure, 0, 1), (1000, len(counts)))
    return float(np.quantile(np.abs(hits - sure * counts).sum(1) / counts.sum(), 0.95))


def coverage_curve(
    confidence: ArrayLike, right: ArrayLike, points: int = 200
) -> tuple[tuple[float, float, float], ...]:
    """Return the effect of abstaining: (threshold, share answered, precision), from all answers to few.

    An example is answered if its confidence is at least the threshold. Of more than `points` thresholds evenly spaced
    ones are kept, including the first and the last.

    >>> coverage_curve([0.9, 0.8, 0.8, 0.6], [True, True, False, False])
    ((0.6, 1.0, 0.5), (0.8, 0.75, 0.6666666666666666), (0.9, 0.25, 1.0))
    """
    thresholds, answered, hits = _by_threshold(confidence, right)
    if not len(thresholds):
        return ()
    kept = np.unique(np.linspace(0, len(thresholds) - 1, min(points, len(thresholds))).round().astype(np.int64))
    return tuple(
        (float(thresholds[each]), float(answered[each] / answered[0]), float(hits[each] / answered[each]))
        for each in kept
    )


def abstain_threshold(confidence: ArrayLike, right: ArrayLike, target: float) -> float | None:
    """Return the confidence below which to abstain, so that the precision of the answers is at least `target`.

    Of all thresholds with at least `FEWEST_EXAMPLES` answers that reach the target on these examples, the one that
    answers most; 0 if answering everything reaches it; None if no threshold does. On other examples the precision may
    be somewhat lower, especially if there are few examples here.
    """
    thresholds, answered, hits = _by_threshold(confidence, right)
    # counts are compared, not quotients: 19 of 20 reaches 0.95 whatever 0.95 is in binary
    fine = np.flatnonzero((answered >= FEWEST_EXAMPLES) & (hits >= np.round(target * answered, 9)))
    if not len(fine):
        return None
    return float(thresholds[fine[0]]) if fine[0] else 0.0


def best_threshold_f1(probabilities: ArrayLike, gold: ArrayLike) -> FloatArray:
    """(L,): for each label the threshold with the best F1, from (n, L) probabilities and gold labels.

    A label is predicted if its probability is at least the threshold. The threshold is 0.5 where that is among the
    best, and for a label without examples; otherwise it is halfway between two probabilities, as near to 0.5 as
    possible.

    >>> best_threshold_f1([[0.9], [0.3], [0.2], [0.1]], [[1], [1], [0], [0]]).tolist()
    [0.25]
    """
    table, wanted = np.asarray(probabilities, np.float64), np.asarray(gold, np.bool_)
    if table.shape != wanted.shape or table.ndim != 2:
        raise ValueError(f"Probabilities of {table.shape}, labels of {wanted.shape}: both must be (examples, labels).")
    return np.array([_best_threshold(table[:, each], wanted[:, each]) for each in range(table.shape[1])], np.float64)


def _best_threshold(probabilities: FloatArray, gold: NDArray[np.bool_]) -> float:
    if not gold.any():
        return 0.5
    values, said, hits = _by_threshold(probabilities, gold)
    f1 = 2 * hits / (said + gold.sum())
    best = f1 >= f1.max() - 1e-12
    # every threshold above `low`, up to `high`, gives the same labels
    low, high = np.concatenate([[0.0], values[:-1]])[best], values[best]
    if ((low < 0.5) & (high >= 0.5)).any():
        return 0.5
    halves = (low + high) / 2
    return float(halves[np.argmin(np.abs(halves - 0.5))])


def _by_threshold(confidence: ArrayLike, right: ArrayLike) -> tuple[FloatArray, IntegerArray, IntegerArray]:
    """Return the distinct confidences in rising order; how many are at least as high, and how many of those right."""
    sure, hit = _pair(confidence, right)
    thresholds, place, counts = np.unique(sure, return_inverse=True, return_counts=True)
    hits = np.bincount(place, hit, len(thresholds)).astype(np.int64)
    return thresholds, np.cumsum(counts[::-1])[::-1], np.cumsum(hits[::-1])[::-1]


def _pair(confidence: ArrayLike, right: ArrayLike) -> tuple[FloatArray, NDArray[np.bool_]]:
    sure, hit = np.asarray(confidence, np.float64), np.asarray(right, np.bool_)
    if sure.shape != hit.shape or sure.ndim != 1:
        raise ValueError(f"Confidences of shape {sure.shape}, answers of {hit.shape}: lists of equal length needed.")
    if np.isnan(sure).any():
        raise ValueError("A confidence is NaN: leave out answers without confidence.")
    return sure, hit
