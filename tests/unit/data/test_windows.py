"""Windows, plans and collation: nothing lost, nothing counted twice, order kept."""

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from qkv.data.batch import chunks, plan_batches
from qkv.data.windows import Rows, cut_windows
from qkv.text.tokenizer import Marks

CLS, SEP = 101, 102
MARKS = Marks(CLS, (SEP,), SEP)


@pytest.mark.parametrize(("size", "overlap"), [(1, 0), (2, 1), (3, 0), (6, 2), (10, 9), (510, 127)])
def test_every_token_is_counted_once_and_windows_overlap(size: int, overlap: int) -> None:
    lengths = [0, 1, 2, 5, 6, 7, 11, 12, 13, 100, 509, 510, 511, 1021, 5003]
    cuts = cut_windows(lengths, size, overlap)
    for example, length in enumerate(lengths):
        rows = np.flatnonzero(cuts.examples == example)
        assert cuts.windows[rows].tolist() == list(range(len(rows)))
        starts, ends = cuts.starts[rows].tolist(), cuts.ends[rows].tolist()
        counted = [range(a, b) for a, b in zip(cuts.counted_starts[rows], cuts.counted_ends[rows], strict=True)]
        assert list(itertools.chain(*counted)) == list(range(length))
        assert starts[0] == 0 and ends[-1] == length
        assert len({end - start for start, end in zip(starts, ends, strict=True)}) == 1, "windows are equally long"
        for (_, end), (start, _) in itertools.pairwise(zip(starts, ends, strict=True)):
            assert end - start >= overlap
        if length <= size:
            assert len(rows) == 1
        else:
            assert len(rows) == -(-(length - overlap) // (size - overlap)), "no more windows than needed"
            assert all(end - start <= size for start, end in zip(starts, ends, strict=True))


def test_a_very_long_text_keeps_its_overlap() -> None:
    cuts = cut_windows([1_000_003], 510, 127)
    assert cuts.ends[-1] == 1_000_003
    assert (cuts.ends[:-1] - cuts.starts[1:]).min() >= 127
    assert (cuts.ends - cuts.starts).max() <= 510
    # a counted token that is not at an end of the text has at least half the overlap around it
    assert (cuts.counted_starts - cuts.starts)[1:].min() >= 127 // 2
    assert (cuts.ends - cuts.counted_ends)[:-1].min() >= 127 // 2


def test_plan_takes_every_row_once_longest_first_within_budget() -> None:
    random.seed(0)
    lengths = [random.randint(1, 300) for _ in range(1000)]
    batches = plan_batches(lengths, 2048)
    assert sorted(itertools.chain(*(rows.tolist() for rows in batches))) == list(range(1000))
    flat = [lengths[row] for rows in batches for row in rows]
    assert flat == sorted(lengths, reverse=True)
    for rows, following in itertools.pairwise(batches):
        total = sum(lengths[row] for row in rows)
        assert total <= 2048
        assert total + lengths[following[0]] > 2048, "a row that still fits goes in"


def test_plan_gives_a_row_over_budget_a_batch_of_its_own() -> None:
    assert [rows.tolist() for rows in plan_batches([50, 5, 60, 4], 10)] == [[2], [0], [1, 3]]
    assert plan_batches([], 10) == []


def test_collate_puts_special_tokens_around_every_window() -> None:
    content = [[1, 2, 3], [], list(range(10, 20)), [7]]
    rows = Rows(content, MARKS, max_length=8, overlap=2)
    assert rows.n_examples == 4 and len(rows) == 5
    assert rows.n_tokens.tolist() == [5, 2, 12, 3]
    assert rows.n_windows.tolist() == [1, 1, 2, 1]
    order = np.array([3, 0, 2, 1, 4])
    batch = rows.collate(order)
    assert [part.tolist() for part in batch.rows(batch.ids)] == [
        [CLS, 14, 15, 16, 17, 18, 19, SEP],
        [CLS, 1, 2, 3, SEP],
        [CLS, 10, 11, 12, 13, 14, 15, SEP],
        [CLS, SEP],
        [CLS, 7, SEP],
    ]
    assert batch.examples.tolist() == [2, 0, 2, 1, 3]
    assert batch.windows.tolist() == [1, 0, 0, 0, 0]
    assert [part.tolist() for part in batch.rows(batch.positions)] == [list(range(n)) for n in batch.lengths]
    assert batch.segments.tolist() == [0] * batch.n_tokens


def test_counted_tokens_are_the_text_with_one_pair_of_special_tokens() -> None:
    random.seed(1)
    content = [[random.randint(1000, 9999) for _ in range(n)] for n in (0, 1, 6, 7, 30, 6, 61)]
    rows = Rows(content, MARKS, max_length=8, overlap=2)
    found: dict[int, list[tuple[int, list[int]]]] = {}
    for chosen in plan_batches(rows.lengths, 20):
        batch = rows.collate(chosen)
        places, offsets = rows.counted(chosen)
        parts = np.split(batch.ids[places].numpy(), offsets.numpy()[1:])
        assert [len(part) for part in parts] == rows.counts()[chosen].tolist()
        for example, window, part in zip(batch.examples.tolist(), batch.windows.tolist(), parts, strict=True):
            found.setdefault(example, []).append((window, part.tolist()))
    for example, ids in enumerate(content):
        assert list(itertools.chain(*(part for _, part in sorted(found[example])))) == [CLS, *ids, SEP]


def test_chunks_stop_with_the_stream() -> None:
    assert list(chunks(iter("abcde"), 2, len, 100)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(chunks([], 2, len, 1)) == []


def test_chunks_are_bounded_by_size_too() -> None:
    texts = ["a" * length for length in (1, 1, 1, 50, 3, 3, 3, 3, 100, 1)]
    found = list(chunks(texts, 4, len, 10))
    assert [[len(text) for text in chunk] for chunk in found] == [[1, 1, 1, 50], [3, 3, 3, 3], [100], [1]]
    taken = 0

    def long() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "x" * 10

    assert len(next(chunks(long(), 50, len, 30))) == taken == 3, "no further than needed"
