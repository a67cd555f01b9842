"""Texts and pairs cut into windows that fit a model, as rows to be collated: what every fine-tuning task reads.

    one text   [CLS] a [SEP]
    a pair     [CLS] a [SEP] b [SEP]        segment 1 begins after the first [SEP]

Others may have other marks in these three places (task_marks.py).

A text that fits is one window. A longer one becomes windows of equal length that overlap (see batching.py), each of its
tokens counted in exactly one of them. Of a pair, one side is cut and the other stands whole in every window:

    keep "first"     a question stands before every part of its passage; "second": the other way round
    keep "shorter"   whichever is shorter stands whole, if it leaves the other at least half of the room;
                     two long texts are cut into as many windows each, and the k-th go together

Shapes: E examples, R rows (windows), N tokens of a batch, C tokens of all examples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.batch import Batch
from qkv.data.batching import Integers, cut
from qkv.data.ranges import ranges


@dataclass(frozen=True)
class Part:
    """One side of the rows: which of its example's tokens lie in each row, and which are counted there. All (R,)."""

    starts: Integers  # in the example's own tokens of this side
    ends: Integers
    counted_starts: Integers
    counted_ends: Integers

    @property
    def lengths(self) -> Integers:
        return self.ends - self.starts


class Windowed:
    """Rows of examples, in the order of the examples and, within one, of the windows."""

    def __init__(
        self,
        first: Sequence[Sequence[int]],
        second: Sequence[Sequence[int]] | None,
        *,
        cls_id: int,
        sep_id: int,
        max_length: int,
        overlap: int,
        keep: str = "shorter",
        end_id: int | None = None,
    ) -> None:
        """Ids without special tokens; `max_length` with them. A side that stands whole must fit: see `room_beside`.

        `end_id` is what a row ends with, if not with `sep_id`.
        """
        assert keep in ("first", "second", "shorter"), keep
        self._cls_id, self._sep_id, self._end_id = cls_id, sep_id, sep_id if end_id is None else end_id
        sizes_a = _sizes(first)  # (E,)
        sizes_b = np.zeros_like(sizes_a) if second is None else _sizes(second)
        self._special = 2 if second is None else 3
        room = max_length - self._special
        if second is None:
            self.examples, a = _cut_alone(sizes_a, room, overlap)
            b = _whole(np.zeros_like(self.examples))
        else:
            self.examples, a, b = _cut_pairs(sizes_a, sizes_b, room, overlap, keep)
        self.a, self.b = a, b
        self.windows: Integers = np.arange(len(self.examples)) - np.searchsorted(self.examples, self.examples)
        self.paired = second is not None
        self.lengths: Integers = a.lengths + b.lengths + self._special  # (R,)
        self.n_examples = len(sizes_a)
        self.n_tokens: Integers = sizes_a + sizes_b + self._special  # (E,) each token once, whatever the windows
        self.n_windows: Integers = np.bincount(self.examples, minlength=len(sizes_a)).astype(np.int64)  # (E,)
        self.n_rows: Integers = self.n_windows  # (E,)
        self.first_row: Integers = np.cumsum(self.n_windows) - self.n_windows  # (E,) rows of e: first_row[e] + windows
        begins_a = np.cumsum(sizes_a) - sizes_a
        begins_b = np.cumsum(sizes_b) - sizes_b + int(sizes_a.sum())
        self._content = np.fromiter(
            chain(chain.from_iterable(first), chain.from_iterable(second or ())),
            np.int64,
            count=int(sizes_a.sum() + sizes_b.sum()),
        )  # (C,)
        self._a_at = begins_a[self.examples] + a.starts  # (R,) in the content
        self._b_at = begins_b[self.examples] + b.starts

    def __len__(self) -> int:
        return len(self.lengths)

    def collate(self, rows: Integers, labels: Mapping[str, Tensor] | None = None) -> Batch:
        """The batch of these rows; `examples` and `windows` say where each came from."""
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths)
        begins = ends - lengths
        a_length = self.a.lengths[rows]
        ids = np.empty(int(ends[-1]), np.int64)
        segments = np.zeros(len(ids), np.int64)
        ids[begins] = self._cls_id
        ids[ranges(begins + 1, a_length)] = self._content[ranges(self._a_at[rows], a_length)]
        ids[ends - 1] = self._end_id
        if self.paired:
            b_length = self.b.lengths[rows]
            ids[begins + 1 + a_length] = self._sep_id
            ids[ranges(begins + a_length + 2, b_length)] = self._content[ranges(self._b_at[rows], b_length)]
            segments[ranges(begins + a_length + 2, b_length + 1)] = 1
        return Batch.packed(
            torch.from_numpy(ids),
            lengths.tolist(),
            segments=torch.from_numpy(segments),
            examples=torch.from_numpy(self.examples[rows]),
            windows=torch.from_numpy(self.windows[rows]),
            labels=labels,
        )

    def a_begins(self, rows: Integers) -> Integers:
        """(R,) where in its row the first side's tokens begin: after [CLS]."""
        return np.ones(len(rows), np.int64)

    def b_begins(self, rows: Integers) -> Integers:
        """(R,) where in its row the second side's tokens begin: after the first [SEP]."""
        return self.a.lengths[rows] + 2


