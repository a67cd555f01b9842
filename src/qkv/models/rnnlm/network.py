"""RNNLM: a recurrent language model (Mikolov et al. 2010), with any cell of nn/recurrent.py.

Each token is looked up, goes through the layers, and the state after it gives a score to every word that could come
next. What was read long ago is still there, as far as the cell keeps it: the state after one piece of a text is where
the next piece goes on from, and the gradient stops between the two (truncated back-propagation through time). Dropout
is between layers only, as by Zaremba et al. (2014), whose sizes are the presets.

The network returns its state and keeps none; models/nnlm/pretrain.py carries it.

Shapes: R rows, N tokens of all rows, D width of a word, P width of the last layer's output, V vocabulary.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from qkv.models.rnnlm.config import PRESETS as PRESETS
from qkv.models.rnnlm.config import RNNLMConfig as RNNLMConfig
from qkv.nn.layers import Layer
from qkv.nn.recurrent import CELLS, LSTM, Cell
from qkv.nn.recurrent_stack import Stack, States, needs_gradient
from qkv.nn.words import WordScores


class RNNStates(nn.Module):
    """RNNLM below its word scores: the state after each token."""

    def __init__(self, config: RNNLMConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary_size, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.stack = Stack([_cell(config, number) for number in range(config.layers)], dropout=config.dropout)
        # a cell that is given faint words learns slowly, and words that are scored with must be faint
        self.scale = config.width**0.5 if config.tied else 1.0

    def begin(self, rows: int) -> States:
        """The initial states."""
        return self.stack.begin(rows)

    def forward(self, ids: Tensor, lengths: tuple[int, ...], states: States | None = None) -> tuple[Tensor, States]:
        """Tokens (N,) of concatenated rows → the vectors from which the next ones are scored (N, P), and the states
        after each row."""
        outputs, states = self.stack(self._embed(ids), lengths, states)
        return self.dropout(outputs[-1]), states

    def layers(self, ids: Tensor, lengths: tuple[int, ...]) -> Iterator[Layer]:
        """Yield the layers for tokens (N,) of concatenated rows."""
        return self.stack.run_layers("language_model", self._embed(ids), lengths)

    def _embed(self, ids: Tensor) -> Tensor:
        """(N,) → (N, D)"""
        x: Tensor = self.dropout(self.embedding(ids) * self.scale)
        return x


class StateVectors(nn.Module):
    """The vector of a token is the state after it. Every row starts with the initial state."""

    def __init__(self, config: RNNLMConfig) -> None:
        super().__init__()
        self.network = RNNStates(config)

    def forward(self, ids: Tensor, lengths: tuple[int, ...]) -> Tensor:
        """Tokens (N,) of concatenated rows → (N, P)"""
        with torch.set_grad_enabled(needs_gradient(self)):
            states: Tensor = self.network(ids, lengths)[0]
            return states

    def layers(self, ids: Tensor, lengths: tuple[int, ...]) -> Iterator[Layer]:
        return self.network.layers(ids, lengths)


class RNNLM(RNNStates):
    def __init__(self, config: RNNLMConfig) -> None:
        super().__init__(config)
        self.scores = WordScores(config.vocabulary_size, config.output_width, config.tied)
        nn.init.normal_(self.embedding.weight, std=1 / self.scale)

    def predict(self, hidden: Tensor) -> Tensor:
        """(…, P) → logits (…, V) of the next token"""
        return self.scores(hidden, self.embedding.weight)

    def before_words(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The parts of the word scores x Eᵀ + b: x (M, P), E (V, P) and b (V,)."""
        return hidden, *self.scores.parts(self.embedding.weight)


def _cell(config: RNNLMConfig, layer: int) -> Cell:
    inputs, width = config.output_width if layer else config.width, config.cell_width or config.width
    if config.projection is not None:
        return LSTM(inputs, width, config.projection)
    return CELLS[config.cell](inputs, width)
