from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.nn import functional

from qkv.data.corpus.rows import TextConfig
from qkv.models.elmo.network import Elmo, ElmoConfig
from qkv.models.elmo.objective import (
    BothDirections,
    CarryingBoth,
    TrainingFlops,
    TwoWayBatches,
    Unigram,
    evaluate_both_directions,
)
from qkv.nn.recurrent_stack import DIRECTIONS
from tests.support.corpus import Ids, MemoryCorpus

pytestmark = pytest.mark.usefixtures("one_thread")


def network(width: int = 6, cell_width: int = 10) -> Elmo:
    torch.manual_seed(0)
    config = ElmoConfig(50, (4, 4, 4), width=width, cell_width=cell_width, dropout=0.0)
    return Elmo(config, [f"w{n}" for n in range(50)])


def streams(rows: int = 3, length: int = 6, **how: Any) -> TwoWayBatches:
    return TwoWayBatches(MemoryCorpus(), Ids(), TextConfig(length), rows=rows, **how)


def documents(tokens: list[int]) -> list[list[int]]:
    starts = [0, *(place for place, token in enumerate(tokens) if place and token == Ids().cls_id)]
    return [tokens[begin:end] for begin, end in pairwise([*starts, len(tokens)])]


def test_both_directions_come_by_the_same_text() -> None:
    """All documents of an epoch but what does not fill a step, from either end."""
    batches = streams(rows=2)
    seen = {direction: Counter[int]() for direction in DIRECTIONS}
    for step in range(batches.steps_per_epoch):
        (both,) = batches.two_ways(step)
        for direction in DIRECTIONS:
            seen[direction].update(both.of(direction).ids.tolist())
    left_over = batches.text.n_tokens - seen["forward"].total()
    assert seen["forward"].total() == seen["backward"].total() and left_over <= 2 * (6 + 1)
    assert (seen["forward"] - seen["backward"]).total() <= left_over


def test_targets_are_the_neighbours_in_the_text() -> None:
    batches = streams(rows=1, length=10, shuffle=False)
    text = batches.text.ids(torch.arange(batches.text.n_tokens).numpy()).tolist()
    (both,) = batches.two_ways(0)
    assert both.forward.ids.tolist() == text[:10] and both.n_tokens == 10
    assert sorted(both.backward.ids.tolist()) == sorted(text[-10:])
    last = documents(text)[-1]
    row = both.backward.rows(both.backward.ids)[0].tolist()  # of the last document, in the order of the text
    assert row == last[-len(row) :] and row[-1] == Ids().sep_id
    for step in range(batches.steps_per_epoch):
        (both,) = batches.two_ways(step)
        for direction, way in (("forward", 1), ("backward", -1)):
            batch = both.of(direction)
            assert batch.ids.equal(both.forward.labels["words"][batch.labels["word"]])
            for place, target in zip(batch.labels["scored_at"].tolist(), batch.labels["next"].tolist(), strict=True):
                beside, whose = place + way, batch.row_of_token
                if 0 <= beside < batch.n_tokens and whose[beside] == whose[place]:
                    assert int(batch.ids[beside]) == target


def test_carried_over_steps_as_read_in_one() -> None:
    """Each stream in pieces, with documents that end in the middle, gives what each document gives read by itself."""
    elmo, batches = network().eval(), streams(rows=2)
    model, steps, compared = CarryingBoth(elmo, 2), 12, 0
    found: dict[tuple[str, int], list[tuple[list[int], torch.Tensor]]] = {}
    for step in range(steps):
        (both,) = batches.two_ways(step)
        for direction, hidden in model(both).items():
            batch = both.of(direction)
            for row, (ids, vectors) in enumerate(zip(batch.rows(batch.ids), batch.rows(hidden), strict=True)):
                pieces = found.setdefault((direction, int(batch.examples[row])), [])
                pieces.append((ids.tolist(), vectors)) if direction == "forward" else pieces.insert(
                    0, (ids.tolist(), vectors)
                )
    for (direction, _), pieces in found.items():
        tokens, vectors = [token for ids, _ in pieces for token in ids], torch.cat([part for _, part in pieces])
        begin = 0
        for document in documents(tokens):
            layers, _ = elmo.read(direction, elmo.spell(torch.tensor(document)), (len(document),))
            torch.testing.assert_close(vectors[begin : begin + len(document)], layers[-1])
            begin, compared = begin + len(document), compared + 1
    assert compared > 4


