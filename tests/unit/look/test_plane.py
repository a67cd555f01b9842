"""Points of every layer are those of a plain principal component analysis, up to the signs of its axes."""

import numpy as np
import pytest
from numpy.typing import NDArray

from qkv.look.token_layers import cosine_matrix, project_layers, project_vectors


def plain(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """By the covariance matrix, where the code goes by singular values."""
    centred = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    _, directions = np.linalg.eigh(centred.T @ centred)
    return np.asarray(centred @ directions[:, ::-1][:, :2])


@pytest.fixture
def layers() -> list[NDArray[np.float32]]:
    drawn = np.random.default_rng(0)
    return [drawn.normal(size=(9, width)).astype(np.float32) @ np.diag(0.8 ** np.arange(width)).astype(np.float32)
            for width in (6, 6, 12)]  # fmt: skip


def test_points_of_a_plain_analysis(layers: list[NDArray[np.float32]]) -> None:
    found = project_layers(layers)
    assert found.points.shape == (3, 9, 2) and found.cosine.shape == (3, 9, 9)
    for points, variance, vectors in zip(found.points, found.variance, layers, strict=True):
        expected = plain(vectors)
        for axis in range(2):
            turned = np.sign(points[:, axis] @ expected[:, axis])
            np.testing.assert_allclose(points[:, axis], turned * expected[:, axis], atol=1e-4)
        total = vectors.var(0, dtype=np.float64).sum()
        np.testing.assert_allclose(variance, expected.var(0) / total, atol=1e-5)


def test_axes_agree_with_the_layer_before(layers: list[NDArray[np.float32]]) -> None:
    same = project_layers([layers[0], -layers[0], layers[0]])
    np.testing.assert_allclose(same.points[0], same.points[1], atol=1e-5)
    found = project_layers(layers)
    assert all(
        ((before * after).sum(0) >= 0).all() for before, after in zip(found.points, found.points[1:], strict=False)
    )


def test_one_point_and_what_is_only_rounding() -> None:
    one = np.full((5, 8), 0.3, np.float32)
    one[2] += 1e-7
    places, shares = project_vectors(one)
    assert not places.any() and not shares.any()
    assert project_layers([one[:1]]).points.tolist() == [[[0.0, 0.0]]]
    assert project_vectors(np.array([[1.0], [2.0]], np.float32))[0].tolist() == [[-0.5, 0.0], [0.5, 0.0]]


def test_cosines_by_hand() -> None:
    found = cosine_matrix(np.array([[1, 0], [1, 1], [0, 0]], np.float32))
    np.testing.assert_allclose(found, [[1, 0.5**0.5, 0], [0.5**0.5, 1, 0], [0, 0, 0]], atol=1e-6)
