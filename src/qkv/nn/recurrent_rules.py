"""What the loop of recurrent_scan.py does at a step of each cell, and the factors of its gradient.

A step's gradient is linear in the gradients that reach it. With a for what reaches the hidden state h' and m for what
reaches the cell state c' (m = m from the next step + a · `opened`), every cell with a cell state has

    to its gates:  m · factor, of the output gate a · factor        to c:  m · `kept`

and every cell without one  a · factor  and to h itself  a · `kept`. The factors depend on the forward alone.

Activations are written over what they are activations of.

Shapes: R rows of a step, N tokens of all steps, H width, G blocks; gates (R, G, H) or (N, G, H), in the cell's order.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from qkv.nn.recurrent import GRU, LSTM, RNN, Cell, CoupledLSTM, PeepholeLSTM


class MemoryFactors(NamedTuple):
    gates: Tensor  # (N, G, H), the output gate last
    kept: Tensor  # (N, H) from c' to c
    opened: Tensor  # (N, H) from h' to c'


class MemoryRule(Protocol):
    """A cell with a cell state."""

    def step(self, gates: Tensor, before: Tensor, after: Tensor, peepholes: Tensor | None) -> None:
        """W x + U h + b (R, G, H) and c (R, H) → activated gates, the output gate last, and c' into `after`."""
        ...

    def factors(self, gates: Tensor, before: Tensor, after: Tensor, peepholes: Tensor | None) -> MemoryFactors: ...


class LSTMRule:
    def step(self, gates: Tensor, before: Tensor, after: Tensor, peepholes: Tensor | None) -> None:
        i, f, g, o = gates.unbind(1)
        gates[:, :2].sigmoid_()
        g.tanh_()
        o.sigmoid_()
        torch.mul(f, before, out=after).addcmul_(i, g)

    def factors(self, gates: Tensor, before: Tensor, after: Tensor, peepholes: Tensor | None) -> MemoryFactors:
        i, f, g, o = gates.unbind(1)
        seen = after.tanh()
        to_gates = torch.empty_like(gates)
        to_i, to_f, to_g, to_o = to_gates.unbind(1)
        torch.mul(g, _sigmoid_slope(i), out=to_i)
        torch.mul(before, _sigmoid_slope(f), out=to_f)
        torch.mul(i, _tanh_slope(g), out=to_g)
        torch.mul(seen, _sigmoid_slope(o), out=to_o)
        return MemoryFactors(to_gates, f, o * _tanh_slope(seen))


class PeepholeRule:
    def step(self, gates: Tensor, before: Tensor, after: Tensor, peepholes: Tensor | None) -> None:
        assert peepholes is not None
        i, f, g, o = gates.unbind(1)
        gates[:, :2].addcmul_(before[:, None], peepholes[:2]).sigmoid_()
        g.tanh_()
        torch.mul(f, before, out=after).addcmul_(i, g)
        o.addcmul_(after, peepholes[2]).sigmoid_()

    def factors(self, gates: Tensor, before: Tensor, after: Tensor, peepholes: Tensor | None) -> MemoryFactors:
        """Those of an LSTM, and what goes through the peepholes."""
        assert peepholes is not None
        found = LSTMRule().factors(gates, before, after, None)
        to_i, to_f, _, to_o = found.gates.unbind(1)
        kept = found.kept + to_i * peepholes[0] + to_f * peepholes[1]
        return MemoryFactors(found.gates, kept, found.opened + to_o * peepholes[2])


class CoupledRule:
    def step(self, gates: Tensor, before: Tensor, after: Tensor, peepholes: Tensor | None) -> None:
        f, g, o = gates.unbind(1)
        f.sigmoid_()
        g.tanh_()
        o.sigmoid_()
        torch.lerp(g, before, f, out=after)  # f c + (1 - f) g

    def factors(self, gates: Tensor, before: Tensor, after: Tensor, peepholes: Tensor | None) -> MemoryFactors:
        f, g, o = gates.unbind(1)
        seen = after.tanh()
        to_gates = torch.empty_like(gates)
        to_f, to_g, to_o = to_gates.unbind(1)
        torch.mul(before - g, _sigmoid_slope(f), out=to_f)
        torch.mul(1 - f, _tanh_slope(g), out=to_g)
        torch.mul(seen, _sigmoid_slope(o), out=to_o)
        return MemoryFactors(to_gates, f, o * _tanh_slope(seen))


class PlainFactors(NamedTuple):
    from_state: Tensor  # (N, G, H) to U h + b'
    kept: Tensor | None  # (N, H) from h' to h
    candidate: Tensor | None  # (N, H) to the last block of W x + b, where it is not the same


class PlainRule(Protocol):
    """A cell whose hidden state is all there is."""

    def step(self, given: Tensor, product: Tensor, before: Tensor, gates: Tensor, after: Tensor) -> None:
        """W x + b and U h + b' (R, G, H), h (R, H) → what `factors` needs into `gates`, h' into `after`.

        `product` may be overwritten; `factors` gets it back as it was left.
        """
        ...

    def factors(self, gates: Tensor, product: Tensor, before: Tensor, after: Tensor) -> PlainFactors: ...


class RNNRule:
    def step(self, given: Tensor, product: Tensor, before: Tensor, gates: Tensor, after: Tensor) -> None:
        torch.add(given[:, 0], product[:, 0], out=after).tanh_()

    def factors(self, gates: Tensor, product: Tensor, before: Tensor, after: Tensor) -> PlainFactors:
        return PlainFactors(_tanh_slope(after)[:, None], None, None)


class GRURule:
    def step(self, given: Tensor, product: Tensor, before: Tensor, gates: Tensor, after: Tensor) -> None:
        r, z, n = gates.unbind(1)
        torch.add(given[:, :2], product[:, :2], out=gates[:, :2]).sigmoid_()
        torch.addcmul(given[:, 2], r, product[:, 2], out=n).tanh_()
        torch.lerp(n, before, z, out=after)  # (1 - z) n + z h

    def factors(self, gates: Tensor, product: Tensor, before: Tensor, after: Tensor) -> PlainFactors:
        r, z, n = gates.unbind(1)
        candidate = (1 - z) * _tanh_slope(n)
        found = torch.empty_like(gates)
        to_r, to_z, to_n = found.unbind(1)
        torch.mul(candidate * product[:, 2], _sigmoid_slope(r), out=to_r)
        torch.mul(before - n, _sigmoid_slope(z), out=to_z)
        torch.mul(candidate, r, out=to_n)
        return PlainFactors(found, z, candidate)


def _sigmoid_slope(value: Tensor) -> Tensor:
    """By what the sigmoid gave."""
    return value - value * value


def _tanh_slope(value: Tensor) -> Tensor:
    return 1 - value * value


MEMORY_RULES: dict[type[Cell], MemoryRule] = {
    LSTM: LSTMRule(),
    PeepholeLSTM: PeepholeRule(),
    CoupledLSTM: CoupledRule(),
}
PLAIN_RULES: dict[type[Cell], PlainRule] = {RNN: RNNRule(), GRU: GRURule()}
