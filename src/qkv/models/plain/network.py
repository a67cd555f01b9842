"""Encoders without attention, on vectors of tokens: none at all, convolutions (Kim 2014), recurrent layers.

They take the place of BERT below any head, so that the same task can be learned with each of them. All read packed
rows, and a row's result never depends on its neighbours.

    lookup    a token's vector is its word's, in any context; a row is their mean
    textcnn   windows of several widths in parallel, one layer; a row is the maximum of every feature (Kim 2014)
    cnn       windows on windows with residuals, as deep as asked for; a row is the maximum of every feature
    rnn lstm gru …   layers that read from both ends; a row is where each direction has read all of it

The vectors are looked up in a table, or given by a pretrained language model (`EmbedderConfig`): the same encoder on
other features. If that gives a vector of every layer, a mix of them is learned with the task (Peters et al. 2018,
equation 1). Whether the language model is trained too is decided elsewhere.

Not here: loading. folder.py puts word vectors, or the weights of a language model, into `embedding`.

Shapes: N tokens of all rows, R rows, K layers of a mix, E width of the vectors below, D width of the encoder.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.data.batch import Batch, Packing
from qkv.models.elmo.config import ElmoConfig
from qkv.models.encoder import Encoder, Encoding, Pooler, WithHeads
from qkv.models.plain.config import READER_KINDS as READER_KINDS
from qkv.models.plain.config import EmbedderConfig as EmbedderConfig
from qkv.models.plain.config import ReaderConfig as ReaderConfig
from qkv.models.plain.config import ReaderSettings as ReaderSettings
from qkv.models.rnnlm.config import RNNLMConfig
from qkv.nn.convolution import Convolution, ConvolutionBlock, max_over_rows, mean_over_rows
from qkv.nn.layers import Layer
from qkv.nn.multihead import Packed
from qkv.nn.recurrent import CELLS
from qkv.nn.recurrent_stack import Bidirectional
from qkv.text.tokenizer import Tokenizer

PART = "reader"
"""The name of an encoder's own layers."""


class TokenTable(nn.Embedding):
    """One vector per token, in any context."""

    def forward(self, input: Tensor, lengths: tuple[int, ...] = ()) -> Tensor:
        """(N,) → (N, E)"""
        return super().forward(input)

    def layers(self, ids: Tensor, lengths: tuple[int, ...]) -> Iterator[Layer]:
        """A table has no layers."""
        return iter(())


def build_features(config: EmbedderConfig, words: Tokenizer | None) -> nn.Module:
    """A language model in the place of a table: tokens (N,) of concatenated rows and the lengths of the rows → (N, E),
    or (N, K, E) for a mix; its `layers` yields those of the model. `words` gives the spelling of tokens, for models
    that read characters."""
    if isinstance(config, RNNLMConfig):
        from qkv.models.rnnlm.network import StateVectors

        return StateVectors(config)
    from qkv.models.elmo.network import ElmoVectors

    assert isinstance(config, ElmoConfig) and words is not None, "ELMo has to know how tokens are written"
    return ElmoVectors(config, words)


def build_mix(config: EmbedderConfig) -> nn.Module | None:
    """(N, K, E) → (N, E); None if a token has a single vector."""
    if not config.mixed_layers:
        return None
    from qkv.models.elmo.network import ScalarMix

    return ScalarMix(config.mixed_layers)


class Reader(Encoder):
    """Vectors of tokens, then layers that read them."""

    embedding: Any  # a `TokenTable`, or a language model (`build_features`)

    def __init__(self, config: ReaderConfig, pooler: bool = False, words: Tokenizer | None = None) -> None:
        """`words` is for features that are computed from characters."""
        super().__init__()
        self.config = config
        if config.features is None:
            self.embedding = TokenTable(config.vocabulary_size, config.embedding_width)
            nn.init.normal_(self.embedding.weight, std=0.1)
        else:
            self.embedding = build_features(config.features, words)
        self.mix = None if config.features is None else build_mix(config.features)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList()
        self.pooler = Pooler(config.width) if pooler else None

    def forward(
        self,
        ids: Tensor,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        *,
        packing: Packing,
        pool: bool = True,
    ) -> Encoding:
        """Packed ids (N,); the [SEP] between them separates the texts of a pair."""
        hidden = self._entering(ids, packing)
        for layer in self.own_layers(hidden, packing):
            hidden = layer.left  # (N, D)
        pooled = self.pooler(self.of_rows(hidden, packing)) if pool and self.pooler is not None else None
        return Encoding(hidden, pooled, None, {})

    def layers(self, batch: Batch) -> Iterator[Layer]:
        """The layers of the language model below, if there is one, then its own."""
        yield from self.embedding.layers(batch.ids, batch.lengths)
        yield from self.own_layers(self._entering(batch.ids, batch.packing), batch.packing)

    def token_states(self, batch: Batch) -> list[Tensor]:
        """(N, E) of every layer that is mixed, or of the table; then the output, if there are layers of its own."""
        looked_up: Tensor = self.embedding(batch.ids, batch.lengths)
        below = [looked_up] if self.mix is None else list(looked_up.unbind(1))
        return [*below, self(**batch.inputs(), pool=False).hidden] if len(self.blocks) else below

    def own_layers(self, x: Tensor, packing: Packing) -> Iterator[Layer]:
        """Run its own layers on their input (N, E)."""
        return iter(())

    def _entering(self, ids: Tensor, packing: Packing) -> Tensor:
        """(N,) → (N, E)"""
        x = self.embedding(ids, packing.lengths)  # (N, E), or (N, K, E) for a mix
        entering: Tensor = self.dropout(x if self.mix is None else self.mix(x))
        return entering


