"""Recurrent cells as equations: one step of an RNN, an LSTM and its variants, a GRU; and the loop over packed rows.

    RNN            h' = tanh(W x + U h + b)                                     Elman 1990
    LSTM           i, f, o = σ(W x + U h + b), g = tanh(W x + U h + b)          Hochreiter and Schmidhuber 1997;
                   c' = f c + i g,  h' = o tanh(c')                             the gate f: Gers et al. 2000
    PeepholeLSTM   the same, but i and f also see p c, and o sees p c'          Gers and Schmidhuber 2000
    CoupledLSTM    the same, but c' = f c + (1 - f) g                           Greff et al. 2017
    GRU            r, z = σ(W x + U h + b), n = tanh(W x + b + r (U h + b'))    Cho et al. 2014,
                   h' = (1 - z) n + z h                                         as in cuDNN and torch

All steps share W, U and b. Their blocks are in torch's order, so that recurrent_stack.py can pass them to torch's
kernels; recurrent_scan.py is a fast version of the loop. Cho's own GRU multiplies r with h before U instead of after, a
different function without a fused kernel. Some texts (Chung et al. 2014) swap z and 1 - z: the same function.

`Timeline` orders the tokens by time: the first tokens of all rows, then the second, … The longest row comes first, so
that the rows with a t-th token are always a prefix and the loop works on slices, without padding.

>>> timeline = Timeline.of((2, 3))                                     # rows a b and p q r, end to end
>>> "".join("abpqr"[place] for place in timeline.order.tolist()), timeline.sizes
('paqbr', (2, 2, 1))
>>> "".join("abpqr"[place] for place in Timeline.of((2, 3), reverse=True).order.tolist())
'rbqap'

Not here: several layers and both directions (recurrent_stack.py).

Shapes: R rows, N tokens of all rows, T tokens of the longest row, D input width, H width of a cell, P width of its
output (H, or a projection's), G blocks of weights. x is (N, D) with its rows end to end; a state is (R, P), for LSTMs
with a cell state (R, H).
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Timeline:
    order: Tensor  # (N,) for each token in time order, its index among rows end to end
    inverse: Tensor  # (N,) the inverse permutation
    rows: Tensor  # (R,) the rows, the longest first
    rows_inverse: Tensor  # (R,)
    last: Tensor  # (R,) for each sorted row, the index of its last token in time order
    sizes: tuple[int, ...]  # (T,) number of rows with a t-th token

    @staticmethod
    def of(lengths: tuple[int, ...], *, reverse: bool = False, device: torch.device | str = "cpu") -> "Timeline":
        """For rows of these lengths, which are known on the host: no device synchronisation."""
        return _timeline(tuple(lengths), reverse, torch.device(device))

    @property
    def is_even(self) -> bool:
        """Whether all rows have the same length."""
        return self.sizes[0] == self.sizes[-1]

    def by_time(self, x: Tensor) -> Tensor:
        """(N, …) rows end to end → by time"""
        return _permute(x, self.order, self.inverse)

    def by_row(self, x: Tensor) -> Tensor:
        """(N, …) by time → rows end to end"""
        return _permute(x, self.inverse, self.order)

    def sorted(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """(R, …) each, the longest row first"""
        return tuple(part.index_select(0, self.rows) for part in state)

    def unsorted(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(part.index_select(0, self.rows_inverse) for part in state)

    def before(self, first: Tensor, values: Tensor) -> Tensor:
        """(N, …) by time → the values one step earlier; `first` (R, …) for the first step."""
        parts, begin = [first], 0
        for size, following in zip(self.sizes[:-1], self.sizes[1:], strict=True):
            parts.append(values[begin : begin + following])
            begin += size
        return torch.cat(parts)


@lru_cache(maxsize=16)  # shared by the layers and directions of a network
@torch.inference_mode(False)  # a cached timeline must also serve training
def _timeline(lengths: tuple[int, ...], reverse: bool, device: torch.device) -> Timeline:
    sizes = torch.tensor(lengths)
    assert lengths and bool((sizes > 0).all()), "a row has at least one token"
    sizes, rows = sizes.sort(descending=True, stable=True)
    begins = (torch.tensor((0, *lengths[:-1])).cumsum(0))[rows]
    time = torch.arange(int(sizes[0]))[:, None]
    there = time < sizes  # (T, R)
    order = (begins + (sizes - 1 - time if reverse else time))[there]  # (N,)
    at_time = there.sum(1)
    begins_of_time = at_time.cumsum(0) - at_time
    last = begins_of_time[sizes - 1] + torch.arange(len(lengths))
    return Timeline(
        order.to(device),
        order.argsort().to(device),
        rows.to(device),
        rows.argsort().to(device),
        last.to(device),
        tuple(at_time.tolist()),
    )


class _Permuted(torch.autograd.Function):
    """A permutation whose gradient is a gather; torch's index_select has a slower scatter-add."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(order, inverse)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        order, inverse = ctx.saved_tensors
        return _permute(gradient, inverse, order), None, None


