"""The largest scores of a large vocabulary and the logarithm of their sum, without a detour on a CPU.

torch's topk and argmax copy and sort whole rows, and logsumexp writes a second table as large as the first. Both cost
a CPU a good part of the network's last product. Here a row is looked through in blocks: the k largest scores lie in the
k blocks with the largest maxima, and maxima are quickly found. A GPU has no such trouble, and takes torch's own.

Where the network decodes with compiled kernels (models/few_rows.py), numba is there already, and so are kernels for a
few rows of this. For themselves they would not be worth its import.

Shapes: Q rows, V vocabulary, n blocks of b scores, k largest.
"""

import sys

import torch
from torch import Tensor

BLOCK = 64
SMALL = 4096
"""Up to this vocabulary there is nothing to win."""
TOGETHER = 4
"""Rows whose exponentials are taken at a time: they stay in the cache."""
FEW = 8
"""Rows up to which calls take longer than their work."""


def largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(Q, V) → values and places (Q, k), largest first; what `scores.topk(k)` gives, but for the order of equals."""
    V = scores.shape[1]
    k = min(k, V)
    if scores.device.type != "cpu" or max(SMALL, k * BLOCK) >= V:
        return _top(scores, k)
    if _is_compiled_for(scores):
        from qkv.generate import scores_kernel

        values, places = scores.new_empty(len(scores), k), torch.empty(len(scores), k, dtype=torch.int64)
        scores_kernel.largest()(scores.numpy(), values.numpy(), places.numpy())
        return values, places
    whole = V // BLOCK * BLOCK
    maxima = scores[:, :whole].unflatten(1, (-1, BLOCK)).amax(dim=2)  # (Q, n)
    if whole < V:
        maxima = torch.cat([maxima, scores[:, whole:].amax(dim=1, keepdim=True)], dim=1)
    blocks = _top(maxima, k)[1]  # (Q, k)
    places = (blocks[:, :, None] * BLOCK + torch.arange(BLOCK)).flatten(1)  # (Q, k · b)
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


def log_totals(logits: Tensor) -> Tensor:
    """(Q, V) → (Q,): what is to be taken off a logit to get a log probability."""
    if logits.device.type != "cpu" or logits.shape[1] <= SMALL:
        return logits.logsumexp(dim=1)
    if _is_compiled_for(logits):
        from qkv.generate import scores_kernel

        totals = logits.new_empty(len(logits))
        scores_kernel.log_totals()(logits.numpy(), totals.numpy())
        return totals
    largest_of = logits.amax(dim=1, keepdim=True)  # (Q, 1)
    largest_of.masked_fill_(largest_of.isinf(), 0)  # as infinity less infinity is not a number
    # a few rows at a time, each is read from memory once
    parts = zip(logits.split(TOGETHER), largest_of.split(TOGETHER), strict=True)
    sums = [(rows - most).exp_().sum(dim=1) for rows, most in parts]
    return torch.cat(sums).log_() + largest_of.squeeze(1)


def _is_compiled_for(scores: Tensor) -> bool:
    if getattr(sys.modules.get("qkv.models.compiled"), "numba", None) is None:
        return False
    is_plain = scores.dtype == torch.float32 and scores.is_contiguous() and not scores.requires_grad
    return is_plain and len(scores) <= FEW
