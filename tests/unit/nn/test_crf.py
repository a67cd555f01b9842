"""The chain against every path written out, on chains small enough for that."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from qkv.nn.crf import Chains, Potentials, compute_beliefs, log_partition, path_scores, viterbi

LENGTHS = [3, 0, 1, 5, 2, 5, 0]
TAGS = 3
FORBIDDEN = -math.inf


def random_chains(seed: int, own_ends: bool, forbids: bool) -> tuple[Tensor, Potentials, Chains]:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * 2

    shape = (len(LENGTHS), TAGS) if own_ends else (TAGS,)
    start, transitions, end = draw(*shape), draw(TAGS, TAGS), draw(*shape)
    if forbids:  # tag 2 may not start, and follows only 1 or itself
        start[..., 2] = FORBIDDEN
        transitions[0, 2] = FORBIDDEN
    return draw(sum(LENGTHS), TAGS), Potentials(start, transitions, end), Chains(LENGTHS)


def score(emissions: Tensor, potentials: Potentials, chain: int, path: tuple[int, ...]) -> float:
    """The equation at the top of the file, term by term."""
    if not path:
        return 0.0
    start = potentials.start if potentials.start.dim() == 1 else potentials.start[chain]
    end = potentials.end if potentials.end.dim() == 1 else potentials.end[chain]
    total = float(start[path[0]] + end[path[-1]])
    total += sum(float(emissions[place, tag]) for place, tag in enumerate(path))
    return total + sum(float(potentials.transitions[a, b]) for a, b in itertools.pairwise(path))


CASES = [(seed, own, forbids) for seed in range(3) for own in (False, True) for forbids in (False, True)]


@pytest.mark.parametrize(("seed", "own_ends", "forbids"), CASES)
def test_every_path_written_out(seed: int, own_ends: bool, forbids: bool) -> None:
    emissions, potentials, chains = random_chains(seed, own_ends, forbids)
    partition = log_partition(emissions, potentials, chains)
    believed = compute_beliefs(emissions, potentials, chains)
    marginals = believed.marginals(chains)
    best = viterbi(emissions, potentials, chains)
    assert torch.allclose(believed.partition, partition)
    begin = 0
    for chain, length in enumerate(LENGTHS):
        mine = emissions[begin : begin + length]
        paths = list(itertools.product(range(TAGS), repeat=length))
        scores = torch.tensor([score(mine, potentials, chain, path) for path in paths], dtype=torch.float64)
        assert float(partition[chain]) == pytest.approx(float(scores.logsumexp(0)))
        assert tuple(best[begin : begin + length].tolist()) == paths[int(scores.argmax())]
        probabilities = (scores - partition[chain]).exp()
        for place in range(length):
            for tag in range(TAGS):
                exact = sum(float(p) for p, path in zip(probabilities, paths, strict=True) if path[place] == tag)
                assert float(marginals[begin + place, tag]) == pytest.approx(exact, abs=1e-12)
        begin += length
    gold = torch.tensor([0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1])[: sum(LENGTHS)]
    found = path_scores(emissions, gold, potentials, chains)
    begin = 0
    for chain, length in enumerate(LENGTHS):
        path = tuple(gold[begin : begin + length].tolist())
        assert float(found[chain]) == pytest.approx(score(emissions[begin : begin + length], potentials, chain, path))
        begin += length


def test_the_gradient_of_the_partition_is_the_marginals() -> None:
    """∂ log Z / ∂ e_t[y] = p(y_t = y): also where a tag is forbidden, and where its exponential vanishes."""
    emissions, potentials, chains = random_chains(0, own_ends=True, forbids=True)
    emissions[4] = torch.tensor([0.0, -2000.0, -1000.0])  # nothing of tag 2 is left after it
    emissions.requires_grad_()
    transitions = potentials.transitions.clone().requires_grad_()
    potentials = potentials._replace(transitions=transitions)
    log_partition(emissions, potentials, chains).sum().backward()
    assert emissions.grad is not None and transitions.grad is not None
    with torch.no_grad():
        marginals = compute_beliefs(emissions, potentials, chains).marginals(chains)
    assert torch.allclose(emissions.grad, marginals, atol=1e-10)
    assert transitions.grad.isfinite().all() and float(transitions.grad[0, 2]) == 0.0
    # every step of a chain takes one transition
    assert float(transitions.grad.sum()) == pytest.approx(sum(max(length - 1, 0) for length in LENGTHS))


@pytest.mark.parametrize("scale", [1, 5, 200, 1e6])
def test_gradients_of_the_loss_are_numbers_in_single_precision(scale: float) -> None:
    """However sure a model becomes, and however wrong."""
    emissions, potentials, chains = random_chains(1, own_ends=False, forbids=True)
    emissions = (emissions * scale).float().requires_grad_()
    start, transitions, end = (part.float().requires_grad_() for part in potentials)
    potentials = Potentials(start, transitions, end)
    for tags in (viterbi(emissions, potentials, chains), torch.zeros(len(emissions), dtype=torch.int64)):
        loss = (log_partition(emissions, potentials, chains) - path_scores(emissions, tags, potentials, chains)).sum()
        loss.backward()
        assert loss.item() > -1e-3 and (loss.isfinite())
        for part in (emissions, start, transitions, end):
            assert part.grad is not None and part.grad.isfinite().all()


def test_single_precision_is_enough_for_a_row() -> None:
    emissions, potentials, _ = random_chains(1, own_ends=False, forbids=True)
    chains, emissions = Chains([512]), emissions.repeat(32, 1)[:512] * 5
    exact = log_partition(emissions, potentials, chains)
    single = log_partition(emissions.float(), Potentials(*(part.float() for part in potentials)), chains)
    assert single.item() == pytest.approx(exact.item(), rel=1e-5)


def test_chains_are_walked_together_longest_first() -> None:
    chains = Chains([4, 2, 3])
    assert chains.alive == [3, 3, 2, 1]
    assert chains.places.tolist() == [0, 6, 4, 1, 7, 5, 2, 8, 3]


@pytest.mark.parametrize(("own_ends", "forbids"), [(False, True), (True, False), (True, True)])
def test_long_chains_are_walked_in_blocks_to_the_same_end(
    monkeypatch: pytest.MonkeyPatch, own_ends: bool, forbids: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = [37, 0, 8, 4, 1, 9, 100]
    emissions = torch.randn(sum(lengths), TAGS, generator=generator, dtype=torch.float64) * 3
    _, potentials, _ = random_chains(0, own_ends, forbids)
    chains = Chains(lengths)
    plain = compute_beliefs(emissions, potentials, chains)
    path = viterbi(emissions, potentials, chains)
    monkeypatch.setattr("qkv.nn.crf._BLOCK", 4)
    monkeypatch.setattr("qkv.nn.crf._LONG", 10)
    blocks = compute_beliefs(emissions, potentials, chains)
    for one, other in zip(plain, blocks, strict=True):
        assert torch.allclose(one, other)
    assert torch.equal(path, viterbi(emissions, potentials, chains))


def test_nothing_at_all() -> None:
    emissions, potentials = torch.zeros(0, 2), Potentials(torch.zeros(2), torch.zeros(2, 2), torch.zeros(2))
    chains = Chains([0, 0])
    assert viterbi(emissions, potentials, chains).tolist() == []
    assert log_partition(emissions, potentials, chains).tolist() == [0.0, 0.0]
    assert path_scores(emissions, torch.zeros(0, dtype=torch.int64), potentials, chains).tolist() == [0.0, 0.0]
    assert compute_beliefs(emissions, potentials, chains).marginals(chains).shape == (0, 2)


def test_a_temperature_flattens() -> None:
    emissions, potentials, chains = random_chains(2, own_ends=False, forbids=True)
    sharp = compute_beliefs(emissions / 0.5, potentials.over(0.5), chains).marginals(chains)
    flat = compute_beliefs(emissions / 50, potentials.over(50), chains).marginals(chains)
    assert sharp.amax(1).mean() > flat.amax(1).mean()
    assert torch.equal(viterbi(emissions / 50, potentials.over(50), chains), viterbi(emissions, potentials, chains))