class BothOrders(Windowed):
    """Pairs that are read as a, b and as b, a: rows of the one order, then of the other, of every pair."""

    def __init__(
        self,
        first: Sequence[Sequence[int]],
        second: Sequence[Sequence[int]] | None,
        *,
        cls_id: int,
        sep_id: int,
        max_length: int,
        overlap: int,
        end_id: int | None = None,
    ) -> None:
        assert second is not None, "one text has no other order"
        pairs = zip(first, second, strict=True)
        sides = [side for pair in pairs for side in pair]  # a, b, a, b, …
        turned = [sides[place ^ 1] for place in range(len(sides))]  # b, a, b, a, …
        super().__init__(
            sides, turned, cls_id=cls_id, sep_id=sep_id, max_length=max_length, overlap=overlap, end_id=end_id
        )
        self.examples = self.examples // 2
        self.windows = np.arange(len(self.examples)) - np.searchsorted(self.examples, self.examples)
        self.n_examples //= 2
        self.n_tokens = self.n_tokens[::2]
        self.n_rows = self.n_windows[::2] + self.n_windows[1::2]
        self.n_windows = self.n_windows[::2]  # of either order
        self.first_row = self.first_row[::2]


def room_beside(max_length: int, overlap: int) -> int:
    """The most tokens that a side which stands whole may have: the other keeps a window above its overlap."""
    return max_length - 3 - (overlap + 1)


def _sizes(ids: Sequence[Sequence[int]]) -> Integers:
    return np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))


def _whole(sizes: Integers) -> Part:
    nothing = np.zeros_like(sizes)
    return Part(nothing, sizes, nothing, sizes)


def _cut_alone(sizes: Integers, room: int, overlap: int) -> tuple[Integers, Part]:
    pieces = cut(sizes, room, overlap)
    return pieces.examples, Part(pieces.starts, pieces.ends, pieces.counted_starts, pieces.counted_ends)


def _cut_pairs(sizes_a: Integers, sizes_b: Integers, room: int, overlap: int, keep: str) -> tuple[Integers, Part, Part]:
    """Every pair on its own: the room that one side leaves the other differs from pair to pair."""
    examples, parts_a, parts_b = [], [], []
    fits = sizes_a + sizes_b <= room
    if fits.all():  # nearly always
        return np.arange(len(sizes_a)), _whole(sizes_a), _whole(sizes_b)
    for number, (a, b) in enumerate(zip(sizes_a.tolist(), sizes_b.tolist(), strict=True)):
        cut_a, cut_b = _cut_pair(a, b, room, overlap, keep)
        examples.append(np.full(len(cut_a.starts), number))
        parts_a.append(cut_a)
        parts_b.append(cut_b)
    return np.concatenate(examples), _joined(parts_a), _joined(parts_b)


def _cut_pair(a: int, b: int, room: int, overlap: int, keep: str) -> tuple[Part, Part]:
    if a + b <= room:
        return _whole(np.array([a])), _whole(np.array([b]))
    if keep == "shorter":
        keep = "both" if min(a, b) > room // 2 else "first" if a <= b else "second"
    if keep == "both":
        return _cut_both(a, b, room, overlap)
    kept, other = (a, b) if keep == "first" else (b, a)
    _, moving = _cut_alone(np.array([other]), room - kept, min(overlap, room - kept - 1))
    standing = _standing(kept, len(moving.starts))
    return (standing, moving) if keep == "first" else (moving, standing)


def _standing(size: int, windows: int) -> Part:
    """Whole in every window, counted in the first."""
    full = np.full(windows, size)
    nothing = np.zeros(windows, np.int64)
    counted = np.where(np.arange(windows) == 0, size, 0)
    return Part(nothing, full, nothing, counted)


def _cut_both(a: int, b: int, room: int, overlap: int) -> tuple[Part, Part]:
    """As many windows of each, half of the room for either, overlapping by as much as evenly spread windows do."""
    half = room // 2
    number = max(-(-(size - overlap) // (half - overlap)) for size in (a, b)) if half > overlap else max(a, b)
    return _spread(a, half, number), _spread(b, half, number)


def _spread(size: int, width: int, number: int) -> Part:
    width = min(width, size)
    starts = np.arange(number) * (size - width) // max(number - 1, 1)
    ends = starts + width
    middle = (starts[1:] + ends[:-1]) // 2
    counted_starts, counted_ends = starts.copy(), ends.copy()
    counted_starts[1:], counted_ends[:-1] = middle, middle
    return Part(starts, ends, counted_starts, counted_ends)


def _joined(parts: Sequence[Part]) -> Part:
    return Part(*(np.concatenate([getattr(part, name) for part in parts]) for name in Part.__dataclass_fields__))


def merged(values: NDArray[np.float32], examples: Integers, n_windows: Integers) -> NDArray[np.float32]:
    """(R, …) values of windows → (E, …), the plain mean over the windows of each example."""
    if len(values) == len(n_windows):
        return values
    first = np.cumsum(n_windows) - n_windows
    shape = (-1,) + (1,) * (values.ndim - 1)
    sums = np.add.reduceat(values, first, axis=0)
    return (sums / n_windows.reshape(shape)).astype(np.float32)
