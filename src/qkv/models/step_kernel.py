"""Attention of one new token a row, compiled by numba (extra `fast`): to what its row has written, and to its source.

A new token asks each key once, so that reading keys and values from memory is most of what it costs. torch's kernels
are made for many questions and take longer for one, and sources of different lengths have to be padded to the longest.
Here rows are read as they lie, token after token with all heads, and no further than they go.

One thread does it: see models/few_rows_kernel.py for why.

What this file does NOT do: know torch (step_attention.py does).

Shapes: Q rows, T tokens that there is room for, N tokens of all sources, C sources, S tokens of the longest, H heads, K
head width.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.models.compiled import SETTINGS, Floats, kept, numba, weighed, wide, zero

Memory = NDArray[Any]  # single precision, or the bits of half


def _to_past(
    new: tuple[Floats, Floats, Floats],
    keys: Memory,
    values: Memory,
    length: int,
    scale: float,
    scores: Floats,
    answer: Floats,
) -> None:
    """Query, key and value (Q, H, K) of a new token: the latter two are written behind the first `length` of keys and
    values (Q or more, T, H, K), and all of them are asked → answer (Q, H, K); scores (H, T) are a place to work."""
    query, new_key, new_value = new
    rows, heads, width = query.shape
    for r in range(rows):
        for h in range(heads):
            key, value = keys[r, length, h], values[r, length, h]
            for k in range(width):
                key[k] = kept(new_key[r, h, k], key)
                value[k] = kept(new_value[r, h, k], value)
        for t in range(length + 1):
            for h in range(heads):
                asked, key, score = query[r, h], keys[r, t, h], zero
                for k in range(width):
                    score += asked[k] * wide(key[k])
                scores[h, t] = score * np.float32(scale)
        for h in range(heads):
            weighed(scores[h], length + 1)
            found = answer[r, h]
            for k in range(width):
                found[k] = zero
        for t in range(length + 1):
            for h in range(heads):
                found, value, weight = answer[r, h], values[r, t, h], scores[h, t]
                for k in range(width):
                    found[k] += weight * wide(value[k])


def _to_source(
    query: Floats,
    memory: Memory,
    begins: NDArray[np.int64],
    owners: NDArray[np.int64],
    scale: float,
    looks: Floats,
    answer: Floats,
) -> None:
    """query (Q, H, K) to keys and values (N, 2, H, K) of the source that each row has, whose tokens begin at begins
    (C + 1,) → answer (Q, H, K) and looks (Q, H, S), which are zeros."""
    rows, heads, width = query.shape
    for r in range(rows):
        begin = begins[owners[r]]
        length = begins[owners[r] + 1] - begin
        for t in range(length):
            for h in range(heads):
                asked, key, score = query[r, h], memory[begin + t, 0, h], zero
                for k in range(width):
                    score += asked[k] * wide(key[k])
                looks[r, h, t] = score * np.float32(scale)
        for h in range(heads):
            weighed(looks[r, h], length)
            found = answer[r, h]
            for k in range(width):
                found[k] = zero
        for t in range(length):
            for h in range(heads):
                found, value, weight = answer[r, h], memory[begin + t, 1, h], looks[r, h, t]
                for k in range(width):
                    found[k] += weight * wide(value[k])


@cache
def to_past() -> Callable[..., None]:
    """Compiled on its first call, which takes a second; kept on disk beside this file where that can be written."""
    run: Callable[..., None] = numba.njit(cache=True, **SETTINGS)(_to_past)
    return run


@cache
def to_source() -> Callable[..., None]:
    run: Callable[..., None] = numba.njit(cache=True, **SETTINGS)(_to_source)
    return run
