"""A linear-chain conditional random field (Lafferty, McCallum and Pereira 2001): the tags of a text as one path.

A path y_1 … y_n over a chain of n units, whose emissions e_t an encoder gave, has the score

    s(y) = start[y_1] + Σ_t e_t[y_t] + Σ_t transitions[y_(t−1), y_t] + end[y_n]

and the probability exp s(y) / Σ exp s(y′) over all paths y′. A score of −inf forbids: with transitions that are 0 where
a step is allowed and −inf where it is not, this is the plain tagger that must not answer with nonsense.

Many chains are computed at once, and nothing is computed for padding: chains lie end to end, as the rows of a batch do,
and are walked step by step, longest first, so that those alive at a step are always the first few.

    chains  a a a a | b b | c c c        steps  a c b | a c b | a c | a

Sums over paths are carried along as plain numbers, set back to a sum of 1 at every unit (Rabiner 1989, §V.A): exp and
log then run once over all units, not at every step. An emission further below the best of its unit than a float can say
counts as that far below. Some tag must be reachable at every step (an "O" always is).

A chain of a hundred thousand units would take as many steps, one after the other. Long chains are therefore cut into
blocks, which are walked side by side, once for every tag that a block could be entered from; then only the blocks are
gone through one by one. The result is the same.

What this file does NOT do: say what tags mean, or which steps are allowed (tasks/tag.py).

Shapes: N units of all chains, R chains, L tags, A chains alive at a step.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

_BLOCK = 256
_LONG = 4 * _BLOCK
"""From this many units on a chain is cut into blocks. Rows of training are shorter."""


class Potentials(NamedTuple):
    """What a path is scored with beside its emissions. Start and end are (L,), or (R, L) where chains differ."""

    start: Tensor
    transitions: Tensor  # (L, L) from row to column
    end: Tensor

    def over(self, temperature: float) -> "Potentials":
        return Potentials(self.start / temperature, self.transitions / temperature, self.end / temperature)


class Beliefs(NamedTuple):
    """Logarithms of sums over paths: up to and including a unit's emission, and of all that follows it."""

    forward: Tensor  # (N, L)
    backward: Tensor  # (N, L)
    partition: Tensor  # (R,) over all paths of a chain

    def marginals(self, chains: "Chains") -> Tensor:
        """(N, L) how probable every tag is at every unit."""
        return (self.forward + self.backward - self.partition[chains.of_unit, None]).exp()


class Chains:
    """Where chains of these lengths lie, end to end and step by step. A chain may be empty: its one path scores 0."""

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
        self.inner = (torch.arange(total) > begins[of_unit]).to(device)  # (N,) has one before it
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
    """The scores of one path a chain: (N, L) and tags (N,) → (R,)"""
    steps = emissions.gather(1, tags[:, None])[:, 0]  # (N,)
    # a chain's first unit comes from nowhere
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
    # the same walk from the other end
    shares, growth = _sums(emissions[backwards], potentials.end, potentials.transitions.T, chains)
    backward = (shares.log() + chains.so_far(growth)[:, None])[backwards] - emissions
    return Beliefs(forward, backward, partition)


def bound_emissions(emissions: Tensor) -> Tensor:
    """Emissions so that their exponentials, beside the best of their unit, are never 0."""
    lowest = 0.7 * math.log(torch.finfo(emissions.dtype).tiny)  # what is left over is for the transitions
    return torch.maximum(emissions, emissions.detach().amax(-1, keepdim=True) + lowest)


def _sums(emissions: Tensor, start: Tensor, transitions: Tensor, chains: Chains) -> tuple[Tensor, Tensor]:
    """Over all paths up to a unit: the share of each tag (N, L), and by how much the logarithm grows there (N,)."""
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
    """The best path of every chain: (N, L) → tags (N,). Of equals, the lower tag."""
    best = walk_chains(
        emissions, potentials.start, _MaxSum(potentials.transitions), chains
    )  # (N, L) of the paths that end here
    final = (best[chains.last] + chains.ordered(potentials.end)).argmax(-1)
    # Which tag each one came from is known for all units at once; to follow it back is a matter of looking it up.
    into = potentials.transitions.T.contiguous()  # a row for each tag that is reached
    parts = best.split(4096)  # for (N, L, L) there may be no room
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
    """How paths go on, and what becomes of those that meet. A leading dimension counts chains."""

    def same(self, like: Tensor) -> Tensor:
        """(L, L) what leaves every state as it is"""
        ...

    def move(self, state: Tensor) -> Tensor:
        """(…, L) over the transitions, to the next unit"""
        ...

    def take(self, state: Tensor, unit: Tensor) -> Tensor:
        """(…, L) with what a unit gives for each tag"""
        ...

    def join(self, state: Tensor, matrix: Tensor) -> Tensor:
        """(A, L) through a block, (A, L, L)"""
        ...


class SumProduct:
    """Paths that meet are added up. States are shares: those of a chain add up to 1."""

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
    """Of paths that meet, the best goes on. States are scores."""

    def __init__(self, transitions: Tensor) -> None:
        self.into = transitions.T.contiguous()  # a row for each tag that is reached

    def same(self, like: Tensor) -> Tensor:
        return like.new_full((like.size(-1), like.size(-1)), float("-inf")).fill_diagonal_(0.0)

    def move(self, state: Tensor) -> Tensor:
        return (state[..., None, :] + self.into).amax(-1)

    def take(self, state: Tensor, unit: Tensor) -> Tensor:
        return state + unit

    def join(self, state: Tensor, matrix: Tensor) -> Tensor:
        return (state[:, :, None] + matrix).amax(1)


def walk_chains(units: Tensor, opening: Tensor, product: PathRule, chains: Chains) -> Tensor:
    """(N, L): at every unit and tag, the product over all paths from the chain's start up to there."""
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
    of_chain = Chains(list(map(len, parts)), units.device)  # the chains once more, their units being the blocks
    opening = of_chain.ordered(opening)

    # from every tag that may stand before a block to every tag at its end; nothing stands before a chain's first
    through = product.move(product.same(units)).repeat(len(blocks), 1, 1)  # (blocks, L, L)
    through[of_chain.first] = opening[:, None, :]
    steps = units[blocks.places].split(blocks.alive)
    state, done = product.take(through[blocks.order], steps[0][:, None]), []
    for step in steps[1:]:
        done.append(state[len(step) :])
        state = product.take(product.move(state[: len(step)]), step[:, None])
    through[blocks.order] = torch.cat([state, *done[::-1]])

    # block by block to the ends of all, which say how each is entered
    matrices = through[of_chain.places].split(of_chain.alive)
    ends = [matrices[0][:, 0]]  # (A, L)
    for matrix in matrices[1:]:
        ends.append(product.join(ends[-1][: len(matrix)], matrix))
    entered = torch.empty_like(units[: len(blocks)]).index_copy(0, of_chain.places, torch.cat(ends))
    entered = product.move(entered).roll(1, 0)
    entered[of_chain.first] = opening
    return walk_chains(units, entered, product, blocks)
