from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.nn import functional

from qkv.data.batch import Batch
from qkv.data.corpus.rows import StreamBatches, TextConfig, WindowBatches
from qkv.models.nnlm.network import NNLM, NNLMConfig
from qkv.models.nnlm.pretrain import Carrying, NextToken, evaluate_next_token, next_token_flops
from qkv.models.rnnlm.network import RNNLM, RNNLMConfig
from tests.support.corpus import Ids, MemoryCorpus

pytestmark = pytest.mark.usefixtures("one_thread")


def recurrent(cell: str = "lstm") -> RNNLM:
    torch.manual_seed(0)
    return RNNLM(RNNLMConfig(50, cell, 2, 8, dropout=0.0))


def streams(rows: int = 3, length: int = 6, **how: Any) -> StreamBatches:
    return StreamBatches(MemoryCorpus(), Ids(), TextConfig(length), rows=rows, **how)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_carried_over_steps_as_read_in_one(cell: str) -> None:
    """A stream in pieces, with documents that end in the middle, gives what each document gives read by itself."""
    network, batches = recurrent(cell), streams(rows=2, length=6)
    model = Carrying(network, 2)
    pieces: dict[int, list[tuple[list[int], torch.Tensor]]] = {0: [], 1: []}
    steps = 12
    for step in range(steps):
        (batch,) = batches(step)
        hidden = model(batch)
        for row, (ids, vectors) in enumerate(zip(batch.rows(batch.ids), batch.rows(hidden), strict=True)):
            pieces[int(batch.examples[row])].append((ids.tolist(), vectors))
    documents = 0
    for found in pieces.values():
        tokens = [token for part, _ in found for token in part]
        vectors = torch.cat([part for _, part in found])
        starts = [0, *(place for place, token in enumerate(tokens) if place and token == Ids().cls_id)]
        for begin, end in pairwise([*starts, len(tokens)]):
            alone, _ = network(torch.tensor(tokens[begin:end]), (end - begin,))
            torch.testing.assert_close(vectors[begin:end], alone)
        documents += len(starts)
    assert documents > 2 and any(len(found) > steps for found in pieces.values())


def test_the_gradient_ends_with_the_piece_and_the_state_does_not() -> None:
    model, batches = Carrying(recurrent(), 3), streams()
    objective = NextToken()
    objective.terms(model, batches(0)[0])["next"].loss.backward()
    carried = [part.clone() for part in model.carried]
    assert all(bool(part.any()) and not part.requires_grad for part in carried)
    objective.terms(model, batches(1)[0])["next"].loss.backward()  # would fail if it reached into the first graph
    assert not model.carried[0].equal(carried[0])
    assert set(dict(model.named_buffers())) == {f"carried_{number}" for number in range(4)}
    model.forget()
    assert not any(bool(part.any()) for part in model.carried)


def test_accumulated_batches_carry_their_own_streams() -> None:
    one, parts = Carrying(recurrent(), 4), Carrying(recurrent(), 4)
    batches = streams(rows=4)
    for step in range(3):
        one(batches(step)[0])
        for batch in batches.resized(2, 2)(step):
            parts(batch)
    for ours, theirs in zip(parts.carried, one.carried, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_state_that_is_no_number_does_not_reach_the_next_document() -> None:
    model, (batch,) = Carrying(recurrent(), 3), streams()(0)
    for part in model.carried:
        part.fill_(torch.nan)
    assert not batch.labels["continues"].any()
    assert bool(model(batch).isfinite().all())


def test_the_loss_is_the_cross_entropy_of_what_comes_next() -> None:
    network, (batch,) = recurrent(), streams()(0)
    term = NextToken().terms(Carrying(network, 3), batch)["next"]
    hidden, _ = network(batch.ids, batch.lengths)
    logits = network.predict(hidden)[batch.labels["scored_at"]]
    torch.testing.assert_close(term.loss, functional.cross_entropy(logits, batch.labels["next"], reduction="sum"))
    assert int(term.correct) == int((logits.argmax(-1) == batch.labels["next"]).sum())
    assert NextToken().counts(batch) == {"next": len(logits)}


def test_evaluated() -> None:
    network, batches = recurrent(), streams()
    loss, right, count = evaluate_next_token(Carrying(network, 3).eval(), (batches(step)[0] for step in range(4)))
    assert 3.5 < loss < 4.3 and 0 <= right <= count and 60 < count <= 72


def test_a_pattern_is_learned() -> None:
    """Every document of this corpus has words of its own, next to each other: far better than their frequencies."""
    for model, batches in (
        (Carrying(recurrent(), 8), streams(rows=8, length=10)),
        (NNLM(NNLMConfig(50, 3, 8, 16)), WindowBatches(MemoryCorpus(), Ids(), TextConfig(10), rows=8, seen=2)),
    ):
        optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.05), []
        for step in range(60):
            batch: Batch = batches(step)[0]
            term = NextToken().terms(model, batch)["next"]
            loss = term.loss / NextToken().counts(batch)["next"]
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        assert sum(losses[-5:]) / 5 < 3.0 < 3.5 < losses[0]


def test_flops() -> None:
    (batch,) = streams()(0)
    network = recurrent()
    layer = 4 * 8 * (8 + 8)
    assert next_token_flops(network, batch) == 6 * (2 * layer * 18 + 50 * 8 * batch.labels["next"].numel())
    model = NNLM(NNLMConfig(50, 3, 8, 16, direct=True))
    assert next_token_flops(model, batch) == 6 * (24 * 16 * 18 + 50 * (16 + 24) * batch.labels["next"].numel())