def test_the_losses_are_cross_entropies_and_the_gradient_ends_with_the_piece() -> None:
    elmo, batches, objective = network(), streams(), BothDirections()
    model = CarryingBoth(elmo, 3)
    (both,) = batches.two_ways(0)
    terms = objective.terms(model, both)
    assert objective.counts(both) == {
        name: len(both.of(way).labels["next"]) for name, way in (("next", "forward"), ("previous", "backward"))
    }
    for name, direction in (("next", "forward"), ("previous", "backward")):
        batch = both.of(direction)
        layers, _ = elmo.read(direction, elmo.spell(batch.ids), batch.lengths)
        hidden, table, bias = elmo.before_words(layers[-1][batch.labels["scored_at"]])
        scores = functional.linear(hidden, table, bias)
        torch.testing.assert_close(
            terms[name].loss, functional.cross_entropy(scores, batch.labels["next"], reduction="sum")
        )
        assert int(terms[name].correct) == int((scores.argmax(-1) == batch.labels["next"]).sum())
    torch.stack([term.loss for term in terms.values()]).sum().backward()
    assert all(parameter.grad is not None for parameter in elmo.parameters())
    carried = [part.clone() for way in DIRECTIONS for part in model.carried(way)]
    assert len(carried) == 8 and all(bool(part.any()) and not part.requires_grad for part in carried)
    objective.terms(model, batches.two_ways(1)[0])["previous"].loss.backward()  # would fail if it reached further back
    model.forget()
    assert not any(bool(part.any()) for way in DIRECTIONS for part in model.carried(way))


def test_a_state_that_is_no_number_does_not_reach_another_document() -> None:
    model, (both,) = CarryingBoth(network(), 3), streams().two_ways(0)
    for way in DIRECTIONS:
        for part in model.carried(way):
            part.fill_(torch.nan)
    assert all(bool(hidden.isfinite().all()) for hidden in model(both).values())


def test_accumulated_batches_carry_their_own_streams() -> None:
    one, parts = CarryingBoth(network(), 4), CarryingBoth(network(), 4)
    batches = streams(rows=4)
    for step in range(3):
        one(batches.two_ways(step)[0])
        for both in batches.resized(2, 2).two_ways(step):
            parts(both)
    for way in DIRECTIONS:
        for ours, theirs in zip(parts.carried(way), one.carried(way), strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("drawn", [None, 30])
def test_a_pattern_is_learned(drawn: int | None) -> None:
    """Also from some words at a time; what is evaluated is always among all words."""
    model, batches = CarryingBoth(network(width=12, cell_width=24), 8), streams(rows=8, length=10)
    counts = torch.bincount(torch.from_numpy(MemoryCorpus().flat), minlength=50)
    objective = BothDirections(None if drawn is None else Unigram(counts, drawn))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    held = [batches.two_ways(step)[0] for step in range(4)]
    before = evaluate_both_directions(CarryingBoth(model.network, 8).eval(), held)
    model.train()
    for step in range(50):
        (both,) = batches.two_ways(step)
        torch.manual_seed(step)
        torch.stack([term.loss for term in objective.terms(model, both).values()]).sum().div(both.n_tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
    after = evaluate_both_directions(CarryingBoth(model.network, 8).eval(), held)
    for name in ("next", "previous"):
        assert after[name].loss < 3.4 < 3.7 < before[name].loss and after[name].right > before[name].right
        assert after[name].scored == before[name].scored > 200


def test_flops() -> None:
    elmo, (both,) = network(), streams().two_ways(0)
    words = both.forward.labels["words"]
    spelled = int((elmo.spelled[words] != 256).sum())
    layer = 4 * 10 * (6 + 6) + 10 * 6
    expected = 16 * 4 * (1 + 2 + 3) * spelled + (2 * 12 * 12 + 12 * 6) * len(words)
    for way in DIRECTIONS:
        expected += 2 * layer * 18 + 20 * 6 * both.of(way).labels["next"].numel()
    assert TrainingFlops(elmo, 20)(both) == 6 * expected


def test_words_come_by_length_where_it_is_known() -> None:
    """And the losses are those of words that do not."""
    elmo = network()
    sizes = elmo.sizes().numpy()
    assert sizes[:12].tolist() == [4] * 10 + [5] * 2  # "w0", …, "w10" between their marks
    plain, sorted_ = (CarryingBoth(elmo, 3).eval() for _ in range(2))
    for step in range(3):
        (one,), (other,) = streams().two_ways(step), streams(sizes=sizes).two_ways(step)
        words = other.forward.labels["words"]
        assert sizes[words].tolist() == sorted(sizes[words]) and sum(count for count, _ in other.groups) == len(words)
        assert one.groups == () and one.forward.labels["words"].tolist() == sorted(words.tolist())
        for direction in DIRECTIONS:
            assert other.of(direction).ids.equal(words[other.of(direction).labels["word"]])
        first, second = (BothDirections().terms(model, both) for model, both in ((plain, one), (sorted_, other)))
        for name in ("next", "previous"):
            torch.testing.assert_close(first[name].loss, second[name].loss)
