"""Seq2seq: one recurrent network reads a text, another one writes its translation (Sutskever et al. 2014; Cho et al.
2014; Bahdanau et al. 2015; Luong et al. 2015).

The encoder reads in both directions; its states at both ends, mapped, are what the decoder begins from, H_0. What else
the decoder knows of the source is its `context` (nn/recurrent_decoder.py):

    fixed         nothing: all that is to be said must fit into H_0
    every_step    C, the same at every step
    attention     C_i, a mixture of the source's states, of which the decoder asks for what it needs now

and what is scored comes, in all of them, from t_i = tanh(W [H_i; y_{i-1}; context]): after Bahdanau's appendix A.2.2,
with H_i for his s_{i-1} and tanh for maxout.
So the three differ in what reaches the decoder, and in nothing else.

The network keeps no state: `start` and `step` hand it to the caller. Search is in search/.

Shapes: N, M tokens of all source and target rows, R sources, S tokens of the longest one, Q rows (hypotheses of all
sources), D width of a token, P width of the decoder's cells, E width of the encoder's output, V target vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from qkv.data.batch import Batch, Packing, pad
from qkv.models.seq2seq.config import Seq2SeqConfig as Seq2SeqConfig
from qkv.nn.layers import AttentionKind, Layer
from qkv.nn.recurrent import CELLS, Cell, State
from qkv.nn.recurrent_decoder import (
    AttentionDecoder,
    CurrentDecoder,
    Decoder,
    EveryStepDecoder,
    FixedDecoder,
    PreviousDecoder,
)
from qkv.nn.recurrent_stack import Bidirectional, Stack, States
from qkv.nn.source_attention import AdditiveScore, BilinearScore, DotScore, Score, Source, SourceRows
from qkv.nn.words import WordScores
from qkv.search.decoding import Stepped

DECODERS: dict[str, type[Decoder]] = {
    "fixed": FixedDecoder,
    "every_step": EveryStepDecoder,
    "previous": PreviousDecoder,
    "current": CurrentDecoder,
}
SCORE_KINDS: dict[str, type[Score]] = {"additive": AdditiveScore, "dot": DotScore, "bilinear": BilinearScore}


@dataclass(frozen=True)
class Seq2SeqState:
    """The state of rows. The source is stored once for all its rows."""

    source: Source
    rows: SourceRows
    states: States

    def select(self, rows: Tensor) -> "Seq2SeqState":
        picked = rows.tolist()
        if picked == list(range(len(self.rows.owners))):
            return self
        states = tuple(tuple(part.index_select(0, rows) for part in state) for state in self.states)
        left, sources = self.rows.select(picked)
        return Seq2SeqState(self.source if sources is None else self.source.take(sources), left, states)


class Seq2Seq(nn.Module):
    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary_size, config.width)
        self.source_embedding = (
            None if config.source_vocabulary_size is None else nn.Embedding(config.source_vocabulary_size, config.width)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = _encoder(config)
        self.decoder = _decoder(config)
        self.to_hidden = _maps(config, config.layers)
        self.to_memory = _maps(config, config.layers if CELLS[config.cell].has_memory else 0)
        seen = config.cell_width + config.width + (config.source_width if self.decoder.shows else 0)
        self.readout = nn.Linear(seen, config.width)
        self.words = WordScores(config.vocabulary_size, config.width, config.tied)
        # a cell that is given faint words learns slowly, and words that are scored with must be faint
        self.scale = config.width**0.5 if config.tied else 1.0
        for table in (self.embedding, self.source_embedding):
            if table is not None:
                nn.init.normal_(table.weight, std=1 / self.scale)

    def forward(self, source: Tensor, source_packing: Packing, target: Tensor, target_packing: Packing) -> Tensor:
        """(N,), (M,) → t (M, D), with teacher forcing."""
        sources, rows = len(source_packing.lengths), len(target_packing.lengths)
        assert sources == rows, f"every source has one target, and there are {sources} sources and {rows} targets"
        read, states = self.read(source, source_packing)
        x = self._embed(target)  # (M, D)
        hidden, context = self.decoder(x, target_packing.lengths, read, states)
        return self._read_out(hidden, x, context)

    def scores(self, hidden: Tensor) -> Tensor:
        """(…, D) → logits (…, V) of the next token"""
        logits: Tensor = self.words(hidden, self.embedding.weight)
        return logits

    def before_words(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The parts of the word scores x Eᵀ + b: x (M, D), E (V, D) and b (V,)."""
        return hidden, *self.words.parts(self.embedding.weight)

    @torch.no_grad()
    def start(
        self, source: Tensor, source_packing: Packing, *, hypotheses: int = 1, longest: int = 512
    ) -> Seq2SeqState:
        """Read the sources (N,). `longest` is unused: the state does not grow with the text."""
        assert not self.training, "dropout would blur what is decoded: call eval() first"
        read, states = self.read(source, source_packing)
        sources = len(source_packing.lengths)
        owners = [number for number in range(sources) for _ in range(hypotheses)]
        rows = SourceRows.of(owners, sources, source.device)
        begun = tuple(tuple(part.repeat_interleave(hypotheses, dim=0) for part in state) for state in states)
        return Seq2SeqState(read, rows, begun)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: Seq2SeqState) -> Stepped[Seq2SeqState]:
        """(Q,) the last token of every row → scores of the next, and its attention to the source."""
        x = self._embed(tokens)  # (Q, D)
        written = self.decoder.step(x, state.source, state.rows, state.states)
        logits = self.scores(self._read_out(written.hidden, x, written.context))
        return Stepped(logits, Seq2SeqState(state.source, state.rows, written.states), written.weights)

    def read(self, source: Tensor, packing: Packing) -> tuple[Source, States]:
        """(N,) → what the decoder can attend to, and its initial states."""
        outputs, ends = self.encoder(self._embed_source(source), packing.lengths)
        return self._remember(outputs[-1], ends, packing)

    def layers(self, source: Batch, target: Batch | None = None) -> Iterator[Layer]:
        """Yield the encoder's layers, then the decoder's, if the batch has target tokens."""
        encoded: list[Layer] = []
        for layer in self.encoder.run_layers("encoder", self._embed_source(source.ids), source.lengths):
            yield layer
            encoded.append(layer)
        if target is not None:
            ends = tuple(way.after for layer in encoded for way in layer.recurrences)
            read, states = self._remember(encoded[-1].left, ends, source.packing)
            yield from self.decoder.run_layers(self._embed(target.ids), target.lengths, read, states)

    @property
    def context(self) -> str:
        return self.config.context

    @property
    def attentions(self) -> tuple[AttentionKind, ...]:
        has = self.config.context == "attention"
        return (AttentionKind("cross", "decoder", "cross", 1, 1, asks_for_next=True),) if has else ()

    @property
    def position_encoding(self) -> None:
        """None: a recurrent network needs no positions."""

    def fixed_context(self, source: Tensor, packing: Packing) -> Tensor | None:
        """(R, E) the context C, if it is all that the decoder sees of the source; None with attention."""
        return None if self.attentions else self.read(source, packing)[0].context

    def _remember(self, outputs: Tensor, ends: States, packing: Packing) -> tuple[Source, States]:
        """What the decoder sees, from the encoder's outputs (N, E) and the states of its layers after each row."""
        ways = self.config.directions
        layers = [_side_by_side(ends[first : first + ways]) for first in range(0, len(ends), ways)]
        states = pad(self.dropout(outputs), packing)  # (R, S, E)
        mask = pad(torch.ones(len(outputs), dtype=torch.bool, device=outputs.device), packing, False)  # (R, S)
        read = Source(self.dropout(layers[-1][0]), states, mask, self.decoder.keys(states))
        return read, tuple(self._begin(number, layer) for number, layer in enumerate(layers))

    def _begin(self, number: int, ends: State) -> State:
        """The initial state of a layer. A hidden state is limited to -1 … 1, a cell state is not."""
        found = [torch.tanh(self.to_hidden[number](ends[0]))]  # (R, P)
        if len(ends) == 2:
            found.append(self.to_memory[number](ends[1]))
        # in autocast too, a cell begins in the type of its weights
        return tuple(part.to(self.readout.weight.dtype) for part in found)

    def _embed_source(self, source: Tensor) -> Tensor:
        """(N,) → (N, D)"""
        table = self.embedding if self.source_embedding is None else self.source_embedding
        x: Tensor = self.dropout(table(source) * self.scale)
        return x

    def _embed(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.dropout(self.embedding(tokens) * self.scale)
        return x

    def _read_out(self, hidden: Tensor, x: Tensor, context: Tensor | None) -> Tensor:
        """t (…, D)"""
        seen = [hidden, x] if context is None else [hidden, x, context]
        return self.dropout(torch.tanh(self.readout(torch.cat(seen, dim=-1))))


def _side_by_side(directions: States) -> State:
    """The states of a layer in both directions, concatenated, (R, E) each."""
    return tuple(torch.cat(parts, dim=-1) for parts in zip(*directions, strict=True))


def _maps(config: Seq2SeqConfig, layers: int) -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(config.source_width, config.cell_width) for _ in range(layers))


def _encoder(config: Seq2SeqConfig) -> Stack | Bidirectional:
    def cells() -> list[Cell]:
        widths = [config.width] + [config.source_width] * (config.layers - 1)
        return [CELLS[config.cell](width, config.one_way_width) for width in widths]

    return (
        Bidirectional(cells(), cells(), config.dropout)
        if config.bidirectional
        else Stack(cells(), dropout=config.dropout)
    )


def _decoder(config: Seq2SeqConfig) -> Decoder:
    kind = DECODERS[config.query if config.context == "attention" else config.context]
    widths = [config.width + (config.source_width if kind.is_fed else 0)] + [config.cell_width] * (config.layers - 1)
    cells = [CELLS[config.cell](width, config.cell_width) for width in widths]
    if issubclass(kind, AttentionDecoder):
        return kind(cells, SCORE_KINDS[config.score](config.cell_width, config.source_width), config.dropout)
    return kind(cells, config.dropout)
