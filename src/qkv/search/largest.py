"""Which rows go on where, so that few of them change their places: a row that moves takes its keys and values along."""

import sys
from collections.abc import Sequence

import torch
from torch import Tensor


def close_ranks(stays: Sequence[bool]) -> list[int]:
    """The places of those that stay. Those at the end fill the holes, and nobody else moves.

    >>> close_ranks([True, False, True, True, True])
    [0, 4, 2, 3]
    """
    n = sum(stays)
    last = [place for place in range(n, len(stays)) if stays[place]]
    return [place if stays[place] else last.pop() for place in range(n)]


def keep_places(wanted: Sequence[int]) -> list[int]:
    """In which order to take items, each of which would like a place below their number: one gets its wish if no item
    before it had the same.

    >>> keep_places([2, 2, 0])  # the first item stays at 2, the last at 0, and the other has to move
    [2, 1, 0]
    """
    order = [-1] * len(wanted)
    moving = []
    for item, place in enumerate(wanted):
        if place < len(order) and order[place] < 0:
            order[place] = item
        else:
            moving.append(item)
    return [item if item >= 0 else moving.pop() for item in order]


# --- The largest scores of a large vocabulary and the logarithm of their sum, without a detour on a CPU.
#
# torch's topk and argmax copy and sort whole rows, and logsumexp writes a second table as large as the first. Both cost
# a CPU a good part of the network's last product. Here a row is looked through in blocks: the k largest scores lie in
# the k blocks with the largest maxima, and maxima are quickly found. A GPU has no such trouble, and takes torch's own.
#
# Where the network decodes with compiled kernels (nn/cpu/int8_step.py), numba is there already, and so are kernels for
# a few rows of this. For themselves they would not be worth its import.
#
# Shapes: Q rows, V vocabulary, n blocks of b scores, k largest.

_BLOCK = 64
_SMALL = 4096
"""Up to this vocabulary there is nothing to win."""
_TOGETHER = 4
"""Rows whose exponentials are taken at a time: they stay in the cache."""
_FEW = 8
"""Rows up to which calls take longer than their work."""


def find_largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(Q, V) → values and places (Q, k), largest first; what `scores.topk(k)` gives, but for the order of equals."""
    V = scores.shape[1]
    k = min(k, V)
    if scores.device.type != "cpu" or max(_SMALL, k * _BLOCK) >= V:
        return _top(scores, k)
    if _is_compiled_for(scores):
        from qkv.nn.cpu import step_kernels

        values, places = scores.new_empty(len(scores), k), torch.empty(len(scores), k, dtype=torch.int64)
        step_kernels.compile_largest()(scores.numpy(), values.numpy(), places.numpy())
        return values, places
    whole = V // _BLOCK * _BLOCK
    maxima = scores[:, :whole].unflatten(1, (-1, _BLOCK)).amax(dim=2)  # (Q, n)
    if whole < V:
        maxima = torch.cat([maxima, scores[:, whole:].amax(dim=1, keepdim=True)], dim=1)
    blocks = _top(maxima, k)[1]  # (Q, k)
    places = (blocks[:, :, None] * _BLOCK + torch.arange(_BLOCK)).flatten(1)  # (Q, k · b)
    found = scores.gather(1, places.clamp(max=V - 1)).masked_fill_(places >= V, -torch.inf)
    values, among = _top(found, k)
    # with too few scores above -∞, a place beyond the last block may come up: any score of -∞ is as good
    return values, places.gather(1, among).clamp_(max=V - 1)


def _top(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    if k == 1:
        values, places = scores.max(dim=1, keepdim=True)
        return values, places
    found = scores.topk(k)
    return found.values, found.indices


def compute_log_totals(logits: Tensor) -> Tensor:
    """(Q, V) → (Q,): what is to be taken off a logit to get a log probability."""
    if logits.device.type != "cpu" or logits.shape[1] <= _SMALL:
        return logits.logsumexp(dim=1)
    if _is_compiled_for(logits):
        from qkv.nn.cpu import step_kernels

        totals = logits.new_empty(len(logits))
        step_kernels.compile_log_totals()(logits.numpy(), totals.numpy())
        return totals
    largest_of = logits.amax(dim=1, keepdim=True)  # (Q, 1)
    largest_of.masked_fill_(largest_of.isinf(), 0)  # as infinity less infinity is not a number
    # a few rows at a time, each is read from memory once
    parts = zip(logits.split(_TOGETHER), largest_of.split(_TOGETHER), strict=True)
    sums = [(rows - most).exp_().sum(dim=1) for rows, most in parts]
    return torch.cat(sums).log_() + largest_of.squeeze(1)


def _is_compiled_for(scores: Tensor) -> bool:
    if getattr(sys.modules.get("qkv.nn.cpu.compiled"), "numba", None) is None:
        return False
    is_plain = scores.dtype == torch.float32 and scores.is_contiguous() and not scores.requires_grad
    return is_plain and len(scores) <= _FEW
