"""Every cell of nn/recurrent.py in small, and what it computes, written out in numpy, a row and a number at a time."""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.nn.recurrent import GRU, LSTM, RNN, Cell, CoupledLSTM, PeepholeLSTM, RunCell, State, Timeline

INPUTS, WIDTH = 3, 4
CELLS: dict[str, Callable[[], Cell]] = {
    "rnn": lambda: RNN(INPUTS, WIDTH),
    "lstm": lambda: LSTM(INPUTS, WIDTH),
    "projected": lambda: LSTM(INPUTS, WIDTH, projection=2),
    "clipped": lambda: LSTM(INPUTS, WIDTH, projection=2, cell_clip=0.3, projection_clip=0.1),
    "clipped cell": lambda: LSTM(INPUTS, WIDTH, cell_clip=0.3),
    "peephole": lambda: PeepholeLSTM(INPUTS, WIDTH),
    "coupled": lambda: CoupledLSTM(INPUTS, WIDTH),
    "gru": lambda: GRU(INPUTS, WIDTH),
}
LENGTHS = {"uneven": (3, 1, 4), "even": (3, 3)}
Numbers = NDArray[np.float64]


def make(name: str, seed: int = 0) -> Cell:
    """In float64, with weights large enough to reach where gates bend."""
    torch.manual_seed(seed)
    cell = CELLS[name]().double()
    for parameter in cell.parameters():
        parameter.data.mul_(1.5)
    return cell


def begin_somewhere(cell: Cell, rows: int) -> State:
    return tuple(torch.randn_like(part).mul_(0.2).requires_grad_() for part in cell.begin(rows))


def everything(
    run: RunCell, cell: Cell, x: Tensor, lengths: tuple[int, ...], state: State, reverse: bool
) -> list[Tensor]:
    """Values, and the gradients of all that goes in, of a sum in which every value counts differently."""
    hidden, last = run(cell, x, Timeline.of(lengths, reverse=reverse), state)
    out = [hidden, *last]
    total = torch.stack([(part * torch.linspace(-1, 2, part.numel()).double().view_as(part)).sum() for part in out])
    return [*out, *torch.autograd.grad(total.sum(), [x, *state, *cell.parameters()])]


def by_hand(cell: Cell, row: Numbers, state: tuple[Numbers, ...]) -> tuple[Numbers, tuple[Numbers, ...]]:
    """One row (T, D) → the hidden state after each token, and the last state."""
    weights = {name: value.detach().numpy() for name, value in cell.named_parameters()}
    found = []
    for x in row:
        state = _step(cell, weights, x, state)
        found.append(state[0])
    return np.array(found), state


def _step(cell: Cell, weights: dict[str, Numbers], x: Numbers, state: tuple[Numbers, ...]) -> tuple[Numbers, ...]:
    h, width = state[0], cell.width
    w, b, u = weights["from_input.weight"], weights["from_input.bias"], weights["from_state.weight"]

    def block(number: int, unit: int) -> tuple[float, float]:
        """W x + b and U h of one number of one gate."""
        place = number * width + unit
        return float(w[place] @ x + b[place]), float(u[place] @ h)

    if isinstance(cell, RNN):
        return (np.array([math.tanh(sum(block(0, unit))) for unit in range(width)]),)
    if isinstance(cell, GRU):
        own, new = weights["from_state.bias"], []
        for unit in range(width):
            (xr, hr), (xz, hz), (xn, hn) = (block(number, unit) for number in range(3))
            r, z = _sigmoid(xr + hr + own[unit]), _sigmoid(xz + hz + own[width + unit])
            n = math.tanh(xn + r * (hn + own[2 * width + unit]))
            new.append((1 - z) * n + z * h[unit])
        return (np.array(new),)
    c, new_c, new_h = state[1], [], []
    p = weights.get("peepholes", np.zeros((3, width)))
    for unit in range(width):
        gates = [sum(block(number, unit)) for number in range(cell.blocks)]
        if isinstance(cell, CoupledLSTM):
            f = _sigmoid(gates[0])
            kept, added, opened = f * c[unit], (1 - f) * math.tanh(gates[1]), gates[2]
        else:
            f, i = _sigmoid(gates[1] + p[1, unit] * c[unit]), _sigmoid(gates[0] + p[0, unit] * c[unit])
            kept, added, opened = f * c[unit], i * math.tanh(gates[2]), gates[3]
        new_c.append(_clip(kept + added, getattr(cell, "cell_clip", None)))
        new_h.append(_sigmoid(opened + p[2, unit] * new_c[-1]) * math.tanh(new_c[-1]))
    hidden = np.array(new_h)
    if "project.weight" in weights:
        assert isinstance(cell, LSTM)
        hidden = np.array([_clip(float(value), cell.projection_clip) for value in weights["project.weight"] @ hidden])
    return hidden, np.array(new_c)


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def _clip(value: float, limit: float | None) -> float:
    return value if limit is None else max(-limit, min(limit, value))
