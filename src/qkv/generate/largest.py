"""The largest scores of a large vocabulary and the logarithm of their sum, without a detour on a CPU.

torch's topk and argmax copy and sort whole rows, and logsumexp writes a second table as large as the first. Both cost
a CPU a good part of the network's last product. Here a row is looked through in blocks: the k largest scores lie in the
k blocks with the largest maxima, and maxima are quickly found. A GPU has no such trouble, and takes torch's own.

Shapes: Q rows, V vocabulary, n blocks of b scores, k largest.
"""

import torch
from torch import Tensor

BLOCK = 64
SMALL = 4096
"""Up to this vocabulary there is nothing to win."""


def largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(Q, V) → values and places (Q, k), largest first; what `scores.topk(k)` gives, but for the order of equals."""
    V = scores.shape[1]
    k = min(k, V)
    if scores.device.type != "cpu" or max(SMALL, k * BLOCK) >= V:
        return _top(scores, k)
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
    largest_of = logits.amax(dim=1, keepdim=True)  # (Q, 1)
    largest_of.masked_fill_(largest_of.isinf(), 0)  # as infinity less infinity is not a number
    # row by row, each is read from memory once: its exponentials stay in the cache
    totals = [(row - most).exp_().sum() for row, most in zip(logits, largest_of, strict=True)]
    return torch.stack(totals).log_() + largest_of.squeeze(1)