class Lookup(Reader):
    def of_rows(self, hidden: Tensor, packing: Packing) -> Tensor:
        return mean_over_rows(hidden, Packed(*packing))


class TextCNN(Reader):
    def __init__(self, config: ReaderConfig, pooler: bool = False, words: Tokenizer | None = None) -> None:
        super().__init__(config, pooler, words)
        windows = (Convolution(config.embedding_width, config.inner_width, kernel) for kernel in config.kernels)
        self.blocks = nn.ModuleList([nn.ModuleList(windows)])

    def own_layers(self, x: Tensor, packing: Packing) -> Iterator[Layer]:
        windows = self.blocks[0]
        assert isinstance(windows, nn.ModuleList)
        found = torch.cat([window(x, Packed(*packing)) for window in windows], dim=-1)
        yield Layer(PART, x, functional.relu(found))

    def of_rows(self, hidden: Tensor, packing: Packing) -> Tensor:
        return max_over_rows(hidden, Packed(*packing))


class CNN(Reader):
    def __init__(self, config: ReaderConfig, pooler: bool = False, words: Tokenizer | None = None) -> None:
        super().__init__(config, pooler, words)
        blocks: list[nn.Module] = [
            ConvolutionBlock(config.inner_width, config.kernels[0], dropout=config.dropout)
            for _ in range(config.layers)
        ]
        # part of the lowest block: all parts of an encoder are in its embedding or its blocks
        entrance = nn.Linear(config.embedding_width, config.inner_width)
        self.blocks = nn.ModuleList([nn.ModuleList([entrance, blocks[0]]), *blocks[1:]])

    def own_layers(self, x: Tensor, packing: Packing) -> Iterator[Layer]:
        lowest, *above = self.blocks
        assert isinstance(lowest, nn.ModuleList)
        entrance, first = lowest
        x = entrance(x)
        for block in (first, *above):
            left = block(x, Packed(*packing))
            yield Layer(PART, x, left)
            x = left

    def of_rows(self, hidden: Tensor, packing: Packing) -> Tensor:
        return max_over_rows(hidden, Packed(*packing))


class Recurrent(Reader):
    def __init__(self, config: ReaderConfig, pooler: bool = False, words: Tokenizer | None = None) -> None:
        super().__init__(config, pooler, words)
        cell, width = CELLS[config.kind], config.inner_width
        inputs = [config.embedding_width, *[2 * width] * (config.layers - 1)]
        ways = [[cell(one, width) for one in inputs] for _ in range(2)]
        self.stack = Bidirectional(ways[0], ways[1], config.dropout)
        self.blocks = self.stack.layers

    def own_layers(self, x: Tensor, packing: Packing) -> Iterator[Layer]:
        return self.stack.run_layers(PART, x, packing.lengths)

    def of_rows(self, hidden: Tensor, packing: Packing) -> Tensor:
        """The last token of the forward direction and the first of the backward one."""
        forward, backward = hidden.chunk(2, dim=-1)
        offsets = packing.offsets.long()
        return torch.cat([forward[offsets[1:] - 1], backward[offsets[:-1]]], dim=-1)


_READERS: dict[str, type[Reader]] = {"lookup": Lookup, "textcnn": TextCNN, "cnn": CNN}
"""The others are named after their cell."""


def reader(config: ReaderConfig, pooler: bool = False, words: Tokenizer | None = None) -> Reader:
    return _READERS.get(config.kind, Recurrent)(config, pooler, words)


class ReaderWithHeads(WithHeads):
    """A plain encoder and the heads of tasks by name."""

    encoder: Reader

    def __init__(
        self,
        config: ReaderConfig,
        heads: Sequence[str] = (),
        labels: int = 2,
        pooler: bool | None = None,
        words: Tokenizer | None = None,
    ) -> None:
        self.config: ReaderConfig
        super().__init__(config, partial(reader, config, words=words), heads, labels, pooler)


class Mix(NamedTuple):
    """The weights of the layers of a language model in a task."""

    shares: tuple[float, ...]
    gamma: float


def mix_of(network: WithHeads) -> Mix | None:
    """None if nothing is mixed, or the mix has no values yet."""
    mix: Any = network.encoder.mix if isinstance(network.encoder, Reader) else None
    if mix is None or mix.gamma.is_meta:
        return None
    return Mix(tuple(mix.shares().tolist()), mix.gamma.item())
