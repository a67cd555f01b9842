"""Encoders without attention: rows do not touch each other, and every kind can stand below a head."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.encoder import WithHeads
from qkv.models.plain.network import READER_KINDS, ReaderConfig, reader

ROWS = [[1, 5, 2], [1, 7, 8, 9, 2], [3], [1, 4, 4, 6, 2, 9, 9]]


def config(kind: str) -> ReaderConfig:
    layers = READER_KINDS[kind].layers(2)
    return ReaderConfig(kind, vocabulary_size=12, embedding_width=6, inner_width=5, layers=layers)


@pytest.mark.parametrize("kind", READER_KINDS)
def test_a_row_is_read_as_if_alone(kind: str) -> None:
    encoder = reader(config(kind)).double().eval()
    batch = Batch.of(ROWS)
    hidden = encoder(**batch.inputs()).hidden
    assert hidden.shape == (batch.n_tokens, encoder.config.width)
    rows = encoder.of_rows(hidden, batch.packing)
    for number, (ids, found) in enumerate(zip(ROWS, batch.rows(hidden), strict=True)):
        alone = Batch.of([ids])
        expected = encoder(**alone.inputs()).hidden
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(rows[number], encoder.of_rows(expected, alone.packing)[0])


@pytest.mark.parametrize("kind", READER_KINDS)
def test_everything_learns(kind: str) -> None:
    shape = config(kind)
    model = WithHeads(shape, lambda pooler: reader(shape, pooler), ["sequence", "token"], labels=3)
    encoding, logits = model(**Batch.of(ROWS).inputs())
    assert encoding.pooled is not None
    assert logits["sequence"].shape == (4, 3)
    assert logits["token"].shape == (16, 3)
    (logits["sequence"].square().sum() + logits["token"].square().sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_a_looked_up_vector_does_not_know_its_neighbours_and_others_do() -> None:
    batch = Batch.of([[1, 7, 2], [3, 7, 4]])
    for kind in READER_KINDS:
        hidden = reader(config(kind)).eval()(**batch.inputs()).hidden
        assert torch.equal(hidden[1], hidden[4]) == (kind == "lookup")


def test_of_a_recurrent_row_each_direction_has_read_all() -> None:
    encoder = reader(config("lstm")).eval()

    def row(ids: list[int]) -> torch.Tensor:
        batch = Batch.of([ids])
        return encoder.of_rows(encoder(**batch.inputs()).hidden, batch.packing)[0]

    first, last, other = row([1, 5, 5, 2]), row([1, 5, 5, 3]), row([4, 5, 5, 2])
    for half in (slice(0, 5), slice(5, 10)):
        assert not torch.equal(first[half], last[half])
        assert not torch.equal(first[half], other[half])


@pytest.mark.parametrize("kind", READER_KINDS)
def test_a_kind_names_the_sizes_that_change_it(kind: str) -> None:
    def shapes(**changes: Any) -> list[torch.Size]:
        return [one.shape for one in reader(replace(config(kind), **changes)).parameters()]

    for name, value in (("inner_width", 7), ("kernels", (1, 3))):
        assert (shapes(**{name: value}) != shapes()) == (name in READER_KINDS[kind].sizes), name


def test_what_cannot_be() -> None:
    with pytest.raises(InputError, match="Did you mean 'lstm'"):
        ReaderConfig("lstn")
    with pytest.raises(InputError, match="odd"):
        ReaderConfig("cnn", kernels=(4,))
    with pytest.raises(InputError, match="has 0 layers"):
        ReaderConfig("lookup", layers=2)
