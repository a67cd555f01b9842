"""Texts to batches: windows where a text is too long, rows sorted by length, packed up to a budget of tokens.

Nothing is cut: a text longer than the model becomes several windows of equal length that overlap, so that a token near
the edge of one window has its context in the next. Every token is *counted* in exactly one window, the one where it
lies further from an edge, so that a mean over counted tokens is a mean over the text:

    tokens   0 1 2 3 4 5 6 7 8 9
    window 0 [c c c c c .]              c = counted here
    window 1         [. c c c c c]

Rows of like length lie side by side (attention on a CPU runs in groups of equal length), and a batch holds as many rows
as fit `tokens_per_batch`: short texts come by the hundred, long ones by the handful, at the same cost. All of it works
on flat arrays; no Python loop touches a token.

A window may begin inside a word (at a ## piece); whoever needs whole words passes the cuts that suit them.

Shapes: E examples (texts), R rows (windows), N tokens.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.batch import Batch

Integers = NDArray[np.int64]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Windows:
    """Which tokens of which example lie in each row, and which of them are counted there. All (R,)."""

    examples: Integers
    windows: Integers  # 0, 1, … within the example
    starts: Integers  # first token of the window, counted in the example
    ends: Integers  # one past its last token
    counted_starts: Integers  # the tokens counted here: starts ≤ counted_starts < counted_ends ≤ ends
    counted_ends: Integers


def cut(lengths: Sequence[int] | Integers, size: int, overlap: int) -> Windows:
    """Cut examples of these many tokens into windows of at most `size` tokens that share at least `overlap`.

    An example that fits is one window, an empty one too. A longer one gets as few windows as will do, all equally long
    and evenly spread.

    >>> pieces = cut([3, 10], size=6, overlap=2)
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
    # the line between two windows runs through the middle of what they share
    middle = (starts[1:] + ends[:-1]) // 2
    same = windows[1:] > 0
    counted_starts, counted_ends = starts.copy(), ends.copy()
    counted_starts[1:][same] = middle[same]
    counted_ends[:-1][same] = middle[same]
    return Windows(examples, windows, starts, ends, counted_starts, counted_ends)


def plan(lengths: Sequence[int] | Integers, tokens_per_batch: int) -> list[Integers]:
    """Which rows go together: sorted by length, longest first, as many as fit the budget (at least one).

    Longest first, so that a batch too large for memory fails at once and not at the end. Rows of equal length keep
    their order: the plan is a pure function of the lengths.

    >>> [rows.tolist() for rows in plan([2, 9, 3, 3], tokens_per_batch=8)]
    [[1], [2, 3, 0]]
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    reach = np.cumsum(sizes[order])  # (R,) tokens up to and including this row
    batches, begin, before = [], 0, 0
    while begin < len(order):
        end = max(int(np.searchsorted(reach, before + tokens_per_batch, side="right")), begin + 1)
        batches.append(order[begin:end])
        begin, before = end, int(reach[end - 1])
    return batches


class Rows:
    """Examples cut into windows that each get [CLS] and [SEP], ready to be collated.

    Counted tokens: the content as `cut` divides it, [CLS] in the first window of an example and [SEP] in its last. So
    the counted tokens of an example are [CLS] content [SEP], each once, whatever the number of windows.
    """

    def __init__(self, ids: Sequence[Sequence[int]], cls_id: int, sep_id: int, max_length: int, overlap: int) -> None:
        """`ids` without special tokens; `max_length` with them; `overlap` in tokens of content."""
        sizes = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))  # (E,)
        # one spare token at the end keeps the gather of `collate` inside the array
        self._content = np.fromiter(chain(chain.from_iterable(ids), (sep_id,)), np.int64, count=int(sizes.sum()) + 1)
        self._cls_id, self._sep_id = cls_id, sep_id
        self.cuts = cut(sizes, max_length - 2, overlap)
        self._starts = (np.cumsum(sizes) - sizes)[self.cuts.examples] + self.cuts.starts  # (R,) in the content
        self.lengths: Integers = self.cuts.ends - self.cuts.starts + 2  # (R,)
        self.n_examples = len(sizes)
        self.n_tokens: Integers = sizes + 2  # (E,) counted tokens
        self.n_windows: Integers = np.bincount(self.cuts.examples, minlength=len(sizes)).astype(np.int64)  # (E,)
        is_last = np.ones(len(self.lengths), dtype=bool)
        is_last[:-1] = self.cuts.windows[1:] == 0
        # counted positions of each row, [CLS] standing at 0 and [SEP] at the end
        self.counted_starts: Integers = self.cuts.counted_starts - self.cuts.starts + (self.cuts.windows > 0)
        self.counted_ends: Integers = self.cuts.counted_ends - self.cuts.starts + 1 + is_last

    def __len__(self) -> int:
        return len(self.lengths)

    def collate(self, rows: Integers) -> Batch:
        """The batch of these rows; `examples` and `windows` say where each came from."""
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths)
        begins = ends - lengths
        within = np.arange(int(ends[-1])) - np.repeat(begins, lengths)  # (N,) position in the row
        ids = self._content[np.repeat(self._starts[rows] - 1, lengths) + within]  # [CLS] and [SEP] come out wrong here
        ids[begins] = self._cls_id
        ids[ends - 1] = self._sep_id
        return Batch.packed(
            torch.from_numpy(ids),
            lengths.tolist(),
            positions=torch.from_numpy(within),
            examples=torch.from_numpy(self.cuts.examples[rows]),
            windows=torch.from_numpy(self.cuts.windows[rows]),
        )

    def counted(self, rows: Integers) -> tuple[torch.Tensor, torch.Tensor]:
        """Which tokens of the collated batch are counted, and where each row's begin among them.

        Returns places (M,) in the packed batch and offsets (R,) into them, as torch's embedding_bag reads them.
        """
        lengths, starts = self.lengths[rows], self.counted_starts[rows]
        sizes = self.counted_ends[rows] - starts  # (R,)
        offsets = np.cumsum(sizes) - sizes
        begins = np.cumsum(lengths) - lengths
        places = np.arange(int(sizes.sum())) + np.repeat(begins + starts - offsets, sizes)
        return torch.from_numpy(places), torch.from_numpy(offsets)

    def counts(self) -> Integers:
        """(R,) how many tokens are counted in each row."""
        return self.counted_ends - self.counted_starts


def chunks(items: Iterable[Item], size: int, weight: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Lists that end at `size` items, or as soon as their weights reach `most`.

    A stream of any length thus passes through bounded memory, be its items many or large.

    >>> list(chunks(["a", "b", "c", "long", "d"], size=2, weight=len, most=4))
    [['a', 'b'], ['c', 'long'], ['d']]
    """
    chunk, total = [], 0
    for item in items:
        chunk.append(item)
        total += weight(item)
        if len(chunk) == size or total >= most:
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk
