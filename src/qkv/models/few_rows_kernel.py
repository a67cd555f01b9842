"""A decoder's step in 8 bits for a few rows, compiled by numba (extra `fast`): all layers in one call.

With one text, or the beams of one, a step's products are so short that calling them, and sharing them out among
threads, takes longer than computing them. Here nothing is called and one thread does all: what is read from memory, the
weights, is what a step then costs. (Several threads would read faster. But those of numba and those of torch, which
computes the rest, wait for work in busy loops, and kept each other from their CPUs where others used them too.)

Numbers are rounded as torch's kernels round them (nn/int8.py): weights to 8 bits with a scale for each output, x to 8
bits anew for every product, with one scale and one zero for all rows. Sums of products are whole and exact, so the
two ways differ by rounding of single precision alone. Without numba torch's kernels are called (nn/decoder_step.py).

What this file does NOT do: know torch, hold weights or texts (few_rows.py does), more than a few rows.

Shapes: L layers, R rows, D width, F inner width, H heads, K head width, T tokens that there is room for, S tokens of
the longest source, N tokens of all C sources, I inputs, O outputs.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.models.byte_products import loop, loop_of_one, sums
from qkv.models.compiled import LANES, SETTINGS, Floats, compiled, exp, half, kept, numba, one, weighed, wide, zero

Bytes = NDArray[np.int8]
Steps = NDArray[np.uint8]
Integers = NDArray[np.int32]

PRODUCTS = ("qkv", "out", "query", "source_out", "up", "down")
QKV, OUT, QUERY, SOURCE_OUT, UP, DOWN = range(6)
ACTIVATIONS = ("relu", "silu", "gelu", "gelu_tanh", "tanh")


class Weights(NamedTuple):
    """The linear maps of a layer end to end, in the order of PRODUCTS, their outputs counted through."""

    weight: Bytes  # (L, all weights of a layer)
    scale: Floats  # (L, all outputs)
    total: Integers  # (L, all outputs): the sum of an output's weights, times which the zero of x is taken off
    bias: Floats  # (L, all outputs)
    table: NDArray[np.int64]  # (PRODUCTS, 3): inputs, first weight, first output
    norms: Floats  # (L, 3, 2, D): gain and bias of the norm of each sub-layer


class Settings(NamedTuple):
    scale: float  # of scores
    source_scale: float
    epsilon: float
    activation: int  # in ACTIVATIONS
    before: bool  # the norms: x + f(norm(x)), not norm(x + f(x))
    narrow: bool  # 7 bits for x
    look: int  # the layer whose look at the source is wanted


class Scratch(NamedTuple):
    x: Floats  # (R, D): goes in and comes out
    normed: Floats  # (R, D)
    steps: Steps  # (R · max(D, H · K, F),): x in 8 bits
    heads: Floats  # (R, 3 · H · K): queries, keys and values
    answer: Floats  # (R, H · K): of attention
    inner: Floats  # (R, F)
    scores: Floats  # (max(T, S),)
    looks: Floats  # (R, H, S)


class Past(NamedTuple):
    keys: NDArray[Any]  # (L, R or more, T, H, K), single precision or the bits of half
    values: NDArray[Any]
    length: int  # tokens that are written already


class Source(NamedTuple):
    memory: NDArray[Any]  # (L, N, 2, H, K): keys and values, single precision or the bits of half
    begins: NDArray[np.int64]  # (C + 1,): where the tokens of each source begin
    owners: NDArray[np.int64]  # (R,): which source a row asks


Run = Callable[[Weights, Settings, Scratch, Past, Source], None]
"""run(weights, settings, scratch, past, source): `scratch.x` becomes what the last layer gives, and what is
new is written into the past, whose length stays."""

sums_of: tuple[Any, Any] = sums() if numba else (loop, loop_of_one)
four_sums, one_sum = sums_of
SMALLEST_STEP = 6.1e-5  # torch's


def _extremes(x: Floats, rows: int, width: int) -> tuple[np.float32, np.float32]:
    """Of x (R, I) and 0. In lanes side by side: a compiler compares neighbours one by one."""
    lows, highs = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    for r in range(rows):
        for begin in range(0, width, LANES):
            for lane in range(LANES):
                lows[lane] = min(lows[lane], x[r, begin + lane])
                highs[lane] = max(highs[lane], x[r, begin + lane])
    low = high = zero
    for lane in range(LANES):
        low, high = min(low, lows[lane]), max(high, highs[lane])
    return low, high


# for these alone, numbers that are none are not thought of; inputs are a multiple of LANES (few_rows.py)
extremes = numba.njit(nogil=True, fastmath={"nnan", "nsz"})(_extremes) if numba else _extremes


def _rounded(x: Floats, rows: int, width: int, steps: Steps, narrow: bool) -> tuple[np.float32, np.int32]:
    """x (R, I) in steps, as torch chooses them → how large a step is, and which one is 0."""
    low, high = extremes(x, rows, width)
    most = 127 if narrow else 255
    step = float((np.float64(high) - np.float64(low)) / most)
    if np.float32(step) == zero or math.isinf(one / np.float32(step)):
        step = 0.1
    if step < SMALLEST_STEP:
        low, high = np.float32(low * (SMALLEST_STEP / step)), np.float32(high * (SMALLEST_STEP / step))
        step = SMALLEST_STEP
    # 0 lies on a step: on the one next to its place as counted from below or from above, whichever is surer
    below, above = -low / step, most - high / step
    nearer = below if abs(low / step) < most + abs(high / step) else above
    at = np.int32(min(max(np.rint(nearer), 0), most))
    inverse, origin, top = np.float32(one / np.float32(step)), np.float32(at), np.float32(most)
    for r in range(rows):
        mine = steps[r * width : (r + 1) * width]
        for i in range(width):
            mine[i] = np.uint8(np.int32(min(max(np.rint(x[r, i] * inverse) + origin, zero), top)))
    return np.float32(step), at


def _multiplied(
    x: Floats, product: int, layer: int, weights: Weights, narrow: bool, steps: Steps, onto: bool, found: Floats
) -> None:
    """A product of x (R, I), into found (R, O); or added to what is there."""
    rows = x.shape[0]
    width, at_weight, at_output = weights.table[product]
    step, at = rounded(x, rows, width, steps, narrow)
    weight = weights.weight[layer]
    for o in range(found.shape[1]):
        size, bias = step * weights.scale[layer, at_output + o], weights.bias[layer, at_output + o]
        off, w = at * weights.total[layer, at_output + o], at_weight + o * width
        for r in range(0, rows, 4):
            if rows - r == 1:
                s0 = s1 = s2 = s3 = one_sum(steps, r * width, weight, w, width)
            else:
                # where there are fewer than four, the last one comes again
                r1, r2, r3 = min(r + 1, rows - 1), min(r + 2, rows - 1), min(r + 3, rows - 1)
                s0, s1, s2, s3 = four_sums(steps, r * width, r1 * width, r2 * width, r3 * width, weight, w, width)
            for k, s in enumerate((s0, s1, s2, s3)):
                if r + k < rows:
                    before = found[r + k, o] if onto else zero
                    found[r + k, o] = before + np.float32(s - off) * size + bias


def _normed(x: Floats, norm: Floats, epsilon: float, found: Floats) -> None:
    """x (R, D), gain and bias (2, D) → found (R, D), which may be x itself"""
    rows, width = x.shape
    for r in range(rows):
        mean = zero
        for d in range(width):
            mean += x[r, d]
        mean /= np.float32(width)
        square = zero
        for d in range(width):
            square += (x[r, d] - mean) * (x[r, d] - mean)
        size = one / np.float32(math.sqrt(square / np.float32(width) + np.float32(epsilon)))
        for d in range(width):
            found[r, d] = (x[r, d] - mean) * size * norm[0, d] + norm[1, d]


def _bent(x: Floats, activation: int) -> None:
    """(F,), in place"""
    if activation == 0:
        for f in range(x.size):
            x[f] = max(x[f], zero)
    elif activation == 1:
        for f in range(x.size):
            x[f] = x[f] / (one + exp(-x[f]))
    elif activation == 2:
        for f in range(x.size):
            x[f] = half * x[f] * (one + np.float32(math.erf(x[f] * np.float32(math.sqrt(0.5)))))
    elif activation == 3:
        for f in range(x.size):
            inside = np.float32(math.sqrt(2 / math.pi)) * (x[f] + np.float32(0.044715) * x[f] * x[f] * x[f])
            x[f] = half * x[f] * (one + np.float32(math.tanh(inside)))
    else:
        for f in range(x.size):
            x[f] = np.float32(math.tanh(x[f]))


def _copied(to: Floats, what: Floats) -> None:
    """As long as `to` is. Arrays that are assigned are compared in shape first, which takes seconds to compile."""
    for k in range(to.size):
        to[k] = what[k]


rounded, multiplied, normed = map(compiled, (_rounded, _multiplied, _normed))
bent, copied = map(compiled, (_bent, _copied))


def _written(layer: int, scale: float, scratch: Scratch, past: Past) -> None:
    """New keys and values into the past, and attention to all of it."""
    heads, width = past.keys.shape[3:]
    scores, D = scratch.scores, heads * width
    for r in range(scratch.x.shape[0]):
        for h in range(heads):
            at = h * width
            query, answer = scratch.heads[r, at : at + width], scratch.answer[r, at : at + width]
            new_key, new_value = past.keys[layer, r, past.length, h], past.values[layer, r, past.length, h]
            for k in range(width):
                new_key[k] = kept(scratch.heads[r, D + at + k], new_key)
                new_value[k] = kept(scratch.heads[r, 2 * D + at + k], new_value)
            for t in range(past.length + 1):
                key, score = past.keys[layer, r, t, h], zero
                for k in range(width):
                    score += query[k] * wide(key[k])
                scores[t] = score * np.float32(scale)
            weighed(scores, past.length + 1)
            for k in range(width):
                answer[k] = zero
            for t in range(past.length + 1):
                value, weight = past.values[layer, r, t, h], scores[t]
                for k in range(width):
                    answer[k] += weight * wide(value[k])


def _asked(layer: int, scale: float, scratch: Scratch, source: Source, is_looked_at: bool) -> None:
    """Attention to the source."""
    heads, width = source.memory.shape[3:]
    scores = scratch.scores
    for r in range(scratch.x.shape[0]):
        begin = source.begins[source.owners[r]]
        length = source.begins[source.owners[r] + 1] - begin
        for h in range(heads):
            at = h * width
            query, answer = scratch.heads[r, at : at + width], scratch.answer[r, at : at + width]
            for s in range(length):
                key, score = source.memory[layer, begin + s, 0, h], zero
                for k in range(width):
                    score += query[k] * wide(key[k])
                scores[s] = score * np.float32(scale)
            weighed(scores, length)
            for k in range(width):
                answer[k] = zero
            for s in range(length):
                value, weight = source.memory[layer, begin + s, 1, h], scores[s]
                for k in range(width):
                    answer[k] += weight * wide(value[k])
            if is_looked_at:
                copied(scratch.looks[r, h, :length], scores)


written, asked = map(compiled, (_written, _asked))


def _run(weights: Weights, settings: Settings, scratch: Scratch, past: Past, source: Source) -> None:
    x, steps, narrow = scratch.x, scratch.steps, settings.narrow
    epsilon = settings.epsilon
    for layer in range(weights.norms.shape[0]):
        norms = weights.norms[layer]
        for part in range(3):
            inside = x
            if settings.before:
                normed(x, norms[part], epsilon, scratch.normed)
                inside = scratch.normed
            if part == 0:
                multiplied(inside, QKV, layer, weights, narrow, steps, False, scratch.heads)
                written(layer, settings.scale, scratch, past)
                multiplied(scratch.answer, OUT, layer, weights, narrow, steps, True, x)
            elif part == 1:
                query = scratch.heads[:, : scratch.answer.shape[1]]
                multiplied(inside, QUERY, layer, weights, narrow, steps, False, query)
                asked(layer, settings.source_scale, scratch, source, layer == settings.look)
                multiplied(scratch.answer, SOURCE_OUT, layer, weights, narrow, steps, True, x)
            else:
                multiplied(inside, UP, layer, weights, narrow, steps, False, scratch.inner)
                for r in range(x.shape[0]):
                    bent(scratch.inner[r], settings.activation)
                multiplied(scratch.inner, DOWN, layer, weights, narrow, steps, True, x)
            if not settings.before:
                normed(x, norms[part], epsilon, x)


@cache
def kernel() -> Run:
    """Compiled on its first call, which takes seconds; kept on disk beside this file where that can be written."""
    run: Run = numba.njit(cache=True, **SETTINGS)(_run)
    return run
