"""Triton kernels for the operations between a block's matrix products, and a launcher with low host overhead.

Bias, dropout, residual, norm, activation and loss do little arithmetic and are bound by memory traffic, so each kernel
does as much as possible in one pass over a row. In the backward pass the gradients of biases and norms are summed in
the same pass: every program adds its rows to one partial sum, and the partial sums are added in a fixed order. Without
atomic additions the result is deterministic.

Dropout masks are not stored: whether an element is kept is a hash of its index and the seed, recomputed in the backward
pass.

At every launch Triton determines the compiled variant from the argument types and alignments, which takes the host
several times as long as the launch itself. `launch` caches the variant under a smaller key and calls it directly, by a
grid and all arguments. Without a GPU, Triton's interpreter runs the kernels.

Not here: autograd functions and the choice of when to use them (layers.py); attention (short_attention.py); matrix
products (torch).

Shapes: N tokens, D width, I inner width, M predicted tokens, V vocabulary, P programs.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_COMPILED: dict[tuple[Any, ...], tuple[Any, list[Any]]] = {}


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Launch on the device of the first argument (Triton uses the current device). A kernel's constants come last."""
    device = arguments[0].device
    if device.type != "cuda":
        kernel[grid](*arguments, **constants)
    elif device.index == torch.cuda.current_device():
        launch_cached(kernel, grid, device.index, arguments, constants)
    else:
        with torch.cuda.device(device):
            launch_cached(kernel, grid, device.index, arguments, constants)


def launch_cached(
    kernel: Any, grid: tuple[int, ...], place: int, arguments: tuple[Any, ...], constants: dict[str, Any]
) -> None:
    """Launch the cached variant, if there is one for this device. On ROCm Triton chooses every time, since there its
    variants also depend on pointer ranges."""
    if torch.version.hip or (kinds := compilation_key(arguments)) is None:
        kernel[grid](*arguments, **constants)
        return
    key = (id(kernel), place, kinds, *constants.values())  # id: the kernel's own hash would read the source again
    if (known := _COMPILED.get(key)) is None:
        compiled = kernel[grid](*arguments, **constants)
        _COMPILED[key] = compiled, [constants[name] for name in kernel.arg_names[len(arguments) :]]
    else:
        compiled, last = known
        compiled[(*grid, 1, 1)[:3]](*arguments, *last)


