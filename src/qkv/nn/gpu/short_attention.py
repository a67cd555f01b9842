"""Triton kernels for attention over rows of up to 128 tokens: one program per row and head, everything in registers.

Flash attention iterates over blocks of keys, rescales running sums and accumulates the gradient of the queries in
memory. A short row is one block: its scores fit on chip, and the softmax is recomputed in the backward pass. Each
query, key and value is read once and each gradient written once, in the layout of the projection; the gradient of the
projection's bias is computed in the same pass.

Self-attention may be causal. In cross-attention a row attends to the row of the same index on the other side. The two
differ only in layout:

    self      queries, keys and values of a token in one tensor (N, 3 · H · K)
    cross     queries (N, H · K); keys and values (S, 2 · H · K), possibly columns of a wider tensor

Not here: longer rows and other masks (nn/multihead.py).

Shapes: N tokens of all rows, S of the source's, R rows, H heads, K head width.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from qkv.nn.gpu.kernels import Dropout, is_kept, launch

WIDTHS = (16, 32, 64, 128)
"""Supported head widths."""
WARPS = {16: 4, 32: 4, 64: 4, 128: 8}
"""Warps by block size (side of the score matrix): 64 numbers per thread for the largest, two of them live at a time."""
FP32 = tl.constexpr("tf32x3")
"""fp32 products by three TF32 products, since one has only 10 bits of mantissa. Does not affect bf16."""


class Short(NamedTuple):
    """Row boundaries and attention settings."""

    offsets: Tensor  # (R + 1,) int32
    key_offsets: Tensor  # (R + 1,); the same tensor in self-attention
    longest: int  # row of both sides
    causal: bool
    heads: int
    scale: float


@triton.jit
def _row(offsets, row, head, STRIDE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Offsets of one head's vectors in a row, STRIDE apart; the mask of those inside the row; the row's length."""
    start = tl.load(offsets + row)
    length = tl.load(offsets + row + 1) - start
    token = tl.arange(0, BLOCK)
    at = (start + token)[:, None].to(tl.int64) * STRIDE + head * WIDTH + tl.arange(0, WIDTH)[None, :]
    return at, token[:, None] < length, length


@triton.jit
def _weights(query, key, length, scale, CAUSAL: tl.constexpr, BLOCK: tl.constexpr):
    scores = tl.dot(query, tl.trans(key), input_precision=FP32)
    scores *= scale * 1.4426950408889634  # log2(e): exp2 is a hardware instruction
    seen = tl.arange(0, BLOCK)[None, :] < length
    if CAUSAL:
        seen = seen & (tl.arange(0, BLOCK)[None, :] <= tl.arange(0, BLOCK)[:, None])
    scores = tl.where(seen, scores, -float("inf"))
    shares = tl.exp2(scores - tl.max(scores, axis=1)[:, None])
    return shares * (1.0 / tl.sum(shares, axis=1))[:, None]


