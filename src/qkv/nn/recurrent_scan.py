"""Fast loops over time with a manual backward pass: for every cell of recurrent.py, and for an attentive decoder.

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

from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from qkv.nn.recurrent import GRU, LSTM, RNN, Cell, CoupledLSTM, PeepholeLSTM, State, Timeline
from qkv.nn.source_attention import AdditiveScore, Score, Source


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


def _slices(timeline: Timeline) -> list[slice]:
    return [slice(end - size, end) for end, size in zip(accumulate(timeline.sizes), timeline.sizes, strict=True)]


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
        for now in reversed(_slices(timeline)):
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
        for now in reversed(_slices(timeline)):
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


# --- The loop of a decoder that attends to the source at every step, H_i = cell([y_{i-1}; C_i], H_{i-1}), where H_{i-1}
# is the query of C_i: as equations (`run_attentive`), and as a fast scan with a manual backward pass
# (`scan_attentive`).
#
# A step of the scan is the attention, U h, W C and a few passes over (R, G·H) numbers; no graph is recorded for it. In
# the backward pass the gradients of all weights and of the encoder's states are one product each, after the loop.
# tanh(W_q H + W_k h), by far the largest tensor (S times the others), is recomputed: that costs less than the products
# of a step.
#
# The scan runs in the dtype of the weights, also under autocast, and supports a single backward pass.
#
# Shapes: M target tokens by time, R rows (sorted, the longest first), S tokens of the longest source, T of the longest
# target, E width of the encoder's states, A of keys, P of the cell's output, G blocks of H numbers.


def run_attentive(
    cell: Cell, score: Score, x: Tensor, timeline: Timeline, source: Source, state: State
) -> tuple[Tensor, Tensor]:
    """Tokens (M, D) → the cell's states after each token (M, P), and the contexts it read (M, E).

    W y_{i-1} and the keys are computed once, before the loop. Tokens are in time order, the longest row first, so that
    rows leave the loop when they end; no padding is computed.
    """
    to_token, to_context = cell.from_input.weight.split([x.size(-1), source.states.size(-1)], dim=1)
    given = functional.linear(timeline.by_time(x), to_token, cell.from_input.bias)  # (M, G·H)
    source, state = source.take(timeline.rows), timeline.sorted(state)
    found: list[tuple[Tensor, Tensor]] = []
    for now in given.split(timeline.sizes):
        rows = now.size(0)
        state = tuple(part[:rows] for part in state)
        context, _ = score.look(state[0][:, None], source.first(rows))  # (rows, 1, E)
        state = cell.step(now + functional.linear(context[:, 0], to_context), state)
        found.append((state[0], context[:, 0]))
    hidden, contexts = (torch.cat(parts) for parts in zip(*found, strict=True))
    return timeline.by_row(hidden), timeline.by_row(contexts)


def scan_attentive(
    cell: Cell, score: Score, x: Tensor, timeline: Timeline, source: Source, state: State
) -> tuple[Tensor, Tensor]:
    """The same result as `run_attentive`, faster."""
    weight, bias = cell.from_state.weight, cell.from_state.bias
    to_token, to_context = cell.from_input.weight.split([x.size(-1), source.states.size(-1)], dim=1)
    given = functional.linear(timeline.by_time(x), to_token, cell.from_input.bias).to(weight.dtype)  # (M, G·H)
    source, first = source.take(timeline.rows), tuple(part.to(weight.dtype) for part in timeline.sorted(state))
    assert source.keys is not None
    query, direction = (score.query.weight, score.score.weight[0]) if isinstance(score, AdditiveScore) else (None, None)
    hidden, contexts = _scan(
        type(cell),
        timeline,
        source.mask,
        source.states.to(weight.dtype),
        source.keys.to(weight.dtype),
        query,
        direction,
        given,
        to_context,
        weight,
        bias,
        cell.peepholes if isinstance(cell, PeepholeLSTM) else None,
        *first,
    )
    return timeline.by_row(hidden), timeline.by_row(contexts)


class _SourceLook:
    """α and C of a step, and their gradients. `query` and `direction` are W_q and v of additive scores."""

    def __init__(
        self, mask: Tensor, states: Tensor, keys: Tensor, query: Tensor | None, direction: Tensor | None
    ) -> None:
        self.states, self.keys, self.query, self.direction = states, keys, query, direction
        self.beyond = ~mask

    def forward(self, before: Tensor, weights: Tensor, context: Tensor) -> None:
        """H (R, P) → written into `weights` (R, S) and `context` (R, E)"""
        rows = before.size(0)
        if self.direction is None:
            scores = torch.bmm(self.keys[:rows], before[:, :, None])[:, :, 0]  # (R, S)
        else:
            scores = self._activate(before) @ self.direction
        torch.softmax(scores.masked_fill_(self.beyond[:rows], torch.finfo(scores.dtype).min), -1, out=weights)
        torch.bmm(weights[:, None], self.states[:rows], out=context[:, None])

    def _activate(self, before: Tensor) -> Tensor:
        """tanh(W_q H + W_k h) (R, S, A)"""
        assert self.query is not None
        return (self.keys[: before.size(0)] + (before @ self.query.t())[:, None]).tanh_()

    def start_backward(self, tokens: int) -> None:
        self.to_scores = self.keys.new_empty(tokens, self.keys.size(1))  # (M, S)
        self.to_query = self.keys.new_empty(tokens, self.keys.size(2))  # (M, A)
        self.to_keys = torch.zeros_like(self.keys)
        self.to_direction = None if self.direction is None else torch.zeros_like(self.direction)

    def backward(self, now: slice, before: Tensor, weights: Tensor, to_context: Tensor, from_next: Tensor) -> None:
        """Adds to `from_next` (R, P), the gradient of H, what comes from the gradient of C (R, E)."""
        rows = before.size(0)
        to_weights = torch.bmm(self.states[:rows], to_context[:, :, None])[:, :, 0]  # (R, S)
        to_scores = self.to_scores[now].copy_(to_weights)
        to_scores.sub_((to_weights * weights).sum(-1, keepdim=True)).mul_(weights)
        if self.direction is None:
            torch.bmm(to_scores[:, None], self.keys[:rows], out=self.to_query[now][:, None])
            from_next.add_(self.to_query[now])
            return
        assert self.to_direction is not None and self.query is not None
        active = self._activate(before)
        self.to_direction.addmv_(active.flatten(0, 1).t(), to_scores.flatten())
        to_sum = active.mul_(active).neg_().add_(1).mul_(to_scores[:, :, None]).mul_(self.direction)  # (R, S, A)
        self.to_keys[:rows].add_(to_sum)
        torch.sum(to_sum, 1, out=self.to_query[now])
        from_next.addmm_(self.to_query[now], self.query)

    def gradients(
        self, before: Tensor, weights: Tensor, to_context: Tensor, timeline: Timeline
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """The gradients of states, keys, W_q and v over all steps."""
        rows = self.keys.size(0)
        to_states = torch.bmm(_by_row(weights, timeline, rows).transpose(1, 2), _by_row(to_context, timeline, rows))
        if self.direction is None:
            queries = _by_row(before, timeline, rows)
            return to_states, torch.bmm(_by_row(self.to_scores, timeline, rows).transpose(1, 2), queries), None, None
        return to_states, self.to_keys, self.to_query.t() @ before, self.to_direction


def _by_row(x: Tensor, timeline: Timeline, rows: int) -> Tensor:
    """(M, …) by time → (R, T, …), zeros beyond a row's end"""
    sizes = torch.tensor(timeline.sizes, device=x.device)
    time = torch.repeat_interleave(sizes, output_size=x.size(0))  # (M,)
    row = torch.arange(x.size(0), device=x.device) - (sizes.cumsum(0) - sizes)[time]
    longest = len(timeline.sizes)
    rectangle = x.new_zeros(rows * longest, x.size(1)).index_copy_(0, row * longest + time, x)
    return rectangle.view(rows, longest, x.size(1))


