"""A fast loop over time with a manual backward pass, for every cell of recurrent.py.

In the forward pass W x is one product for all steps, and a step is U h and a few passes over (R, G·H) numbers. In the
backward pass the factors of all steps' gradients are computed at once; the loop is a few multiplications and a product
with U, and the gradients of W, U and b are one product each after it. No graph is recorded for a step.

A step's gradient is linear in the incoming gradients. With a the gradient of the hidden state h' and m that of the cell
state c' (m = m from the next step + a · `opened`), every cell with a cell state has

    to its gates:  m · factor, to the output gate a · factor        to c:  m · `kept`

and every cell without one  a · factor  and to h itself  a · `kept`. The factors depend on the forward pass only.

The scan runs in the dtype of the weights, also under autocast, since errors would accumulate over time. It supports a
single backward pass; for gradients of gradients use `explicit`. Activations are computed in place.

Shapes: R rows of a step, N tokens of all steps, H width, G blocks; gates (R, G, H) or (N, G, H), in the cell's order;
all tensors in time order (recurrent.py).
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from qkv.nn.recurrent import GRU, LSTM, RNN, Cell, CoupledLSTM, PeepholeLSTM, State, Timeline


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
        """The factors of an LSTM plus those through the peepholes."""
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
    candidate: Tensor | None  # (N, H) to the last block of W x + b, if it differs


class PlainRule(Protocol):
    """A cell without a cell state."""

    def step(self, given: Tensor, product: Tensor, before: Tensor, gates: Tensor, after: Tensor) -> None:
        """W x + b and U h + b' (R, G, H), h (R, H) → writes what `factors` needs into `gates`, and h' into `after`.

        `product` may be overwritten; `factors` receives it as `step` left it.
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
    """The slope of the sigmoid, from its value."""
    return value - value * value


def _tanh_slope(value: Tensor) -> Tensor:
    return 1 - value * value


MEMORY_RULES: dict[type[Cell], MemoryRule] = {
    LSTM: LSTMRule(),
    PeepholeLSTM: PeepholeRule(),
    CoupledLSTM: CoupledRule(),
}
PLAIN_RULES: dict[type[Cell], PlainRule] = {RNN: RNNRule(), GRU: GRURule()}


def scan(cell: Cell, x: Tensor, timeline: Timeline, state: State) -> tuple[Tensor, State]:
    """The same result as `explicit`, several times as fast."""
    weight, bias = cell.from_state.weight, cell.from_state.bias
    given = cell.from_input(timeline.by_time(x)).to(weight.dtype)  # (N, G·H)
    first = tuple(part.to(weight.dtype) for part in timeline.sorted(state))
    found: tuple[Tensor, ...]  # the hidden state after every token, and the cell state
    if rule := MEMORY_RULES.get(type(cell)):
        project: Tensor | None = None
        clips: tuple[float | None, float | None] = None, None
        if isinstance(cell, LSTM):
            project = None if cell.project is None else cell.project.weight
            clips = cell.cell_clip, cell.projection_clip
        peepholes = cell.peepholes if isinstance(cell, PeepholeLSTM) else None
        found = _memory_scan(rule, timeline, clips, given, weight, project, peepholes, *first)
    else:
        found = (_plain_scan(PLAIN_RULES[type(cell)], timeline, given, weight, bias, *first),)
    last = tuple(part.index_select(0, timeline.last) for part in found)
    return timeline.by_row(found[0]), timeline.unsorted(last)


def _slices(timeline: Timeline) -> Iterator[slice]:
    begin = 0
    for size in timeline.sizes:
        yield slice(begin, begin + size)
        begin += size


