"""Objectives of sentence vectors: worked examples, chunks that are recomputed, batches as functions of the step."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from qkv.data.pairs.groups import GroupFile, TextGroup, make_table
from qkv.tasks.embed import (
    EmbedBatch,
    EmbedBatches,
    EmbedObjective,
    GroupSource,
    SentenceEncoder,
    comparable,
    contrast,
    make_source,
    rank_cosines,
    relate,
    retrieval_ranks,
    score_vectors,
    share_steps,
)
from tests.support.folders import make_model, make_tokenizer

WORDS = "the cat dog sat on mat he owes me money paris street 我 你 他 爱 吃 鱼 猫 狗 北 京 上 海".split()


def text(number: int, length: int = 4) -> str:
    return " ".join(np.random.default_rng(number).choice(WORDS, length))


def groups(kind: str, count: int = 24, length: int = 4) -> list[TextGroup]:
    if kind == "texts":
        return [TextGroup(text(number, length)) for number in range(count)]
    negatives = (text(7_000),) if kind == "triplets" else ()
    score = (lambda number: float(number % 5)) if kind == "scores" else (lambda number: None)
    return [
        TextGroup(text(number, length), text(900 + number, length), negatives, score(number)) for number in range(count)
    ]


def source(kind: str = "pairs", max_length: int = 16, **how: Any) -> GroupSource:
    file = GroupFile("a", kind, tuple(groups(kind, **how)), (), "")
    return make_source(make_table(file, make_tokenizer(), max_length), taught=True, width=32)


def batches(*sources: GroupSource, size: int = 8, tokens: int = 10_000, **how: Any) -> EmbedBatches:
    return EmbedBatches(sources, size, tokens, **({"seed": 0, "train_windows": 2} | how))


def encoder(pooling: str = "mean", dropout: float = 0.0) -> SentenceEncoder:
    model = make_model("BertModel", dropout=dropout, attention_dropout=dropout)
    model.encoder.pooler = None
    return SentenceEncoder(model, pooling)


def test_info_nce_on_paper() -> None:
    """Two pairs at right angles: each positive has cosine 1 with its anchor and 0 with the other."""
    unit = torch.eye(2)
    losses, correct = contrast(unit, unit, unit[:0], torch.ones(2, 2, dtype=torch.bool), scale=2.0)
    expected = -torch.log(torch.exp(torch.tensor(2.0)) / (torch.exp(torch.tensor(2.0)) + 1))
    assert torch.allclose(losses, expected.expand(2)) and correct.all()


def test_equal_texts_are_no_negatives() -> None:
    """Masked texts do not change the loss, however near they are; the unmasked ones do."""
    torch.manual_seed(0)
    first, second, others = (functional.normalize(torch.randn(3, 8), dim=-1) for _ in range(3))
    numbers = torch.tensor([0, 0, 1]), torch.tensor([5, 6, 7]), torch.tensor([5, 9])
    allowed = comparable(*numbers)
    assert allowed.tolist() == [[1, 0, 1, 0, 1], [0, 1, 1, 0, 1], [1, 1, 1, 1, 1]]
    losses, _ = contrast(first, second, others[:2], allowed, 20.0)
    logits = 20 * first[0] @ torch.stack([second[0], second[2], others[1]]).T
    back = 20 * second[0] @ torch.stack([first[0], first[2]]).T
    by_hand = (torch.logsumexp(logits, 0) - logits[0] + torch.logsumexp(back, 0) - back[0]) / 2
    assert torch.allclose(losses[0], by_hand, atol=1e-5)


def test_cosent_on_paper() -> None:
    """Scores in any scale: only their order counts; the loss sums over the pairs in the wrong or narrow order."""
    cosines = torch.tensor([0.9, 0.1, 0.5])
    loss, right = rank_cosines(cosines, torch.tensor([5.0, 1.0, 3.0]), 20.0)
    by_hand = torch.log(1 + torch.exp(20 * torch.tensor([0.1 - 0.9, 0.5 - 0.9, 0.1 - 0.5])).sum())
    assert torch.allclose(loss, by_hand) and float(right) == 1.0
    again, _ = rank_cosines(cosines, torch.tensor([1.0, -1.0, 0.2]), 20.0)
    assert torch.equal(loss, again)
    nothing, _ = rank_cosines(cosines, torch.ones(3), 20.0)
    assert float(nothing) == 0.0


def gradient(model: SentenceEncoder, batch: EmbedBatch, objective: EmbedObjective) -> list[Tensor]:
    model.zero_grad()
    torch.manual_seed(3)
    term = next(iter(objective.terms(model, batch).values()))
    term.loss.backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("kind", ["pairs", "triplets", "scores", "texts"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_chunks_give_the_gradient_of_the_whole(kind: str, pooling: str) -> None:
    given, objective = source(kind, length=9), EmbedObjective(widths=(8,))
    if kind == "texts":
        targets = np.random.default_rng(0).normal(size=given.targets.shape).astype(np.float16)
        given = GroupSource(given.table, targets, given.target_of)
    model = encoder(pooling).train()
    whole, chunked = batches(given)(1)[0], batches(given, tokens=40)(1)[0]
    assert len(whole.parts) == 1 and len(chunked.parts) > 2
    assert objective.counts(whole) == objective.counts(chunked)
    found = zip(gradient(model, whole, objective), gradient(model, chunked, objective), strict=True)
    for one, other in found:
        assert torch.allclose(one, other, atol=2e-5, rtol=1e-3)


def test_chunks_are_recomputed_with_the_same_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the same chunks with all activations kept, to the last bit."""
    model, objective = encoder(dropout=0.3).train(), EmbedObjective()
    batch = batches(source(length=9), tokens=40)(1)[0]
    recomputed = gradient(model, batch, objective)
    monkeypatch.setattr("qkv.tasks.embed.checkpoint", lambda run, *given, use_reentrant: run(*given))
    kept = gradient(model, batch, objective)
    assert all(torch.equal(one, other) for one, other in zip(recomputed, kept, strict=True))
    assert not torch.equal(recomputed[0], gradient(encoder().train(), batch, objective)[0])


