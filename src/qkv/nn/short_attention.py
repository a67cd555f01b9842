"""Attention over rows of up to 128 tokens as Triton kernels: one program a row and head, everything in registers.

Flash attention walks over blocks of keys because a row may be long, keeps sums to correct itself, and adds up the
gradient of the queries in memory. A short row is one block: its scores fit on the chip whole, and the softmax is simply
computed again on the way back. Each query, key and value is then read once and each gradient written once, side by
side, as the projection before them wants it; the sums over tokens that are the gradient of the projection's bias fall
off on the way.

What this file does NOT do: longer rows, masks, or cross attention (fused.py).

Shapes: N tokens of all rows, R rows, H heads, K head width.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from qkv.nn.fused import SHORT
from qkv.nn.kernels import Dropout, kept, launch

WIDTHS = (16, 32, 64, 128)
"""Of a head."""


@triton.jit
def _read(qkv, offsets, row, head, HEADS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Where a row lies, and what one head has in it; zeros behind its end."""
    start = tl.load(offsets + row)
    length = tl.load(offsets + row + 1) - start
    token, place = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    inside = token[:, None] < length
    at = (start + token)[:, None].to(tl.int64) * (3 * HEADS * WIDTH) + head * WIDTH + place[None, :]
    query = tl.load(qkv + at, mask=inside, other=0.0)
    key = tl.load(qkv + at + HEADS * WIDTH, mask=inside, other=0.0)
    value = tl.load(qkv + at + 2 * HEADS * WIDTH, mask=inside, other=0.0)
    return start, length, at, query, key, value


@triton.jit
def _weights(query, key, length, scale, BLOCK: tl.constexpr):
    scores = tl.dot(query, tl.trans(key)) * (scale * 1.4426950408889634)  # in powers of 2, which the chip has
    scores = tl.where(tl.arange(0, BLOCK)[None, :] < length, scores, -float("inf"))
    shares = tl.exp2(scores - tl.max(scores, axis=1)[:, None])
    return shares * (1.0 / tl.sum(shares, axis=1))[:, None]


@triton.jit(do_not_specialize=["seed", "threshold"])
def _forward(
    qkv, offsets, out, scale, seed, threshold, kept_scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS  # programs side by side read side by side
    token, place = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    start, length, _, query, key, value = _read(qkv, offsets, row, head, HEADS, WIDTH, BLOCK)
    inside = token[:, None] < length
    weights = _weights(query, key, length, scale, BLOCK)
    if DROPS:
        pair = ((row * HEADS + head) * BLOCK + token)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        weights = tl.where(kept(pair, seed, threshold), weights * kept_scale, 0.0)
    answer = tl.dot(weights.to(value.dtype), value)
    to = (start + token)[:, None].to(tl.int64) * (HEADS * WIDTH) + head * WIDTH + place[None, :]
    tl.store(out + to, answer, mask=inside)


@triton.jit(do_not_specialize=["seed", "threshold"])
def _backward(
    qkv, gradient, offsets, to_qkv, sums, scale, seed, threshold, kept_scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS  # programs side by side read side by side
    token, place = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    start, length, at, query, key, value = _read(qkv, offsets, row, head, HEADS, WIDTH, BLOCK)
    inside = token[:, None] < length
    come = (start + token)[:, None].to(tl.int64) * (HEADS * WIDTH) + head * WIDTH + place[None, :]
    to_answer = tl.load(gradient + come, mask=inside, other=0.0)
    sum_at = sums + row * (3 * HEADS * WIDTH) + head * WIDTH + place

    weights = _weights(query, key, length, scale, BLOCK)
    to_weights = tl.dot(to_answer, tl.trans(value))
    used = weights
    if DROPS:
        pair = ((row * HEADS + head) * BLOCK + token)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        keeps = kept(pair, seed, threshold)
        used = tl.where(keeps, weights * kept_scale, 0.0)
        to_weights = tl.where(keeps, to_weights * kept_scale, 0.0)
    to_value = tl.dot(tl.trans(used.to(value.dtype)), to_answer)
    tl.store(to_qkv + at + 2 * HEADS * WIDTH, to_value, mask=inside)
    tl.store(sum_at + 2 * HEADS * WIDTH, tl.sum(to_value, axis=0))
    level = tl.sum(weights * to_weights, axis=1)
    to_scores = (weights * (to_weights - level[:, None]) * scale).to(value.dtype)
    to_query = tl.dot(to_scores, key)
    tl.store(to_qkv + at, to_query, mask=inside)
    tl.store(sum_at, tl.sum(to_query, axis=0))
    to_key = tl.dot(tl.trans(to_scores), query)
    tl.store(to_qkv + at + HEADS * WIDTH, to_key, mask=inside)
    tl.store(sum_at + HEADS * WIDTH, tl.sum(to_key, axis=0))


def short_forward(qkv: Tensor, offsets: Tensor, longest: int, heads: int, scale: float, dropout: Dropout) -> Tensor:
    """Queries, keys and values side by side (N, 3 · H · K) → answers (N, H · K)."""
    width = qkv.size(1) // (3 * heads)
    out = torch.empty(qkv.size(0), heads * width, dtype=qkv.dtype, device=qkv.device)
    constants = _constants(longest, heads, width, dropout)
    launch(_forward, ((offsets.numel() - 1) * heads,), qkv, offsets, out, scale, *dropout.arguments, **constants)
    return out


def short_backward(
    gradient: Tensor, qkv: Tensor, offsets: Tensor, longest: int, heads: int, scale: float, dropout: Dropout
) -> tuple[Tensor, Tensor]:
    """→ the gradient (N, 3 · H · K), and its sums over the tokens (3 · H · K,)."""
    rows, width = offsets.numel() - 1, qkv.size(1) // (3 * heads)
    to_qkv = torch.empty_like(qkv)
    sums = torch.empty(rows, qkv.size(1), dtype=torch.float32, device=qkv.device)
    constants = _constants(longest, heads, width, dropout)
    arguments = (qkv, gradient, offsets, to_qkv, sums, scale, *dropout.arguments)
    launch(_backward, (rows * heads,), *arguments, **constants)
    return to_qkv, sums.sum(0)


def _constants(longest: int, heads: int, width: int, dropout: Dropout) -> dict[str, Any]:
    block = max(16, triton.next_power_of_2(longest))  # a product on the matrix units has at least 16 rows
    # 64 numbers a thread for a square of scores, of which two are alive at a time
    return {
        "HEADS": heads,
        "WIDTH": width,
        "BLOCK": block,
        "DROPS": dropout.drops,
        "num_warps": 8 if block == SHORT else 4,
    }
