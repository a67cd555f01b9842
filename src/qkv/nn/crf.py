"""A linear-chain conditional random field (Lafferty, McCallum and Pereira 2001): the tags of a text as one path.

A path y_1 … y_n over a chain of n units with emissions e_t from an encoder has the score

    s(y) = start[y_1] + Σ_t e_t[y_t] + Σ_t transitions[y_(t−1), y_t] + end[y_n]

and the probability exp s(y) / Σ exp s(y′) over all paths y′. A score of −inf forbids a step: with transitions of 0 and
−inf this is a plain tagger that returns only valid tag sequences.

Chains are packed end to end, like the rows of a batch, and are processed together step by step, longest first, so that
the chains alive at a step are always a prefix. Nothing is computed for padding.

    chains  a a a a | b b | c c c        steps  a c b | a c b | a c | a

Sums over paths are kept in linear space and rescaled to a sum of 1 at every unit (Rabiner 1989, §V.A), so that exp and
log run once over all units, not at every step. Emissions are clamped from below so that their exponentials stay above 0
(`bound_emissions`). Some tag must be reachable at every step (an "O" always is).

Long chains are cut into blocks, which are processed in parallel, once for every tag that can precede a block; only the
blocks are then combined one by one. The result is the same.

Not here: the meaning of tags and the allowed steps (tasks/tag.py).

Shapes: N units of all chains, R chains, L tags, A chains alive at a step.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

_BLOCK = 256
_LONG = 4 * _BLOCK
"""Minimum number of units from which a chain is cut into blocks. Training rows are shorter."""


class Potentials(NamedTuple):
    """Path scores other than emissions. Start and end are (L,), or (R, L) where chains differ."""

    start: Tensor
    transitions: Tensor  # (L, L) from row to column
    end: Tensor

    def over(self, temperature: float) -> "Potentials":
        return Potentials(self.start / temperature, self.transitions / temperature, self.end / temperature)


class Beliefs(NamedTuple):
    """Logarithms of sums over paths: up to and including a unit's emission, and after it."""

    forward: Tensor  # (N, L)
    backward: Tensor  # (N, L)
    partition: Tensor  # (R,) over all paths of a chain

    def marginals(self, chains: "Chains") -> Tensor:
        """(N, L): the probability of every tag at every unit."""
        return (self.forward + self.backward - self.partition[chains.of_unit, None]).exp()


class Chains:
    """Index tables for chains of these lengths, end to end and step by step. An empty chain has one path of score 0."""

    def __init__(self, lengths: Sequence[int], device: torch.device | None = None) -> None:
        sizes = torch.tensor(lengths, dtype=torch.int64)  # (R,)
        order = torch.argsort(sizes, descending=True, stable=True)
        order = order[: int((sizes > 0).sum())]
        sorted_sizes = sizes[order]
        total = int(sizes.sum())
        ends = sizes.cumsum(0)
        begins = ends - sizes
        rank = torch.repeat_interleave(torch.arange(len(order)), sorted_sizes)  # (N,)
        step = torch.arange(total) - (sorted_sizes.cumsum(0) - sorted_sizes)[rank]
        by_step = torch.argsort(step, stable=True)
        of_unit = torch.repeat_interleave(torch.arange(len(sizes)), sizes)  # (N,)
        self.lengths = list(lengths)
        self.alive: list[int] = torch.bincount(step).tolist() if total else []  # chains at each step
        self.sizes = sizes.to(device)
        self.order = order.to(device)  # chains that hold a unit, longest first
        self.places = (begins[order][rank] + step)[by_step].to(device)  # (N,) end to end, in the order of the steps
        self.first = begins[order].to(device)  # unit of each chain of `order`
        self.last = (ends[order] - 1).to(device)
        self.of_unit = of_unit.to(device)  # (N,)
        self.inner = (torch.arange(total) > begins[of_unit]).to(device)  # (N,) is not the first of its chain
        self.reversed = ((begins + ends - 1)[of_unit] - torch.arange(total)).to(device)  # (N,) each chain backwards

    def __len__(self) -> int:
        return len(self.sizes)

    def ordered(self, scores: Tensor) -> Tensor:
        """(L,) or (R, L) → one row for each chain of `order`"""
        return scores[self.order] if scores.dim() == 2 else scores.expand(len(self.order), -1)

    def summed(self, values: Tensor) -> Tensor:
        """(N,) → (R,)"""
        return torch.segment_reduce(values, "sum", lengths=self.sizes, unsafe=True, initial=0)

    def so_far(self, values: Tensor) -> Tensor:
        """(N,) → (N,) the sum of a chain's units up to and including each"""
        sums = values.cumsum(0)
        before = values.new_zeros(len(self)).index_copy(0, self.order, (sums - values)[self.first])
        return sums - before[self.of_unit]

    def filled(self, values: Tensor) -> Tensor:
        """One value for each chain of `order` → (R,), 0 for empty chains."""
        return values.new_zeros(len(self)).index_copy(0, self.order, values)