class _StepBuffers(NamedTuple):
    """Filled by the steps and read by the backward pass."""

    gates: Tensor  # (M, G, H)
    held: Tensor  # (M, H) cell states; for a cell without them U h + b (M, G, H)
    hidden: Tensor  # (M, P)

    @staticmethod
    def of(kind: type[Cell], weight: Tensor, tokens: int) -> "_StepBuffers":
        blocks, width = kind.blocks, weight.size(1)
        held = weight.new_empty(tokens, *(() if kind.has_memory else (blocks,)), width)
        return _StepBuffers(weight.new_empty(tokens, blocks, width), held, weight.new_empty(tokens, width))


class _Steps(Protocol):
    """One cell step by step, by the rules of recurrent_scan.py."""

    hidden: Tensor  # (M, P)
    to_product: Tensor  # (M, G, H) the gradient of U h
    to_given: Tensor  # (M, G, H) the gradient of W x

    def step(self, now: slice, before: Tensor, given: Tensor) -> None:
        """W x + b (R, G·H), which may be overwritten → `hidden` of this step"""
        ...

    def start_backward(self, timeline: Timeline, before: Tensor) -> None:
        """Called once after the last step; `before` (M, P) are the states before each step."""
        ...

    def backward(self, now: slice, reaching: Tensor, from_next: Tensor) -> None:
        """The gradient of the hidden state (R, P) → the gradients of this step; overwrites `from_next` with the
        gradient of the previous state."""
        ...

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """The gradients of the peepholes and of the initial cell state."""
        ...


