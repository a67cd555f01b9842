"""Figures of answers that are numbers: correlations and errors, equal to scipy's.

A correlation with something constant has no value: it is nan, and so is everything of no numbers at all.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from qkv.metrics.intervals import FloatArray, bootstrap, bootstraps


def pearson(expected: ArrayLike, answered: ArrayLike) -> float:
    """Whether they lie on a line: 1 upwards, −1 downwards, 0 no line; nan for constant input or fewer than two.

    >>> pearson([1, 2, 3], [2, 4, 7]) > 0.99
    True
    """
    x, y = _pair(expected, answered)
    if len(x) < 2:
        return math.nan
    return float(correlation(correlation_moments(x, y).sum(0)[None])[0])


def spearman(expected: ArrayLike, answered: ArrayLike) -> float:
    """Whether they stand in the same order: the Pearson correlation of their ranks.

    >>> spearman([1, 2, 3], [10, 100, 1000])
    1.0
    """
    x, y = _pair(expected, answered)
    return pearson(ranks(x), ranks(y))


def ranks(values: ArrayLike) -> FloatArray:
    """From 1; equal values share the mean of their places.

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
    """95 %, by the names of `number_figures`: the bootstrap over examples.

    For Spearman's the ranks among all examples are kept, not taken anew in each draw: what a draw changes of them is
    small beside what it changes of the sums.
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
        raise ValueError(f"Numbers of shape {x.shape} and {y.shape}: two lists of one length are due.")
    return x, y


def correlation_moments(x: FloatArray, y: FloatArray) -> FloatArray:
    """(n, 6): a correlation is a function of their sums. Centred and scaled first, else squares would cancel badly."""
    u, v = _standardise(x), _standardise(y)
    return np.stack([np.ones(len(u)), u, v, u * u, v * v, u * v], axis=1)


def _standardise(x: FloatArray) -> FloatArray:
    if not len(x) or (x == x[0]).all():  # exactly constant: rounding must not make a spread of it
        return np.zeros(len(x))
    centred = x - x.mean()
    return np.asarray(centred / np.abs(centred).max())


def correlation(sums: FloatArray) -> FloatArray:
    n, u, v, uu, vv, uv = np.moveaxis(sums, -1, 0)
    spread = np.maximum(n * uu - u * u, 0) * np.maximum(n * vv - v * v, 0)
    # of a draw that took one example n times only rounding is left
    known = spread > (n * 1e-12) ** 2 * np.maximum(uu * vv, 1e-300)
    above = n * uv - u * v
    found = np.divide(above, np.sqrt(spread), out=np.full(above.shape, np.nan), where=known)
    return np.clip(found, -1, 1)


# --- Figures of language models. What a loss is taken over is its objective's matter.


def perplexity(loss: float) -> float:
    """Among how many equally likely tokens one would be as unsure; the loss is a mean in nats.

    >>> round(perplexity(math.log(50)), 9)
    50.0
    """
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def bits_per_character(loss: float, characters: float) -> float:
    """What a text costs that lost so much in all, in nats, and has so many characters: it does not matter how it was
    cut into tokens.

    >>> round(bits_per_character(100 * math.log(2), 50), 9)
    2.0
    """
    return loss / math.log(2) / characters if characters else math.nan


# --- The directions in which points differ most (principal component analysis, Pearson 1901): a map of many
# dimensions.
#
# Shapes: P points, D dimensions, k directions.


class Principal(NamedTuple):
    places: FloatArray  # (P, k) of each point along the directions, from the middle of all points
    shares: FloatArray  # (k,) of the points' spread (their variance) that lies along each


def principal(points: FloatArray, k: int = 2) -> Principal:
    """Each direction is turned so that its largest weight is positive: its sign would else be left to chance.

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
