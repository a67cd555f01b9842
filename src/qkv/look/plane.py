"""Vectors on a plane: their two principal components, layer after layer, and how alike they are.

Of every layer the plane is its own (metrics/numbers.py), and an axis has no sign of its own. So that a point can be
followed from layer to layer, each axis is turned to agree with the one before it; nothing else is done to it.

Shapes: K layers, n vectors, D width (which may differ from layer to layer).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.api.embedder import scale_to_unit
from qkv.metrics.numbers import principal

Floats = NDArray[np.float32]
_NOTHING = 1e-5
"""Of the length of a vector: vectors that differ by less are one, and what tells them apart is rounding."""


class _Planes(NamedTuple):
    points: Floats  # (K, n, 2)
    variance: Floats  # (K, 2) share of the spread that each axis holds
    cosine: Floats  # (K, n, n)


def planes(layers: Sequence[Floats]) -> _Planes:
    """K of (n, D) →

    >>> found = planes([np.array([[0, 1, 5], [2, 0, 5], [4, 0, 5]], np.float32)] * 2)
    >>> found.points.shape, [round(float(share), 2) for share in found.variance[0]]
    ((2, 3, 2), [0.98, 0.02])
    """
    points: list[Floats] = []
    shares: list[Floats] = []
    for vectors in layers:
        places, share = on_a_plane(vectors)
        if points:
            agree = (points[-1] * places).sum(0)  # (2,)
            places = places * np.where(agree < 0, np.float32(-1), np.float32(1))
        points.append(places)
        shares.append(share)
    return _Planes(np.stack(points), np.stack(shares), np.stack([cosines(vectors) for vectors in layers]))


def on_a_plane(vectors: Floats) -> tuple[Floats, Floats]:
    """(n, D) → (n, 2) and (2,); zeros where there is nothing to tell apart."""
    places, shares = np.zeros((len(vectors), 2), np.float32), np.zeros(2, np.float32)
    length = float(np.linalg.norm(vectors, axis=1).max())
    if float(np.abs(vectors - vectors[:1]).max()) > _NOTHING * length:
        found = principal(vectors.astype(np.float64), 2)
        k = found.places.shape[1]  # 1, where there is one dimension
        places[:, :k], shares[:k] = found.places, found.shares
    return places, shares


def cosines(vectors: Floats, others: Floats | None = None) -> Floats:
    """(n, D), and (m, D) if they are others → (n, m)"""
    unit = scale_to_unit(vectors.astype(np.float32))
    with_ = unit if others is None else scale_to_unit(others.astype(np.float32))
    return np.clip(unit @ with_.T, -1, 1)
