"""BERT's two tasks on one batch."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from qkv.data.corpus.rows import IS_NEXT, NOT_NEXT, Instances, PairConfig
from qkv.errors import InputError
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.bert.objective import (
    KEPT,
    MASK,
    MaskedAndNextSentence,
    MaskingConfig,
    PretrainingBatches,
    evaluate_pretraining,
    model_flops,
    pretraining_flops,
)
from qkv.nn.gpu.layers import word_loss
from tests.support.corpus import Ids, MemoryCorpus

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIG = BertConfig(vocabulary_size=50, layers=2, width=32, heads=4, inner_width=64, max_length=32)


def batches(**options: int) -> PretrainingBatches:
    return PretrainingBatches(
        MemoryCorpus(), Ids(), PairConfig("document", 32), MaskingConfig(), **({"rows": 8} | options)
    )


def test_a_row_as_the_paper_draws_it() -> None:
    """[CLS] A [SEP] B [SEP], segments 0 and 1, positions from 0, each token where the corpus has it."""
    build = batches()
    rows = Instances(*(np.array(column) for column in ([10, 30], [4, 6], [14, 70], [3, 2], [IS_NEXT, NOT_NEXT])))
    batch, masked = build.packed(rows, np.random.default_rng(0))
    original = batch.ids.clone()
    original[batch.labels["masked_at"]] = batch.labels["masked"]
    assert isinstance(build.corpus, MemoryCorpus)
    flat = build.corpus.flat
    assert original.tolist() == [2, *flat[10:14], 3, *flat[14:17], 3, 2, *flat[30:36], 3, *flat[70:72], 3]
    assert batch.segments.tolist() == [0] * 6 + [1] * 4 + [0] * 8 + [1] * 3
    assert batch.positions.tolist() == [*range(10), *range(11)]
    assert batch.labels["next_sentence"].tolist() == [IS_NEXT, NOT_NEXT]
    assert masked.chosen.tolist() == batch.labels["masked_at"].tolist()


def test_one_long_span_without_pairs() -> None:
    build = PretrainingBatches(MemoryCorpus(), Ids(), PairConfig("none", 32), MaskingConfig(), rows=4)
    batch = build(0)[0]
    assert "next_sentence" not in batch.labels
    assert batch.segments.sum() == 0
    assert all(row[0] == 2 and row[-1] == 3 and (row[1:-1] != 3).all() for row in batch.rows(batch.ids))


def test_batches_are_a_function_of_the_step() -> None:
    one, other = batches(seed=3), batches(seed=3)
    last = one.steps_per_epoch * 2 + 1
    for step in (last, 0, 5, last):  # any order
        for a, b in zip(one(step), other(step), strict=True):
            assert torch.equal(a.ids, b.ids)
            assert all(torch.equal(a.labels[name], b.labels[name]) for name in a.labels)
    assert not torch.equal(one(0)[0].ids, batches(seed=4)(0)[0].ids)


def test_masks_are_drawn_anew_every_epoch() -> None:
    build = batches()
    epochs = [torch.cat([b.ids for b in build(step)]) for step in (0, build.steps_per_epoch)]
    assert epochs[0].shape != epochs[1].shape or not torch.equal(*epochs)


def test_rows_come_sorted_by_length() -> None:
    for step in range(3):
        lengths = batches()(step)[0].lengths
        assert list(lengths) == sorted(lengths)


def test_accumulation_splits_the_same_rows() -> None:
    whole, parts = batches(rows=8), batches(rows=4, accumulate=2)
    assert whole.steps_per_epoch == parts.steps_per_epoch
    assert len(parts(0)) == 2
    assert sum(b.n_rows for b in parts(0)) == whole(0)[0].n_rows


def test_loss_is_the_mean_over_chosen_tokens_and_rows() -> None:
    model = BertWithHeads(CONFIG, ["masked", "next_sentence"]).eval()
    batch = batches()(0)[0]
    terms = MaskedAndNextSentence().terms(model, batch)
    _, logits = model(**batch.inputs())
    at, targets = batch.labels["masked_at"], batch.labels["masked"]
    assert terms["masked"].loss.item() == pytest.approx(
        functional.cross_entropy(logits["masked"][at], targets, reduction="sum").item(), rel=1e-5
    )
    assert terms["next_sentence"].loss.item() == pytest.approx(
        functional.cross_entropy(logits["next_sentence"], batch.labels["next_sentence"], reduction="sum").item(),
        rel=1e-5,
    )
    assert terms["masked"].correct == (logits["masked"][at].argmax(-1) == targets).sum()
    assert MaskedAndNextSentence(next_sentence=False).counts(batch) == {"masked": len(targets)}


def test_untrained_loss_is_that_of_guessing() -> None:
    model = BertWithHeads(CONFIG, ["masked", "next_sentence"]).eval()
    results = evaluate_pretraining(model, MaskedAndNextSentence(), batches()(0) + batches()(1))
    assert results["masked"][0] == pytest.approx(np.log(50), rel=0.05)
    assert results["next_sentence"][0] == pytest.approx(np.log(2), rel=0.2)


def test_every_parameter_gets_a_gradient() -> None:
    model = BertWithHeads(CONFIG, ["masked", "next_sentence"]).train()
    terms = MaskedAndNextSentence().terms(model, batches(rows=16)(0)[0])
    (terms["masked"].loss + terms["next_sentence"].loss).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_flops_count_the_products() -> None:
    model = BertWithHeads(CONFIG, ["masked", "next_sentence"])
    batch = batches()(0)[0]

    def counted(only: Tensor | None) -> int:
        with FlopCounterMode(display=False) as counter:
            hidden = model.encoder(**batch.inputs(), only=only).hidden
            hidden = hidden if only is not None else hidden[batch.labels["masked_at"]]
            word_loss(*model.before_words(hidden), batch.labels["masked"])[0].backward()
        return counter.get_total_flops()

    assert pretraining_flops(model, batch) == pytest.approx(counted(batch.labels["masked_at"]), rel=0.1)
    assert model_flops(model, batch) == pytest.approx(counted(None), rel=0.1)


def test_another_corpus_has_epochs_of_its_own() -> None:
    build = batches()
    other = build.over(MemoryCorpus(documents=12, seed=7))
    assert other.steps_per_epoch < build.steps_per_epoch
    rows, order = other.epoch(0)
    assert len(order) == len(rows) < len(build.epoch(0)[0])
    assert sorted(order.tolist()) == list(range(len(rows)))
    assert build.epoch(0) is build.epoch(0), "drawn once"


def test_a_corpus_smaller_than_a_step_is_refused() -> None:
    with pytest.raises(InputError, match="a step takes 100000"):
        batches(rows=100_000)


def test_treatments_reach_the_batch() -> None:
    build = batches(rows=64)
    drawn, order = build.epoch(0)
    batch, masked = build.packed(drawn.take(order[:64]), np.random.default_rng(0))
    now = batch.ids[batch.labels["masked_at"]].numpy()
    assert (now[masked.treatment == MASK] == 4).all()
    assert (now[masked.treatment == KEPT] == masked.targets[masked.treatment == KEPT]).all()
