"""Two principal components of vectors, layer by layer, and their cosines.

Every layer has its own components (metrics/numbers.py), whose signs are arbitrary. They are flipped to agree with the
previous layer, so that a point can be followed from layer to layer.

Shapes: K layers, n vectors, D width (may differ between layers).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.api.embedder import scale_to_unit
from qkv.metrics.numbers import principal

VectorArray = NDArray[np.float32]
_NOTHING = 1e-5
"""Relative to the length of a vector: smaller differences are rounding errors."""


class _Planes(NamedTuple):
    points: VectorArray  # (K, n, 2)
    variance: VectorArray  # (K, 2) share of the variance on each axis
    cosine: VectorArray  # (K, n, n)


def project_layers(layers: Sequence[VectorArray]) -> _Planes:
    """K of (n, D) →

    >>> found = project_layers([np.array([[0, 1, 5], [2, 0, 5], [4, 0, 5]], np.float32)] * 2)
    >>> found.points.shape, [round(float(share), 2) for share in found.variance[0]]
    ((2, 3, 2), [0.98, 0.02])
    """
    points: list[VectorArray] = []
    shares: list[VectorArray] = []
    for vectors in layers:
        places, share = project_vectors(vectors)
        if points:
            agree = (points[-1] * places).sum(0)  # (2,)
            places = places * np.where(agree < 0, np.float32(-1), np.float32(1))
        points.append(places)
        shares.append(share)
    return _Planes(np.stack(points), np.stack(shares), np.stack([cosine_matrix(vectors) for vectors in layers]))


def project_vectors(vectors: VectorArray) -> tuple[VectorArray, VectorArray]:
    """(n, D) → points (n, 2) and variance shares (2,); zeros if all vectors are equal."""
    places, shares = np.zeros((len(vectors), 2), np.float32), np.zeros(2, np.float32)
    length = float(np.linalg.norm(vectors, axis=1).max())
    if float(np.abs(vectors - vectors[:1]).max()) > _NOTHING * length:
        found = principal(vectors.astype(np.float64), 2)
        k = found.places.shape[1]  # 1 if D is 1
        places[:, :k], shares[:k] = found.places, found.shares
    return places, shares


def cosine_matrix(vectors: VectorArray, others: VectorArray | None = None) -> VectorArray:
    """(n, D) and (m, D), by default the same → (n, m)"""
    unit = scale_to_unit(vectors.astype(np.float32))
    with_ = unit if others is None else scale_to_unit(others.astype(np.float32))
    return np.clip(unit @ with_.T, -1, 1)
