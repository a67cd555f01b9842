"""The loop over time made fast, for every cell of recurrent.py: only what must wait for the step before is inside.

Forward, W x is one product for all steps, and a step is U h and a few passes over (R, G·H) numbers. Backward, all
factors of a step's gradient are known once the forward is done (recurrent_rules.py), so they are computed for all steps
at once; the loop is a few multiplications and a product with U, and the gradients of W, U and b are one product each,
after it. No graph is recorded for a step.

It runs in the type of the weights, in autocast too: errors would add up over time. It can be gone back through once;
whoever needs gradients of gradients takes `explicit`.

Shapes: as in recurrent.py, everything in the order of timeline.py.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from qkv.nn.recurrent import LSTM, Cell, PeepholeLSTM, State
from qkv.nn.recurrent_rules import MEMORY_RULES, PLAIN_RULES, MemoryRule, PlainRule
from qkv.nn.timeline import Timeline


def scanned(cell: Cell, x: Tensor, timeline: Timeline, state: State) -> tuple[Tensor, State]:
    """`explicit`, several times as fast."""
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
        if ctx.clips[0] is not None:  # what was cut off does not depend on anything
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
