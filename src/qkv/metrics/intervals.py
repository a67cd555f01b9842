"""Confidence intervals of metrics.

`wilson_interval` is for proportions (accuracy, a rate). The bootstrap is for metrics computed from sums over examples
(F1, a correlation): each draw samples as many examples as there are, with replacement, and only the sums of each draw
are kept, so memory does not grow with draws × examples. Intervals are percentiles (Efron 1979). If every example is
right, all draws agree and the bootstrap interval is a point; use the Wilson interval for proportions.

Shapes: n examples, or distinct rows with counts; k statistics of an example; D draws.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntegerArray = NDArray[np.int64]

_CELLS = 4_000_000  # numbers in one block of draws; bounds memory, does not affect results


def wilson_interval(successes: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Return the Wilson score interval of a rate (Wilson 1927); 95 % for z = 1.96.

    Unlike rate ± z·error it stays between 0 and 1, and is accurate for few trials and for rates near 0 and 1.

    >>> low, high = wilson_interval(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}: successes must be from 0 to {n}.")
    if n == 0:
        return 0.0, 1.0  # nothing is known
    rate, spread = successes / n, z * z / n
    centre = (rate + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(rate * (1 - rate) / n + spread / (4 * n))
    # exact at the ends, without rounding errors
    return (0.0 if successes == 0 else centre - half), (1.0 if successes == n else centre + half)


def resample(counts: ArrayLike, draws: int = 1000, seed: int = 0, width: int = 1) -> Iterator[IntegerArray]:
    """Yield how often each row is drawn, in blocks of (d, n), `draws` in total.

    A row with a count represents that many equal examples: each draw sums to the number of examples. `width` is how
    many numbers the caller holds per draw, for the size of blocks; the draws do not depend on it.
    """
    each = np.asarray(counts, np.int64)
    total, n = int(each.sum()), len(each)
    generator = np.random.default_rng(seed)
    block = max(1, _CELLS // max(n, width, 1))
    for begin in range(0, draws, block):
        size = min(block, draws - begin)
        if (each == 1).all():  # drawing indices is faster than a multinomial
            yield np.stack([np.bincount(generator.integers(0, n, n), minlength=n) for _ in range(size)])
        else:
            yield generator.multinomial(total, each / total, size)


def bootstrap(
    statistics: ArrayLike,
    metric: Callable[[FloatArray], FloatArray],
    *,
    counts: ArrayLike | None = None,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return the percentile interval of a metric that contains `level` of the draws.

    `statistics` are (n, k), one row per example, or distinct rows with `counts` (n,) of equal examples. `metric` maps
    the sums over the examples of each draw, (D, k), to (D,). Draws with NaN are ignored; the result is NaN if all
    are, or if there are no examples.

    >>> hits = np.array([[1.0, 1.0]] * 80 + [[0.0, 1.0]] * 20)  # right, and one for the count
    >>> low, high = bootstrap(hits, lambda sums: sums[:, 0] / sums[:, 1])
    >>> bool(0.70 < low < 0.74 and 0.86 < high < 0.90)
    True
    """
    return bootstraps(statistics, {"": metric}, counts=counts, draws=draws, seed=seed, level=level)[""]


def bootstraps(
    statistics: ArrayLike,
    metrics: Mapping[str, Callable[[FloatArray], FloatArray]],
    *,
    counts: ArrayLike | None = None,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, tuple[float, float]]:
    """`bootstrap` for several metrics of the same statistics with the same draws, since drawing takes most time."""
    found = _draws(statistics, metrics, counts, draws, seed)
    return {name: percentiles(values, level) for name, values in found.items()}


class Difference(NamedTuple):
    difference: float  # over all examples: positive if the first is better (if larger is better)
    low: float
    high: float
    p: float  # two-sided


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    metric: Callable[[FloatArray], FloatArray],
    *,
    counts: ArrayLike | None = None,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Difference:
    """Return metric(a) − metric(b) of two systems by the paired bootstrap (Efron and Tibshirani 1993).

    Row i of `a` and of `b` belong to the same example (with `counts`: the same examples), and each draw uses the same
    examples for both, so that their difficulty cancels. p is twice the smaller share of draws on either side of 0, each
    share with one draw added so that it is never 0.
    """
    first, second = (np.asarray(each, np.float64) for each in (a, b))
    if first.shape != second.shape:
        raise ValueError(f"Statistics of {first.shape} and {second.shape}: both systems need the same examples.")
    k = first.shape[1]

    def difference(sums: FloatArray) -> FloatArray:
        return metric(sums[:, :k]) - metric(sums[:, k:])

    both = np.concatenate([first, second], axis=1)
    found = _draws(both, {"": difference}, counts, draws, seed)[""]
    weights = np.ones(len(both)) if counts is None else np.asarray(counts, np.float64)
    value = float(difference((weights @ both)[None])[0])
    low, high = percentiles(found, level)
    known = found[~np.isnan(found)]
    tail = min(int((known <= 0).sum()), int((known >= 0).sum()))
    return Difference(value, low, high, min(1.0, 2 * (tail + 1) / (len(known) + 1)))


def _draws(
    statistics: ArrayLike,
    metrics: Mapping[str, Callable[[FloatArray], FloatArray]],
    counts: ArrayLike | None,
    draws: int,
    seed: int,
) -> dict[str, FloatArray]:
    """(D,) values of each metric; empty without examples."""
    rows = np.asarray(statistics, np.float64)
    if rows.ndim != 2:
        raise ValueError(f"Statistics of shape {rows.shape} must be (examples, statistics).")
    each = np.ones(len(rows), np.int64) if counts is None else np.asarray(counts, np.int64)
    if each.shape != rows.shape[:1]:
        raise ValueError(f"{each.shape} counts for {len(rows)} rows: one count per row is needed.")
    found: dict[str, list[FloatArray]] = {name: [np.empty(0)] for name in metrics}
    if each.sum():
        for drawn in resample(each, draws, seed, rows.shape[1]):
            sums = drawn @ rows
            for name, metric in metrics.items():
                found[name].append(metric(sums))
    return {name: np.concatenate(values) for name, values in found.items()}


def percentiles(found: FloatArray, level: float = 0.95) -> tuple[float, float]:
    """Return the central interval with `level` of the draws, ignoring NaN; NaN without draws."""
    known = found[~np.isnan(found)]
    if not len(known):
        return math.nan, math.nan
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
