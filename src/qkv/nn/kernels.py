"""Triton kernels for what stands between the matrix products of a block, each passing over its bytes once.

A product of BERT-base reads and writes a few vectors a token and keeps the chip busy; everything else (add, drop out,
normalise, bend, score) does next to no arithmetic and costs what it moves. So each kernel here does all that can be
done while a row is at hand: the bias of the product before it, dropout, the residual, the norm. On the way back the
sums over all tokens (the gradients of biases and norms) are taken from the same rows: every program adds up the rows
that it visits and writes one partial sum, and the partial sums are added in a fixed order. No atomic additions: the
order never changes.

Dropout is not stored. Whether an element is kept is a hash of its place and the seed, computed again on the way back.

What this file does NOT do: gradients as autograd wants them, or deciding when to be used (fast.py); attention
(short_attention.py); matrix products, which are torch's.

Shapes: N tokens, D width, I inner width, M predicted tokens, V vocabulary, P programs.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROW_PROGRAMS, PATCH_PROGRAMS = 8, 32
"""How many programs share the rows, for every multiprocessor; each writes one partial sum. Measured on an H200."""
ELEMENTS = 2048
"""Of a tile of whole rows: 16 a thread at 4 warps, as loads of 16 bytes."""
PATCH = {"ROWS": 16, "BLOCK": 128}
"""A tile of rows that are too wide, or need not be seen whole."""


@triton.jit
def kept(at, seed, threshold):
    """Whether dropout keeps the element at this place: 32 bits of its hash, against the share that is dropped."""
    bits = at.to(tl.uint32) * 0x9E3779B1
    bits = bits ^ seed.to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    return (bits ^ (bits >> 16)) >= threshold.to(tl.uint32)


@triton.jit
def _normal_integral(x):
    """Φ(x) and exp(−x² / 2), by the same exponential: Abramowitz and Stegun 7.1.26, within 1.5e-7 of erf."""
    bell = tl.exp(-0.5 * x * x)
    t = 1.0 / (1.0 + 0.2316418882663604 * tl.abs(x))  # 0.3275911 / √2
    tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * bell
    return tl.where(x >= 0, 1.0 - 0.5 * tail, 0.5 * tail), bell


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
        z = tl.where(kept(at, seed, threshold), z * kept_scale, 0.0)
    if HAS_X:
        z += tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS or HAS_X or DROPS:
        tl.store(total + at, z, mask=inside)
        z = z.to(total.dtype.element_ty).to(tl.float32)  # what the way back will find
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
    gradient, total, gamma, means, deviations, to_x, to_answer, to_gamma, to_beta, to_bias, rows, width, seed,
    threshold, kept_scale, HAS_BIAS: tl.constexpr, DROPS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
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
        # the rows after these are on their way while these are worked on
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
        dz = tl.where(inside, dz, 0.0)
        tl.store(to_x + at, dz, mask=inside)
        if DROPS:
            dz = tl.where(kept(at, seed, threshold), dz * kept_scale, 0.0)
            tl.store(to_answer + at, dz, mask=inside)
        if HAS_BIAS:
            sum_bias += dz
    at = program * width + column
    tl.store(to_gamma + at, tl.sum(sum_gamma, axis=0), mask=column < width)
    tl.store(to_beta + at, tl.sum(sum_beta, axis=0), mask=column < width)
    if HAS_BIAS:
        tl.store(to_bias + at, tl.sum(sum_bias, axis=0), mask=column < width)


@triton.jit(do_not_specialize=["rows"])
def _bias_gelu_forward(before, bias, out, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)  # on the one axis of a grid that has no end
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < width)
    at = row[:, None].to(tl.int64) * width + column[None, :]
    x = tl.load(before + at, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    share, _ = _normal_integral(x)
    tl.store(out + at, x * share, mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _bias_gelu_backward(
    gradient, before, bias, to_before, to_bias, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr
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
        x = tl.load(before + at, mask=inside, other=0.0).to(tl.float32) + shift
        share, bell = _normal_integral(x)
        dx = dy * (share + x * bell * 0.3989422804014327)  # 1 / √(2π)
        tl.store(to_before + at, dx, mask=inside)
        sum_bias += dx
        first += programs * ROWS
    tl.store(to_bias + program * width + column, tl.sum(sum_bias, axis=0), mask=column < width)


@triton.jit(do_not_specialize=["rows"])
def _side_by_side(one, two, three, out, sums, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Three (N, D) into one (N, 3 D), and what each column of it adds up to."""
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
def _nothing(out):
    tl.store(out, 1.0)


