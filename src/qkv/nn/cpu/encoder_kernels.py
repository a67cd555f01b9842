"""numba kernels (extra `fast`) of encoders in 8 bits (encoder.py): what lies between two products, in one pass over it.
Independent of torch, on one thread (parallel.py divides the rows of a batch).

    quantise        rows → levels, steps, zero points
    restore         sums of a product → its result
    add_norm        sums of a product → norm(residual + result)
    activate        sums of a product → activation(result) → levels

Not here: attention, where torch's kernel is faster than such loops.

Shapes: N tokens, I inputs, O outputs, D width.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.nn.cpu.compiled import HALF, LANES, ONE, ZERO, Float32s, compile_cached, compile_inner, exp, numba

Levels = NDArray[np.uint8]
_SMALLEST = np.float32(1e-30)
_TWO = np.float32(2)
# erf by Abramowitz and Stegun 1964, 7.1.26; within 1.5e-7
_ERF = np.float32(0.3275911)
_A1, _A2, _A3 = np.float32(0.254829592), np.float32(-0.284496736), np.float32(1.421413741)
_A4, _A5 = np.float32(-1.453152027), np.float32(1.061405429)
_ROOT_HALF, _ROOT_TWO_PI = np.float32(math.sqrt(0.5)), np.float32(math.sqrt(2 / math.pi))
_CUBIC = np.float32(0.044715)


class Sums(NamedTuple):
    """s_o Σ P Q of a product, and what restores it: x Wᵀ + b = step_r (sums - zero_r total_o) + bias_o."""

    sums: Float32s  # (N, O)
    step: Float32s  # (N,)
    zero: Float32s  # (N,)
    total: Float32s  # (O,)
    bias: Float32s  # (O,)


def _extremes(x: Float32s, lows: Float32s, highs: Float32s) -> tuple[np.float32, np.float32]:
    """The minimum and the maximum of (I,) and 0, in lanes so that the compiler vectorises."""
    for lane in range(LANES):
        lows[lane] = highs[lane] = ZERO
    whole = x.size // LANES * LANES
    for begin in range(0, whole, LANES):
        for lane in range(LANES):
            lows[lane] = min(lows[lane], x[begin + lane])
            highs[lane] = max(highs[lane], x[begin + lane])
    low = high = ZERO
    for lane in range(LANES):
        low, high = min(low, lows[lane]), max(high, highs[lane])
    for place in range(whole, x.size):
        low, high = min(low, x[place]), max(high, x[place])
    return low, high


# assuming no NaN, comparisons can be vectorised; NaN is found by the sum
find_row_extremes = numba.njit(nogil=True, fastmath={"nnan", "nsz"})(_extremes) if numba else _extremes


def _quantise_row(
    x: Float32s, top: np.float32, levels: Levels, lows: Float32s, highs: Float32s
) -> tuple[np.float32, np.float32]:
    """(I,) → the step and the zero point; NaN, and no levels, if x has a NaN"""
    low, high = find_row_extremes(x, lows, highs)
    step = max((high - low) / top, _SMALLEST)
    zero, inverse, odd = np.rint(-low / step), ONE / step, ZERO
    for i in range(x.size):
        odd += x[i] * ZERO
        levels[i] = np.uint8(np.int32(min(max(np.rint(x[i] * inverse + zero), ZERO), top)))
    return step + odd, zero


quantise_row = compile_inner(_quantise_row)


def _quantise(x: Float32s, top: float, levels: Levels, step: Float32s, zero: Float32s) -> None:
    lows, highs, most = np.empty(LANES, np.float32), np.empty(LANES, np.float32), np.float32(top)
    for r in range(x.shape[0]):
        step[r], zero[r] = quantise_row(x[r], most, levels[r], lows, highs)


def _restore_row(s: Sums, r: int, found: Float32s) -> None:
    sums, step, off = s.sums[r], s.step[r], s.zero[r]
    for o in range(found.size):
        found[o] = (sums[o] - off * s.total[o]) * step + s.bias[o]


restore_row = compile_inner(_restore_row)


def _restore(s: Sums) -> None:
    for r in range(s.sums.shape[0]):
        restore_row(s, r, s.sums[r])


def _add_norm(s: Sums, x: Float32s, gain: Float32s, shift: Float32s, epsilon: float, found: Float32s) -> None:
    """norm(x + result) of x (N, D)"""
    width = x.shape[1]
    for r in range(x.shape[0]):
        own, before = found[r], x[r]
        restore_row(s, r, own)
        mean = ZERO
        for d in range(width):
            own[d] += before[d]
            mean += own[d]
        mean /= np.float32(width)
        square = ZERO
        for d in range(width):
            square += (own[d] - mean) * (own[d] - mean)
        size = ONE / np.float32(math.sqrt(square / np.float32(width) + np.float32(epsilon)))
        for d in range(width):
            own[d] = (own[d] - mean) * size * gain[d] + shift[d]


def _activate_row(x: Float32s, activation: int) -> None:
    """(O,), in place; numbered as in ACTIVATION_FUNCTIONS of nn/block.py"""
    if activation == 0:
        for f in range(x.size):
            x[f] = max(x[f], ZERO)
    elif activation == 1:
        for f in range(x.size):
            y = abs(x[f]) * _ROOT_HALF
            t = ONE / (ONE + _ERF * y)
            rest = ((((_A5 * t + _A4) * t + _A3) * t + _A2) * t + _A1) * t * exp(-y * y)  # 1 - erf(y)
            x[f] = HALF * (x[f] + abs(x[f]) * (ONE - rest))
    elif activation == 2:
        for f in range(x.size):
            y = _ROOT_TWO_PI * (x[f] + _CUBIC * x[f] * x[f] * x[f])
            x[f] = x[f] / (ONE + exp(-_TWO * y))
    elif activation == 3:
        for f in range(x.size):
            x[f] = x[f] / (ONE + exp(-x[f]))
    else:
        for f in range(x.size):
            x[f] = ONE - _TWO / (ONE + exp(_TWO * x[f]))


activate_values = compile_inner(_activate_row)


def _activate(s: Sums, activation: int, top: float, levels: Levels, step: Float32s, zero: Float32s) -> None:
    lows, highs, most = np.empty(LANES, np.float32), np.empty(LANES, np.float32), np.float32(top)
    row = np.empty(s.sums.shape[1], np.float32)
    for r in range(s.sums.shape[0]):
        restore_row(s, r, row)
        activate_values(row, activation)
        step[r], zero[r] = quantise_row(row, most, levels[r], lows, highs)


class EncoderKernels(NamedTuple):
    quantise: Callable[..., None]
    restore: Callable[..., None]
    add_norm: Callable[..., None]
    activate: Callable[..., None]


@cache
def compile_encoder() -> EncoderKernels:
    """Compiles on the first call of each (seconds), or loads from numba's cache."""
    functions: tuple[Any, ...] = (_quantise, _restore, _add_norm, _activate)
    return EncoderKernels(*map(compile_cached, functions))
