"""Correlations and errors: by hand, and against scipy where it is installed."""

import math
from typing import Any

import numpy as np
import pytest

from qkv.metrics.numbers import (
    mean_absolute_error,
    mean_squared_error,
    number_figures,
    number_intervals,
    pearson,
    ranks,
    spearman,
)


def test_pearson_by_hand() -> None:
    """x off its mean −1 0 1, y −1 1 0: Σxy = 1, Σx² = Σy² = 2."""
    assert pearson([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 2)
    assert pearson([1, 2, 3], [6, 4, 2]) == pytest.approx(-1)


def test_spearman_with_ties_by_hand() -> None:
    """Ranks 1 2.5 2.5 4 and 1 2 3 4: Σ 4.5, spreads 4.5 and 5."""
    assert ranks([1, 5, 5, 9]).tolist() == [1, 2.5, 2.5, 4]
    assert spearman([1, 5, 5, 9], [0.1, 0.2, 0.3, 0.4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert spearman([1, 2, 3, 4], [-8, 0, 1, 5000]) == pytest.approx(1)


def test_errors_by_hand() -> None:
    assert mean_absolute_error([1, 2], [3, 1]) == 1.5
    assert mean_squared_error([1, 2], [3, 1]) == 2.5


@pytest.mark.parametrize("constant", [0.1, 1e9, 0.0])
def test_nothing_correlates_with_a_constant(constant: float) -> None:
    for x, y in (([constant] * 3, [1, 2, 3]), ([1, 2, 3], [constant] * 3), ([constant] * 3, [constant] * 3)):
        assert math.isnan(pearson(x, y)) and math.isnan(spearman(x, y))


def test_too_few() -> None:
    assert all(math.isnan(value) for value in number_figures([], []).values())
    assert math.isnan(pearson([1], [2])) and mean_absolute_error([1], [2]) == 1
    assert np.isnan(list(number_intervals([], []).values())).all()
    with pytest.raises(ValueError, match="equal length"):
        pearson([1, 2], [1])


def test_far_from_zero() -> None:
    """Squares of such numbers would lose the difference."""
    x, y = np.array([1, 2, 3, 5.0]), np.array([2, 1, 4, 4.0])
    assert pearson(x + 1e9, y * 1e-9 - 7e3) == pytest.approx(pearson(x, y), abs=1e-3)
    assert pearson(x + 1e6, y) == pytest.approx(pearson(x, y), abs=1e-9)


def test_intervals_hold_the_figures() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=400)
    y = 0.6 * x + 0.8 * generator.normal(size=400)
    figures, found = number_figures(x, y), number_intervals(x, y)
    for name, (low, high) in found.items():
        assert low < figures[name] < high
    # Fisher's: tanh(artanh(r) ± 1.96 / √(n − 3))
    z, off = math.atanh(figures["pearson"]), 1.96 / math.sqrt(397)
    assert found["pearson"] == pytest.approx((math.tanh(z - off), math.tanh(z + off)), abs=0.02)


def test_a_draw_without_spread_is_left_out() -> None:
    low, high = number_intervals([1, 2, 3], [1, 3, 2])["pearson"]
    assert -1 <= low <= high <= 1


@pytest.mark.parametrize("seed", range(6))
def test_equals_scipy(seed: int) -> None:
    stats: Any = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(seed)
    x = generator.normal(3, 2, 50)
    y = x + generator.normal(0, 3, 50)
    if seed % 2:
        x, y = x.round(), y.round()  # ties
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert ranks(y).tolist() == stats.rankdata(y).tolist()


def test_errors_equal_scikit_learn() -> None:
    metrics: Any = pytest.importorskip("sklearn.metrics")
    x, y = np.random.default_rng(3).normal(size=(2, 40))
    assert mean_absolute_error(x, y) == pytest.approx(metrics.mean_absolute_error(x, y))
    assert mean_squared_error(x, y) == pytest.approx(metrics.mean_squared_error(x, y))
