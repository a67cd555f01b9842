"""Recurrent decoders with four kinds of context, from a fixed C to one C_i per step.

    FixedDecoder        H_i = cell(y_{i-1}, H_{i-1}),         the source is in H_0 only   Sutskever et al. 2014
    EveryStepDecoder    H_i = cell([y_{i-1}; C], H_{i-1})                                 Cho et al. 2014
    PreviousDecoder     H_i = cell([y_{i-1}; C_i], H_{i-1}),  the query of C_i is H_{i-1}   Bahdanau et al. 2015
    CurrentDecoder      H_i = cell(y_{i-1}, H_{i-1}),         the query of C_i is H_i     Luong et al. 2015

y_{i-1} is the vector of the previous token. All but `PreviousDecoder` can process all tokens of a known text in a layer
at once. There C_i depends on the previous step, so that it needs a loop (recurrent_scan.py).

With several layers, the lowest layer of a `PreviousDecoder` attends, as in Wu et al. 2016 (§3), so that the others need
no loop. In that paper C_i goes into all layers; here into the lowest layer and the prediction. In a `CurrentDecoder`
the top layer attends.

Not here: Luong's input feeding, which would need a loop too.

Shapes: M target tokens of all rows, R rows and their sources, Q rows of a step, D width of a token, P of a layer's
output, E of the encoder's states, S tokens of the longest source.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from qkv.nn.layers import Layer, Recurrence
from qkv.nn.recurrent import Cell, State, Timeline
from qkv.nn.recurrent_scan import scan_attentive
from qkv.nn.recurrent_stack import DIRECTIONS, Stack, States, fastest
from qkv.nn.source_attention import Score, Source, SourceRows

DECODER_PART = "decoder"
"""`Layer.part` of these layers."""


class _DecoderOutput(NamedTuple):
    """The result of one step."""

    hidden: Tensor  # (Q, P) of the last layer
    context: Tensor | None  # (Q, E), if the prediction reads it
    weights: Tensor | None  # (Q, S)
    states: States


class Decoder(nn.Module):
    is_fed: ClassVar[bool] = False  # whether the lowest cell reads a context with the token
    shows: ClassVar[bool] = True  # whether the prediction reads a context with the state

    def __init__(self, cells: Sequence[Cell], dropout: float = 0.0) -> None:
        super().__init__()
        self.stack = Stack(cells, dropout=dropout)

    def keys(self, states: Tensor) -> Tensor | None:
        """The encoder's states (R, S, E) → attention keys (R, S, A); None without attention."""
        return None

    @abstractmethod
    def forward(
        self, x: Tensor, lengths: tuple[int, ...], source: Source, states: States
    ) -> tuple[Tensor, Tensor | None]:
        """Tokens (M, D) of rows end to end, row r of source r → (M, P) of the last layer, and contexts (M, E)."""

    @abstractmethod
    def run_layers(self, x: Tensor, lengths: tuple[int, ...], source: Source, states: States) -> Iterator[Layer]:
        """`forward` layer by layer, with the record of the attention."""

    @abstractmethod
    def step(self, x: Tensor, source: Source, rows: SourceRows, states: States) -> _DecoderOutput:
        """(Q, D): one token of every row."""

    def cells(self) -> list[Cell]:
        return [cell for cell in self.stack.cells if isinstance(cell, Cell)]

    def climb(self, x: Tensor, states: States) -> tuple[Tensor, States]:
        """One token of every row through all layers."""
        after: list[State] = []
        for cell, state in zip(self.cells(), states, strict=True):
            after.append(cell.step(cell.from_input(x), state))
            x = after[-1][0]
        return x, tuple(after)


class FixedDecoder(Decoder):
    shows = False

    def forward(
        self, x: Tensor, lengths: tuple[int, ...], source: Source, states: States
    ) -> tuple[Tensor, Tensor | None]:
        outputs, _ = self.stack(x, lengths, states)
        return outputs[-1], None

    def run_layers(self, x: Tensor, lengths: tuple[int, ...], source: Source, states: States) -> Iterator[Layer]:
        return self.stack.run_layers(DECODER_PART, x, lengths, states)

    def step(self, x: Tensor, source: Source, rows: SourceRows, states: States) -> _DecoderOutput:
        hidden, states = self.climb(x, states)
        return _DecoderOutput(hidden, None, None, states)


