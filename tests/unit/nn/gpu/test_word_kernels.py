"""The loss of words and their embedding on kernels, through the functions of fast.py, against torch's own."""

import math

import pytest
import torch
from torch.nn import functional

pytest.importorskip("triton", reason="Triton is a part of torch for GPUs, and of the extra dev elsewhere")

from qkv.data.batch import Batch
from qkv.nn.gpu import layers
from qkv.nn.gpu.kernels import cross_entropy_forward
from tests.unit.nn.gpu.test_fast import DEVICE, drawn, gradients, leaves, same


@pytest.mark.parametrize("words", [5, 64, 130])
def test_linear_cross_entropy(words: int) -> None:
    targets = torch.arange(9, device=DEVICE) % words
    ours, plain = (leaves(drawn(9, 12), drawn(words, 12), drawn(words)) for _ in range(2))
    loss, right = layers.linear_cross_entropy(ours[0], ours[1], ours[2], targets)
    logits = functional.linear(*plain)
    expected = functional.cross_entropy(logits, targets, reduction="sum")
    same(loss, expected)
    assert int(right) == int((logits.argmax(-1) == targets).sum())
    for found, wanted in zip(
        torch.autograd.grad(loss / 7, ours), torch.autograd.grad(expected / 7, plain), strict=True
    ):
        same(found, wanted)


@pytest.mark.parametrize("smoothing", [0.1, 0.7])
@pytest.mark.parametrize("words", [5, 64, 130])
def test_smoothed_cross_entropy(words: int, smoothing: float) -> None:
    targets = torch.arange(9, device=DEVICE) % words
    targets[4] = -100
    ours, plain = (leaves(drawn(9, 12), drawn(words, 12), drawn(words)) for _ in range(2))
    loss, without, right = layers.smoothed_cross_entropy(ours[0], ours[1], ours[2], targets, smoothing)
    logits = functional.linear(*plain)
    expected = functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    same(loss, expected)
    same(without, functional.cross_entropy(logits, targets, reduction="sum"))
    assert not without.requires_grad
    assert int(right) == int((logits.argmax(-1) == targets).sum())
    for found, wanted in zip(
        torch.autograd.grad(loss / 7, ours), torch.autograd.grad(expected / 7, plain), strict=True
    ):
        same(found, wanted)


def test_what_is_not_scored_and_what_is_no_word() -> None:
    ours, plain = (leaves(drawn(3, 4), drawn(5, 4), drawn(5)) for _ in range(2))
    targets = torch.tensor([1, -100, 4], device=DEVICE)
    loss, _ = layers.linear_cross_entropy(ours[0], ours[1], ours[2], targets)
    expected = functional.cross_entropy(functional.linear(plain[0], plain[1], plain[2]), targets, reduction="sum")
    same(loss, expected)
    for found, wanted in zip(torch.autograd.grad(loss, ours), torch.autograd.grad(expected, plain), strict=True):
        same(found, wanted)
    wrong = torch.tensor([1, 5, 4], device=DEVICE)
    assert layers.linear_cross_entropy(ours[0], ours[1], ours[2], wrong)[0].isnan()


def test_a_word_that_is_ruled_out_costs_nothing() -> None:
    """With a score of −inf, as long as the labels are not smoothed: then all words have their share."""
    ours, plain = (leaves(drawn(3, 4), drawn(5, 4), drawn(5)) for _ in range(2))
    for _, _, bias in (ours, plain):
        bias.data[2] = -math.inf
    targets = torch.tensor([1, 0, 4], device=DEVICE)
    loss, right = layers.linear_cross_entropy(ours[0], ours[1], ours[2], targets)
    logits = functional.linear(*plain)
    expected = functional.cross_entropy(logits, targets, reduction="sum")
    assert expected.isfinite()
    same(loss, expected)
    assert int(right) == int((logits.argmax(-1) == targets).sum())
    for found, wanted in zip(torch.autograd.grad(loss, ours), torch.autograd.grad(expected, plain), strict=True):
        same(found, wanted)
    assert layers.smoothed_cross_entropy(ours[0], ours[1], ours[2], targets, 0.1)[0] == math.inf


@pytest.mark.parametrize("rows", [1, 6, 8, 9])
def test_what_is_kept_by_row_lies_where_launches_are_quick(rows: int) -> None:
    """launch.py knows kernels by addresses that are multiples of 16 bytes."""
    found = cross_entropy_forward(drawn(rows, 64), torch.zeros(rows, dtype=torch.long, device=DEVICE), 50)
    assert all(one.shape == (rows,) and one.is_contiguous() and one.data_ptr() % 16 == 0 for one in found)


def test_what_is_in_no_table_is_no_number() -> None:
    tables = (drawn(10, 20), drawn(2, 20), drawn(6, 20))
    ids, segments, positions = (torch.tensor(one, device=DEVICE) for one in ([1, 10, 3], [0, 1, 0], [0, 1, 6]))
    assert layers.embed_inputs(ids, segments, positions, tables).isnan().all(1).tolist() == [False, True, True]


def test_of_equal_scores_the_first_is_the_prediction() -> None:
    table = torch.ones(3, 4, device=DEVICE)
    x, bias = torch.ones(2, 4, device=DEVICE), torch.zeros(3, device=DEVICE)
    assert int(layers.linear_cross_entropy(x, table, bias, torch.tensor([0, 1], device=DEVICE))[1]) == 1


def test_scores_are_gone_after_one_way_back() -> None:
    ours = leaves(drawn(2, 4), drawn(3, 4), drawn(3))
    loss, _ = layers.linear_cross_entropy(ours[0], ours[1], ours[2], torch.tensor([0, 1], device=DEVICE))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="single backward pass"):
        loss.backward()


def test_embed() -> None:
    tables, plain = (leaves(drawn(10, 20), drawn(2, 20), drawn(6, 20)) for _ in range(2))
    batch = Batch.of([[1, 9, 9, 3], [9, 2, 0, 1, 1, 5]], segments=[[0, 0, 1, 1], [0] * 6]).to(DEVICE)
    places = (batch.ids, batch.segments, batch.positions)
    out = layers.embed_inputs(*places, (tables[0], tables[1], tables[2]))
    expected = sum((table[at] for table, at in zip(plain, places, strict=True)), torch.zeros((), device=DEVICE))
    same(out, expected)
    for found, wanted in zip(gradients(out, tables), gradients(expected, plain), strict=True):
        same(found, wanted)
