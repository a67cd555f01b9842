"""Intervals against numbers worked by hand, known from tables, or counted over many samples."""

import math

import numpy as np
import pytest

from qkv.metrics import intervals
from qkv.metrics.intervals import FloatArray, bootstrap, paired_difference, resample, wilson_interval


def test_wilson_by_hand() -> None:
    """n = 10, 8 right, z = 2: centre (0.8 + 0.2) / 1.4, half √(0.016 + 0.01) · 2 / 1.4."""
    low, high = wilson_interval(8, 10, z=2)
    assert low == pytest.approx(1 / 1.4 - 2 / 1.4 * math.sqrt(0.026))
    assert high == pytest.approx(1 / 1.4 + 2 / 1.4 * math.sqrt(0.026))


@pytest.mark.parametrize("n", [1, 7, 1000, 10**9])
def test_wilson_stays_inside(n: int) -> None:
    for successes in {0, 1, n // 2, n}:
        low, high = wilson_interval(successes, n)
        assert 0 <= low <= successes / n <= high <= 1
    assert wilson_interval(0, n)[0] == 0 and wilson_interval(0, n)[1] > 0
    assert wilson_interval(n, n)[1] == 1 and wilson_interval(n, n)[0] < 1


def test_more_trials_narrow_it() -> None:
    widths = [high - low for low, high in (wilson_interval(n // 2, n) for n in (10, 100, 10_000))]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == pytest.approx(2 * 1.96 * 0.5 / 100, rel=1e-3)  # large n: the usual formula


def test_nothing_known_and_nonsense() -> None:
    assert wilson_interval(0, 0) == (0, 1)
    for successes, n in ((3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="successes"):
            wilson_interval(successes, n)


def mean(sums: FloatArray) -> FloatArray:
    return np.asarray(sums[:, 0] / sums[:, 1])


def shares(right: int, n: int) -> FloatArray:
    return np.array([[1.0, 1.0]] * right + [[0.0, 1.0]] * (n - right))


def test_of_a_share_it_is_the_binomial() -> None:
    """400 of 500: standard error √(0.8 · 0.2 / 500) = 0.0179, of which 1.96 lie on either side."""
    low, high = bootstrap(shares(400, 500), mean, draws=4000)
    assert low == pytest.approx(0.8 - 1.96 * 0.01789, abs=0.004)
    assert high == pytest.approx(0.8 + 1.96 * 0.01789, abs=0.004)


def test_distinct_rows_with_counts_are_the_same() -> None:
    low, high = bootstrap([[1.0, 1.0], [0.0, 1.0]], mean, counts=[400, 100], draws=4000)
    plain = bootstrap(shares(400, 500), mean, draws=4000)
    assert (low, high) == pytest.approx(plain, abs=0.004)


def test_it_holds_the_truth_as_often_as_it_says() -> None:
    """Of 200 samples of 80 normal numbers the interval of the mean holds the true one in about 95 of 100."""
    generator = np.random.default_rng(5)
    held = 0
    for sample in range(200):
        rows = np.stack([generator.normal(3, 2, 80), np.ones(80)], axis=1)
        low, high = bootstrap(rows, mean, draws=200, seed=sample)
        held += low <= 3 <= high
    assert 0.90 <= held / 200 <= 0.98


def test_a_draw_takes_as_many_as_there_are() -> None:
    for counts in ([1] * 7, [3, 0, 4], [2, 0]):
        drawn = np.concatenate(list(resample(counts, 50)))
        assert drawn.shape == (50, len(counts)) and (drawn.sum(1) == sum(counts)).all()
        assert not drawn[:, np.array(counts) == 0].any()


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, counts = np.random.default_rng(0).normal(size=(30, 2)) + 5, np.arange(30)
    whole = (*bootstrap(rows, mean, draws=100), *bootstrap(rows, mean, counts=counts, draws=100))
    monkeypatch.setattr(intervals, "_CELLS", 90)
    blocks = (*bootstrap(rows, mean, draws=100), *bootstrap(rows, mean, counts=counts, draws=100))
    assert blocks == pytest.approx(whole)


def test_the_seed_decides() -> None:
    rows = shares(60, 100)
    assert bootstrap(rows, mean, seed=3) == bootstrap(rows, mean, seed=3)


def test_of_nothing_nothing() -> None:
    low, high = bootstrap(np.empty((0, 2)), mean)
    assert math.isnan(low) and math.isnan(high)
    low, high = bootstrap(shares(5, 9), lambda sums: sums[:, 0] * math.nan)
    assert math.isnan(low) and math.isnan(high)


def test_draws_without_a_value_are_left_out() -> None:
    low, high = bootstrap(shares(1, 2), lambda sums: np.where(sums[:, 0] == 0, math.nan, sums[:, 0]))
    assert (low, high) == (1, 2)


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match=r"\(examples, statistics\)"):
        bootstrap([1.0, 2.0], mean)
    with pytest.raises(ValueError, match="one count per row"):
        bootstrap(shares(1, 2), mean, counts=[1, 2, 3])
    with pytest.raises(ValueError, match="same examples"):
        paired_difference(shares(1, 2), shares(1, 3), mean)


def test_pairs_cancel_what_is_hard_for_both() -> None:
    """b fails where a does and in 8 cases more of 400: far within either's own interval, yet no chance."""
    a, b = shares(200, 400), shares(192, 400)
    found = paired_difference(a, b, mean, draws=2000)
    assert found.difference == pytest.approx(0.02)
    assert 0 < found.low < 0.02 < found.high < 0.04
    assert found.p < 0.01
    low, high = bootstrap(a, mean)
    assert high - low > 4 * (found.high - found.low) / 2 and low < 192 / 400


def test_the_same_system_twice() -> None:
    a = shares(30, 50)
    assert paired_difference(a, a, mean) == (0, 0, 0, 1)


def test_p_is_even_where_there_is_no_difference() -> None:
    """Two coins on the same 100 examples, 100 times: p is below 0.05 about once in twenty."""
    generator = np.random.default_rng(0)
    small = 0
    for trial in range(100):
        a, b = (np.stack([generator.random(100) < 0.7, np.ones(100)], axis=1) for _ in range(2))
        small += paired_difference(a, b, mean, draws=200, seed=trial).p < 0.05
    assert small <= 10


def test_paired_with_counts() -> None:
    found = paired_difference([[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0], [0.0, 1.0]], mean, counts=[90, 10])
    assert found.difference == pytest.approx(0.1) and 0.04 < found.low < 0.1 < found.high < 0.17
