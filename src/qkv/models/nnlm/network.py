"""NNLM: A Neural Probabilistic Language Model (Bengio et al. 2003), the network.

The words before the one to be predicted are looked up in a table, their vectors laid side by side, and one hidden layer
gives a score to every word of the vocabulary (§2, equation 1):

    y = b + U tanh(d + H x)            x = C(w₁) ; … ; C(wₙ), the context from the oldest word to the newest
    y = b + W x + U tanh(d + H x)      with direct connections

The table C is what word2vec later kept and everything since begins with. Words further back than the context do not
exist for this model. What is predicted and the loss over a corpus belong to models/nnlm/pretrain.py.

Shapes: N tokens of all rows, n words of context, D width of a word, H hidden width, V vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from qkv.config import apply_preset, check_least, check_shares
from qkv.nn.layers import Layer
from qkv.nn.words import WordScores


@dataclass(frozen=True)
class NNLMConfig:
    vocabulary_size: int
    context: int = 5  # words that are seen
    width: int = 128
    hidden_width: int = 256
    direct: bool = False  # from the words to the scores, past the hidden layer
    dropout: float = 0.1
    begin_id: int = 2  # in place of words before the start of a text

    def __post_init__(self) -> None:
        check_least(self, "context", "width", "hidden_width")
        check_shares(self, "dropout")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        return cls(**apply_preset(PRESETS, name, changes))


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"context": 4, "width": 60, "hidden_width": 50, "direct": True, "dropout": 0.0},  # MLP1 of table 1
    "small": {"context": 5, "width": 128, "hidden_width": 256},
    "medium": {"context": 8, "width": 256, "hidden_width": 512},
}


class NNLM(nn.Module):
    def __init__(self, config: NNLMConfig) -> None:
        super().__init__()
        self.config = config
        joined = config.context * config.width
        self.embedding = nn.Embedding(config.vocabulary_size, config.width)
        self.hidden = nn.Linear(joined, config.hidden_width)
        self.dropout = nn.Dropout(config.dropout)
        # W and U side by side are one matrix
        self.scores = WordScores(config.vocabulary_size, config.hidden_width + (joined if config.direct else 0))

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Tokens (N,) of concatenated rows and their positions (N,) → the vectors from which the next tokens are scored
        (N, H), or (N, H + n·D) with direct connections."""
        return self._layer(ids, positions).left

    def layers(self, ids: Tensor, lengths: tuple[int, ...]) -> Iterator[Layer]:
        """Yield the only layer, for tokens (N,) of concatenated rows."""
        yield self._layer(ids, torch.cat([torch.arange(length, device=ids.device) for length in lengths]))

    def _layer(self, ids: Tensor, positions: Tensor) -> Layer:
        x = self.embedding(contexts(ids, positions, self.config.context, self.config.begin_id)).flatten(1)  # (N, n·D)
        x = self.dropout(x)
        hidden = self.dropout(torch.tanh(self.hidden(x)))  # (N, H)
        return Layer("language_model", x, torch.cat([hidden, x], dim=-1) if self.config.direct else hidden)

    def predict(self, hidden: Tensor) -> Tensor:
        """(…, H) → logits (…, V) of the next token"""
        return self.scores(hidden, self.embedding.weight)

    def before_words(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The parts of the word scores x Eᵀ + b: x (M, H), E (V, H) and b (V,)."""
        return hidden, *self.scores.parts(self.embedding.weight)


def contexts(ids: Tensor, positions: Tensor, size: int, begin_id: int) -> Tensor:
    """Each token with those before it in its row, oldest first; `begin_id` if there is none.

    >>> contexts(torch.tensor([7, 8, 9]), torch.tensor([0, 1, 0]), 2, begin_id=2).tolist()   # rows 7 8 and 9
    [[2, 7], [7, 8], [2, 9]]
    """
    back = torch.arange(size - 1, -1, -1, device=ids.device)  # (n,)
    places = torch.arange(ids.numel(), device=ids.device)[:, None] - back  # (N, n)
    return ids[places.clamp_min(0)].masked_fill(positions[:, None] < back, begin_id)
