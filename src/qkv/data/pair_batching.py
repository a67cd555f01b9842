"""Pairs as token ids, and the batches of every step: a pure function of (seed, step).

All ids of a side lie end to end in one array of 32 bits, so that millions of pairs are a few hundred megabytes. An
epoch is every pair once. Pairs of like length lie together, since a step of a recurrent network, and attention on a
CPU, wait for the longest; how long a pair counts is blurred a little, differently in every epoch, so that the same
pairs do not always meet. A batch holds as many pairs as fit a budget of tokens on either side.

Shapes: E pairs, R rows of a batch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.batch import Batch
from qkv.data.batching import chunks
from qkv.data.pair_batch import NEXT, PairBatch
from qkv.data.pair_files import Pair
from qkv.data.pair_languages import Languages

CHUNK = 4_096  # texts that are tokenized at a time
CHARACTERS = 1 << 22  # of both sides: a chunk ends here at the latest
BLUR = 0.15  # of a length: what it may count more
Integers = NDArray[np.int64]


class Side(NamedTuple):
    ids: NDArray[np.int32]  # of all texts, end to end
    offsets: Integers  # (E + 1,)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> "Side":
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        flat = (token for row in rows for token in row)
        return cls(np.fromiter(flat, np.int32, int(lengths.sum())), np.append(0, np.cumsum(lengths)))

    @property
    def lengths(self) -> Integers:
        return np.diff(self.offsets)

    def gather(self, rows: Integers, room: int) -> tuple[Integers, Integers, Integers]:
        """The ids of these texts end to end with `room` places beside each, all lengths (R,), where each begins (R,).

        The free places are those after the text's own.
        """
        lengths = self.offsets[rows + 1] - self.offsets[rows]  # (R,)
        sizes = lengths + room
        ends = np.cumsum(sizes)
        begins = ends - sizes
        within = np.arange(int(ends[-1])) - np.repeat(begins, sizes)
        at = np.minimum(np.repeat(self.offsets[rows], sizes) + within, len(self.ids) - 1)
        return self.ids[at].astype(np.int64), sizes, begins


@dataclass(frozen=True)
class EncodedPairs:
    source: Side  # without the end
    target: Side

    def __len__(self) -> int:
        return len(self.source.offsets) - 1


class Encoding(NamedTuple):
    pairs: EncodedPairs
    too_long: tuple[int, ...]  # which were left out, counted from 0
    nothing: tuple[int, ...]  # of these no token came, on one side or the other


def encoded(pairs: Iterable[Pair], languages: Languages, max_length: int) -> Encoding:
    """All pairs as ids, a few thousand texts in memory at a time. `max_length` is with begin or end."""
    parts: tuple[list[Side], list[Side]] = ([], [])
    too_long: list[int] = []
    nothing: list[int] = []
    number = 0
    for chunk in chunks(pairs, CHUNK, lambda pair: len(pair.source) + len(pair.target), CHARACTERS):
        sources = languages.source.encode_ids([pair.source for pair in chunk])
        targets = languages.target.encode_ids([pair.target for pair in chunk])
        kept = []
        for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if not source or not target:
                nothing.append(number + row)
            elif max(len(source), len(target)) >= max_length:
                too_long.append(number + row)
            else:
                kept.append(row)
        parts[0].append(Side.of([sources[row] for row in kept]))
        parts[1].append(Side.of([targets[row] for row in kept]))
        number += len(chunk)
    return Encoding(EncodedPairs(_joined(parts[0]), _joined(parts[1])), tuple(too_long), tuple(nothing))


def _joined(parts: Sequence[Side]) -> Side:
    lengths = np.concatenate([part.lengths for part in parts]) if parts else np.zeros(0, np.int64)
    ids = np.concatenate([part.ids for part in parts]) if parts else np.zeros(0, np.int32)
    return Side(ids, np.append(0, np.cumsum(lengths)))


class PairBatches:
    """Called with a step, answers with its batches. Several threads may ask at a time."""

    def __init__(
        self, pairs: EncodedPairs, languages: Languages, tokens_per_batch: int, *, accumulate: int = 1, seed: int = 0
    ) -> None:
        assert len(pairs), "there is at least one pair"
        self.pairs, self.languages, self.seed = pairs, languages, seed
        self.tokens_per_batch, self.accumulate = tokens_per_batch, accumulate
        self.weights = np.maximum(pairs.source.lengths, pairs.target.lengths) + 1  # (E,) with begin or end
        self._lock = Lock()
        self._starts = [0]  # the number of its first batch, for every epoch that was come to
        self._plans: dict[int, list[Integers]] = {}

    @property
    def steps_per_epoch(self) -> float:
        """Of the first one; others differ by a batch or two."""
        return len(self.epoch(0)) / self.accumulate

    def __call__(self, step: int) -> list[PairBatch]:
        first = step * self.accumulate
        return [self.collate(self.rows(number)) for number in range(first, first + self.accumulate)]

    def rows(self, number: int) -> Integers:
        """Which pairs are in this batch, counted from the beginning of the training."""
        with self._lock:
            while self._starts[-1] <= number:
                self._starts.append(self._starts[-1] + len(self._plan(len(self._starts) - 1)))
            epoch = int(np.searchsorted(self._starts, number, side="right")) - 1
            return self._plan(epoch)[number - self._starts[epoch]]

    def epoch(self, number: int) -> list[Integers]:
        with self._lock:
            return self._plan(number)

    def _plan(self, epoch: int) -> list[Integers]:
        """Each epoch is drawn by its own number: its order owes nothing to others. Where it begins does: how many
        batches come before it is known only once all the earlier ones are planned."""
        if epoch not in self._plans:
            draw = np.random.default_rng((self.seed, epoch))
            order = np.argsort(self.weights * (1 + BLUR * draw.random(len(self.weights))), kind="stable")
            batches = cut(order, self.weights[order], self.tokens_per_batch)
            self._plans = {old: plan for old, plan in self._plans.items() if old >= epoch - 1}
            self._plans[epoch] = [batches[place] for place in draw.permutation(len(batches))]
        return self._plans[epoch]

    def collate(self, rows: Integers) -> PairBatch:
        source, sizes, begins = self.pairs.source.gather(rows, 1)
        source[begins + sizes - 1] = self.languages.source_end
        labels, lengths, starts = self.pairs.target.gather(rows, 1)
        labels[starts + lengths - 1] = self.languages.end
        target = np.roll(labels, 1)  # what stands before each
        target[starts] = self.languages.begin
        examples = torch.from_numpy(rows)
        return PairBatch(
            Batch.packed(torch.from_numpy(source), sizes.tolist(), examples=examples),
            Batch.packed(
                torch.from_numpy(target), lengths.tolist(), examples=examples, labels={NEXT: torch.from_numpy(labels)}
            ),
        )


def cut(order: Integers, weights: Integers, tokens: int) -> list[Integers]:
    """The rows in this order, in batches of as many as fit the budget, at least one.

    >>> [batch.tolist() for batch in cut(np.array([3, 0, 1, 2]), np.array([2, 3, 4, 9]), 6)]
    [[3, 0], [1], [2]]
    """
    reach = np.cumsum(weights)
    batches, begin, before = [], 0, 0
    while begin < len(order):
        end = max(int(np.searchsorted(reach, before + tokens, side="right")), begin + 1)
        batches.append(order[begin:end])
        begin, before = end, int(reach[end - 1])
    return batches