def path_scores(emissions: Tensor, tags: Tensor, potentials: Potentials, chains: Chains) -> Tensor:
    """The score of one path per chain: (N, L) and tags (N,) → (R,)"""
    steps = emissions.gather(1, tags[:, None])[:, 0]  # (N,)
    # the first unit of a chain has no transition
    moves = torch.where(chains.inner, potentials.transitions[tags.roll(1), tags], 0.0)
    start = chains.ordered(potentials.start).gather(1, tags[chains.first, None])[:, 0]
    end = chains.ordered(potentials.end).gather(1, tags[chains.last, None])[:, 0]
    return chains.summed(steps + moves) + chains.filled(start + end)


def log_partition(emissions: Tensor, potentials: Potentials, chains: Chains) -> Tensor:
    """log Σ exp s(y) over all paths of every chain: (N, L) → (R,)"""
    shares, growth = _sums(bound_emissions(emissions), potentials.start, potentials.transitions, chains)
    return _partition(shares, growth, potentials, chains)


def compute_beliefs(emissions: Tensor, potentials: Potentials, chains: Chains) -> Beliefs:
    """Forward and backward sums, from which every marginal follows."""
    emissions, backwards = bound_emissions(emissions), chains.reversed
    shares, growth = _sums(emissions, potentials.start, potentials.transitions, chains)
    forward = shares.log() + chains.so_far(growth)[:, None]
    partition = _partition(shares, growth, potentials, chains)
    # the backward sums are the forward sums of the reversed chain
    shares, growth = _sums(emissions[backwards], potentials.end, potentials.transitions.T, chains)
    backward = (shares.log() + chains.so_far(growth)[:, None])[backwards] - emissions
    return Beliefs(forward, backward, partition)


def bound_emissions(emissions: Tensor) -> Tensor:
    """Clamp emissions from below so that their exponentials, relative to the unit's maximum, are never 0."""
    lowest = 0.7 * math.log(torch.finfo(emissions.dtype).tiny)  # the rest of the range is for the transitions
    return torch.maximum(emissions, emissions.detach().amax(-1, keepdim=True) + lowest)


def _sums(emissions: Tensor, start: Tensor, transitions: Tensor, chains: Chains) -> tuple[Tensor, Tensor]:
    """Over all paths up to a unit: the share of each tag (N, L), and the increment of the log sum (N,)."""
    top = emissions.detach().amax(-1)  # (N,)
    factors, opening = (emissions - top[:, None]).exp(), start.exp()
    product = SumProduct(transitions)
    shares = walk_chains(factors, opening, product, chains)
    entered = torch.where(chains.inner[:, None], product.move(shares.roll(1, 0)), 0.0)
    entered = entered.index_copy(0, chains.first, chains.ordered(opening))
    return shares, (entered * factors).sum(-1).log() + top


def _partition(shares: Tensor, growth: Tensor, potentials: Potentials, chains: Chains) -> Tensor:
    at_end = (shares[chains.last] * chains.ordered(potentials.end).exp()).sum(-1).log()
    return chains.summed(growth) + chains.filled(at_end)


@torch.no_grad()
def viterbi(emissions: Tensor, potentials: Potentials, chains: Chains) -> Tensor:
    """The best path of every chain: (N, L) → tags (N,). Ties go to the lower tag."""
    best = walk_chains(
        emissions, potentials.start, _MaxSum(potentials.transitions), chains
    )  # (N, L) of the paths that end here
    final = (best[chains.last] + chains.ordered(potentials.end)).argmax(-1)
    # back-pointers are computed for all units at once and then followed in Python
    into = potentials.transitions.T.contiguous()  # a row per target tag
    parts = best.split(4096)  # (N, L, L) may not fit in memory
    came_from = [(part[:, None, :] + into).argmax(-1) for part in parts]
    origins: list[int] = torch.cat(came_from).flatten().tolist()
    tags = best.size(1)
    path = [0] * len(best)
    for unit, tag in zip(chains.last.tolist(), final.tolist(), strict=True):
        path[unit] = tag
    inner = chains.inner.tolist()
    for unit in range(len(best) - 1, 0, -1):
        if inner[unit]:
            path[unit - 1] = origins[(unit - 1) * tags + path[unit]]
    return torch.tensor(path, dtype=torch.int64, device=emissions.device)


