"""Recurrent layers on top of each other, in one direction or in both.

`Stack` reads one way through all its layers: a language model, and each half of ELMo. `Bidirectional` puts both
directions together after every layer, so that the next one has seen the whole row: an encoder of texts, never a
language model, which would see what it is to predict.

Shapes: as in recurrent.py.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from qkv.nn.recurrent import Cell, Run, State
from qkv.nn.recurrent_fused import fastest
from qkv.nn.timeline import Timeline

States = tuple[State, ...]
"""One a layer; of `Bidirectional` two, forward and backward."""


class Stack(nn.Module):
    def __init__(
        self, cells: Sequence[Cell], *, dropout: float = 0.0, residual: bool = False, reverse: bool = False
    ) -> None:
        """`dropout` is between layers, never between steps (Zaremba et al. 2014). With `residual`, what goes into a
        layer after the first is added to what comes out. With `reverse`, rows are read from their end."""
        super().__init__()
        self.cells = nn.ModuleList(cells)
        self.dropout = nn.Dropout(dropout)
        self.residual, self.reverse = residual, reverse
        self._check(cells)

    def _check(self, cells: Sequence[Cell]) -> None:
        for below, above in pairwise(cells):
            assert above.inputs == below.output_width, f"a layer of {above.inputs} inputs reads {below.output_width}"
            assert not self.residual or above.output_width == above.inputs, "a residual needs layers of one width"

    @property
    def output_width(self) -> int:
        return _cell(self.cells[-1]).output_width

    def begin(self, rows: int) -> States:
        return tuple(_cell(cell).begin(rows) for cell in self.cells)

    def forward(
        self, x: Tensor, lengths: tuple[int, ...], states: States | None = None, run: Run = fastest
    ) -> tuple[tuple[Tensor, ...], States]:
        """Rows end to end (N, D), their lengths and the states they go on from → (N, P) of every layer, the states
        after each row."""
        timeline = Timeline.of(lengths, reverse=self.reverse, device=x.device)
        states = self.begin(len(lengths)) if states is None else states
        found: list[Tensor] = []
        after: list[State] = []
        for number, (module, state) in enumerate(zip(self.cells, states, strict=True)):
            inputs = self.dropout(x) if number else x
            x, last = run(_cell(module), inputs, timeline, state)
            if self.residual and number:
                x = x + inputs
            found.append(x)
            after.append(last)
        return tuple(found), tuple(after)


class Bidirectional(nn.Module):
    def __init__(self, forward_cells: Sequence[Cell], backward_cells: Sequence[Cell], dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleList(pair) for pair in zip(forward_cells, backward_cells, strict=True))
        self.dropout = nn.Dropout(dropout)

    @property
    def output_width(self) -> int:
        return sum(_cell(cell).output_width for cell in self._pairs()[-1])

    def _pairs(self) -> list[tuple[Cell, Cell]]:
        pairs = []
        for layer in self.layers:
            assert isinstance(layer, nn.ModuleList)
            pairs.append((_cell(layer[0]), _cell(layer[1])))
        return pairs

    def begin(self, rows: int) -> States:
        return tuple(cell.begin(rows) for pair in self._pairs() for cell in pair)

    def forward(
        self, x: Tensor, lengths: tuple[int, ...], states: States | None = None, run: Run = fastest
    ) -> tuple[tuple[Tensor, ...], States]:
        """(N, D) → (N, both P) of every layer; the states at the end of each row, and at its beginning, by turns."""
        timelines = [Timeline.of(lengths, reverse=reverse, device=x.device) for reverse in (False, True)]
        states = self.begin(len(lengths)) if states is None else states
        found: list[Tensor] = []
        after: list[State] = []
        for number, pair in enumerate(self._pairs()):
            inputs = self.dropout(x) if number else x
            ways = [
                run(cell, inputs, timeline, state)
                for cell, timeline, state in zip(pair, timelines, states[2 * number :], strict=False)
            ]
            x = torch.cat([hidden for hidden, _ in ways], dim=-1)
            found.append(x)
            after += [last for _, last in ways]
        return tuple(found), tuple(after)


def _cell(module: nn.Module) -> Cell:
    assert isinstance(module, Cell)
    return module
