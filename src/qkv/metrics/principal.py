"""The directions in which points differ most (principal component analysis, Pearson 1901): a map of many dimensions.

Shapes: P points, D dimensions, k directions.
"""

from typing import NamedTuple

import numpy as np

from qkv.metrics.intervals import Floats


class Principal(NamedTuple):
    places: Floats  # (P, k) of each point along the directions, from the middle of all points
    shares: Floats  # (k,) of the points' spread (their variance) that lies along each


def principal(points: Floats, k: int = 2) -> Principal:
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