class Dropout:
    """What a kernel has to know of a dropout: the seed, the share as a threshold of 32 bits, the scale of the kept."""

    def __init__(self, share: float) -> None:
        self.drops = share > 0
        # from torch's own generator, so that `torch.manual_seed` decides it and recomputed activations drop the same
        self.seed = int(torch.randint(1 << 31, ())) if self.drops else 0
        self.threshold = min(round(share * (1 << 32)), (1 << 32) - 1) if self.drops else 0
        self.kept_scale = 1 / (1 - share)

    @property
    def arguments(self) -> tuple[int, int, float]:
        return self.seed, self.threshold, self.kept_scale


def add_norm_forward(
    answer: Tensor, bias: Tensor | None, x: Tensor | None, gamma: Tensor, beta: Tensor, epsilon: float, dropout: Dropout
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """norm(x + dropout(answer + bias)), (N, D) → the same, the sum before the norm, and its mean and 1 / deviation."""
    rows, width = answer.shape
    plain = bias is None and x is None and not dropout.drops
    out = torch.empty_like(answer)
    total = answer if plain else torch.empty_like(answer)
    means, deviations = (torch.empty(rows, dtype=torch.float32, device=answer.device) for _ in range(2))
    tile = _tile(width)
    launch(
        _add_norm_forward,
        (triton.cdiv(rows, tile["ROWS"]),),
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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """→ the gradients of x and of the answer (one tensor, where nothing is dropped), of gamma, beta and the bias."""
    rows, width = total.shape
    tile = _tile(width)
    programs = _programs(total.device, triton.cdiv(rows, tile["ROWS"]), ROW_PROGRAMS)
    to_x = torch.empty_like(total)
    to_answer = torch.empty_like(total) if dropout.drops else to_x
    sums = torch.empty(3 if has_bias else 2, programs, width, dtype=torch.float32, device=total.device)
    launch(
        _add_norm_backward,
        (programs,),
        *(gradient, total, gamma, means, deviations, to_x, to_answer, sums[0], sums[1], sums[-1]),
        *(rows, width, *dropout.arguments),
        HAS_BIAS=has_bias,
        DROPS=dropout.drops,
        **tile,
    )
    added = sums.sum(1)
    return to_x, to_answer, added[0], added[1], added[2] if has_bias else None


def bias_gelu_forward(before: Tensor, bias: Tensor) -> Tensor:
    """gelu(before + bias), (N, I)"""
    rows, width = before.shape
    out = torch.empty_like(before)
    grid = (triton.cdiv(rows, PATCH["ROWS"]), triton.cdiv(width, PATCH["BLOCK"]))
    launch(_bias_gelu_forward, grid, before, bias, out, rows, width, **PATCH)
    return out


def bias_gelu_backward(gradient: Tensor, before: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    rows, width = before.shape
    blocks = triton.cdiv(width, PATCH["BLOCK"])
    programs = triton.cdiv(_programs(before.device, blocks * triton.cdiv(rows, PATCH["ROWS"]), PATCH_PROGRAMS), blocks)
    to_before = torch.empty_like(before)
    sums = torch.empty(programs, width, dtype=torch.float32, device=before.device)
    launch(_bias_gelu_backward, (blocks, programs), gradient, before, bias, to_before, sums, rows, width, **PATCH)
    return to_before, sums.sum(0)


def side_by_side(one: Tensor, two: Tensor, three: Tensor) -> tuple[Tensor, Tensor]:
    """Three (N, D) → (N, 3 D), and its sums over the tokens (3 D,)."""
    rows, width = one.shape
    blocks = 3 * triton.cdiv(width, PATCH["BLOCK"])
    programs = triton.cdiv(_programs(one.device, blocks * triton.cdiv(rows, PATCH["ROWS"]), PATCH_PROGRAMS), blocks)
    out = torch.empty(rows, 3 * width, dtype=one.dtype, device=one.device)
    sums = torch.empty(programs, 3 * width, dtype=torch.float32, device=one.device)
    launch(_side_by_side, (blocks, programs), one, two, three, out, sums, rows, width, **PATCH)
    return out, sums.sum(0)


def _tile(width: int) -> dict[str, int]:
    """Whole rows, a few at a time where they are narrow."""
    block = triton.next_power_of_2(width)
    return {"ROWS": max(1, ELEMENTS // block), "BLOCK": block}


def _programs(device: torch.device, most: int, a_processor: int) -> int:
    processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    return max(1, min(most, processors * a_processor))


def reason_not_to(device: torch.device) -> str | None:
    """Why no kernel can be built for this device, found by building the smallest: Triton wants a C compiler."""
    try:
        launch(_nothing, (1,), torch.empty(1, device=device))
    except Exception as error:  # whatever a compiler, a linker or a driver may say
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """On the device of the first argument: Triton takes whichever is the current one."""
    device = arguments[0].device
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            kernel[grid](*arguments, **constants)
    else:
        kernel[grid](*arguments, **constants)