def test_every_parameter_learns() -> None:
    model = encoder().train()
    found = gradient(model, batches(source())(0)[0], EmbedObjective())
    assert len(found) == len(list(model.parameters()))
    assert all(bool(torch.isfinite(one).all()) for one in found)


def test_long_texts_are_read_in_windows() -> None:
    """The vector of a text in windows is the mean of all its tokens, each counted once, as `qkv embed` gives it."""
    given = source(max_length=12, length=25)
    assert given.table.rows.n_windows.max() == 3
    batch = batches(given, train_windows=9, tokens=60)(0)[0]
    model = encoder().eval()
    with torch.no_grad():
        vectors = model.text_vectors(batch)
    assert vectors.shape == (len(batch.begins), 32)
    rows = torch.cat([model.row_vectors(part) for part in batch.parts])[batch.order]
    windows = torch.diff(batch.begins, append=torch.tensor([len(rows)]))
    text_of = torch.repeat_interleave(torch.arange(len(windows)), windows)
    by_hand = torch.zeros_like(vectors).index_add(0, text_of, rows * batch.shares[:, None])
    assert torch.allclose(vectors, by_hand, atol=1e-6)
    drawn = batches(given, train_windows=2)(0)[0]
    assert len(drawn.order) == 2 * len(drawn.begins)


def test_matryoshka_is_the_weighted_mean_of_prefixes() -> None:
    batch, model = batches(source())(0)[0], encoder().eval()
    with torch.no_grad():
        vectors = model.text_vectors(batch)
    plain = EmbedObjective()
    whole, short = plain.loss(vectors, batch).loss, plain.loss(vectors[:, :8], batch).loss
    both = EmbedObjective(widths=(8,), width_weights=(3.0,)).loss(vectors, batch)
    assert torch.allclose(both.loss, (whole + 3 * short) / 4)


def test_batches_are_a_function_of_seed_and_step() -> None:
    sources = source("pairs", count=50), source("scores", count=10)
    first, again = batches(*sources), batches(*sources)
    steps = [first(step)[0] for step in range(14)]
    for step in (13, 2, 7):
        other = again(step)[0]
        assert torch.equal(other.parts[0].ids, steps[step].parts[0].ids) and other.kind == steps[step].kind
    kinds = [batch.kind for batch in steps[: first.steps_per_epoch]]
    assert kinds.count("pairs") == 6 and kinds.count("scores") == 1
    differs = batches(*sources, seed=1)
    assert any(not torch.equal(differs(step)[0].parts[0].ids, steps[step].parts[0].ids) for step in range(3))
    assert sum(len(batch.anchors) for batch in steps[:7] if batch.kind == "pairs") == 50


def test_sources_are_mixed() -> None:
    assert share_steps([98, 2], 0.0) == [50, 50] and share_steps([1, 1, 1], 0.5) == [1, 1, 1]
    sources = source("pairs", count=80), source("scores", count=8)
    found = [batches(*sources, mix=0.0)(step)[0] for step in range(22)]
    assert [batch.kind for batch in found].count("scores") == 10
    assert len({tuple(sorted(batch.scores.tolist())) for batch in found if batch.kind == "scores"}) == 1  # all eight


def test_both_sides_of_a_translation_learn_the_vector_of_the_first() -> None:
    file = GroupFile("a", "translations", tuple(groups("pairs", 6)), (), "")
    given = make_source(make_table(file, make_tokenizer(), 16), taught=True, width=32)
    targets = np.arange(6 * 32, dtype=np.float16).reshape(6, 32)
    batch = batches(GroupSource(given.table, targets, given.target_of))(0)[0]
    assert batch.kind == "teacher" and len(batch.anchors) == 12
    assert torch.equal(batch.targets[:6], batch.targets[6:])
    assert sorted(batch.targets[:6, 0].tolist()) == targets[:, 0].tolist()


