"""Perplexity against numbers known beforehand."""

import math

import pytest

from qkv.metrics.language import perplexity


def test_perplexity() -> None:
    assert perplexity(0) == 1
    assert perplexity(math.log(30522)) == pytest.approx(30522)
    assert perplexity(1e9) == math.inf and math.isnan(perplexity(math.nan))
