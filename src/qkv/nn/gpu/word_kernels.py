"""Triton kernels for embeddings (token + segment + position) and for the cross-entropy over a vocabulary.

Out-of-range ids and targets give NaN instead of reading past a table; the training loop then stops and reports
the step.

Not here: autograd functions and the choice of when to use them (layers.py).

Shapes: N tokens, D width, M predicted tokens, V vocabulary.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from qkv.nn.gpu.kernels import launch

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
