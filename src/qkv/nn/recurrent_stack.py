"""Recurrent layers: stacked cells in one direction (`Stack`) or in both (`Bidirectional`), on the fastest kernel.

`fastest` chooses between torch's kernels (oneDNN on a CPU, cuDNN on a GPU) and the scan of recurrent_scan.py. On a CPU
only an LSTM on rows of equal length uses oneDNN; torch's loop for the others records a graph step by step and is slower
than the scan. torch has no kernels for peepholes, coupled gates and clipping.

`Stack` is a language model, or one direction of ELMo. `Bidirectional` joins both directions after every layer, so that
the next layer has seen the whole row: for encoders only, since a language model would see what it predicts.

Shapes: as in recurrent.py; T tokens of the longest row.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise

import torch
from torch import Tensor, nn

from qkv.nn.layers import Layer, Recurrence
from qkv.nn.recurrent import GRU, LSTM, RNN, Cell, RunCell, State, Timeline
from qkv.nn.recurrent_scan import scan


def fastest(cell: Cell, x: Tensor, timeline: Timeline, state: State) -> tuple[Tensor, State]:
    """Run the cell by the kernel that was measured as fastest (bench/recurrent.py)."""
    if has_kernel(cell) and (x.is_cuda or (timeline.is_even and has_onednn_kernel(cell))):
        return run_fused(cell, x, timeline, state)
    return scan(cell, x, timeline, state)


def has_kernel(cell: Cell) -> bool:
    if isinstance(cell, LSTM):
        return cell.cell_clip is None and cell.projection_clip is None
    return isinstance(cell, RNN | GRU)


def has_onednn_kernel(cell: Cell) -> bool:
    return isinstance(cell, LSTM) and cell.project is None and cell.from_state.weight.dtype == torch.float32


def run_fused(cell: Cell, x: Tensor, timeline: Timeline, state: State) -> tuple[Tensor, State]:
    """One layer in one direction on torch's kernel."""
    assert has_kernel(cell), f"torch has no kernel for this {type(cell).__name__}"
    x, state = timeline.by_time(x), tuple(part[None] for part in timeline.sorted(state))  # (1, R, ·)
    learns = torch.is_grad_enabled()  # cuDNN saves tensors for the gradient only in training mode
    layers = (True, 1, 0.0, learns, False)  # biases, one layer, no dropout, one direction
    with _allow_split_weights() if x.is_cuda else nullcontext():
        if timeline.is_even:
            x = x.unflatten(0, (len(timeline.sizes), -1))  # (T, R, D)
            hidden, *last = _run_even(cell, x, state, (*layers, False))
            hidden = hidden.flatten(0, 1)
        else:
            hidden, *last = _run_uneven(cell, x, torch.tensor(timeline.sizes), state, layers)
    return timeline.by_row(hidden), timeline.unsorted(tuple(part[0] for part in last))


@contextmanager
def _allow_split_weights() -> Iterator[None]:
    """Silence cuDNN's warning about split weights: it copies them, which takes less time than one step."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        yield


_Layers = tuple[bool, int, float, bool, bool]


def _run_even(
    cell: Cell, x: Tensor, state: State, layers: tuple[bool, int, float, bool, bool, bool]
) -> tuple[Tensor, ...]:
    if isinstance(cell, LSTM):
        return torch.lstm(x, state, _weights(cell), *layers)
    kernel = torch.gru if isinstance(cell, GRU) else torch.rnn_tanh
    return kernel(x, state[0], _weights(cell), *layers)


def _run_uneven(cell: Cell, x: Tensor, sizes: Tensor, state: State, layers: _Layers) -> tuple[Tensor, ...]:
    if isinstance(cell, LSTM):
        return torch.lstm(x, sizes, state, _weights(cell), *layers)
    kernel = torch.gru if isinstance(cell, GRU) else torch.rnn_tanh
    return kernel(x, sizes, state[0], _weights(cell), *layers)


def _weights(cell: Cell) -> list[Tensor]:
    """The weights in torch's order. torch has a second bias for every cell; here only a GRU needs it."""
    own = cell.from_state.bias if cell.from_state.bias is not None else torch.zeros_like(cell.from_input.bias)
    found = [cell.from_input.weight, cell.from_state.weight, cell.from_input.bias, own]
    if isinstance(cell, LSTM) and cell.project is not None:
        found.append(cell.project.weight)
    return found


