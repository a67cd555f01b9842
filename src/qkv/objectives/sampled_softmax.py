"""The loss of a word against some words of a large vocabulary instead of all of them (Jean et al. 2015, "On Using Very
Large Target Vocabulary for Neural Machine Translation", §3): which of target and words drawn is the target?

    loss = −log( exp s(target) / π(target)  /  Σ over the target and the words drawn exp s(word) / π(word) )

S words are drawn by their frequency, once for all targets of a batch; π is the chance of a word to be among them. The
target is there whether it was drawn or not, and without π a frequent word would be told from itself too seldom. With π
the best scores are those of the whole softmax, however few words are drawn: given who is there, a word is the target
with a chance in proportion to exp s / π, as long as words are drawn independently (almost: S draws, each word counted
once). With all words drawn, π is 1 and this is the whole softmax.

To divide only the words drawn and not the target makes the sum right on average, and its logarithm too low, the more
so the fewer are drawn. Tried here on a small corpus (20 words of 50), that training made the perplexity worse.

Loss and share of right words are among the words drawn: for training, and not to be compared with those of all.

Shapes: M targets, S words drawn, D width, V vocabulary.
"""

import torch
from torch import Tensor
from torch.nn import functional

NEVER = -1e4  # a score that adds nothing; the logarithm of nothing at all would have no gradient


class Unigram:
    """Draws words in proportion to their counts, one added to each so that every word can be drawn."""

    def __init__(self, counts: Tensor, size: int) -> None:
        shares = (counts.double() + 1) / (counts.double() + 1).sum()
        self.size = size
        self.cumulative = shares.cumsum(0)  # V
        self.log_chances = (-torch.expm1(size * torch.log1p(-shares))).log().float()  # V, of being among S

    def draw(self) -> tuple[Tensor, Tensor]:
        """(S,) words in the order of ids, and (S,) whether the same one stands before it; by torch's own generator of
        the device, which the loop seeds at every step."""
        chosen = torch.rand(self.size, dtype=torch.float64, device=self.cumulative.device).sort().values
        words = torch.searchsorted(self.cumulative, chosen).clamp_max(len(self.cumulative) - 1)
        again = torch.zeros_like(words, dtype=torch.bool)
        again[1:] = words[1:] == words[:-1]
        return words, again


def sampled_loss(x: Tensor, table: Tensor, bias: Tensor, targets: Tensor, sampler: Unigram) -> tuple[Tensor, Tensor]:
    """Vectors (M, D), scored against their targets and words drawn from the table (V, D) → the summed loss, and how
    many targets were the likeliest of those."""
    drawn, again = sampler.draw()
    if not x.is_cuda:  # a GPU would have to be asked how many are left, which takes longer than to score them in vain
        drawn, again = drawn[~again], again[~again]
    bias = bias - sampler.log_chances  # V
    target = (x * _rows(table, targets)).sum(-1).float() + _rows(bias[:, None], targets)[:, 0]  # M
    offsets = _rows(bias[:, None], drawn)[:, 0].masked_fill(again, NEVER)  # S
    scores = functional.linear(x, _rows(table, drawn), offsets).float()  # M, S
    scores = scores.masked_fill_(drawn == targets[:, None], NEVER)
    others = scores.logsumexp(-1)  # M
    right = (target > scores.detach().amax(-1)).sum()
    return (torch.logaddexp(target, others) - target).sum(), right


def _rows(table: Tensor, ids: Tensor) -> Tensor:
    """A look-up whose gradient is added up in one order, every time."""
    return functional.embedding(ids, table)
