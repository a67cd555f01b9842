"""numba kernels (extra `fast`) for decoding few rows on a CPU: attention of new tokens, the 8-bit decoder step, and the
largest scores of a vocabulary. int8_step.py and search/decoding.py call them; this file is independent of torch.

Attention: a new token reads each key once, so that memory traffic dominates. torch's kernels are made for many queries
and need padded sources; here rows are read in memory order and only to their end.

Decoder step: with few rows the products are so short that calls and thread dispatch take longer than the computation.
Here all layers are one call on one thread, bound by reading the weights. (The busy-waiting threads of numba and torch
would compete for the CPUs.) Rounding follows torch's kernels (precision.py): one scale per output for weights, one
scale and zero point for all rows of x in every product. Integer sums are exact, so that the two differ only by float32
rounding.

Largest scores: torch needs a dozen calls for it (search/decoding.py), which take longer than the work for few rows.

Shapes: L layers, Q or R rows, D width, F inner width, H heads, K head width, T capacity in tokens, S tokens of the
longest source, N tokens of all C sources, I inputs, O outputs, V vocabulary.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.nn.cpu.compiled import (
    HALF,
    LANES,
    ONE,
    ZERO,
    Float32s,
    choose_sums,
    compile_cached,
    compile_inner,
    exp,
    find_maximum,
    numba,
    softmax_row,
    sum_products,
    sum_products_of_one,
    to_single,
    to_stored,
)

_Memory = NDArray[Any]  # single precision, or the bits of half


def _past_attention(
    new: tuple[Float32s, Float32s, Float32s],
    keys: _Memory,
    values: _Memory,
    length: int,
    scale: float,
    scores: Float32s,
    answer: Float32s,
) -> None:
    """Append the new key and value (Q, H, K) after the first `length` of keys and values (Q or more, T, H, K), and
    attend to all of them → answer (Q, H, K); scores (H, T) is scratch memory."""
    query, new_key, new_value = new
    rows, heads, width = query.shape
    for r in range(rows):
        for h in range(heads):
            key, value = keys[r, length, h], values[r, length, h]
            for k in range(width):
                key[k] = to_stored(new_key[r, h, k], key)
                value[k] = to_stored(new_value[r, h, k], value)
        for t in range(length + 1):
            for h in range(heads):
                asked, key, score = query[r, h], keys[r, t, h], ZERO
                for k in range(width):
                    score += asked[k] * to_single(key[k])
                scores[h, t] = score * np.float32(scale)
        for h in range(heads):
            softmax_row(scores[h], length + 1)
            found = answer[r, h]
            for k in range(width):
                found[k] = ZERO
        for t in range(length + 1):
            for h in range(heads):
                found, value, weight = answer[r, h], values[r, t, h], scores[h, t]
                for k in range(width):
                    found[k] += weight * to_single(value[k])


def _source_attention(
    query: Float32s,
    memory: _Memory,
    begins: NDArray[np.int64],
    owners: NDArray[np.int64],
    scale: float,
    looks: Float32s,
    answer: Float32s,
) -> None:
    """Attend with query (Q, H, K) to the keys and values (N, 2, H, K) of each row's source; begins (C + 1,) are the
    first tokens of the sources → answer (Q, H, K), and the weights in looks (Q, H, S), initially zero."""
    rows, heads, width = query.shape
    for r in range(rows):
        begin = begins[owners[r]]
        length = begins[owners[r] + 1] - begin
        for t in range(length):
            for h in range(heads):
                asked, key, score = query[r, h], memory[begin + t, 0, h], ZERO
                for k in range(width):
                    score += asked[k] * to_single(key[k])
                looks[r, h, t] = score * np.float32(scale)
        for h in range(heads):
            softmax_row(looks[r, h], length)
            found = answer[r, h]
            for k in range(width):
                found[k] = ZERO
        for t in range(length):
            for h in range(heads):
                found, value, weight = answer[r, h], memory[begin + t, 1, h], looks[r, h, t]
                for k in range(width):
                    found[k] += weight * to_single(value[k])


@cache
def compile_past_attention() -> Callable[..., None]:
    """Compiles on the first call (about a second)."""
    run: Callable[..., None] = compile_cached(_past_attention)
    return run


@cache
def compile_source_attention() -> Callable[..., None]:
    run: Callable[..., None] = compile_cached(_source_attention)
    return run


# The decoder step.

Bytes = NDArray[np.int8]
QuantisedRows = NDArray[np.uint8]
_Integers = NDArray[np.int32]

PRODUCTS = ("qkv", "out", "query", "source_out", "up", "down")
QKV, OUT, QUERY, SOURCE_OUT, UP, DOWN = range(6)
ACTIVATION_ORDER = ("relu", "silu", "gelu", "gelu_tanh", "tanh")


class DecoderWeights(NamedTuple):
    """The linear maps of each layer end to end, in the order of PRODUCTS, with outputs numbered consecutively."""

    weight: Bytes  # (L, all weights of a layer)
    scale: Float32s  # (L, all outputs)
    total: _Integers  # (L, all outputs): the sum of an output's weights, to subtract the zero point of x
    bias: Float32s  # (L, all outputs)
    table: NDArray[np.int64]  # (PRODUCTS, 3): inputs, first weight, first output
    norms: Float32s  # (L, 3, 2, D): gain and bias of the norm of each sub-layer


class StepSettings(NamedTuple):
    scale: float  # of scores
    source_scale: float
    epsilon: float
    activation: int  # in ACTIVATION_ORDER
    before: bool  # pre-norm
    narrow: bool  # 7 bits for x
    look: int  # the layer whose attention to the source is returned


class Scratch(NamedTuple):
    x: Float32s  # (R, D): input and output
    normed: Float32s  # (R, D)
    steps: QuantisedRows  # (R · max(D, H · K, F),): x in 8 bits
    heads: Float32s  # (R, 3 · H · K): queries, keys and values
    answer: Float32s  # (R, H · K): of attention
    inner: Float32s  # (R, F)
    scores: Float32s  # (max(T, S),)
    looks: Float32s  # (R, H, S)


class PastKeys(NamedTuple):
    keys: NDArray[Any]  # (L, R or more, T, H, K), single precision or the bits of half
    values: NDArray[Any]
    length: int  # cached tokens


class SourceKeys(NamedTuple):
    memory: NDArray[Any]  # (L, N, 2, H, K): keys and values, single precision or the bits of half
    begins: NDArray[np.int64]  # (C + 1,): first token of each source
    owners: NDArray[np.int64]  # (R,): source of each row


_Run = Callable[[DecoderWeights, StepSettings, Scratch, PastKeys, SourceKeys], None]
"""run(weights, settings, scratch, past, source): overwrites `scratch.x` with the last layer's output and writes new
keys and values into the past, without changing its length."""

_SUMS: tuple[Any, Any] = choose_sums() if numba else (sum_products, sum_products_of_one)
sum_four_rows, sum_one_row = _SUMS
SMALLEST_STEP = 6.1e-5  # torch's


def _find_extremes(x: Float32s, rows: int, width: int) -> tuple[np.float32, np.float32]:
    """The minimum and maximum of x (R, I) and 0, in lanes so that the compiler vectorises."""
    lows, highs = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    for r in range(rows):
        for begin in range(0, width, LANES):
            for lane in range(LANES):
                lows[lane] = min(lows[lane], x[r, begin + lane])
                highs[lane] = max(highs[lane], x[r, begin + lane])
    low = high = ZERO
    for lane in range(LANES):
        low, high = min(low, lows[lane]), max(high, highs[lane])
    return low, high


# assumes no NaN; inputs are a multiple of LANES (int8_step.py)
find_extremes = numba.njit(nogil=True, fastmath={"nnan", "nsz"})(_find_extremes) if numba else _find_extremes


def _quantise_rows(
    x: Float32s, rows: int, width: int, steps: QuantisedRows, narrow: bool
) -> tuple[np.float32, np.int32]:
    """Quantise x (R, I) as torch does → the step size and the zero point."""
    low, high = find_extremes(x, rows, width)
    most = 127 if narrow else 255
    step = float((np.float64(high) - np.float64(low)) / most)
    if np.float32(step) == ZERO or math.isinf(ONE / np.float32(step)):
        step = 0.1
    if step < SMALLEST_STEP:
        low, high = np.float32(low * (SMALLEST_STEP / step)), np.float32(high * (SMALLEST_STEP / step))
        step = SMALLEST_STEP
    # the zero point, computed from the minimum or the maximum, whichever has the smaller error
    below, above = -low / step, most - high / step
    nearer = below if abs(low / step) < most + abs(high / step) else above
    at = np.int32(min(max(np.rint(nearer), 0), most))
    inverse, origin, top = np.float32(ONE / np.float32(step)), np.float32(at), np.float32(most)
    for r in range(rows):
        mine = steps[r * width : (r + 1) * width]
        for i in range(width):
            mine[i] = np.uint8(np.int32(min(max(np.rint(x[r, i] * inverse) + origin, ZERO), top)))
    return np.float32(step), at


def _multiply(
    x: Float32s,
    product: int,
    layer: int,
    weights: DecoderWeights,
    narrow: bool,
    steps: QuantisedRows,
    onto: bool,
    found: Float32s,
) -> None:
    """Multiply x (R, I) by a weight matrix into found (R, O), or add to it if `onto`."""
    rows = x.shape[0]
    width, at_weight, at_output = weights.table[product]
    step, at = quantise_rows(x, rows, width, steps, narrow)
    weight = weights.weight[layer]
    for o in range(found.shape[1]):
        size, bias = step * weights.scale[layer, at_output + o], weights.bias[layer, at_output + o]
        off, w = at * weights.total[layer, at_output + o], at_weight + o * width
        for r in range(0, rows, 4):
            if rows - r == 1:
                s0 = s1 = s2 = s3 = sum_one_row(steps, r * width, weight, w, width)
            else:
                # with fewer than four rows, the last one is repeated
                r1, r2, r3 = min(r + 1, rows - 1), min(r + 2, rows - 1), min(r + 3, rows - 1)
                s0, s1, s2, s3 = sum_four_rows(steps, r * width, r1 * width, r2 * width, r3 * width, weight, w, width)
            for k, s in enumerate((s0, s1, s2, s3)):
                if r + k < rows:
                    before = found[r + k, o] if onto else ZERO
                    found[r + k, o] = before + np.float32(s - off) * size + bias


def _normalise(x: Float32s, norm: Float32s, epsilon: float, found: Float32s) -> None:
    """x (R, D), gain and bias (2, D) → found (R, D), which may be x itself"""
    rows, width = x.shape
    for r in range(rows):
        mean = ZERO
        for d in range(width):
            mean += x[r, d]
        mean /= np.float32(width)
        square = ZERO
        for d in range(width):
            square += (x[r, d] - mean) * (x[r, d] - mean)
        size = ONE / np.float32(math.sqrt(square / np.float32(width) + np.float32(epsilon)))
        for d in range(width):
            found[r, d] = (x[r, d] - mean) * size * norm[0, d] + norm[1, d]


def _activate(x: Float32s, activation: int) -> None:
    """(F,), in place"""
    if activation == 0:
        for f in range(x.size):
            x[f] = max(x[f], ZERO)
    elif activation == 1:
        for f in range(x.size):
            x[f] = x[f] / (ONE + exp(-x[f]))
    elif activation == 2:
        for f in range(x.size):
            x[f] = HALF * x[f] * (ONE + np.float32(math.erf(x[f] * np.float32(math.sqrt(0.5)))))
    elif activation == 3:
        for f in range(x.size):
            inside = np.float32(math.sqrt(2 / math.pi)) * (x[f] + np.float32(0.044715) * x[f] * x[f] * x[f])
            x[f] = HALF * x[f] * (ONE + np.float32(math.tanh(inside)))
    else:
        for f in range(x.size):
            x[f] = np.float32(math.tanh(x[f]))


def _copy(to: Float32s, what: Float32s) -> None:
    """Copy the first to.size values. Array assignment would add shape checks, which take seconds to compile."""
    for k in range(to.size):
        to[k] = what[k]


quantise_rows, multiply_int8, normalise_rows = map(compile_inner, (_quantise_rows, _multiply, _normalise))
activate_row, copy_values = map(compile_inner, (_activate, _copy))


def _attend_past(layer: int, scale: float, scratch: Scratch, past: PastKeys) -> None:
    """Write new keys and values into the past, and attend to all of it."""
    heads, width = past.keys.shape[3:]
    scores, D = scratch.scores, heads * width
    for r in range(scratch.x.shape[0]):
        for h in range(heads):
            at = h * width
            query, answer = scratch.heads[r, at : at + width], scratch.answer[r, at : at + width]
            new_key, new_value = past.keys[layer, r, past.length, h], past.values[layer, r, past.length, h]
            for k in range(width):
                new_key[k] = to_stored(scratch.heads[r, D + at + k], new_key)
                new_value[k] = to_stored(scratch.heads[r, 2 * D + at + k], new_value)
            for t in range(past.length + 1):
                key, score = past.keys[layer, r, t, h], ZERO
                for k in range(width):
                    score += query[k] * to_single(key[k])
                scores[t] = score * np.float32(scale)
            softmax_row(scores, past.length + 1)
            for k in range(width):
                answer[k] = ZERO
            for t in range(past.length + 1):
                value, weight = past.values[layer, r, t, h], scores[t]
                for k in range(width):
                    answer[k] += weight * to_single(value[k])


def _attend_source(layer: int, scale: float, scratch: Scratch, source: SourceKeys, is_looked_at: bool) -> None:
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
                key, score = source.memory[layer, begin + s, 0, h], ZERO
                for k in range(width):
                    score += query[k] * to_single(key[k])
                scores[s] = score * np.float32(scale)
            softmax_row(scores, length)
            for k in range(width):
                answer[k] = ZERO
            for s in range(length):
                value, weight = source.memory[layer, begin + s, 1, h], scores[s]
                for k in range(width):
                    answer[k] += weight * to_single(value[k])
            if is_looked_at:
                copy_values(scratch.looks[r, h, :length], scores)


attend_past, attend_source = map(compile_inner, (_attend_past, _attend_source))


def _run(weights: DecoderWeights, settings: StepSettings, scratch: Scratch, past: PastKeys, source: SourceKeys) -> None:
    x, steps, narrow = scratch.x, scratch.steps, settings.narrow
    epsilon = settings.epsilon
    for layer in range(weights.norms.shape[0]):
        norms = weights.norms[layer]
        for part in range(3):
            inside = x
            if settings.before:
                normalise_rows(x, norms[part], epsilon, scratch.normed)
                inside = scratch.normed
            if part == 0:
                multiply_int8(inside, QKV, layer, weights, narrow, steps, False, scratch.heads)
                attend_past(layer, settings.scale, scratch, past)
                multiply_int8(scratch.answer, OUT, layer, weights, narrow, steps, True, x)
            elif part == 1:
                query = scratch.heads[:, : scratch.answer.shape[1]]
                multiply_int8(inside, QUERY, layer, weights, narrow, steps, False, query)
                attend_source(layer, settings.source_scale, scratch, source, layer == settings.look)
                multiply_int8(scratch.answer, SOURCE_OUT, layer, weights, narrow, steps, True, x)
            else:
                multiply_int8(inside, UP, layer, weights, narrow, steps, False, scratch.inner)
                for r in range(x.shape[0]):
                    activate_row(scratch.inner[r], settings.activation)
                multiply_int8(scratch.inner, DOWN, layer, weights, narrow, steps, True, x)
            if not settings.before:
                normalise_rows(x, norms[part], epsilon, x)


@cache
def compile_step() -> _Run:
    """Compiles on the first call (some seconds)."""
    run: _Run = compile_cached(_run)
    return run


# The largest scores.

_BLOCK = 2_048
"""Scores whose maximum is tested together: most blocks contain none of the largest."""


def _has_nan(scores: Float32s) -> bool:
    """Whether (V,) contains NaN."""
    none = 0
    for place in range(scores.size):
        none += scores[place] != scores[place]
    return none > 0


has_nan = compile_inner(_has_nan)


def _log_totals(scores: Float32s, totals: Float32s) -> None:
    """(Q, V) → log Σ eˣ of each row (Q,); NaN for a row that contains NaN."""
    lanes = np.empty(LANES, np.float32)
    for row in range(scores.shape[0]):
        own = scores[row]
        if has_nan(own):
            totals[row] = np.float32(np.nan)
            continue
        most, total = find_maximum(own, lanes), ZERO
        if math.isinf(most):  # ∞ - ∞ would be NaN
            totals[row] = most
        else:
            for place in range(own.size):
                total += exp(own[place] - most)
            totals[row] = np.float32(math.log(total)) + most


def _largest(scores: Float32s, values: Float32s, places: NDArray[np.int64]) -> None:
    """(Q, V) → the k largest scores of each row and their indices, (Q, k) each, largest first; ties go to the lower
    index. NaN counts as the largest."""
    rows, vocabulary = scores.shape
    k, lanes = values.shape[1], np.empty(LANES, np.float32)
    for row in range(rows):
        own, best, at = scores[row], values[row], places[row]
        found, none = 0, has_nan(own)  # of the k
        if none:
            for place in range(vocabulary):
                if found < k and own[place] != own[place]:
                    best[found], at[found] = own[place], place
                    found += 1
        first = found
        for begin in range(0, vocabulary, _BLOCK):
            block = own[begin : begin + _BLOCK]
            if none or found < k or find_maximum(block, lanes) > best[k - 1]:
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
def compile_log_totals() -> Callable[[Float32s, Float32s], None]:
    """Compiles on the first call (about a second)."""
    run: Callable[[Float32s, Float32s], None] = compile_cached(_log_totals)
    return run


@cache
def compile_largest() -> Callable[[Float32s, Float32s, NDArray[np.int64]], None]:
    run: Callable[[Float32s, Float32s, NDArray[np.int64]], None] = compile_cached(_largest)
    return run