class _MemoryScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rule: MemoryRule,
        timeline: Timeline,
        clips: tuple[float | None, float | None],
        given: Tensor,
        weight: Tensor,
        project: Tensor | None,
        peepholes: Tensor | None,
        first_hidden: Tensor,
        first_memory: Tensor,
    ) -> tuple[Tensor, Tensor]:
        (tokens, _), width = given.shape, first_memory.size(1)
        gates = given.new_empty(tokens, weight.size(0) // width, width)
        memory, out = given.new_empty(tokens, width), given.new_empty(tokens, width)
        hidden = out if project is None else given.new_empty(tokens, project.size(0))
        with torch.autocast(given.device.type, enabled=False):
            before, before_memory, turned = first_hidden, first_memory, weight.t()
            for now in _slices(timeline):
                rows = now.stop - now.start
                torch.addmm(given[now], before[:rows], turned, out=gates[now].flatten(1))
                rule.step(gates[now], before_memory[:rows], memory[now], peepholes)
                if clips[0] is not None:
                    memory[now].clamp_(-clips[0], clips[0])
                torch.tanh(memory[now], out=out[now]).mul_(gates[now][:, -1])
                if project is not None:
                    torch.mm(out[now], project.t(), out=hidden[now])
                    if clips[1] is not None:
                        hidden[now].clamp_(-clips[1], clips[1])
                before, before_memory = hidden[now], memory[now]
        ctx.save_for_backward(gates, memory, out, hidden, weight, project, peepholes, first_hidden, first_memory)
        ctx.rule, ctx.timeline, ctx.clips = rule, timeline, clips
        ctx.set_materialize_grads(False)
        return hidden, memory

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_hidden: Tensor | None, to_memory: Tensor | None) -> tuple[Tensor | None, ...]:
        gates, memory, out, hidden, weight, project, peepholes, first_hidden, first_memory = ctx.saved_tensors
        timeline: Timeline = ctx.timeline
        before_memory = timeline.before(first_memory, memory)
        to_gates, kept, opened = ctx.rule.factors(gates, before_memory, memory, peepholes)
        if ctx.clips[0] is not None:  # clipped values have no gradient
            inside = memory.abs() < ctx.clips[0]
            to_gates[:, :-1] *= inside[:, None]
            kept = kept * inside
        reaching = torch.zeros_like(hidden) if to_hidden is None else to_hidden.clone()  # (N, P)
        cut = None if project is None or ctx.clips[1] is None else hidden.abs() < ctx.clips[1]
        from_next, memory_from_next = torch.zeros_like(first_hidden), torch.zeros_like(first_memory)
        for now in reversed(list(_slices(timeline))):
            rows = now.stop - now.start
            to_out = reaching[now].add_(from_next[:rows])
            if project is not None:
                to_out = (to_out if cut is None else to_out.mul_(cut[now])) @ project
            to_cell = torch.addcmul(memory_from_next[:rows], to_out, opened[now])
            if to_memory is not None:
                to_cell += to_memory[now]
            to_gates[now][:, :-1].mul_(to_cell[:, None])
            to_gates[now][:, -1].mul_(to_out)
            torch.mul(to_cell, kept[now], out=memory_from_next[:rows])
            torch.mm(to_gates[now].flatten(1), weight, out=from_next[:rows])
        to_given = to_gates.flatten(1)  # (N, G·H)
        to_weight = to_given.t() @ timeline.before(first_hidden, hidden)
        to_project = None if project is None else reaching.t() @ out
        to_peepholes = None
        if peepholes is not None:
            to_i, to_f, _, to_o = to_gates.unbind(1)
            pairs = ((to_i, before_memory), (to_f, before_memory), (to_o, memory))
            to_peepholes = torch.stack([(gate * seen).sum(0) for gate, seen in pairs])
        return None, None, None, to_given, to_weight, to_project, to_peepholes, from_next, memory_from_next


class _PlainScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rule: PlainRule, timeline: Timeline, given: Tensor, weight: Tensor, bias: Tensor | None, first: Tensor
    ) -> Tensor:
        (tokens, _), width = given.shape, first.size(1)
        given = given.unflatten(1, (-1, width))  # (N, G, H)
        gates, product = torch.empty_like(given), torch.empty_like(given)
        hidden = given.new_empty(tokens, width)
        with torch.autocast(given.device.type, enabled=False):
            before, turned = first, weight.t()
            for now in _slices(timeline):
                before = before[: now.stop - now.start]
                if bias is None:
                    torch.mm(before, turned, out=product[now].flatten(1))
                else:
                    torch.addmm(bias, before, turned, out=product[now].flatten(1))
                rule.step(given[now], product[now], before, gates[now], hidden[now])
                before = hidden[now]
        ctx.save_for_backward(gates, product, hidden, weight, first)
        ctx.rule, ctx.timeline, ctx.has_bias = rule, timeline, bias is not None
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_hidden: Tensor) -> tuple[Tensor | None, ...]:
        gates, product, hidden, weight, first = ctx.saved_tensors
        timeline: Timeline = ctx.timeline
        before = timeline.before(first, hidden)
        to_product, kept, candidate = ctx.rule.factors(gates, product, before, hidden)
        reaching = to_hidden.clone()
        from_next = torch.zeros_like(first)
        for now in reversed(list(_slices(timeline))):
            rows = now.stop - now.start
            here = reaching[now].add_(from_next[:rows])
            to_product[now].mul_(here[:, None])
            torch.mm(to_product[now].flatten(1), weight, out=from_next[:rows])
            if kept is not None:
                from_next[:rows].addcmul_(here, kept[now])
        flat = to_product.flatten(1)
        to_weight = flat.t() @ before
        to_bias = flat.sum(0) if ctx.has_bias else None
        to_given = flat
        if candidate is not None:
            to_given = torch.cat([to_product[:, :-1], (reaching * candidate)[:, None]], dim=1).flatten(1)
        return None, None, to_given, to_weight, to_bias, from_next


_memory_scan: Callable[..., tuple[Tensor, Tensor]] = _MemoryScan.apply
_plain_scan: Callable[..., Tensor] = _PlainScan.apply
