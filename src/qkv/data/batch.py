"""`Batch`, the interface between text and tensors; and which rows make a batch (`Epochs`, `plan_batches`).

A batch is packed: the tokens of all its rows are concatenated in one vector, and `lengths` has the length of each row.
There is no padding, so nothing is computed for padding. Data builds batches, models read `inputs()`, objectives and
tasks put targets into `labels`. `examples` (the text of a row) and `windows` (the part of it, if the text was longer
than the model) lead back to the user's text.

Row r is ids[offsets[r] : offsets[r + 1]]. A padded view of the same rows exists for export and for attention maps;
`pad` and `unpad` convert any values between the two.

Batches have rows of similar length (attention on a CPU runs in groups of equal length) and as many as fit
`tokens_per_batch`.

>>> batch = Batch.of([[101, 7, 102], [101, 8, 9, 102]], examples=[0, 1])
>>> batch.ids.tolist(), batch.offsets.tolist(), batch.positions.tolist()
([101, 7, 102, 101, 8, 9, 102], [0, 3, 7], [0, 1, 2, 0, 1, 2, 3])
>>> batch.padded().ids.tolist()
[[101, 7, 102, 0], [101, 8, 9, 102]]

Shapes: N tokens of all rows together, R rows, B = R rows of a padded view, T tokens of its longest row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import pairwise
from threading import Lock, Thread
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.errors import InputError

IGNORE = -100
"""The label of a token or row that is not scored (the default `ignore_index` of torch's cross entropy)."""


class Packing(NamedTuple):
    """Boundaries of rows, in the forms that attention kernels need.

    A GPU kernel reads `offsets` on the device and needs `longest` as a number; a CPU groups rows by `lengths`, which
    stay on the host to avoid synchronisation.
    """

    offsets: Tensor  # (R + 1,) int32
    longest: int
    lengths: tuple[int, ...]


class Padded(NamedTuple):
    """The same rows as a rectangle; `mask` is True where a token is real."""

    ids: Tensor  # (B, T)
    segments: Tensor  # (B, T)
    positions: Tensor  # (B, T)
    mask: Tensor  # (B, T) bool

    def inputs(self) -> dict[str, Tensor]:
        """Keyword arguments for a model's forward."""
        return {"ids": self.ids, "segments": self.segments, "positions": self.positions, "mask": self.mask}


@dataclass(frozen=True)
class Batch:
    ids: Tensor  # (N,) int64
    segments: Tensor  # (N,) int64, 0 for the first text of a pair and 1 for the second
    positions: Tensor  # (N,) int64, counted from 0 in every row
    offsets: Tensor  # (R + 1,) int32
    lengths: tuple[int, ...]  # (R,) on the host
    examples: Tensor  # (R,) int64, which example of the caller's list a row came from
    windows: Tensor  # (R,) int64, which window of that example
    labels: Mapping[str, Tensor] = field(default_factory=dict)  # by objective: (N,) per token, (R, …) per row

    @classmethod
    def of(
        cls,
        rows: Sequence[Sequence[int]],
        *,
        segments: Sequence[Sequence[int]] | None = None,
        positions: Sequence[Sequence[int]] | None = None,
        examples: Sequence[int] | None = None,
        windows: Sequence[int] | None = None,
        labels: Mapping[str, Tensor] | None = None,
    ) -> Self:
        """Pack lists of token ids. Without `examples`, row r is example r; without `windows`, window 0."""

        def flat(parts: Sequence[Sequence[int]], name: str) -> Tensor:
            assert [len(part) for part in parts] == lengths, f"{name} must have one entry per token of every row"
            return torch.tensor([item for part in parts for item in part], dtype=torch.int64)

        lengths = [len(row) for row in rows]
        return cls.packed(
            flat(rows, "rows"),
            lengths,
            segments=None if segments is None else flat(segments, "segments"),
            positions=None if positions is None else flat(positions, "positions"),
            examples=None if examples is None else torch.tensor(examples, dtype=torch.int64),
            windows=None if windows is None else torch.tensor(windows, dtype=torch.int64),
            labels=labels,
        )

    @classmethod
    def packed(
        cls,
        ids: Tensor,
        lengths: Sequence[int],
        *,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        examples: Tensor | None = None,
        windows: Tensor | None = None,
        labels: Mapping[str, Tensor] | None = None,
    ) -> Self:
        """Build from tokens that are already concatenated, without a Python loop over tokens."""
        sizes = torch.tensor(lengths, dtype=torch.int64)  # (R,)
        assert sizes.numel() > 0, "a batch has at least one row"
        assert bool((sizes > 0).all()), "a row has at least one token"
        offsets = torch.zeros(len(sizes) + 1, dtype=torch.int32)
        torch.cumsum(sizes, 0, out=offsets[1:])
        assert int(offsets[-1]) == ids.numel(), f"lengths add up to {int(offsets[-1])}, but there are {ids.numel()} ids"
        if positions is None:
            positions = torch.arange(ids.numel()) - torch.repeat_interleave(offsets[:-1].long(), sizes)
        return cls(
            ids=ids,
            segments=torch.zeros_like(ids) if segments is None else segments,
            positions=positions,
            offsets=offsets,
            lengths=tuple(sizes.tolist()),
            examples=torch.arange(len(sizes)) if examples is None else examples,
            windows=torch.zeros(len(sizes), dtype=torch.int64) if windows is None else windows,
            labels=dict(labels or {}),
        )

    @classmethod
    def join(cls, batches: "Sequence[Batch]") -> Self:
        """One batch of the rows of several, sorted by length, longest first, as `plan_batches` does; labels are
        concatenated, and all batches have the same.

        >>> both = Batch.join([Batch.of([[1, 2], [3]]), Batch.of([[4, 5, 6]])])
        >>> both.ids.tolist(), both.lengths
        ([4, 5, 6, 1, 2, 3], (3, 2, 1))
        """
        names = batches[0].labels.keys()
        assert all(batch.labels.keys() == names for batch in batches), "batches with different labels"
        lengths = [length for batch in batches for length in batch.lengths]
        whole = cls.packed(
            torch.cat([batch.ids for batch in batches]),
            lengths,
            segments=torch.cat([batch.segments for batch in batches]),
            positions=torch.cat([batch.positions for batch in batches]),
            examples=torch.cat([batch.examples for batch in batches]),
            windows=torch.cat([batch.windows for batch in batches]),
            labels={name: torch.cat([batch.labels[name] for batch in batches]) for name in names},
        )
        order = longest_first(lengths)
        return whole if bool((order[1:] > order[:-1]).all()) else whole.take(order)

    def take(self, rows: "Integers") -> Self:
        """These rows, in this order. A label with as many entries as there are tokens is one per token."""
        sizes = np.asarray(self.lengths, np.int64)
        ends = np.cumsum(sizes[rows])
        begins = np.cumsum(sizes)[rows] - sizes[rows]
        # of the taken row, the distance between where its tokens were and where they are
        places = torch.from_numpy(np.arange(ends[-1]) + np.repeat(begins - ends + sizes[rows], sizes[rows]))
        chosen = torch.from_numpy(rows)
        return self.packed(
            self.ids[places],
            sizes[rows].tolist(),
            segments=self.segments[places],
            positions=self.positions[places],
            examples=self.examples[chosen],
            windows=self.windows[chosen],
            labels={
                name: label[places] if len(label) == self.n_tokens else label[chosen]
                for name, label in self.labels.items()
            },
        )

    @property
    def n_rows(self) -> int:
        return len(self.lengths)

    @property
    def n_tokens(self) -> int:
        return self.ids.numel()

    @property
    def longest(self) -> int:
        return max(self.lengths)

    @property
    def first(self) -> Tensor:
        """(R,) position of the first token of each row: its [CLS]."""
        return self.offsets[:-1].long()

    @property
    def row_of_token(self) -> Tensor:
        """(N,) the row of each token."""
        # output_size avoids synchronisation with a GPU
        return torch.repeat_interleave(self.offsets.diff(), output_size=self.n_tokens)

    @property
    def packing(self) -> Packing:
        return Packing(self.offsets, self.longest, self.lengths)

    def inputs(self) -> dict[str, Any]:
        """Keyword arguments for a model's forward."""
        return {"ids": self.ids, "segments": self.segments, "positions": self.positions, "packing": self.packing}

    def padded(self, pad_id: int = 0) -> Padded:
        return Padded(
            ids=self.pad(self.ids, pad_id),
            segments=self.pad(self.segments),
            positions=self.pad(self.positions),
            mask=self.pad(torch.ones_like(self.ids, dtype=torch.bool), False),
        )

    def pad(self, values: Tensor, fill: float = 0) -> Tensor:
        """(N, …) → (R, T, …)"""
        return pad(values, self.packing, fill)

    def unpad(self, values: Tensor) -> Tensor:
        """(R, T, …) → (N, …)"""
        return unpad(values, self.packing)

    def rows(self, values: Tensor) -> tuple[Tensor, ...]:
        """(N, …) → R views, one per row"""
        return torch.split(values, list(self.lengths))

    def parts(self, most: int, number: int) -> list[Self]:
        """Neighbouring rows as batches, without labels, of about equally many tokens: `number` of them or a multiple of
        it, so that each has at most about `most` tokens. No row is divided, so that there may be fewer.

        >>> batch = Batch.of([[1, 2, 3], [4], [5, 6], [7], [8]])
        >>> [part.lengths for part in batch.parts(100, 2)], [part.lengths for part in batch.parts(3, 2)]
        ([(3, 1), (2, 1, 1)], [(3,), (1,), (2,), (1, 1)])
        """
        wanted = number * -(-self.n_tokens // (most * number))
        ends = np.cumsum(self.lengths)  # (R,)
        # a row belongs to the part that its middle lies in
        owners = (ends - np.asarray(self.lengths) / 2) * wanted // self.n_tokens
        cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), self.n_rows]
        return [self._rows(first, last) for first, last in pairwise(cuts)]

    def _rows(self, first: int, last: int) -> Self:
        begin, end = int(self.offsets[first]), int(self.offsets[last])
        tokens, rows = slice(begin, end), slice(first, last)
        return replace(
            self,
            ids=self.ids[tokens],
            segments=self.segments[tokens],
            positions=self.positions[tokens],
            offsets=self.offsets[first : last + 1] - begin,
            lengths=self.lengths[rows],
            examples=self.examples[rows],
            windows=self.windows[rows],
            labels={},
        )

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pinned(self) -> Self:
        """Copy to pinned memory, so that `to` with `non_blocking` does not wait."""
        return self._each(pin)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        return replace(
            self,
            ids=change(self.ids),
            segments=change(self.segments),
            positions=change(self.positions),
            offsets=change(self.offsets),
            examples=change(self.examples),
            windows=change(self.windows),
            labels={name: change(label) for name, label in self.labels.items()},
        )

    def check(self, *, vocabulary: int, positions: int, segments: int) -> None:
        """Check every id against the sizes of the model's tables, with an error that names the row.

        On a GPU the same error would be a device-side assert without details.
        """
        for name, values, limit in (
            ("Token id", self.ids, vocabulary),
            ("Position", self.positions, positions),
            ("Segment", self.segments, segments),
        ):
            wrong = ((values < 0) | (values >= limit)).nonzero()
            if wrong.numel():
                token = int(wrong[0, 0])
                row = int(self.row_of_token[token])
                raise InputError(
                    f"{name} {int(values[token])} in row {row} (example {int(self.examples[row])}, "
                    f"token {token - int(self.offsets[row])}) is outside the model's 0 … {limit - 1}. "
                    "The text was prepared for another model: use the tokenizer of this one."
                )


