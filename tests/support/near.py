"""Answers that two networks with the same weights give: the same words, and numbers up to rounding.

Weights that lie elsewhere in memory, and another number of threads, are added up in another order.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest


def assert_near(found: Any, expected: Any, place: str = "", *, within: float = 1e-5) -> None:
    """
    >>> assert_near({"label": "a", "p": [0.3]}, {"label": "a", "p": [0.3000001]})
    >>> assert_near([("a", 0.3)], [("a", 0.31)])  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    AssertionError: [0][1]: 0.3, not 0.31
    """
    if isinstance(expected, Mapping):
        assert isinstance(found, Mapping) and list(found) == list(expected), f"{place}: {found!r}, not {expected!r}"
        for key, value in expected.items():
            assert_near(found[key], value, f"{place}[{key!r}]", within=within)
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        assert isinstance(found, Sequence) and len(found) == len(expected), f"{place}: {found!r}, not {expected!r}"
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_near(one, other, f"{place}[{number}]", within=within)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=within, abs=within), f"{place}: {found!r}, not {expected!r}"
    else:
        assert found == expected, f"{place}: {found!r}, not {expected!r}"
