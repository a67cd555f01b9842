"""Rows of texts and pairs: every token somewhere, counted once, in windows that fit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data.windows import BothOrders, Windowed, merge_windows, room_beside
from qkv.text.tokenizer import Marks

CLS, SEP = 101, 102


def windowed(first: list[list[int]], second: list[list[int]] | None = None, **options: Any) -> Windowed:
    settings: dict[str, Any] = {"marks": Marks(CLS, (SEP,), SEP), "max_length": 16, "overlap": 3} | options
    return Windowed(first, second, **settings)


def test_texts_and_pairs_that_fit() -> None:
    alone = windowed([[1, 2], []]).collate(np.array([0, 1]))
    assert alone.ids.tolist() == [CLS, 1, 2, SEP, CLS, SEP]
    assert alone.segments.tolist() == [0] * 6
    pair = windowed([[1, 2]], [[3]]).collate(np.array([0]))
    assert pair.ids.tolist() == [CLS, 1, 2, SEP, 3, SEP]
    assert pair.segments.tolist() == [0, 0, 0, 0, 1, 1]


def test_another_mark_at_the_end() -> None:
    alone, pair = (
        windowed([[1, 2]], marks=Marks(CLS, (SEP,), 103)),
        windowed([[1, 2]], [[3]], marks=Marks(CLS, (SEP,), 103)),
    )
    assert alone.collate(np.array([0])).ids.tolist() == [CLS, 1, 2, 103]
    assert pair.collate(np.array([0])).ids.tolist() == [CLS, 1, 2, SEP, 3, 103]
    assert pair.collate(np.array([0])).segments.tolist() == [0, 0, 0, 0, 1, 1]


def test_two_marks_between() -> None:
    marks = Marks(CLS, (SEP, SEP), SEP)
    pairs = windowed([[1, 2], [4] * 30], [[3], [5, 6]], marks=marks)
    whole, *parts = (pairs.collate(np.array([row])) for row in range(len(pairs)))
    assert whole.ids.tolist() == [CLS, 1, 2, SEP, SEP, 3, SEP] and whole.segments.tolist() == [0] * 5 + [1] * 2
    assert len(parts) > 1 and all(part.n_tokens <= 16 and part.ids.tolist()[-5:-3] == [SEP, SEP] for part in parts)
    assert pairs.b_begins(np.array([0])).tolist() == [5] and pairs.n_tokens.tolist() == [7, 36]
    assert windowed([[1, 2]], marks=marks).collate(np.array([0])).ids.tolist() == [CLS, 1, 2, SEP]


def test_pairs_in_both_orders() -> None:
    first, second = [[1, 2], list(range(20, 60)), []], [[3], [7, 8], [9]]
    rows = BothOrders(first, second, Marks(CLS, (SEP,), 103), max_length=16, overlap=3)
    assert rows.n_examples == 3 and rows.n_tokens.tolist() == [6, 45, 4]
    assert rows.n_windows.tolist()[::2] == [1, 1] and rows.n_windows[1] > 1  # of either order
    assert (rows.n_rows == 2 * rows.n_windows).all() and rows.n_rows.sum() == len(rows)
    assert rows.first_row.tolist() == np.flatnonzero(rows.windows == 0).tolist()
    short = rows.collate(np.array([0, 1, len(rows) - 2, len(rows) - 1]))
    assert [row.tolist() for row in short.rows(short.ids)] == [
        [CLS, 1, 2, SEP, 3, 103],
        [CLS, 3, SEP, 1, 2, 103],
        [CLS, SEP, 9, 103],
        [CLS, 9, SEP, 103],
    ]
    assert short.examples.tolist() == [0, 0, 2, 2] and short.windows.tolist() == [0, 1, 0, 1]
    there, back = (windowed(*sides, marks=Marks(CLS, (SEP,), 103)) for sides in ((first, second), (second, first)))
    long = rows.collate(np.arange(2, len(rows) - 2)).ids.tolist()
    apart = [one.collate(np.flatnonzero(one.examples == 1)).ids.tolist() for one in (there, back)]
    assert long == apart[0] + apart[1]


@settings(deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), min_size=1, max_size=5),
    keep=st.sampled_from(["alone", "first", "second", "shorter"]),
)
def test_every_token_is_counted_once_and_every_row_fits(sizes: list[tuple[int, int]], keep: str) -> None:
    whole = room_beside(16, 3, Marks(CLS, (SEP,), SEP))
    if keep == "first":
        sizes = [(min(a, whole), b) for a, b in sizes]
    if keep == "second":
        sizes = [(a, min(b, whole)) for a, b in sizes]
    first = [[1000 * number + place for place in range(a)] for number, (a, _) in enumerate(sizes)]
    second = [[1000 * number + 500 + place for place in range(b)] for number, (_, b) in enumerate(sizes)]
    rows = windowed(first, None) if keep == "alone" else windowed(first, second, keep=keep)
    assert rows.lengths.max() <= 16
    assert rows.n_windows.sum() == len(rows)
    assert rows.first_row.tolist() == np.flatnonzero(rows.windows == 0).tolist()
    counted: list[int] = []
    batch = rows.collate(np.arange(len(rows)))
    numbers = np.arange(len(rows))
    sides = [(rows.a, np.ones_like(numbers)), *([] if keep == "alone" else [(rows.b, rows.b_begins(numbers))])]
    for row, ids in enumerate(batch.rows(batch.ids)):
        for part, begins in sides:
            at = int(begins[row])
            low, high = (int(ends[row] - part.starts[row]) for ends in (part.counted_starts, part.counted_ends))
            counted += ids[at + low : at + high].tolist()
    wanted = [token for texts in ((first,) if keep == "alone" else (first, second)) for text in texts for token in text]
    assert sorted(counted) == sorted(wanted)
    special = 2 if keep == "alone" else 3
    assert rows.n_tokens.tolist() == [a + (0 if keep == "alone" else b) + special for a, b in sizes]


def test_a_question_stands_before_every_part_of_its_passage() -> None:
    rows = windowed([[7, 8]], [list(range(100, 130))], keep="first")
    batch = rows.collate(np.arange(len(rows)))
    assert len(rows) > 1
    for ids in batch.rows(batch.ids):
        assert ids[:4].tolist() == [CLS, 7, 8, SEP]


def test_windows_are_merged_by_their_mean() -> None:
    values = np.array([[1.0], [3.0], [10.0]], np.float32)
    assert merge_windows(values, np.array([2, 1])).tolist() == [[2.0], [10.0]]


def test_an_unknown_side_is_ours() -> None:
    with pytest.raises(AssertionError):
        windowed([[1]], [[2]], keep="longest")