def pin(tensor: Tensor) -> Tensor:
    """Copy to pinned memory."""
    if tensor.device.type != "cpu":
        return tensor
    # numpy, since torch would start a thread pool in every thread that builds batches
    held = torch.empty_like(tensor, pin_memory=True)
    held.numpy()[...] = tensor.numpy()
    return held


def pad(values: Tensor, packing: Packing, fill: float = 0) -> Tensor:
    """(N, …) → (R, T, …)"""
    rows = len(packing.lengths)
    rectangle = values.new_full((rows * packing.longest, *values.shape[1:]), fill)  # (R·T, …)
    rectangle = rectangle.index_copy(0, _places(packing), values)
    return rectangle.view(rows, packing.longest, *values.shape[1:])


def unpad(values: Tensor, packing: Packing) -> Tensor:
    """(R, T, …) → (N, …)"""
    return values.flatten(0, 1).index_select(0, _places(packing))


def _places(packing: Packing) -> Tensor:
    """(N,) position of each packed token in the flattened padded view."""
    offsets = packing.offsets.long()
    total = sum(packing.lengths)
    row = torch.repeat_interleave(offsets.diff(), output_size=total)  # (N,)
    return torch.arange(total, device=offsets.device) - offsets[row] + row * packing.longest


_KEPT = 2  # batches of two epochs are built at the same time when an epoch ends