def test_relations_are_a_divergence_of_neighbours() -> None:
    """By hand: three texts, each with two others."""
    aims = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # the first two are a translation
    assert torch.allclose(relate(aims, aims, 5.0), torch.zeros(3))
    turned = aims @ torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    assert torch.allclose(relate(turned, aims, 5.0), torch.zeros(3), atol=1e-6)  # directions do not matter, cosines do
    wrong = aims[[0, 2, 1]]
    near = math.exp(2) / (math.exp(2) + 1)  # with scale 2: cosine 1 beside cosine 0
    apart = near * math.log(near / (1 - near)) + (1 - near) * math.log((1 - near) / near)
    found = relate(wrong, aims, 2.0)
    assert found[0].item() == pytest.approx(apart, rel=1e-5) and (found > 0).all()
    wrong = wrong.clone().requires_grad_()
    (slope,) = torch.autograd.grad(relate(wrong, aims, 2.0).sum(), wrong)
    assert slope.isfinite().all() and slope.abs().sum() > 0


def test_relations_are_added_to_the_cosine_with_the_teacher() -> None:
    file = GroupFile("a", "translations", tuple(groups("pairs", 6)), (), "")
    given = make_source(make_table(file, make_tokenizer(), 16), taught=True, width=32)
    targets = np.random.default_rng(0).normal(size=(6, 32)).astype(np.float16)
    batch = batches(GroupSource(given.table, targets, given.target_of))(0)[0]
    vectors = torch.randn(len(batch.begins), 32, generator=torch.Generator().manual_seed(0))
    plain, related = (EmbedObjective(relations=weight).loss(vectors, batch).loss for weight in (0.0, 0.5))
    unit, aims = (torch.nn.functional.normalize(one, dim=-1) for one in (vectors[batch.anchors], batch.targets))
    assert related.item() == pytest.approx((plain + 0.5 * relate(unit, aims, 20.0).sum()).item(), rel=1e-5)


def test_retrieval_counts_ties_against_the_model() -> None:
    """Vectors that are all the same find nothing."""
    same = np.arange(6)
    unit = np.eye(6, dtype=np.float32)
    unit[3:] = unit[:3]
    assert retrieval_ranks(unit, same, np.arange(3), np.arange(3, 6)).tolist() == [1, 1, 1]
    assert retrieval_ranks(np.ones((6, 2), np.float32), same, np.arange(3), np.arange(3, 6)).tolist() == [3, 3, 3]
    # a query with two right answers, one of them first; equal texts are one candidate
    ranks = retrieval_ranks(unit, np.array([0, 1, 2, 3, 4, 5]), np.array([0, 0, 1]), np.array([4, 3, 4]))
    assert ranks.tolist() == [1, 1]


def test_blocks_of_queries_do_not_change_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    given = unit, np.arange(40), np.arange(20), np.arange(20, 40)
    whole = retrieval_ranks(*given)
    monkeypatch.setattr("qkv.tasks.embed._COSINES", 60)
    assert retrieval_ranks(*given).tolist() == whole.tolist()


def test_the_interval_of_both_directions_counts_a_pair_once() -> None:
    """Ranks that are the same in both directions hold no more than those of one: the interval is no narrower."""
    given = source("pairs", count=200)
    vectors = np.random.default_rng(0).normal(size=(len(given.table.texts), 32)).astype(np.float32)
    mirror = np.where(np.arange(32) < 22, 1, -1).astype(np.float32)  # symmetric: cos(a, mirror b) = cos(mirror a, b)
    vectors[given.table.positives] = vectors[given.table.anchors] * mirror
    found = score_vectors(GroupSource(given.table), vectors, intervals=True)
    assert found.values["mrr"] == pytest.approx(found.values["mrr_forward"], abs=1e-3) and 0.2 < found.value < 0.9
    widths = [high - low for low, high in (found.intervals["mrr"], found.intervals["mrr_forward"])]
    assert widths[0] == pytest.approx(widths[1], rel=0.1)


def test_scores_of_a_set(tmp_path: Path) -> None:
    given = source("pairs", count=12)
    vectors = np.random.default_rng(0).normal(size=(len(given.table.texts), 32)).astype(np.float32)
    vectors[given.table.positives] = vectors[given.table.anchors]
    found = score_vectors(GroupSource(given.table), vectors, intervals=True)
    assert found.main == "mrr" and found.value == 1.0 and found.intervals["accuracy_at_1_back"][1] == 1.0
    assert found.intervals["mrr"] == found.intervals["mrr_back"] == pytest.approx((0.757, 1.0), abs=0.001)
    scored = source("scores", count=12)
    same = score_vectors(GroupSource(scored.table), np.ones((len(scored.table.texts), 4), np.float32))
    assert same.value == 0.0  # and not NaN, which would end a run
    taught = source("texts", count=12)
    vectors = np.ones((len(taught.table.texts), 32), np.float32)
    taught = replace(taught, targets=np.eye(12, 32, dtype=np.float16) + 0.5)
    assert score_vectors(taught, vectors, intervals=True).intervals == {}  # all cosines are the same
    vectors[::2, 0] = 2
    near = score_vectors(taught, vectors, intervals=True)
    low, high = near.intervals["cosine"]
    assert near.main == "cosine" and low <= near.value <= high
