"""Drawing a token by chance: temperature, the k likeliest (Fan et al. 2018), the nucleus (Holtzman et al. 2020).

A row's draws follow from the seed, from its own key and from its own scores. Which other rows stand in the batch, and
where, changes nothing.

Shapes: Q rows, V vocabulary.
"""

from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor

from qkv.generate.options import GenerateConfig

COLDEST = 1e-30


class Draws:
    def __init__(self, config: GenerateConfig, keys: Sequence[int]) -> None:
        """`keys` tell sources apart, whatever batch they are in; each has as many rows as there are hypotheses."""
        self.config = config
        self.chances = [Random(f"{config.seed} {key} {j}") for key in keys for j in range(config.hypotheses)]

    def __call__(self, logits: Tensor) -> Tensor:
        """(Q, V) → (Q,): one token a row."""
        return pick(filtered(logits, self.config), [chance.random() for chance in self.chances])

    def keep(self, rows: Sequence[int]) -> None:
        self.chances = [self.chances[row] for row in rows]


def filtered(logits: Tensor, config: GenerateConfig) -> Tensor:
    """(Q, V): those of tokens that may be drawn, at the temperature; the others are -∞."""
    # the largest become 0, and stay 0 however small the temperature is; below COLDEST a float32 would be 0 itself
    logits = (logits - logits.amax(dim=1, keepdim=True)) / max(config.temperature, COLDEST)
    if config.top_k is not None and config.top_k < logits.shape[1]:
        least = logits.topk(config.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if config.top_p < 1:
        ascending, order = logits.sort(dim=1)
        # what the tokens up to this one have together; a token stays unless the likelier ones are enough
        unlikely = ascending.softmax(dim=1).cumsum(dim=1) <= 1 - config.top_p
        unlikely[:, -1] = False
        logits = logits.masked_fill(torch.zeros_like(unlikely).scatter_(1, order, unlikely), -torch.inf)
    return logits


def pick(logits: Tensor, chances: Sequence[float]) -> Tensor:
    """(Q,): the token on which the chance (0 ≤ chance < 1) falls, when each is as wide as it is likely."""
    widths = logits.double().softmax(dim=1).cumsum(dim=1)
    at = torch.tensor(chances, dtype=torch.float64, device=logits.device)[:, None] * widths[:, -1:]
    # the first token that reaches beyond the point; one of no width never does
    return torch.searchsorted(widths, at, right=True).squeeze(1).clamp_(max=logits.shape[1] - 1)