class EveryStepDecoder(Decoder):
    is_fed = True

    def forward(
        self, x: Tensor, lengths: tuple[int, ...], source: Source, states: States
    ) -> tuple[Tensor, Tensor | None]:
        context = self._contexts(x, lengths, source)
        outputs, _ = self.stack(torch.cat([x, context.to(x.dtype)], dim=-1), lengths, states)
        return outputs[-1], context

    def run_layers(self, x: Tensor, lengths: tuple[int, ...], source: Source, states: States) -> Iterator[Layer]:
        context = self._contexts(x, lengths, source)
        return self.stack.run_layers(DECODER_PART, torch.cat([x, context.to(x.dtype)], dim=-1), lengths, states)

    def _contexts(self, x: Tensor, lengths: tuple[int, ...], source: Source) -> Tensor:
        """(M, E): C for every token"""
        times = torch.tensor(lengths, device=x.device)
        return source.context.repeat_interleave(times, dim=0, output_size=x.size(0))

    def step(self, x: Tensor, source: Source, rows: SourceRows, states: States) -> _DecoderOutput:
        context = source.context.index_select(0, rows.owner)
        hidden, states = self.climb(torch.cat([x, context.to(x.dtype)], dim=-1), states)
        return _DecoderOutput(hidden, context, None, states)


class AttentionDecoder(Decoder):
    def __init__(self, cells: Sequence[Cell], score: Score, dropout: float = 0.0) -> None:
        super().__init__(cells, dropout)
        self.score = score

    def keys(self, states: Tensor) -> Tensor | None:
        return self.score.keys(states)

    def look(self, query: Tensor, source: Source, rows: SourceRows) -> tuple[Tensor, Tensor]:
        """(Q, P) → (Q, E) and (Q, S)"""
        context, weights = self.score.look(rows.grouped(query), source)
        return rows.flat(context), rows.flat(weights)


class CurrentDecoder(AttentionDecoder):
    def forward(
        self, x: Tensor, lengths: tuple[int, ...], source: Source, states: States
    ) -> tuple[Tensor, Tensor | None]:
        outputs, _ = self.stack(x, lengths, states)
        owners = [row for row, length in enumerate(lengths) for _ in range(length)]
        context, _ = self.look(outputs[-1], source, SourceRows.of(owners, len(lengths), x.device))
        return outputs[-1], context

    def run_layers(self, x: Tensor, lengths: tuple[int, ...], source: Source, states: States) -> Iterator[Layer]:
        *below, last = self.stack.run_layers(DECODER_PART, x, lengths, states)
        yield from below
        yield replace(last, recorded={"cross": self.score.record(last.left, lengths, source)})

    def step(self, x: Tensor, source: Source, rows: SourceRows, states: States) -> _DecoderOutput:
        hidden, states = self.climb(x, states)
        context, weights = self.look(hidden, source, rows)
        return _DecoderOutput(hidden, context, weights, states)


class PreviousDecoder(AttentionDecoder):
    is_fed = True

    def forward(
        self, x: Tensor, lengths: tuple[int, ...], source: Source, states: States
    ) -> tuple[Tensor, Tensor | None]:
        timeline = Timeline.of(lengths, device=x.device)
        lowest, *above = self.cells()
        hidden, context = scan_attentive(lowest, self.score, x, timeline, source, states[0])
        for cell, state in zip(above, states[1:], strict=True):
            hidden, _ = fastest(cell, self.stack.dropout(hidden), timeline, state)
        return hidden, context

    def run_layers(self, x: Tensor, lengths: tuple[int, ...], source: Source, states: States) -> Iterator[Layer]:
        timeline = Timeline.of(lengths, device=x.device)
        lowest, *above = self.cells()
        hidden, context = scan_attentive(lowest, self.score, x, timeline, source, states[0])
        starts = torch.tensor((0, *lengths[:-1]), device=x.device).cumsum(0)
        asking = hidden.roll(1, 0).index_copy(0, starts, states[0][0].to(hidden.dtype))  # (M, P): H_{i-1}
        record = self.score.record(asking, lengths, source)
        yield Layer(DECODER_PART, torch.cat([x, context.to(x.dtype)], dim=-1), hidden, recorded={"cross": record})
        for cell, state in zip(above, states[1:], strict=True):
            entered = self.stack.dropout(hidden)
            hidden, after = fastest(cell, entered, timeline, state)
            way = Recurrence(DIRECTIONS[0], cell, entered, hidden, after)
            yield Layer(DECODER_PART, entered, hidden, recurrences=(way,))

    def step(self, x: Tensor, source: Source, rows: SourceRows, states: States) -> _DecoderOutput:
        context, weights = self.look(states[0][0], source, rows)
        hidden, states = self.climb(torch.cat([x, context.to(x.dtype)], dim=-1), states)
        return _DecoderOutput(hidden, context, weights, states)
