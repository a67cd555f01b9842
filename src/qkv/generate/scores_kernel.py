"""Scores of a large vocabulary looked through by compiled loops (numba, extra `fast`), for a few rows: largest.py makes
a dozen calls for it, which take longer than their work. With many rows torch's two threads or more are faster.

Shapes: Q rows, V vocabulary.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from qkv.models.compiled import LANES, SETTINGS, Floats, compiled, exp, most_of, numba, zero

BLOCK = 2_048
"""Scores that are looked at together: most blocks hold none of the largest."""


def _has_none(scores: Floats) -> bool:
    """Whether something among (V,) is no number."""
    none = 0
    for place in range(scores.size):
        none += scores[place] != scores[place]
    return none > 0


has_none = compiled(_has_none)


def _log_totals(scores: Floats, totals: Floats) -> None:
    """(Q, V) → log Σ eˣ of each row (Q,); of a row with something that is no number, none."""
    lanes = np.empty(LANES, np.float32)
    for row in range(scores.shape[0]):
        own = scores[row]
        if has_none(own):
            totals[row] = np.float32(np.nan)
            continue
        most, total = most_of(own, lanes), zero
        if math.isinf(most):  # infinity less infinity is not a number
            totals[row] = most
        else:
            for place in range(own.size):
                total += exp(own[place] - most)
            totals[row] = np.float32(math.log(total)) + most


def _largest(scores: Floats, values: Floats, places: NDArray[np.int64]) -> None:
    """(Q, V) → the k largest scores of each row and where they are, (Q, k) each, largest first; of equals the first.
    What is no number counts as the largest."""
    rows, vocabulary = scores.shape
    k, lanes = values.shape[1], np.empty(LANES, np.float32)
    for row in range(rows):
        own, best, at = scores[row], values[row], places[row]
        found, none = 0, has_none(own)  # of the k
        if none:
            for place in range(vocabulary):
                if found < k and own[place] != own[place]:
                    best[found], at[found] = own[place], place
                    found += 1
        first = found
        for begin in range(0, vocabulary, BLOCK):
            block = own[begin : begin + BLOCK]
            if none or found < k or most_of(block, lanes) > best[k - 1]:
                for place in range(block.size):
                    score = block[place]
                    if score == score and (found < k or score > best[k - 1]):
                        number = min(found, k - 1)
                        while number > first and score > best[number - 1]:
                            best[number], at[number] = best[number - 1], at[number - 1]
                            number -= 1
                        if number < k and first < k:
                            best[number], at[number] = score, begin + place
                        found = min(found + 1, k)


@cache
def log_totals() -> Callable[[Floats, Floats], None]:
    """Compiled on its first call, which takes a second; kept on disk beside this file where that can be written."""
    run: Callable[[Floats, Floats], None] = numba.njit(cache=True, **SETTINGS)(_log_totals)
    return run


@cache
def largest() -> Callable[[Floats, Floats, NDArray[np.int64]], None]:
    run: Callable[[Floats, Floats, NDArray[np.int64]], None] = numba.njit(cache=True, **SETTINGS)(_largest)
    return run
