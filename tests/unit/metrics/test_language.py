"""Perplexity and bits against numbers known beforehand."""

import math

import pytest

from qkv.metrics.numbers import bits_per_character, perplexity


def test_perplexity() -> None:
    assert perplexity(0) == 1
    assert perplexity(math.log(30522)) == pytest.approx(30522)
    assert perplexity(1e9) == math.inf and math.isnan(perplexity(math.nan))


def test_bits_do_not_depend_on_how_a_text_is_cut() -> None:
    """Eight characters, each equally likely among four: two bits each, as eight tokens or as four of two."""
    assert bits_per_character(8 * math.log(4), 8) == pytest.approx(2)
    assert bits_per_character(4 * math.log(16), 8) == pytest.approx(2)
    assert math.isnan(bits_per_character(1.0, 0))
