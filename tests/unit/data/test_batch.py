"""The contract between text and tensors."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from qkv.data.batch import IGNORE, Batch
from qkv.errors import InputError

ROWS = [[101, 7, 102], [101, 8, 9, 10, 102], [101, 102]]


def test_rows_lie_end_to_end() -> None:
    batch = Batch.of(ROWS, segments=[[0, 1, 1], [0, 0, 0, 1, 1], [0, 0]], examples=[4, 4, 9], windows=[0, 1, 0])
    assert batch.ids.tolist() == [101, 7, 102, 101, 8, 9, 10, 102, 101, 102]
    assert batch.positions.tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 0, 1]
    assert batch.offsets.tolist() == [0, 3, 8, 10]
    assert batch.offsets.dtype == torch.int32
    assert (batch.n_rows, batch.n_tokens, batch.longest, batch.lengths) == (3, 10, 5, (3, 5, 2))
    assert batch.first.tolist() == [0, 3, 8]
    assert batch.row_of_token.tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 2, 2]
    assert [row.tolist() for row in batch.rows(batch.ids)] == ROWS
    assert batch.examples.tolist() == [4, 4, 9]
    assert batch.windows.tolist() == [0, 1, 0]


def test_defaults_name_every_row_its_own_example() -> None:
    batch = Batch.of(ROWS)
    assert batch.examples.tolist() == [0, 1, 2]
    assert batch.windows.tolist() == [0, 0, 0]
    assert batch.segments.tolist() == [0] * 10
    assert batch.labels == {}


def test_padded_view_and_back() -> None:
    batch = Batch.of(ROWS)
    padded = batch.padded(pad_id=5)
    assert padded.ids.tolist() == [[101, 7, 102, 5, 5], [101, 8, 9, 10, 102], [101, 102, 5, 5, 5]]
    assert padded.mask.sum(1).tolist() == [3, 5, 2]
    assert padded.positions[0].tolist() == [0, 1, 2, 0, 0]
    vectors = torch.randn(batch.n_tokens, 4, 2)
    assert torch.equal(batch.unpad(batch.pad(vectors)), vectors)
    assert batch.pad(vectors, IGNORE)[0, 3].unique().tolist() == [IGNORE]


def test_padding_carries_gradients() -> None:
    batch = Batch.of(ROWS)
    vectors = torch.randn(batch.n_tokens, 2, requires_grad=True)
    batch.unpad(batch.pad(vectors) * 3).sum().backward()
    assert vectors.grad is not None
    assert vectors.grad.unique().tolist() == [3.0]


def test_moving_takes_everything_along() -> None:
    batch = Batch.of(ROWS, labels={"masked": torch.full((10,), IGNORE), "next_sentence": torch.tensor([0, 1, 0])})
    moved = batch.to("meta")
    tensors = [moved.ids, moved.segments, moved.positions, moved.offsets, moved.examples, moved.windows]
    assert {tensor.device.type for tensor in (*tensors, *moved.labels.values())} == {"meta"}
    assert set(moved.labels) == {"masked", "next_sentence"}


def test_lengths_must_add_up() -> None:
    with pytest.raises(AssertionError, match="add up to 4, but there are 3"):
        Batch.packed(torch.tensor([1, 2, 3]), [2, 2])
    with pytest.raises(AssertionError, match="one entry per token"):
        Batch.of([[1, 2]], segments=[[0]])
    with pytest.raises(AssertionError, match="at least one row"):
        Batch.of([])
    with pytest.raises(AssertionError, match="at least one token"):
        Batch.of([[1], []])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": 100}, r"Token id 101 in row 0 \(example 7, token 0\) is outside the model's 0 … 99"),
        ({"positions": 4}, r"Position 4 in row 1 \(example 8, token 4\) is outside the model's 0 … 3"),
        ({"segments": 0}, r"Segment 0 in row 0"),
    ],
)
def test_check_names_the_place(change: dict[str, int], message: str) -> None:
    batch = Batch.of(ROWS, examples=[7, 8, 9])
    limits = {"vocabulary": 200, "positions": 512, "segments": 2}
    batch.check(**limits)
    with pytest.raises(InputError, match=message):
        batch.check(**(limits | change))


def test_all_of_a_batch_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the memory comes from needs a GPU to be seen; here it is counted."""
    asked: list[bool] = []
    plain = torch.empty_like

    def empty_like(tensor: torch.Tensor, pin_memory: bool = False) -> torch.Tensor:
        asked.append(pin_memory)
        return plain(tensor)

    monkeypatch.setattr(torch, "empty_like", empty_like)
    batch = Batch.of(ROWS, labels={"words": torch.tensor([5]), "numbers": torch.tensor([0.5, 1.5])})
    pinned = batch.pinned()
    assert asked == [True] * 8
    for name in ("ids", "segments", "positions", "offsets", "examples", "windows"):
        assert torch.equal(getattr(pinned, name), getattr(batch, name))
    assert all(torch.equal(pinned.labels[name], label) for name, label in batch.labels.items())
    assert pinned.lengths == batch.lengths


def test_batches_are_joined_longest_row_first() -> None:
    first = Batch.of(ROWS, segments=[[0, 1, 1], [0, 0, 0, 1, 1], [0, 0]], examples=[4, 4, 9], windows=[0, 1, 0])
    second = Batch.of([[1, 2, 3, 4, 5], [6, 7]], positions=[[5, 6, 7, 8, 9], [0, 1]], windows=[3, 4])
    labels = [{"row": torch.arange(batch.n_rows), "token": batch.ids * 10} for batch in (first, second)]
    both = Batch.join([replace(first, labels=labels[0]), replace(second, labels=labels[1])])
    assert [row.tolist() for row in both.rows(both.ids)] == [ROWS[1], [1, 2, 3, 4, 5], ROWS[0], ROWS[2], [6, 7]]
    assert both.lengths == (5, 5, 3, 2, 2) and both.offsets.tolist() == [0, 5, 10, 13, 15, 17]
    assert both.segments.tolist() == [0, 0, 0, 1, 1, *[0] * 5, 0, 1, 1, 0, 0, 0, 0]
    assert both.positions.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 0, 1, 0, 1]
    assert both.examples.tolist() == [4, 0, 4, 9, 1] and both.windows.tolist() == [1, 3, 0, 0, 4]
    assert both.labels["row"].tolist() == [1, 0, 0, 2, 1]
    assert both.labels["token"].tolist() == [10 * one for one in both.ids.tolist()]


def test_rows_are_taken_in_any_order() -> None:
    taken = Batch.of(ROWS).take(np.array([2, 0]))
    assert [row.tolist() for row in taken.rows(taken.ids)] == [ROWS[2], ROWS[0]]
    assert taken.examples.tolist() == [2, 0] and taken.positions.tolist() == [0, 1, 0, 1, 2]