def compilation_key(arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What Triton specialises on: types, and whether an integer is 1 or a multiple of 16. None in the rare case of an
    address that is not a multiple of 16 bytes, or an integer of more than 31 bits.

    >>> compilation_key((torch.zeros(2), 7, 32, 1, 0.5, None))
    (torch.float32, 0, 16, 1, 'float', None)
    """
    found: list[Any] = []
    addresses = 0
    for one in arguments:
        if isinstance(one, Tensor):
            addresses |= one.data_ptr()
            found.append(one.dtype)
        elif isinstance(one, int):
            if not -(1 << 31) <= one < 1 << 31:
                return None
            found.append(1 if one == 1 else 0 if one % 16 else 16)
        else:
            found.append(None if one is None else type(one).__name__)
    return None if addresses % 16 else tuple(found)


ROW_PROGRAMS, PATCH_PROGRAMS = 8, 32
"""Programs per multiprocessor; each writes one partial sum. Tuned on an H200."""
ELEMENTS = 2048
"""Elements of a tile of whole rows: 16 per thread with 4 warps, as 16-byte loads."""
PATCH = {"ROWS": 16, "BLOCK": 128}
"""A tile for kernels that do not need whole rows."""


@triton.jit
def is_kept(at, seed, threshold):
    """Whether dropout keeps the element at this index: a 32-bit hash compared with the dropout threshold."""
    bits = at.to(tl.uint32) * 0x9E3779B1
    bits = bits ^ seed.to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    return (bits ^ (bits >> 16)) >= threshold.to(tl.uint32)


@triton.jit
def _normal_integral(x):
    """Φ(x) and exp(−x² / 2) from one exponential: Abramowitz and Stegun 7.1.26, within 1.5e-7 of erf."""
    bell = tl.exp(-0.5 * x * x)
    t = 1.0 / (1.0 + 0.2316418882663604 * tl.abs(x))  # 0.3275911 / √2
    tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * bell
    return tl.where(x >= 0, 1.0 - 0.5 * tail, 0.5 * tail), bell


@triton.jit
def _gelu_parts(x, BEND: tl.constexpr):
    """gelu(x) / x and its derivative, exact or by the tanh approximation."""
    if BEND == "gelu_tanh":
        inner = x * (1.5957691216057308 + 0.07135481282553514 * x * x)  # √(8 / π) (x + 0.044715 x³)
        share = 1.0 / (1.0 + tl.exp(-tl.maximum(tl.minimum(inner, 40.0), -40.0)))
        return share, share * (1.0 - share) * (1.5957691216057308 + 0.21406443847660542 * x * x)
    share, bell = _normal_integral(x)
    return share, bell * 0.3989422804014327  # 1 / √(2π)


@triton.jit(do_not_specialize=["rows", "seed", "threshold"])
def _add_norm_forward(
    answer, bias, x, gamma, beta, total, out, means, deviations, rows, width, epsilon, seed, threshold, kept_scale,
    HAS_BIAS: tl.constexpr, HAS_X: tl.constexpr, DROPS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < width)
    at = row[:, None].to(tl.int64) * width + column[None, :]
    z = tl.load(answer + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        z += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    if DROPS:
        z = tl.where(is_kept(at, seed, threshold), z * kept_scale, 0.0)
    if HAS_X:
        z += tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS or HAS_X or DROPS:
        tl.store(total + at, z, mask=inside)
        z = z.to(total.dtype.element_ty).to(tl.float32)  # rounded as the backward pass will read it
    z = tl.where(inside, z, 0.0)
    mean = tl.sum(z, axis=1) / width
    centred = tl.where(inside, z - mean[:, None], 0.0)
    deviation = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1) / width + epsilon)
    scale = tl.load(gamma + column, mask=column < width, other=0.0).to(tl.float32)
    shift = tl.load(beta + column, mask=column < width, other=0.0).to(tl.float32)
    tl.store(out + at, centred * deviation[:, None] * scale[None, :] + shift[None, :], mask=inside)
    tl.store(means + row, mean, mask=row < rows)
    tl.store(deviations + row, deviation, mask=row < rows)


@triton.jit(do_not_specialize=["rows", "seed", "threshold"])
def _add_norm_backward(
    gradient, more, total, gamma, means, deviations, to_x, to_answer, sums, rows, width, seed, threshold,
    kept_scale, HAS_MORE: tl.constexpr, HAS_BIAS: tl.constexpr, DROPS: tl.constexpr, APART: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program, programs = tl.program_id(0), tl.num_programs(0)
    column = tl.arange(0, BLOCK)
    scale = tl.load(gamma + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    sum_gamma = tl.zeros((ROWS, BLOCK), tl.float32)
    sum_beta = tl.zeros((ROWS, BLOCK), tl.float32)
    sum_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    first = program * ROWS
    row = first + tl.arange(0, ROWS)
    inside = (row[:, None] < rows) & (column[None, :] < width)
    at = row[:, None].to(tl.int64) * width + column[None, :]
    next_dy = tl.load(gradient + at, mask=inside, other=0.0)
    next_z = tl.load(total + at, mask=inside, other=0.0)
    while first < rows:
        row = first + tl.arange(0, ROWS)
        inside = (row[:, None] < rows) & (column[None, :] < width)
        at = row[:, None].to(tl.int64) * width + column[None, :]
        dy, z = next_dy.to(tl.float32), next_z.to(tl.float32)
        mean = tl.load(means + row, mask=row < rows, other=0.0)
        deviation = tl.load(deviations + row, mask=row < rows, other=0.0)
        first += programs * ROWS
        # prefetch the next rows
        later = (first + tl.arange(0, ROWS))[:, None]
        there = (later < rows) & (column[None, :] < width)
        ahead = later.to(tl.int64) * width + column[None, :]
        next_dy = tl.load(gradient + ahead, mask=there, other=0.0)
        next_z = tl.load(total + ahead, mask=there, other=0.0)
        normal = tl.where(inside, (z - mean[:, None]) * deviation[:, None], 0.0)
        sum_gamma += dy * normal
        sum_beta += dy
        scaled = dy * scale
        along = tl.sum(scaled * normal, axis=1) / width
        level = tl.sum(scaled, axis=1) / width
        dz = (scaled - normal * along[:, None] - level[:, None]) * deviation[:, None]
        if HAS_MORE:
            dz += tl.load(more + at, mask=inside, other=0.0).to(tl.float32)
        dz = tl.where(inside, dz, 0.0)
        tl.store(to_x + at, dz, mask=inside)
        if DROPS:
            dz = tl.where(is_kept(at, seed, threshold), dz * kept_scale, 0.0)
        if APART:
            tl.store(to_answer + at, dz, mask=inside)
        if HAS_BIAS:
            sum_bias += dz
    at = sums + program * width + column  # (3, P, D): of gamma, of beta, of the bias
    tl.store(at, tl.sum(sum_gamma, axis=0), mask=column < width)
    tl.store(at + programs * width, tl.sum(sum_beta, axis=0), mask=column < width)
    if HAS_BIAS:
        tl.store(at + 2 * programs * width, tl.sum(sum_bias, axis=0), mask=column < width)


@triton.jit(do_not_specialize=["rows"])
def _activation_forward(
    before, bias, out, rows, width, BEND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)  # the only grid axis without a small limit
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < width)
    at = row[:, None].to(tl.int64) * width + column[None, :]
    x = tl.load(before + at, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    if BEND == "relu":
        bent = tl.where(x < 0, 0.0, x)  # NaN is preserved
    else:
        share, _ = _gelu_parts(x, BEND)
        bent = x * share
    tl.store(out + at, bent, mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _activation_backward(
    gradient, before, bias, to_before, to_bias, rows, width, BEND: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    program, programs = tl.program_id(1), tl.num_programs(1)
    shift = tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    sum_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    first = program * ROWS
    while first < rows:
        row = first + tl.arange(0, ROWS)
        inside = (row[:, None] < rows) & (column[None, :] < width)
        at = row[:, None].to(tl.int64) * width + column[None, :]
        dy = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(before + at, mask=inside, other=0.0).to(tl.float32)
        if BEND == "relu":
            dx = tl.where(x <= 0, 0.0, dy)  # x is the output of relu
        else:
            x += shift
            share, slope = _gelu_parts(x, BEND)
            dx = dy * (share + x * slope)
        tl.store(to_before + at, dx, mask=inside)
        sum_bias += dx
        first += programs * ROWS
    tl.store(to_bias + program * width + column, tl.sum(sum_bias, axis=0), mask=column < width)


@triton.jit(do_not_specialize=["rows"])
def _join_columns(one, two, three, out, sums, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Copies three (N, D) into one (N, 3 D), and sums its columns."""
    place = tl.program_id(0)
    blocks = tl.cdiv(width, BLOCK)
    which = place // blocks
    column = (place % blocks) * BLOCK + tl.arange(0, BLOCK)
    program, programs = tl.program_id(1), tl.num_programs(1)
    source = one
    if which == 1:
        source = two
    if which == 2:
        source = three
    added = tl.zeros((ROWS, BLOCK), tl.float32)
    first = program * ROWS
    while first < rows:
        row = first + tl.arange(0, ROWS)
        inside = (row[:, None] < rows) & (column[None, :] < width)
        values = tl.load(source + row[:, None].to(tl.int64) * width + column[None, :], mask=inside, other=0.0)
        to = row[:, None].to(tl.int64) * (3 * width) + which * width + column[None, :]
        tl.store(out + to, values, mask=inside)
        added += values.to(tl.float32)
        first += programs * ROWS
    tl.store(sums + program * (3 * width) + which * width + column, tl.sum(added, axis=0), mask=column < width)


@triton.jit
def _probe_kernel(out):
    tl.store(out, 1.0)


class Dropout:
    """Dropout arguments of a kernel: the seed, the rate as a 32-bit threshold, the scale of kept elements."""

    def __init__(self, share: float) -> None:
        self.drops = share > 0
        # from torch's generator, so that `torch.manual_seed` applies and recomputed activations drop the same elements
        self.seed = int(torch.randint(1 << 31, ())) if self.drops else 0
        self.threshold = min(round(share * (1 << 32)), (1 << 32) - 1) if self.drops else 0
        self.kept_scale = 1 / (1 - share)

    @property
    def arguments(self) -> tuple[int, int, float]:
        return self.seed, self.threshold, self.kept_scale


def add_norm_forward(
    answer: Tensor, bias: Tensor | None, x: Tensor | None, gamma: Tensor, beta: Tensor, epsilon: float, dropout: Dropout
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """norm(x + dropout(answer + bias)), (N, D) → the result, the sum before the norm (in the dtype of x, if given), its
    mean and 1 / standard deviation."""
    rows, width = answer.shape
    plain = bias is None and x is None and not dropout.drops
    out = torch.empty_like(answer)
    total = answer if plain else torch.empty_like(answer if x is None else x)
    means, deviations = (torch.empty(rows, dtype=torch.float32, device=answer.device) for _ in range(2))
    tile = _tile(width)
    launch(
        _add_norm_forward,
        (-(-rows // tile["ROWS"]),),
        *(answer, bias, x, gamma, beta, total, out, means, deviations, rows, width, epsilon, *dropout.arguments),
        HAS_BIAS=bias is not None,
        HAS_X=x is not None,
        DROPS=dropout.drops,
        **tile,
    )
    return out, total, means, deviations


def add_norm_backward(
    gradient: Tensor,
    total: Tensor,
    gamma: Tensor,
    means: Tensor,
    deviations: Tensor,
    has_bias: bool,
    dropout: Dropout,
    more: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """→ the gradients of x and of the answer (one tensor without dropout if the dtypes agree), of gamma, beta and the
    bias. `more` (N, D): the gradient of the sum that bypasses the norm."""
    rows, width = total.shape
    tile = _tile(width)
    programs = _programs(total.device, -(-rows // tile["ROWS"]), ROW_PROGRAMS)
    to_x = torch.empty_like(total)
    apart = dropout.drops or gradient.dtype != total.dtype  # the answer has the dtype of the output
    to_answer = torch.empty_like(gradient) if apart else to_x
    sums = torch.empty(3 if has_bias else 2, programs, width, dtype=torch.float32, device=total.device)
    launch(
        _add_norm_backward,
        (programs,),
        *(gradient, more, total, gamma, means, deviations, to_x, to_answer, sums),
        *(rows, width, *dropout.arguments),
        HAS_MORE=more is not None,
        HAS_BIAS=has_bias,
        DROPS=dropout.drops,
        APART=apart,
        **tile,
    )
    to_gamma, to_beta, *to_bias = sums.sum(1).unbind()
    return to_x, to_answer, to_gamma, to_beta, to_bias[0] if has_bias else None


def activation_forward(before: Tensor, bias: Tensor, bend: str) -> Tensor:
    """activation(before + bias), (N, I). relu works in place: its backward pass does not need the input."""
    rows, width = before.shape
    out = before if bend == "relu" else torch.empty_like(before)
    grid = (-(-rows // PATCH["ROWS"]), -(-width // PATCH["BLOCK"]))
    launch(_activation_forward, grid, before, bias, out, rows, width, BEND=bend, **PATCH)
    return out


def activation_backward(gradient: Tensor, before: Tensor, bias: Tensor, bend: str) -> tuple[Tensor, Tensor]:
    """→ the gradients of `before` and the bias."""
    rows, width = before.shape
    blocks = -(-width // PATCH["BLOCK"])
    programs = -(-_programs(before.device, blocks * -(-rows // PATCH["ROWS"]), PATCH_PROGRAMS) // blocks)
    to_before = torch.empty_like(before)
    sums = torch.empty(programs, width, dtype=torch.float32, device=before.device)
    arguments = (gradient, before, bias, to_before, sums, rows, width)
    launch(_activation_backward, (blocks, programs), *arguments, BEND=bend, **PATCH)
    return to_before, sums.sum(0)


def join_columns(one: Tensor, two: Tensor, three: Tensor) -> tuple[Tensor, Tensor]:
    """Three (N, D) → (N, 3 D), and its sums over the tokens (3 D,)."""
    rows, width = one.shape
    blocks = 3 * -(-width // PATCH["BLOCK"])
    programs = -(-_programs(one.device, blocks * -(-rows // PATCH["ROWS"]), PATCH_PROGRAMS) // blocks)
    out = torch.empty(rows, 3 * width, dtype=one.dtype, device=one.device)
    sums = torch.empty(programs, 3 * width, dtype=torch.float32, device=one.device)
    launch(_join_columns, (blocks, programs), one, two, three, out, sums, rows, width, **PATCH)
    return out, sums.sum(0)


@cache
def _tile(width: int) -> Mapping[str, int]:
    """The tile of whole rows: several at a time if they are narrow."""
    block = triton.next_power_of_2(width)
    return {"ROWS": max(1, ELEMENTS // block), "BLOCK": block}


def _programs(device: torch.device, most: int, a_processor: int) -> int:
    return max(1, min(most, _processors(device) * a_processor))


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def explain_no_kernels(device: torch.device) -> str | None:
    """Why no kernel can be built for this device, found by building a trivial one (Triton needs a C compiler); or
    None."""
    try:
        launch(_probe_kernel, (1,), torch.empty(1, device=device))
    except Exception as error:  # any error of a compiler, linker or driver
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


# --- Embeddings (token + segment + position), and the cross-entropy over a vocabulary.
#
# Out-of-range ids and targets give NaN instead of reading past a table; the training loop then stops and reports the
# step.

IGNORED = tl.constexpr(-100)
"""Targets with this value are ignored, as in torch's cross entropy."""


@triton.jit
def _cross_entropy_forward(
    logits, targets, losses, plain, normalizers, hits, stride, smoothing, words: tl.constexpr, SMOOTHED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row)
    scores = logits + row * stride
    best, best_at, total, added = -float("inf"), words, 0.0, 0.0
    for first in range(0, words, BLOCK):
        column = first + tl.arange(0, BLOCK)
        score = tl.load(scores + column, mask=column < words, other=-float("inf")).to(tl.float32)
        here = tl.max(score, axis=0)
        at = tl.min(tl.where(score == here, column, words), axis=0)  # ties go to the first
        best_at = tl.where(here > best, at, best_at)
        higher = tl.maximum(best, here)
        total = total * tl.exp(best - higher) + tl.sum(tl.exp(score - higher), axis=0)
        best = higher
        if SMOOTHED:
            added += tl.sum(tl.where(column < words, score, 0.0), axis=0)
    normalizer = best + tl.log(total)
    counts = target != IGNORED
    known = (target >= 0) & (target < words)
    score = tl.load(scores + target, mask=known, other=float("nan")).to(tl.float32)  # an invalid target gives NaN
    loss = normalizer - score
    tl.store(normalizers + row, normalizer)
    tl.store(plain + row, tl.where(counts, loss, 0.0))
    if SMOOTHED:  # otherwise a score of −inf would give 0 · inf
        loss += smoothing * (score - added / words)
    tl.store(losses + row, tl.where(counts, loss, 0.0))
    tl.store(hits + row, (best_at == target).to(tl.float32))


@triton.jit
def _cross_entropy_backward(logits, targets, normalizers, gradient, words, stride, smoothing, BLOCK: tl.constexpr):
    """In place: scores become their gradients; the padding of the vocabulary becomes 0."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    target, normalizer, factor = tl.load(targets + row), tl.load(normalizers + row), tl.load(gradient)
    at = logits + row * stride + column
    score = tl.load(at, mask=column < words, other=-float("inf")).to(tl.float32)
    share = tl.exp(score - normalizer) - tl.where(column == target, 1.0 - smoothing, 0.0) - smoothing / words
    wanted = (target != IGNORED) & (column < words)
    tl.store(at, tl.where(wanted, share * factor, 0.0), mask=column < stride)


@triton.jit
def _look_up(table, at, rows, width, column):
    """Load an embedding row; out-of-range ids give NaN, so that the loss becomes NaN."""
    known = (at >= 0) & (at < rows)
    found = tl.load(table + tl.where(known, at, 0) * width + column, mask=column < width, other=0.0).to(tl.float32)
    return tl.where(known, found, float("nan"))


@triton.jit
def _embed_forward(
    ids, segments, positions, token, segment, position, out, words, kinds, places, width, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = _look_up(token, tl.load(ids + row), words, width, column)
    x += _look_up(segment, tl.load(segments + row), kinds, width, column)
    x += _look_up(position, tl.load(positions + row), places, width, column)
    tl.store(out + row * width + column, x, mask=column < width)


def cross_entropy_forward(
    logits: Tensor, targets: Tensor, words: int, smoothing: float = 0.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores (M, V and padding) → per row the loss, the loss without smoothing (models/transformer/objective.py), the
    log-sum-exp, and 1 if the prediction is correct."""
    rows, stride = logits.shape
    # each starts at a multiple of 16 bytes, so that `launch` can use its cache
    found = torch.empty(4, rows + -rows % 4, dtype=torch.float32, device=logits.device)[:, :rows]
    losses, plain, normalizers, hits = found.unbind()
    arguments = (logits, targets, losses, plain, normalizers, hits, stride, smoothing)
    constants = {"words": words, "SMOOTHED": smoothing > 0, "BLOCK": 4096}
    launch(_cross_entropy_forward, (rows,), *arguments, **constants, num_warps=8)
    return losses, plain, normalizers, hits


def cross_entropy_backward(
    logits: Tensor, targets: Tensor, normalizers: Tensor, gradient: Tensor, words: int, smoothing: float = 0.0
) -> Tensor:
    """The scores, overwritten by their gradients; `gradient` is that of the summed loss, a scalar."""
    rows, stride = logits.shape
    arguments = (logits, targets, normalizers, gradient, words, stride, smoothing)
    launch(_cross_entropy_backward, (rows, -(-stride // 4096)), *arguments, BLOCK=4096, num_warps=8)
    return logits


def embed_forward(
    ids: Tensor, segments: Tensor, positions: Tensor, tables: tuple[Tensor, Tensor, Tensor], dtype: torch.dtype
) -> Tensor:
    """token + segment + position, (N,) → (N, D)"""
    width = tables[0].size(1)
    out = torch.empty(ids.numel(), width, dtype=dtype, device=ids.device)
    block = triton.next_power_of_2(width)
    sizes = [table.size(0) for table in tables]
    launch(_embed_forward, (ids.numel(),), ids, segments, positions, *tables, out, *sizes, width, BLOCK=block)
    return out