class _MemorySteps:
    def __init__(
        self, rule: MemoryRule, weight: Tensor, peepholes: Tensor | None, first: Tensor, room: _StepBuffers
    ) -> None:
        self.rule, self.weight, self.peepholes, self.first = rule, weight, peepholes, first
        self.gates, self.memory, self.hidden = room
        self.last = first

    def step(self, now: slice, before: Tensor, given: Tensor) -> None:
        gates, memory = self.gates[now], self.memory[now]
        torch.addmm(given, before, self.weight.t(), out=gates.flatten(1))
        self.rule.step(gates, self.last[: before.size(0)], memory, self.peepholes)
        torch.tanh(memory, out=self.hidden[now]).mul_(gates[:, -1])
        self.last = memory

    def start_backward(self, timeline: Timeline, before: Tensor) -> None:
        self.before = timeline.before(self.first, self.memory)
        self.to_product, self.kept, self.opened = self.rule.factors(
            self.gates, self.before, self.memory, self.peepholes
        )
        self.to_given = self.to_product
        self.from_next = torch.zeros_like(self.first)

    def backward(self, now: slice, reaching: Tensor, from_next: Tensor) -> None:
        to_gates, memory_from_next = self.to_product[now], self.from_next[: reaching.size(0)]
        to_cell = torch.addcmul(memory_from_next, reaching, self.opened[now])
        to_gates[:, :-1].mul_(to_cell[:, None])
        to_gates[:, -1].mul_(reaching)
        torch.mul(to_cell, self.kept[now], out=memory_from_next)
        torch.mm(to_gates.flatten(1), self.weight, out=from_next)

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        to_peepholes = None
        if self.peepholes is not None:
            to_i, to_f, _, to_o = self.to_product.unbind(1)
            pairs = ((to_i, self.before), (to_f, self.before), (to_o, self.memory))
            to_peepholes = torch.stack([(gate * seen).sum(0) for gate, seen in pairs])
        return to_peepholes, self.from_next


