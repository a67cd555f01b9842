"""The loss of a translation: smoothing on paper, sums over parts, every weight gets its gradient."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from qkv.data.pairs.batching import NEXT, PairBatch
from qkv.errors import InputError
from qkv.models.seq2seq.network import Seq2Seq, Seq2SeqConfig
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.models.transformer.objective import TranslationObjective, evaluate_translation, losses, translation_flops

BATCH = PairBatch.of([[5, 6, 3], [7, 3]], [[6, 5], [8, 9, 5]], begin=2, end=3)


def networks() -> list[Transformer | Seq2Seq]:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "width": 8,
        "heads": 2,
        "inner_width": 16,
        "dropout": 0.0,
    }
    return [
        Transformer(TransformerConfig(10, **sizes)),
        Transformer(TransformerConfig(10, source_vocabulary_size=12, **sizes)),
        Seq2Seq(Seq2SeqConfig(10, width=8, cell_width=8, dropout=0.0)),
        Seq2Seq(Seq2SeqConfig(10, width=8, cell_width=8, dropout=0.0, context="fixed")),
    ]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_smoothing_is_torchs(smoothing: float) -> None:
    torch.manual_seed(1)
    x, table, bias = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((6, 4), (9, 4), (9,)))
    labels = torch.randint(9, (6,))
    smoothed, plain, right = losses(x, table, bias, labels, smoothing)
    logits = functional.linear(x, table, bias)
    expected = functional.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
    # the fused loss is counted in 32 bits
    torch.testing.assert_close(smoothed.float(), expected.float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(plain.float(), functional.cross_entropy(logits, labels, reduction="sum").float())
    assert int(right) == int((logits.argmax(-1) == labels).sum())
    ours = torch.autograd.grad(smoothed, (x, table, bias), retain_graph=True)
    for one, other in zip(ours, torch.autograd.grad(expected, (x, table, bias)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", range(4))
def test_every_weight_learns_from_the_smoothed_loss_alone(number: int) -> None:
    network, objective = networks()[number], TranslationObjective(0.1)
    terms = objective.terms(network, BATCH)
    assert objective.counts(BATCH) == {"next": 7, "plain": 7}
    assert terms["next"].loss > 0 and not terms["plain"].loss.requires_grad
    terms["next"].loss.backward()
    assert [name for name, weight in network.named_parameters() if weight.grad is None] == []


@pytest.mark.parametrize("number", range(4))
def test_the_loss_is_that_of_the_logits(number: int) -> None:
    network = networks()[number].eval()
    source, target = BATCH.source, BATCH.target
    with torch.no_grad():
        hidden = network(source.ids, source.packing, target.ids, target.packing)
        expected = functional.cross_entropy(network.scores(hidden), target.labels[NEXT])
        loss, right, count = evaluate_translation(network, [BATCH, BATCH])
    assert loss == pytest.approx(float(expected), rel=1e-5) and count == 14 and 0 <= right <= 14
    assert translation_flops(network)(BATCH) > 6 * 7 * 10 * 8


def test_a_step_of_two_batches_is_one() -> None:
    network, objective = networks()[0].eval(), TranslationObjective(0.1)
    parts = [
        PairBatch.of([[5, 6, 3]], [[6, 5]], begin=2, end=3),
        PairBatch.of([[7, 3]], [[8, 9, 5]], begin=2, end=3),
    ]
    apart = sum(float(objective.terms(network, part)["next"].loss.detach()) for part in parts)
    assert apart == pytest.approx(float(objective.terms(network, BATCH)["next"].loss.detach()), rel=1e-5)


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="smoothing is a share"):
        TranslationObjective(1.0)
    with pytest.raises(AssertionError):
        TranslationObjective().terms(nn.Linear(2, 2), BATCH)