_permute: Callable[[Tensor, Tensor, Tensor], Tensor] = _Permuted.apply


State = tuple[Tensor, ...]
"""The hidden state and, for an LSTM, the cell state."""


class Cell(nn.Module):
    """The parameters shared by all steps."""

    blocks: ClassVar[int]
    has_memory: ClassVar[bool] = False  # a cell state in addition to the hidden state
    state_bias: ClassVar[bool] = False  # a separate bias for U h

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.inputs, self.width = inputs, width
        self.from_input = nn.Linear(inputs, self.blocks * width)
        self.from_state = nn.Linear(self.output_width, self.blocks * width, bias=self.state_bias)
        bound = width**-0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    @property
    def output_width(self) -> int:
        return self.width

    def begin(self, rows: int) -> State:
        """The initial state: zeros."""
        weight = self.from_state.weight
        hidden = weight.new_zeros(rows, self.output_width)
        return (hidden, weight.new_zeros(rows, self.width)) if self.has_memory else (hidden,)

    @abstractmethod
    def equations(self, given: Tensor, state: State) -> dict[str, Tensor]:
        """W x + b (R, G·H) and the state → all variables of the equations, (R, H) each, the last of them h (R, P)."""

    def step(self, given: Tensor, state: State) -> State:
        """W x + b (R, G·H), which can be computed for all steps at once, and the state → the next state."""
        return self.state_in(self.equations(given, state))

    def state_in(self, found: Mapping[str, Tensor]) -> State:
        """The state among the variables of `equations`."""
        return (found["h"], found["c"]) if self.has_memory else (found["h"],)


class RNN(Cell):
    blocks = 1

    def equations(self, given: Tensor, state: State) -> dict[str, Tensor]:
        (hidden,) = state
        return {"h": torch.tanh(given + self.from_state(hidden))}


class LSTM(Cell):
    """Three gates and a cell state that is only multiplied and added to, so that gradients pass along it.

    `projection` makes the output narrower than the cell (Sak et al. 2014); the published ELMo clips both at ±3.
    """

    blocks = 4
    has_memory = True

    def __init__(
        self,
        inputs: int,
        width: int,
        projection: int | None = None,
        cell_clip: float | None = None,
        projection_clip: float | None = None,
    ) -> None:
        self._output_width = projection or width
        super().__init__(inputs, width)
        self.cell_clip, self.projection_clip = cell_clip, projection_clip
        self.project = None if projection is None else nn.Linear(width, projection, bias=False)
        if self.project is not None:
            nn.init.uniform_(self.project.weight, -(width**-0.5), width**-0.5)
        nn.init.ones_(self.from_input.bias.view(4, width)[1].detach())  # forget gate: open at first

    @property
    def output_width(self) -> int:
        return self._output_width

    def equations(self, given: Tensor, state: State) -> dict[str, Tensor]:
        """With a projection also m, the output before it."""
        h, c = state
        i, f, g, o = (given + self.from_state(h)).chunk(4, dim=-1)  # (R, H) each
        i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
        c = clip(f * c + i * g, self.cell_clip)
        h = o * torch.tanh(c)
        if self.project is None:
            return {"i": i, "f": f, "g": g, "o": o, "c": c, "h": h}
        projected = clip(self.project(h), self.projection_clip)  # (R, P)
        return {"i": i, "f": f, "g": g, "o": o, "c": c, "m": h, "h": projected}