_T = TypeVar("_T")


class Epochs(Generic[_T]):
    """Cache of epochs, each drawn once even if several threads need it; `draw` is a pure function of the number.

    >>> epochs = Epochs(lambda number: [number] * 3)
    >>> epochs(1), epochs(1) is epochs(1)
    ([1, 1, 1], True)
    """

    def __init__(self, draw: Callable[[int], _T]) -> None:
        self.draw = draw
        self._lock = Lock()
        self._drawn: dict[int, Future[_T]] = {}  # least recently used first

    def __call__(self, number: int) -> _T:
        with self._lock:
            drawn = self._drawn.pop(number, None)
            found = drawn if drawn is not None else Future()
            self._drawn[number] = found
            for old in list(self._drawn)[:-_KEPT]:
                del self._drawn[old]
        if drawn is None:
            try:
                found.set_result(self.draw(number))
            except BaseException as error:
                found.set_exception(error)
                with self._lock:
                    self._drawn.pop(number, None)
        return found.result()

    def begin(self, number: int) -> None:
        """Start to draw an epoch in the background, since that takes seconds on a large corpus."""
        with self._lock:
            wanted = number not in self._drawn
        if wanted:
            # a daemon: the process need not wait for it at exit
            Thread(target=self, args=(number,), name="qkv-epoch", daemon=True).start()


