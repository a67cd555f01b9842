"""Figures that every report rests on, against numbers worked by hand or known from tables."""

import math

import pytest

from qkv.metrics import perplexity, wilson_interval


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


def test_perplexity() -> None:
    assert perplexity(0) == 1
    assert perplexity(math.log(30522)) == pytest.approx(30522)
    assert perplexity(1e9) == math.inf and math.isnan(perplexity(math.nan))
