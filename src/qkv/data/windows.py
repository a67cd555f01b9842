"""Rows of tokens for a model: texts and text pairs with their special tokens, long ones as overlapping windows.

Texts are never truncated: a text longer than the model becomes several windows of equal length that overlap, so that a
token near the edge of one window has context in the next. Every token is *counted* in exactly one window, the one where
it is further from an edge, so that a mean over counted tokens is a mean over the text:

    tokens   0 1 2 3 4 5 6 7 8 9
    window 0 [c c c c c .]              c = counted here
    window 1         [. c c c c c]

Rows are `[CLS] a [SEP]` for one text and `[CLS] a [SEP] b [SEP]` for a text pair, with segment 1 after the first [SEP];
models may use other special tokens in these three places (models/gpt/tokenizer.py). Of a text pair, one side is split
into windows and the other is repeated in each:

    keep "first"     the first side (a question) is whole in every window; "second": the other way round
    keep "shorter"   the shorter side is whole, if it leaves the other at least half of the room; two long texts are
                     split into the same number of windows, and the k-th windows go together

Everything works on flat arrays, without a Python loop over tokens. A window may begin inside a word (at a ## subword).

Shapes: E examples (texts), R rows (windows), N tokens of a batch, C tokens of all examples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.data.batch import Batch, Integers
from qkv.data.corpus.shards import ranges
from qkv.text.tokenizer import Marks


@dataclass(frozen=True)
class _Windows:
    """The tokens of each row, and those counted there. All (R,)."""

    examples: Integers
    windows: Integers  # 0, 1, … within the example
    starts: Integers  # first token of the window, as an index in the example
    ends: Integers  # exclusive
    counted_starts: Integers  # the tokens counted here: starts ≤ counted_starts < counted_ends ≤ ends
    counted_ends: Integers


def cut_windows(lengths: Sequence[int] | Integers, size: int, overlap: int) -> _Windows:
    """Split examples of these lengths into windows of at most `size` tokens that overlap by at least `overlap`.

    An example that fits is one window, also if empty. A longer one gets as few windows as possible, of equal length and
    evenly spaced.

    >>> pieces = cut_windows([3, 10], size=6, overlap=2)
    >>> [(int(e), int(a), int(b)) for e, a, b in zip(pieces.examples, pieces.starts, pieces.ends)]
    [(0, 0, 3), (1, 0, 6), (1, 4, 10)]
    >>> [(int(a), int(b)) for a, b in zip(pieces.counted_starts, pieces.counted_ends)]
    [(0, 3), (0, 5), (5, 10)]
    """
    assert 0 <= overlap < size, f"windows of {size} tokens cannot overlap by {overlap}"
    total = np.asarray(lengths, dtype=np.int64)  # (E,)
    long = total > size
    number = np.where(long, -((overlap - total) // (size - overlap)), 1)  # (E,) windows of each example, rounded up
    width = np.where(long, -(-(total + (number - 1) * overlap) // number), total)  # (E,)
    examples = np.repeat(np.arange(len(total)), number)  # (R,)
    first = np.repeat(np.cumsum(number) - number, number)
    windows = np.arange(len(examples)) - first
    width, number, total = width[examples], number[examples], total[examples]
    starts = windows * (total - width) // np.maximum(number - 1, 1)
    ends = starts + width
    # the boundary of counted tokens is in the middle of the overlap
    middle = (starts[1:] + ends[:-1]) // 2
    same = windows[1:] > 0
    counted_starts, counted_ends = starts.copy(), ends.copy()
    counted_starts[1:][same] = middle[same]
    counted_ends[:-1][same] = middle[same]
    return _Windows(examples, windows, starts, ends, counted_starts, counted_ends)


@dataclass(frozen=True)
class _Part:
    """One side of the rows: the tokens of each row, and those counted there. All (R,)."""

    starts: Integers  # index in the tokens of this side of the example
    ends: Integers
    counted_starts: Integers
    counted_ends: Integers

    @cached_property
    def lengths(self) -> Integers:
        return self.ends - self.starts


class Windowed:
    """Rows of texts or text pairs, in the order of the examples and their windows."""

    def __init__(
        self,
        first: Sequence[Sequence[int]],
        second: Sequence[Sequence[int]] | None,
        marks: Marks,
        *,
        max_length: int,
        overlap: int,
        keep: str = "shorter",
    ) -> None:
        """Ids without special tokens; `max_length` with them. A side that is kept whole must fit: see `room_beside`."""
        assert keep in ("first", "second", "shorter"), keep
        self.marks = marks
        sizes_a = _sizes(first)  # (E,)
        sizes_b = np.zeros_like(sizes_a) if second is None else _sizes(second)
        self._special = 2 if second is None else marks.around_pair
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
        self.n_tokens: Integers = sizes_a + sizes_b + self._special  # (E,) each token counted once
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
        self._sides = (begins_a, sizes_a), (begins_b, sizes_b)  # (E,) each, in the content
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
        ids[begins] = self.marks.start
        ids[ranges(begins + 1, a_length)] = self._content[ranges(self._a_at[rows], a_length)]
        ids[ends - 1] = self.marks.end
        if self.paired:
            b_length = self.b.lengths[rows]
            b_begins = begins + self.b_begins(rows)
            for place, mark in enumerate(self.marks.between):
                ids[begins + 1 + a_length + place] = mark
            ids[ranges(b_begins, b_length)] = self._content[ranges(self._b_at[rows], b_length)]
            segments[ranges(b_begins, b_length + 1)] = 1
        return Batch.packed(
            torch.from_numpy(ids),
            lengths.tolist(),
            segments=torch.from_numpy(segments),
            examples=torch.from_numpy(self.examples[rows]),
            windows=torch.from_numpy(self.windows[rows]),
            labels=labels,
        )

    def count_token(self, number: int | None) -> Integers:
        """(E,) how often a token is in the texts of each example, however many windows show it; None: never."""
        is_it = self._content == (-1 if number is None else number)
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_it)])  # (C + 1,) how many are before each
        first, second = (before[begins + sizes] - before[begins] for begins, sizes in self._sides)
        return first + second

    def b_begins(self, rows: Integers) -> Integers:
        """(R,) position of the second side in its row: after the first [SEP]."""
        return self.a.lengths[rows] + 1 + len(self.marks.between)


class Rows(Windowed):
    """Single texts, and which tokens of each row are counted.

    Counted are the content as divided by `cut_windows`, [CLS] in the first window of an example and [SEP] in its last.
    So each token of [CLS] content [SEP] is counted once.
    """

    def __init__(self, ids: Sequence[Sequence[int]], marks: Marks, *, max_length: int, overlap: int) -> None:
        """`ids` without special tokens; `max_length` with them; `overlap` in tokens of content."""
        super().__init__(ids, None, marks, max_length=max_length, overlap=overlap)
        is_last = np.ones(len(self), dtype=bool)
        is_last[:-1] = self.windows[1:] == 0
        # counted positions of each row, with [CLS] at 0 and [SEP] at the end
        self.counted_starts: Integers = self.a.counted_starts - self.a.starts + (self.windows > 0)
        self.counted_ends: Integers = self.a.counted_ends - self.a.starts + 1 + is_last

    def counted(self, rows: Integers) -> tuple[Tensor, Tensor]:
        """Return the positions (M,) of counted tokens in the packed batch, and the offset (R,) of each row in them.

        These are the arguments of torch's embedding_bag.
        """
        return locate_counted(self.lengths[rows], self.counted_starts[rows], self.counted_ends[rows])

    def counts(self) -> Integers:
        """(R,) number of counted tokens of each row."""
        return self.counted_ends - self.counted_starts


def locate_counted(lengths: Integers, starts: Integers, ends: Integers) -> tuple[Tensor, Tensor]:
    """`Rows.counted` of packed rows of these lengths, whose tokens from `starts` to `ends` are counted. All (R,).

    >>> places, offsets = locate_counted(np.array([4, 3]), np.array([0, 1]), np.array([2, 3]))
    >>> places.tolist(), offsets.tolist()
    ([0, 1, 5, 6], [0, 2])
    """
    sizes = ends - starts  # (R,)
    begins = np.cumsum(lengths) - lengths
    return torch.from_numpy(ranges(begins + starts, sizes)), torch.from_numpy(np.cumsum(sizes) - sizes)


class BothOrders(Windowed):
    """Text pairs in both orders: for every pair the rows of (a, b), then those of (b, a)."""

    def __init__(
        self,
        first: Sequence[Sequence[int]],
        second: Sequence[Sequence[int]] | None,
        marks: Marks,
        *,
        max_length: int,
        overlap: int,
    ) -> None:
        assert second is not None, "both orders need text pairs"
        pairs = zip(first, second, strict=True)
        sides = [side for pair in pairs for side in pair]  # a, b, a, b, …
        turned = [sides[place ^ 1] for place in range(len(sides))]  # b, a, b, a, …
        super().__init__(sides, turned, marks, max_length=max_length, overlap=overlap)
        self.examples = self.examples // 2
        self.windows = np.arange(len(self.examples)) - np.searchsorted(self.examples, self.examples)
        self.n_examples //= 2
        self.n_tokens = self.n_tokens[::2]
        self.n_rows = self.n_windows[::2] + self.n_windows[1::2]
        self.n_windows = self.n_windows[::2]  # of either order
        self.first_row = self.first_row[::2]

    def count_token(self, number: int | None) -> Integers:
        return super().count_token(number)[::2]


def room_beside(max_length: int, overlap: int, marks: Marks) -> int:
    """Return the maximum length of a side that is kept whole, so that windows of the other exceed their overlap."""
    return max_length - marks.around_pair - (overlap + 1)


def _sizes(ids: Sequence[Sequence[int]]) -> Integers:
    return np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))


def _whole(sizes: Integers) -> _Part:
    nothing = np.zeros_like(sizes)
    return _Part(nothing, sizes, nothing, sizes)


def _cut_alone(sizes: Integers, room: int, overlap: int) -> tuple[Integers, _Part]:
    pieces = cut_windows(sizes, room, overlap)
    return pieces.examples, _Part(pieces.starts, pieces.ends, pieces.counted_starts, pieces.counted_ends)


def _cut_pairs(
    sizes_a: Integers, sizes_b: Integers, room: int, overlap: int, keep: str
) -> tuple[Integers, _Part, _Part]:
    """Split each pair separately, since the room for one side depends on the length of the other."""
    examples, parts_a, parts_b = [], [], []
    fits = sizes_a + sizes_b <= room
    if fits.all():  # the usual case
        return np.arange(len(sizes_a)), _whole(sizes_a), _whole(sizes_b)
    for number, (a, b) in enumerate(zip(sizes_a.tolist(), sizes_b.tolist(), strict=True)):
        cut_a, cut_b = _cut_pair(a, b, room, overlap, keep)
        examples.append(np.full(len(cut_a.starts), number))
        parts_a.append(cut_a)
        parts_b.append(cut_b)
    return np.concatenate(examples), _concatenate(parts_a), _concatenate(parts_b)


def _cut_pair(a: int, b: int, room: int, overlap: int, keep: str) -> tuple[_Part, _Part]:
    if a + b <= room:
        return _whole(np.array([a])), _whole(np.array([b]))
    if keep == "shorter":
        keep = "both" if min(a, b) > room // 2 else "first" if a <= b else "second"
    if keep == "both":
        return _cut_both(a, b, room, overlap)
    kept, other = (a, b) if keep == "first" else (b, a)
    _, moving = _cut_alone(np.array([other]), room - kept, min(overlap, room - kept - 1))
    standing = _repeat_whole(kept, len(moving.starts))
    return (standing, moving) if keep == "first" else (moving, standing)


def _repeat_whole(size: int, windows: int) -> _Part:
    """Repeat one side in every window, counted in the first."""
    full = np.full(windows, size)
    nothing = np.zeros(windows, np.int64)
    counted = np.where(np.arange(windows) == 0, size, 0)
    return _Part(nothing, full, nothing, counted)


def _cut_both(a: int, b: int, room: int, overlap: int) -> tuple[_Part, _Part]:
    """Split both sides into the same number of evenly spaced windows of half the room."""
    half = room // 2
    number = max(-(-(size - overlap) // (half - overlap)) for size in (a, b)) if half > overlap else max(a, b)
    return _spread(a, half, number), _spread(b, half, number)


def _spread(size: int, width: int, number: int) -> _Part:
    width = min(width, size)
    starts = np.arange(number) * (size - width) // max(number - 1, 1)
    ends = starts + width
    middle = (starts[1:] + ends[:-1]) // 2
    counted_starts, counted_ends = starts.copy(), ends.copy()
    counted_starts[1:], counted_ends[:-1] = middle, middle
    return _Part(starts, ends, counted_starts, counted_ends)


def _concatenate(parts: Sequence[_Part]) -> _Part:
    return _Part(*(np.concatenate([getattr(part, name) for part in parts]) for name in _Part.__dataclass_fields__))


def merge_windows(values: NDArray[np.float32], n_windows: Integers) -> NDArray[np.float32]:
    """(R, …) values of windows → (E, …), the mean over the windows of each example."""
    if len(values) == len(n_windows):
        return values
    first = np.cumsum(n_windows) - n_windows
    shape = (-1,) + (1,) * (values.ndim - 1)
    sums = np.add.reduceat(values, first, axis=0)
    return (sums / n_windows.reshape(shape)).astype(np.float32)
