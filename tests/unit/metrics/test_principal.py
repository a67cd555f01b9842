import numpy as np
import pytest

from qkv.metrics.numbers import principal


def test_points_on_a_line() -> None:
    """(0, 0), (3, 4), (6, 8): along (0.6, 0.8), five apart; nothing beside it."""
    found = principal(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]))
    assert found.places == pytest.approx(np.array([[-5.0, 0.0], [0.0, 0.0], [5.0, 0.0]]), abs=1e-12)
    assert found.shares == pytest.approx(np.array([1.0, 0.0]), abs=1e-12)


def test_against_the_covariance() -> None:
    draw = np.random.default_rng(0)
    points = draw.normal(size=(60, 5)) * [5, 3, 1, 0.5, 0.1] + 7
    values = np.linalg.eigvalsh(np.cov(points.T))[::-1]
    found = principal(points, 3)
    assert found.shares == pytest.approx(values[:3] / values.sum())
    assert found.places.var(0, ddof=1) == pytest.approx(values[:3])
    assert found.places.mean(0) == pytest.approx(np.zeros(3), abs=1e-12)
    assert principal(-points, 3).places == pytest.approx(-found.places)  # the directions keep their sign


def test_points_that_are_all_the_same() -> None:
    found = principal(np.ones((4, 3)))
    assert not found.places.any() and not found.shares.any()