DIRECTIONS = ("forward", "backward")
States = tuple[State, ...]
"""One per layer; for `Bidirectional` two, forward and backward."""


class Stack(nn.Module):
    def __init__(
        self, cells: Sequence[Cell], *, dropout: float = 0.0, residual: bool = False, reverse: bool = False
    ) -> None:
        """`dropout` is applied between layers, not between steps (Zaremba et al. 2014). `residual` adds the input of
        every layer after the first to its output. `reverse` reads rows from their end."""
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
        self, x: Tensor, lengths: tuple[int, ...], states: States | None = None, run: RunCell = fastest
    ) -> tuple[tuple[Tensor, ...], States]:
        """Rows end to end (N, D), their lengths and initial states → (N, P) of every layer, and the states after each
        row."""
        layers = list(self.run_layers("", x, lengths, states, run))
        return tuple(one.left for one in layers), tuple(one.recurrences[0].after for one in layers)

    def run_layers(
        self, part: str, x: Tensor, lengths: tuple[int, ...], states: States | None = None, run: RunCell = fastest
    ) -> Iterator[Layer]:
        """`forward` layer by layer; `part` is `Layer.part`."""
        timeline = Timeline.of(lengths, reverse=self.reverse, device=x.device)
        states = self.begin(len(lengths)) if states is None else states
        for number, (module, state) in enumerate(zip(self.cells, states, strict=True)):
            cell, inputs, adds = _cell(module), self.dropout(x) if number else x, self.residual and number > 0
            x, last = run(cell, inputs, timeline, state)
            if adds:
                x = x + inputs
            way = Recurrence(DIRECTIONS[self.reverse], cell, inputs, x, last, adds)
            yield Layer(part, inputs, x, recurrences=(way,))


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
        self, x: Tensor, lengths: tuple[int, ...], states: States | None = None, run: RunCell = fastest
    ) -> tuple[tuple[Tensor, ...], States]:
        """(N, D) → (N, both P) of every layer; the final states, forward and backward alternating."""
        layers = list(self.run_layers("", x, lengths, states, run))
        return tuple(one.left for one in layers), tuple(way.after for one in layers for way in one.recurrences)

    def run_layers(
        self, part: str, x: Tensor, lengths: tuple[int, ...], states: States | None = None, run: RunCell = fastest
    ) -> Iterator[Layer]:
        """`forward` layer by layer; `part` is `Layer.part`."""
        timelines = [Timeline.of(lengths, reverse=reverse, device=x.device) for reverse in (False, True)]
        states = self.begin(len(lengths)) if states is None else states
        for number, pair in enumerate(self._pairs()):
            inputs = self.dropout(x) if number else x
            ways = tuple(
                Recurrence(direction, cell, inputs, *run(cell, inputs, timeline, state))
                for direction, cell, timeline, state in zip(
                    DIRECTIONS, pair, timelines, states[2 * number : 2 * number + 2], strict=True
                )
            )
            x = torch.cat([way.left for way in ways], dim=-1)
            yield Layer(part, inputs, x, recurrences=ways)


def _cell(module: nn.Module) -> Cell:
    assert isinstance(module, Cell)
    return module


def needs_gradient(module: nn.Module) -> bool:
    """Whether a gradient is needed; otherwise recurrent kernels can skip saving tensors for it."""
    return torch.is_grad_enabled() and any(parameter.requires_grad for parameter in module.parameters())
