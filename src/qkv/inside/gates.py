"""The cells of nn/recurrent.py opened: one step, with everything that its equation names.

A cell's own `step` gives the next state alone, and its kernels not even the steps. Here the same equations are written
out so that the gates can be seen; tests hold the states equal to those of the network.

    rnn        h
    lstm       i, f, g, o, c, h; with a projection also m, which h is projected from
    peephole   the same, of gates that see c
    coupled    f, g, o, c, h: what is forgotten is what is taken in, 1 − f
    gru        r, z, n, h

Shapes: G blocks, H width of a cell, P width of its output. A step is of one row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from qkv.nn.recurrent import GRU, LSTM, RNN, Cell, CoupledLSTM, PeepholeLSTM, State, clipped

Parts = dict[str, Tensor]
"""By the letter of the equation: (H,), of h (P,)."""


class Opened(NamedTuple):
    """What one step computed."""

    parts: Parts  # with h, and c where there is one
    from_state: Tensor  # (G, H): U h, with its bias where it has one

    def state(self) -> State:
        """What the next step goes on from, (1, …) each."""
        return tuple(self.parts[letter][None] for letter in ("h", "c") if letter in self.parts)


@dataclass(frozen=True)
class Equations:
    name: str  # as a config has it
    blocks: tuple[str, ...]  # letters, in the order of the blocks of W, U and b
    gates: frozenset[str]  # those from 0 to 1
    lines: tuple[str, ...]  # as in the docstring of nn/recurrent.py
    take: Callable[[Cell, Tensor, State], Opened]  # W x + b (G, H) and the state


def _from_state(cell: Cell, state: State) -> Tensor:
    found: Tensor = cell.from_state(state[0])[0].unflatten(0, (cell.blocks, cell.width))
    return found


def _rnn(cell: Cell, given: Tensor, state: State) -> Opened:
    added = _from_state(cell, state)  # (1, H)
    return Opened({"h": torch.tanh(given + added)[0]}, added)


def _lstm(cell: Cell, given: Tensor, state: State) -> Opened:
    assert isinstance(cell, LSTM)
    added, (c,) = _from_state(cell, state), state[1]
    i, f, g, o = given + added
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    c = clipped(f * c + i * g, cell.cell_clip)
    h = o * torch.tanh(c)
    parts = {"i": i, "f": f, "g": g, "o": o, "c": c}
    if cell.project is None:
        return Opened(parts | {"h": h}, added)
    return Opened(parts | {"m": h, "h": clipped(cell.project(h), cell.projection_clip)}, added)


def _peephole(cell: Cell, given: Tensor, state: State) -> Opened:
    assert isinstance(cell, PeepholeLSTM)
    added, (c,) = _from_state(cell, state), state[1]
    to_i, to_f, to_o = cell.peepholes
    i, f, g, o = given + added
    i, f, g = torch.sigmoid(i + to_i * c), torch.sigmoid(f + to_f * c), torch.tanh(g)
    c = f * c + i * g
    o = torch.sigmoid(o + to_o * c)
    return Opened({"i": i, "f": f, "g": g, "o": o, "c": c, "h": o * torch.tanh(c)}, added)


def _coupled(cell: Cell, given: Tensor, state: State) -> Opened:
    added, (c,) = _from_state(cell, state), state[1]
    f, g, o = given + added
    f, g, o = torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    c = f * c + (1 - f) * g
    return Opened({"f": f, "g": g, "o": o, "c": c, "h": o * torch.tanh(c)}, added)


def _gru(cell: Cell, given: Tensor, state: State) -> Opened:
    added, (h,) = _from_state(cell, state), state[0]
    r, z = torch.sigmoid(given[:2] + added[:2])
    n = torch.tanh(given[2] + r * added[2])
    return Opened({"r": r, "z": z, "n": n, "h": (1 - z) * n + z * h}, added)


_lines = ("c' = f c + i g", "h' = o tanh(c')")
EQUATIONS: dict[type[Cell], Equations] = {
    RNN: Equations("rnn", ("h",), frozenset(), ("h' = tanh(W x + U h + b)",), _rnn),
    LSTM: Equations(
        "lstm",
        ("i", "f", "g", "o"),
        frozenset("ifo"),
        ("i, f, o = σ(W x + U h + b)", "g = tanh(W x + U h + b)", *_lines),
        _lstm,
    ),
    PeepholeLSTM: Equations(
        "peephole",
        ("i", "f", "g", "o"),
        frozenset("ifo"),
        ("i, f = σ(W x + U h + b + p c)", "g = tanh(W x + U h + b)", "o = σ(W x + U h + b + p c')", *_lines),
        _peephole,
    ),
    CoupledLSTM: Equations(
        "coupled",
        ("f", "g", "o"),
        frozenset("fo"),
        ("f, o = σ(W x + U h + b)", "g = tanh(W x + U h + b)", "c' = f c + (1 − f) g", _lines[1]),
        _coupled,
    ),
    GRU: Equations(
        "gru",
        ("r", "z", "n"),
        frozenset("rz"),
        ("r, z = σ(W x + U h + b)", "n = tanh(W x + b + r (U h + b'))", "h' = (1 − z) n + z h"),
        _gru,
    ),
}


class Read(NamedTuple):
    """A row that a cell has read, in the order of the text whichever way it was read."""

    parts: Parts  # (T, H) each, of h (T, P)
    given: Tensor  # (T, G, H): W x + b
    from_state: Tensor  # (T, G, H)


def read(cell: Cell, x: Tensor, *, reverse: bool = False) -> Read:
    """x (T, D), from nothing seen."""
    take = EQUATIONS[type(cell)].take
    given: Tensor = cell.from_input(x).unflatten(1, (cell.blocks, cell.width))  # (T, G, H)
    state = cell.begin(1)
    steps: list[Opened] = []
    for now in given.flip(0) if reverse else given:
        steps.append(take(cell, now, state))
        state = steps[-1].state()
    if reverse:
        steps.reverse()
    parts = {letter: torch.stack([step.parts[letter] for step in steps]) for letter in steps[0].parts}
    return Read(parts, given, torch.stack([step.from_state for step in steps]))