class PeepholeLSTM(Cell):
    """An LSTM whose gates also read the cell state, element by element; a plain LSTM's cannot while o is closed."""

    blocks = 4
    has_memory = True

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(inputs, width)
        self.peepholes = nn.Parameter(torch.empty(3, width).uniform_(-(width**-0.5), width**-0.5))  # of i, f, o
        nn.init.ones_(self.from_input.bias.view(4, width)[1].detach())

    def equations(self, given: Tensor, state: State) -> dict[str, Tensor]:
        h, c = state
        to_i, to_f, to_o = self.peepholes
        i, f, g, o = (given + self.from_state(h)).chunk(4, dim=-1)
        i, f, g = torch.sigmoid(i + to_i * c), torch.sigmoid(f + to_f * c), torch.tanh(g)
        c = f * c + i * g
        o = torch.sigmoid(o + to_o * c)
        return {"i": i, "f": f, "g": g, "o": o, "c": c, "h": o * torch.tanh(c)}


class CoupledLSTM(Cell):
    """An LSTM with one gate for input and forgetting: i = 1 - f."""

    blocks = 3
    has_memory = True

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(inputs, width)
        nn.init.ones_(self.from_input.bias.view(3, width)[0].detach())

    def equations(self, given: Tensor, state: State) -> dict[str, Tensor]:
        h, c = state
        f, g, o = (given + self.from_state(h)).chunk(3, dim=-1)
        f, g, o = torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
        c = f * c + (1 - f) * g
        return {"f": f, "g": g, "o": o, "c": c, "h": o * torch.tanh(c)}


class GRU(Cell):
    """Two gates and no cell state."""

    blocks = 3
    state_bias = True  # it is multiplied by r

    def equations(self, given: Tensor, state: State) -> dict[str, Tensor]:
        (h,) = state
        given_r, given_z, given_n = given.chunk(3, dim=-1)
        from_r, from_z, from_n = self.from_state(h).chunk(3, dim=-1)
        r, z = torch.sigmoid(given_r + from_r), torch.sigmoid(given_z + from_z)
        n = torch.tanh(given_n + r * from_n)
        return {"r": r, "z": z, "n": n, "h": (1 - z) * n + z * h}


CELLS: dict[str, type[Cell]] = {
    "rnn": RNN,
    "lstm": LSTM,
    "peephole": PeepholeLSTM,
    "coupled": CoupledLSTM,
    "gru": GRU,
}


def clip(x: Tensor, limit: float | None) -> Tensor:
    return x if limit is None else x.clamp(-limit, limit)


class RunCell(Protocol):
    """Runs a cell over rows x (N, D) → the hidden state at every token (N, P), and the state after each row."""

    def __call__(self, cell: Cell, x: Tensor, timeline: Timeline, state: State) -> tuple[Tensor, State]: ...


def explicit(cell: Cell, x: Tensor, timeline: Timeline, state: State) -> tuple[Tensor, State]:
    """`cell.step` in a loop over time. Rows that have ended keep their state."""
    x, state = timeline.by_time(x), timeline.sorted(state)
    hidden: list[Tensor] = []
    ended: list[State] = []
    for inputs in x.split(timeline.sizes):  # (rows that are this long, D)
        rows = inputs.size(0)
        ended.append(tuple(part[rows:] for part in state))
        state = cell.step(cell.from_input(inputs), tuple(part[:rows] for part in state))
        hidden.append(state[0])
    return timeline.by_row(torch.cat(hidden)), timeline.unsorted(_concatenate([state, *reversed(ended)]))


def _concatenate(states: Sequence[State]) -> State:
    return tuple(torch.cat(parts) for parts in zip(*states, strict=True))
