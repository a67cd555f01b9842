"""A score for every word of the vocabulary: the last layer of a language model.

Shapes: D width, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class WordScores(nn.Module):
    """x Eᵀ + b. If tied, E is the input embedding, passed by the caller so that it remains one parameter (Press and
    Wolf 2017); otherwise it is a separate table."""

    def __init__(self, vocabulary: int, width: int, tied: bool = False) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.table = None if tied else nn.Parameter(torch.empty(vocabulary, width))
        if self.table is not None:
            nn.init.uniform_(self.table, -(width**-0.5), width**-0.5)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """(…, D) → (…, V)"""
        return functional.linear(x, self._table(embedding), self.bias)

    def parts(self, embedding: Tensor) -> tuple[Tensor, Tensor]:
        """E (V, D) and b (V,), for a loss that avoids storing all scores."""
        return self._table(embedding), self.bias

    def _table(self, embedding: Tensor) -> Tensor:
        return embedding if self.table is None else self.table