@triton.jit(do_not_specialize=["seed", "threshold"])
def _forward(
    queries, keys, offsets, key_offsets, out, scale, seed, threshold, kept_scale, HEADS: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, DROPS: tl.constexpr, CAUSAL: tl.constexpr, STRIDE: tl.constexpr,
    KEY_STRIDE: tl.constexpr, KEY_AT: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS  # programs side by side read side by side
    token = tl.arange(0, BLOCK)
    at, inside, _ = _row(offsets, row, head, STRIDE, WIDTH, BLOCK)
    key_at, key_inside, key_length = _row(key_offsets, row, head, KEY_STRIDE, WIDTH, BLOCK)
    query = tl.load(queries + at, mask=inside, other=0.0)
    key = tl.load(keys + KEY_AT + key_at, mask=key_inside, other=0.0)
    value = tl.load(keys + KEY_AT + HEADS * WIDTH + key_at, mask=key_inside, other=0.0)
    weights = _weights(query, key, key_length, scale, CAUSAL, BLOCK)
    if DROPS:
        pair = ((row * HEADS + head) * BLOCK + token)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        weights = tl.where(is_kept(pair, seed, threshold), weights * kept_scale, 0.0)
    answer = tl.dot(weights.to(value.dtype), value, input_precision=FP32)
    to, _, _ = _row(offsets, row, head, HEADS * WIDTH, WIDTH, BLOCK)
    tl.store(out + to, answer, mask=inside)


@triton.jit(do_not_specialize=["seed", "threshold"])
def _backward(
    queries, keys, gradient, offsets, key_offsets, to_queries, to_keys, sums, scale, seed, threshold, kept_scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, DROPS: tl.constexpr, CAUSAL: tl.constexpr,
    STRIDE: tl.constexpr, KEY_STRIDE: tl.constexpr, KEY_AT: tl.constexpr, TO_KEY_STRIDE: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS  # programs side by side read side by side
    token, place = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    at, inside, _ = _row(offsets, row, head, STRIDE, WIDTH, BLOCK)
    key_at, key_inside, key_length = _row(key_offsets, row, head, KEY_STRIDE, WIDTH, BLOCK)
    query = tl.load(queries + at, mask=inside, other=0.0)
    key = tl.load(keys + KEY_AT + key_at, mask=key_inside, other=0.0)
    value = tl.load(keys + KEY_AT + HEADS * WIDTH + key_at, mask=key_inside, other=0.0)
    come, _, _ = _row(offsets, row, head, HEADS * WIDTH, WIDTH, BLOCK)
    to_answer = tl.load(gradient + come, mask=inside, other=0.0)
    to_key_at, _, _ = _row(key_offsets, row, head, TO_KEY_STRIDE, WIDTH, BLOCK)
    sum_at = sums + row * (3 * HEADS * WIDTH) + head * WIDTH + place

    weights = _weights(query, key, key_length, scale, CAUSAL, BLOCK)
    to_weights = tl.dot(to_answer, tl.trans(value), input_precision=FP32)
    used = weights
    if DROPS:
        pair = ((row * HEADS + head) * BLOCK + token)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        keeps = is_kept(pair, seed, threshold)
        used = tl.where(keeps, weights * kept_scale, 0.0)
        to_weights = tl.where(keeps, to_weights * kept_scale, 0.0)
    to_value = tl.dot(tl.trans(used.to(value.dtype)), to_answer, input_precision=FP32)
    tl.store(to_keys + KEY_AT + HEADS * WIDTH + to_key_at, to_value, mask=key_inside)
    tl.store(sum_at + 2 * HEADS * WIDTH, tl.sum(to_value, axis=0))
    level = tl.sum(weights * to_weights, axis=1)
    to_scores = (weights * (to_weights - level[:, None]) * scale).to(value.dtype)
    to_query = tl.dot(to_scores, key, input_precision=FP32)
    tl.store(to_queries + at, to_query, mask=inside)
    tl.store(sum_at, tl.sum(to_query, axis=0))
    to_key = tl.dot(tl.trans(to_scores), query, input_precision=FP32)
    tl.store(to_keys + KEY_AT + to_key_at, to_key, mask=key_inside)
    tl.store(sum_at + HEADS * WIDTH, tl.sum(to_key, axis=0))


def short_forward(queries: Tensor, keys: Tensor, rows: Short, dropout: Dropout) -> Tensor:
    """→ outputs (N, H · K). For self-attention pass one tensor (N, 3 · H · K) twice; for cross-attention queries
    (N, H · K), and keys followed by values (S, 2 · H · K), in rows of any stride."""
    constants = _constants(queries, keys, rows, dropout)
    inner = rows.heads * constants["WIDTH"]
    out = torch.empty(queries.size(0), inner, dtype=queries.dtype, device=queries.device)
    arguments = (queries, keys, rows.offsets, rows.key_offsets, out, rows.scale, *dropout.arguments)
    launch(_forward, ((rows.offsets.numel() - 1) * rows.heads,), *arguments, **constants)
    return out


def short_backward(
    gradient: Tensor, queries: Tensor, keys: Tensor, rows: Short, dropout: Dropout
) -> tuple[Tensor, Tensor, Tensor]:
    """→ the gradients of queries and keys in their shapes (one tensor in self-attention), and their sums over the
    tokens: of queries, keys, values (3 · H · K,)."""
    n_rows, constants = rows.offsets.numel() - 1, _constants(queries, keys, rows, dropout)
    to_queries = torch.empty_like(queries)
    to_keys = to_queries if queries is keys else torch.empty(keys.shape, dtype=keys.dtype, device=keys.device)
    inner = rows.heads * constants["WIDTH"]
    sums = torch.empty(n_rows, 3 * inner, dtype=torch.float32, device=queries.device)
    arguments = (queries, keys, gradient, rows.offsets, rows.key_offsets, to_queries, to_keys, sums, rows.scale)
    launch(
        _backward,
        (n_rows * rows.heads,),
        *(*arguments, *dropout.arguments),
        **constants,
        TO_KEY_STRIDE=to_keys.stride(0),
    )
    return to_queries, to_keys, sums.sum(0)


def _constants(queries: Tensor, keys: Tensor, rows: Short, dropout: Dropout) -> dict[str, Any]:
    inner = queries.size(1) // (3 if queries is keys else 1)
    block = max(16, 1 << (rows.longest - 1).bit_length())  # tensor cores need at least 16 rows
    return {
        "HEADS": rows.heads,
        "WIDTH": inner // rows.heads,
        "BLOCK": block,
        "DROPS": dropout.drops,
        "CAUSAL": rows.causal,
        "STRIDE": queries.stride(0),
        "KEY_STRIDE": keys.stride(0),
        "KEY_AT": inner if queries is keys else 0,
        "num_warps": WARPS[block],
    }
