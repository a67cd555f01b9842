"""Metrics of numbers: correlations and errors (equal to scipy's), perplexity, ranks, principal component analysis.

A correlation with constant values is NaN, and so is every metric of an empty list.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from qkv.metrics.intervals import FloatArray, bootstrap, bootstraps, wilson_interval


def pearson(expected: ArrayLike, answered: ArrayLike) -> float:
    """Return the Pearson correlation; NaN for constant input or fewer than two numbers.

    >>> pearson([1, 2, 3], [2, 4, 7]) > 0.99
    True
    """
    x, y = _pair(expected, answered)
    if len(x) < 2:
        return math.nan
    return float(correlation(correlation_moments(x, y).sum(0)[None])[0])


def spearman(expected: ArrayLike, answered: ArrayLike) -> float:
    """Return the Spearman correlation: the Pearson correlation of the ranks.

    >>> spearman([1, 2, 3], [10, 100, 1000])
    1.0
    """
    x, y = _pair(expected, answered)
    return pearson(ranks(x), ranks(y))


def ranks(values: ArrayLike) -> FloatArray:
    """Return ranks from 1; equal values share the mean of their ranks.

    >>> ranks([30, 10, 30, 20]).tolist()
    [3.5, 1.0, 3.5, 2.0]
    """
    _, place, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place])


def mean_absolute_error(expected: ArrayLike, answered: ArrayLike) -> float:
    """
    >>> mean_absolute_error([1, 2, 3], [1, 4, 4])
    1.0
    """
    x, y = _pair(expected, answered)
    return float(np.abs(x - y).mean()) if len(x) else math.nan


def mean_squared_error(expected: ArrayLike, answered: ArrayLike) -> float:
    """
    >>> mean_squared_error([1, 2, 3], [1, 4, 5])
    2.6666666666666665
    """
    x, y = _pair(expected, answered)
    return float(((x - y) ** 2).mean()) if len(x) else math.nan


def number_figures(expected: ArrayLike, answered: ArrayLike) -> dict[str, float]:
    return {
        "pearson": pearson(expected, answered),
        "spearman": spearman(expected, answered),
        "mean_absolute_error": mean_absolute_error(expected, answered),
        "mean_squared_error": mean_squared_error(expected, answered),
    }


def number_intervals(
    expected: ArrayLike, answered: ArrayLike, draws: int = 1000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Return 95 % intervals by the names of `number_figures`: the bootstrap over examples.

    Spearman's uses the ranks among all examples, not those within each draw, which changes little.
    """
    x, y = _pair(expected, answered)
    errors = np.stack([np.abs(x - y), (x - y) ** 2, np.ones(len(x))], axis=1)
    means = {
        "mean_absolute_error": lambda sums: sums[:, 0] / sums[:, 2],
        "mean_squared_error": lambda sums: sums[:, 1] / sums[:, 2],
    }
    return {
        "pearson": bootstrap(correlation_moments(x, y), correlation, draws=draws, seed=seed),
        "spearman": bootstrap(correlation_moments(ranks(x), ranks(y)), correlation, draws=draws, seed=seed),
        **bootstraps(errors, means, draws=draws, seed=seed),
    }


def _pair(expected: ArrayLike, answered: ArrayLike) -> tuple[FloatArray, FloatArray]:
    x, y = np.asarray(expected, np.float64), np.asarray(answered, np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"Numbers of shape {x.shape} and {y.shape}: two lists of equal length are needed.")
    return x, y


def correlation_moments(x: FloatArray, y: FloatArray) -> FloatArray:
    """(n, 6): statistics whose sums give a correlation, standardised first against cancellation."""
    u, v = _standardise(x), _standardise(y)
    return np.stack([np.ones(len(u)), u, v, u * u, v * v, u * v], axis=1)


def _standardise(x: FloatArray) -> FloatArray:
    if not len(x) or (x == x[0]).all():  # exactly constant: avoid a variance from rounding
        return np.zeros(len(x))
    centred = x - x.mean()
    return np.asarray(centred / np.abs(centred).max())


def correlation(sums: FloatArray) -> FloatArray:
    n, u, v, uu, vv, uv = np.moveaxis(sums, -1, 0)
    spread = np.maximum(n * uu - u * u, 0) * np.maximum(n * vv - v * v, 0)
    # a draw of the same example n times has only rounding errors
    known = spread > (n * 1e-12) ** 2 * np.maximum(uu * vv, 1e-300)
    above = n * uv - u * v
    found = np.divide(above, np.sqrt(spread), out=np.full(above.shape, np.nan), where=known)
    return np.clip(found, -1, 1)


def perplexity(loss: float) -> float:
    """Return exp(loss) of a mean loss in nats.

    >>> round(perplexity(math.log(50)), 9)
    50.0
    """
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def bits_per_character(loss: float, characters: float) -> float:
    """Return bits per character from the total loss in nats: comparable between tokenizers.

    >>> round(bits_per_character(100 * math.log(2), 50), 9)
    2.0
    """
    return loss / math.log(2) / characters if characters else math.nan


class Principal(NamedTuple):
    places: FloatArray  # (P, k) coordinates of the points along the directions, relative to their mean
    shares: FloatArray  # (k,) share of the variance along each direction


def principal(points: FloatArray, k: int = 2) -> Principal:
    """Principal component analysis (Pearson 1901) of P points in D dimensions.

    The sign of each direction is chosen so that its largest weight is positive.

    >>> principal(np.array([[0.0, 0.0, 5.0], [2.0, 0.0, 5.0], [4.0, 1.0, 5.0], [6.0, 1.0, 5.0]]), 2).shares.round(3)
    array([0.991, 0.009])
    """
    points = np.asarray(points, np.float64)
    centred = points - points.mean(0)
    _, spread, directions = np.linalg.svd(centred, full_matrices=False)  # (min(P, D),), (min(P, D), D)
    directions = directions[:k]
    largest = np.take_along_axis(directions, np.abs(directions).argmax(1)[:, None], axis=1)
    directions = directions * np.where(largest < 0, -1.0, 1.0)
    variance = spread**2
    return Principal(centred @ directions.T, variance[:k] / (variance.sum() or 1.0))


def retrieval_figures(ranks: ArrayLike) -> dict[str, float]:
    """Of the ranks of right answers, from 1: how many are first, and the mean of 1 / rank.

    >>> retrieval_figures([1, 2, 1, 4])
    {'accuracy_at_1': 0.5, 'mrr': 0.6875}
    """
    found = np.asarray(ranks, np.float64)
    return {"accuracy_at_1": float((found == 1).mean()), "mrr": float((1 / found).mean())}


def retrieval_intervals(ranks: ArrayLike, draws: int = 1000, seed: int = 0) -> dict[str, tuple[float, float]]:
    """Return 95 % intervals by the names of `retrieval_figures`.

    If every first answer is right, all draws agree: the mean reciprocal rank, never less than the first-hit rate, has
    the interval of that.
    """
    found = np.asarray(ranks, np.float64)
    inverse = np.stack([1 / found, np.ones(len(found))], axis=1)
    first_hit = wilson_interval(int((found == 1).sum()), len(found))
    drawn = bootstrap(inverse, lambda sums: sums[:, 0] / sums[:, 1], draws=draws, seed=seed)
    return {"accuracy_at_1": first_hit, "mrr": first_hit if (found == 1).all() else drawn}