class PathRule(Protocol):
    """The semiring of a pass over paths: sum-product or max-sum. The leading dimension of a state counts chains."""

    def same(self, like: Tensor) -> Tensor:
        """(L, L): the identity"""
        ...

    def move(self, state: Tensor) -> Tensor:
        """(…, L) over the transitions, to the next unit"""
        ...

    def take(self, state: Tensor, unit: Tensor) -> Tensor:
        """(…, L) combined with a unit's emissions"""
        ...

    def join(self, state: Tensor, matrix: Tensor) -> Tensor:
        """(A, L) through a block, (A, L, L)"""
        ...


class SumProduct:
    """Adds the paths into a tag. A chain's state is normalised to a sum of 1."""

    def __init__(self, transitions: Tensor) -> None:
        self.weights = transitions.exp()

    def same(self, like: Tensor) -> Tensor:
        return torch.eye(like.size(-1), dtype=like.dtype, device=like.device)

    def move(self, state: Tensor) -> Tensor:
        return state @ self.weights

    def take(self, state: Tensor, unit: Tensor) -> Tensor:
        return self._shares(state * unit)

    def join(self, state: Tensor, matrix: Tensor) -> Tensor:
        return self._shares((state[:, :, None] * matrix).sum(1))

    def _shares(self, state: Tensor) -> Tensor:
        return state / state.sum(tuple(range(1, state.dim())), keepdim=True)


class _MaxSum:
    """Keeps the best of the paths into a tag. States are scores."""

    def __init__(self, transitions: Tensor) -> None:
        self.into = transitions.T.contiguous()  # a row per target tag

    def same(self, like: Tensor) -> Tensor:
        return like.new_full((like.size(-1), like.size(-1)), float("-inf")).fill_diagonal_(0.0)

    def move(self, state: Tensor) -> Tensor:
        return (state[..., None, :] + self.into).amax(-1)

    def take(self, state: Tensor, unit: Tensor) -> Tensor:
        return state + unit

    def join(self, state: Tensor, matrix: Tensor) -> Tensor:
        return (state[:, :, None] + matrix).amax(1)


def walk_chains(units: Tensor, opening: Tensor, product: PathRule, chains: Chains) -> Tensor:
    """(N, L): for every unit and tag, the combined paths from the chain's start."""
    if len(chains.alive) >= _LONG:
        return _walk_blocks(units, opening, product, chains)
    if not chains.alive:
        return units
    steps = units[chains.places].split(chains.alive)
    states = [product.take(chains.ordered(opening), steps[0])]  # (A, L)
    for step in steps[1:]:
        states.append(product.take(product.move(states[-1][: len(step)]), step))
    return torch.empty_like(units).index_copy(0, chains.places, torch.cat(states))


def _walk_blocks(units: Tensor, opening: Tensor, product: PathRule, chains: Chains) -> Tensor:
    parts = [[_BLOCK] * (length // _BLOCK) + [length % _BLOCK] * (length % _BLOCK > 0) for length in chains.lengths]
    blocks = Chains([size for sizes in parts for size in sizes], units.device)
    of_chain = Chains(list(map(len, parts)), units.device)  # each chain as a chain of blocks
    opening = of_chain.ordered(opening)

    # from every tag before a block to every tag at its end; the first block of a chain has none before it
    through = product.move(product.same(units)).repeat(len(blocks), 1, 1)  # (blocks, L, L)
    through[of_chain.first] = opening[:, None, :]
    steps = units[blocks.places].split(blocks.alive)
    state, done = product.take(through[blocks.order], steps[0][:, None]), []
    for step in steps[1:]:
        done.append(state[len(step) :])
        state = product.take(product.move(state[: len(step)]), step[:, None])
    through[blocks.order] = torch.cat([state, *done[::-1]])

    # combine block by block: the state at the end of a block is the start of the next
    matrices = through[of_chain.places].split(of_chain.alive)
    ends = [matrices[0][:, 0]]  # (A, L)
    for matrix in matrices[1:]:
        ends.append(product.join(ends[-1][: len(matrix)], matrix))
    entered = torch.empty_like(units[: len(blocks)]).index_copy(0, of_chain.places, torch.cat(ends))
    entered = product.move(entered).roll(1, 0)
    entered[of_chain.first] = opening
    return walk_chains(units, entered, product, blocks)
