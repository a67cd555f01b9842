"""The standard cells on torch's own kernels, with the parameters that they have here: oneDNN on a CPU, cuDNN on a GPU.

`fastest` is what networks call. On a CPU only rows of one length reach oneDNN, and only an LSTM's; torch's loop for the
others records a graph step by step, and the scan is faster than that.

What this file does NOT do: peepholes, coupled gates, clipping. torch has no kernels for them.

Shapes: as in recurrent.py; T tokens of the longest row.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from qkv.nn.recurrent import GRU, LSTM, RNN, Cell, State
from qkv.nn.recurrent_scan import scanned
from qkv.nn.timeline import Timeline


def fastest(cell: Cell, x: Tensor, timeline: Timeline, state: State) -> tuple[Tensor, State]:
    """The way that was measured to be the shortest (bench/recurrent.py)."""
    if has_kernel(cell) and (x.is_cuda or (timeline.is_even and is_onednn(cell))):
        return fused(cell, x, timeline, state)
    return scanned(cell, x, timeline, state)


def has_kernel(cell: Cell) -> bool:
    if isinstance(cell, LSTM):
        return cell.cell_clip is None and cell.projection_clip is None
    return isinstance(cell, RNN | GRU)


def is_onednn(cell: Cell) -> bool:
    return isinstance(cell, LSTM) and cell.project is None and cell.from_state.weight.dtype == torch.float32


def fused(cell: Cell, x: Tensor, timeline: Timeline, state: State) -> tuple[Tensor, State]:
    """One layer in one direction, by torch."""
    assert has_kernel(cell), f"torch has no kernel for this {type(cell).__name__}"
    x, state = timeline.by_time(x), tuple(part[None] for part in timeline.sorted(state))  # (1, R, ·)
    learns = torch.is_grad_enabled()  # cuDNN keeps what the gradient needs only if it is told
    layers = (True, 1, 0.0, learns, False)  # biases, one layer, no dropout, one direction
    with _in_pieces() if x.is_cuda else nullcontext():
        if timeline.is_even:
            x = x.unflatten(0, (len(timeline.sizes), -1))  # (T, R, D)
            hidden, *last = _even(cell, x, state, (*layers, False))
            hidden = hidden.flatten(0, 1)
        else:
            hidden, *last = _uneven(cell, x, torch.tensor(timeline.sizes), state, layers)
    return timeline.by_row(hidden), timeline.unsorted(tuple(part[0] for part in last))


@contextmanager
def _in_pieces() -> Iterator[None]:
    """cuDNN wants the weights of a layer in one piece and else makes a copy, which takes less time than one step."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        yield


Layers = tuple[bool, int, float, bool, bool]


def _even(cell: Cell, x: Tensor, state: State, layers: tuple[bool, int, float, bool, bool, bool]) -> tuple[Tensor, ...]:
    if isinstance(cell, LSTM):
        return torch.lstm(x, state, _weights(cell), *layers)
    kernel = torch.gru if isinstance(cell, GRU) else torch.rnn_tanh
    return kernel(x, state[0], _weights(cell), *layers)


def _uneven(cell: Cell, x: Tensor, sizes: Tensor, state: State, layers: Layers) -> tuple[Tensor, ...]:
    if isinstance(cell, LSTM):
        return torch.lstm(x, sizes, state, _weights(cell), *layers)
    kernel = torch.gru if isinstance(cell, GRU) else torch.rnn_tanh
    return kernel(x, sizes, state[0], _weights(cell), *layers)


def _weights(cell: Cell) -> list[Tensor]:
    """As torch lists them. It has a second bias everywhere; here only a GRU's does something of its own."""
    own = cell.from_state.bias if cell.from_state.bias is not None else torch.zeros_like(cell.from_input.bias)
    found = [cell.from_input.weight, cell.from_state.weight, cell.from_input.bias, own]
    if isinstance(cell, LSTM) and cell.project is not None:
        found.append(cell.project.weight)
    return found
