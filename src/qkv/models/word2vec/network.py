"""word2vec (Mikolov et al. 2013, "Efficient Estimation of Word Representations in Vector Space"; "Distributed
Representations of Words and Phrases and their Compositionality"): two matrices and a dot product.

Every word has a row in the Embedding matrix, which is what one wants in the end, and a row in the Context matrix, which
is there to learn it and is thrown away afterwards. A score says whether words belong together:

    skip-gram   score = E[near] · C[word]              each neighbour by itself
    CBOW        score = mean of E[near …] · C[word]    all neighbours of a word at once

Which words stand beside a word, which negatives it is told apart from and the loss are not here: they belong to
models/word2vec/objective.py.

Shapes: B windows, M neighbours (the most a window can have), N outputs (the word and its negatives), D width, V
vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from qkv.config import check_known, check_least

_ARCHITECTURES = ("skipgram", "cbow")


@dataclass(frozen=True)
class Word2VecConfig:
    vocabulary_size: int
    architecture: str = "skipgram"
    width: int = 100

    def __post_init__(self) -> None:
        check_known(self, architecture=_ARCHITECTURES)
        check_least(self, "vocabulary_size", "width")


def skip_gram_scores(near: Tensor, outputs: Tensor) -> Tensor:
    """Rows of E (B, M, D) and of C (B, N, D) → (B, M, N): every neighbour against the word and its negatives."""
    return near @ outputs.mT


def cbow_scores(near: Tensor, outputs: Tensor, mask: Tensor) -> Tensor:
    """The same with the mean of the neighbours that are there, mask (B, M): → (B, 1, N)."""
    weights = mask.to(near.dtype) / mask.sum(1, keepdim=True).clamp_min(1)  # B, M
    return (weights[:, None] @ near) @ outputs.mT


class Word2Vec(nn.Module):
    """The two matrices. They begin as in Mikolov's program: E small and uniform, C zero, so that every score is 0."""

    def __init__(self, config: Word2VecConfig) -> None:
        super().__init__()
        self.config = config
        shape = (config.vocabulary_size, config.width)
        self.embedding = nn.Parameter((torch.rand(shape) - 0.5) / config.width)  # V, D
        self.context = nn.Parameter(torch.zeros(shape))  # V, D

    def forward(self, near: Tensor, mask: Tensor, outputs: Tensor) -> Tensor:
        """Ids near (B, M), which of them are there (B, M), ids of the outputs (B, N) → scores (B, M or 1, N)."""
        return self.scores(self.embedding[near], mask, self.context[outputs])

    def scores(self, near: Tensor, mask: Tensor, outputs: Tensor) -> Tensor:
        """The same from rows that were looked up: near (B, M, D), outputs (B, N, D)."""
        if self.config.architecture == "cbow":
            return cbow_scores(near, outputs, mask)
        return skip_gram_scores(near, outputs)