class _PlainSteps:
    def __init__(self, rule: PlainRule, weight: Tensor, bias: Tensor | None, room: _StepBuffers) -> None:
        self.rule, self.weight, self.bias = rule, weight, bias
        self.gates, self.product, self.hidden = room

    def step(self, now: slice, before: Tensor, given: Tensor) -> None:
        product = self.product[now]
        if self.bias is None:
            torch.mm(before, self.weight.t(), out=product.flatten(1))
        else:
            torch.addmm(self.bias, before, self.weight.t(), out=product.flatten(1))
        self.rule.step(given.view_as(product), product, before, self.gates[now], self.hidden[now])

    def start_backward(self, timeline: Timeline, before: Tensor) -> None:
        self.to_product, self.kept, self.candidate = self.rule.factors(self.gates, self.product, before, self.hidden)
        self.to_given = self.to_product if self.candidate is None else torch.empty_like(self.to_product)

    def backward(self, now: slice, reaching: Tensor, from_next: Tensor) -> None:
        to_product = self.to_product[now].mul_(reaching[:, None])
        torch.mm(to_product.flatten(1), self.weight, out=from_next)
        if self.kept is not None:
            from_next.addcmul_(reaching, self.kept[now])
        if self.candidate is not None:
            self.to_given[now][:, :-1].copy_(to_product[:, :-1])
            torch.mul(reaching, self.candidate[now], out=self.to_given[now][:, -1])

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        return None, None


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        kind: type[Cell],
        timeline: Timeline,
        mask: Tensor,
        states: Tensor,
        keys: Tensor,
        query: Tensor | None,
        direction: Tensor | None,
        given: Tensor,
        to_context: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        peepholes: Tensor | None,
        first: Tensor,
        first_memory: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        tokens, room = given.size(0), _StepBuffers.of(kind, weight, given.size(0))
        steps = _steps(kind, weight, bias, peepholes, first_memory, room)
        weights, contexts = given.new_empty(tokens, mask.size(1)), given.new_empty(tokens, states.size(2))
        look, before = _SourceLook(mask, states, keys, query, direction), first
        with torch.autocast(given.device.type, enabled=False):
            for now in _slices(timeline):
                before = before[: now.stop - now.start]
                look.forward(before, weights[now], contexts[now])
                steps.step(now, before, torch.addmm(given[now], contexts[now], to_context.t()))
                before = room.hidden[now]
        inputs = (mask, states, keys, query, direction, to_context, weight, bias, peepholes, first, first_memory)
        ctx.save_for_backward(weights, contexts, *room, *inputs)
        ctx.kind, ctx.timeline = kind, timeline
        return room.hidden, contexts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_hidden: Tensor, to_contexts: Tensor) -> tuple[Tensor | None, ...]:
        weights, contexts, gates, held, hidden, *inputs = ctx.saved_tensors
        mask, states, keys, query, direction, to_context, weight, bias, peepholes, first, first_memory = inputs
        timeline: Timeline = ctx.timeline
        before = timeline.before(first, hidden)  # (M, P)
        steps = _steps(ctx.kind, weight, bias, peepholes, first_memory, _StepBuffers(gates, held, hidden))
        look = _SourceLook(mask, states, keys, query, direction)
        steps.start_backward(timeline, before)
        look.start_backward(hidden.size(0))
        reaching, to_looked, from_next = to_hidden.clone(), to_contexts.clone(), torch.zeros_like(first)
        for now in reversed(_slices(timeline)):
            rows = now.stop - now.start
            steps.backward(now, reaching[now].add_(from_next[:rows]), from_next[:rows])
            to_looked[now].addmm_(steps.to_given[now].flatten(1), to_context)
            look.backward(now, before[now], weights[now], to_looked[now], from_next[:rows])
        to_given, to_product = steps.to_given.flatten(1), steps.to_product.flatten(1)
        to_peepholes, to_first_memory = steps.gradients()
        return (
            *(None, None, None),
            *look.gradients(before, weights, to_looked, timeline),
            to_given,
            to_given.t() @ contexts,
            to_product.t() @ before,
            None if bias is None else to_product.sum(0),
            to_peepholes,
            from_next,
            to_first_memory,
        )


def _steps(
    kind: type[Cell],
    weight: Tensor,
    bias: Tensor | None,
    peepholes: Tensor | None,
    first_memory: Tensor | None,
    room: _StepBuffers,
) -> _Steps:
    if first_memory is None:
        return _PlainSteps(PLAIN_RULES[kind], weight, bias, room)
    return _MemorySteps(MEMORY_RULES[kind], weight, peepholes, first_memory, room)


_scan: Callable[..., tuple[Tensor, Tensor]] = _Scan.apply