Integers = NDArray[np.int64]


Watch = Callable[[int, int], None]
"""Called while a long text is read: its windows so far, and all of them."""
_WATCHED = 32
"""Windows of a text from which it is worth watching."""


def watched(batches: Iterable[Integers], n_windows: Integers, watch: Watch | None) -> Iterator[Integers]:
    """The batches; `watch` hears how far they are, where one of the texts has many windows (E,)."""
    done, total = 0, int(n_windows.sum())
    for rows in batches:
        yield rows
        done += len(rows)
        if watch is not None and n_windows.max() >= _WATCHED:
            watch(done, total)


def plan_batches(lengths: Sequence[int] | Integers, tokens_per_batch: int) -> list[Integers]:
    """Which rows go together: sorted by length, longest first, as many as fit the budget (at least one).

    Longest first, so that a batch too large for memory fails at once and not at the end. Rows of equal length keep
    their order: the plan is a pure function of the lengths.

    >>> [rows.tolist() for rows in plan_batches([2, 9, 3, 3], tokens_per_batch=8)]
    [[1], [2, 3, 0]]
    """
    sizes, order = np.asarray(lengths, dtype=np.int64), longest_first(lengths)
    return cut_batches(order, sizes[order], tokens_per_batch)


def longest_first(lengths: Sequence[int] | Integers) -> Integers:
    """Rows sorted by length, longest first; rows of equal length keep their order.

    >>> longest_first([2, 9, 3, 3]).tolist()
    [1, 2, 3, 0]
    """
    return np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")


def cut_batches(order: Integers, weights: Integers, tokens_per_batch: int) -> list[Integers]:
    """Split rows in this order into batches of as many as fit the budget, at least one.

    >>> [batch.tolist() for batch in cut_batches(np.array([3, 0, 1, 2]), np.array([2, 3, 4, 9]), 6)]
    [[3, 0], [1], [2]]
    """
    reach = np.cumsum(weights)  # (R,) tokens up to and including this row
    batches, begin, before = [], 0, 0
    while begin < len(order):
        end = max(int(np.searchsorted(reach, before + tokens_per_batch, side="right")), begin + 1)
        batches.append(order[begin:end])
        begin, before = end, int(reach[end - 1])
    return batches


Item = TypeVar("Item")


def chunks(
    items: Iterable[Item], size: int, weight: Callable[[Item], int], most: int, first: int | None = None
) -> Iterator[list[Item]]:
    """Yield lists of at most `size` items that end when their total weight reaches `most`, to bound memory.

    With `first`, the first list ends at this weight and each one after it at twice as much, up to `most`, so that
    progress is shown early.

    >>> list(chunks(["a", "b", "c", "long", "d"], size=2, weight=len, most=4))
    [['a', 'b'], ['c', 'long'], ['d']]
    >>> ["".join(chunk) for chunk in chunks("abcdefghijk", 9, len, most=4, first=1)]
    ['a', 'bc', 'defg', 'hijk']
    """
    chunk, total, limit = [], 0, most if first is None else first
    for item in items:
        chunk.append(item)
        total += weight(item)
        if len(chunk) == size or total >= limit:
            yield chunk
            chunk, total, limit = [], 0, min(most, 2 * limit)
    if chunk:
        yield chunk
