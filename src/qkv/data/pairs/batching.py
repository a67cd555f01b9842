"""Translation pairs as token ids, and the batches of every step: a pure function of (seed, step).

`Languages` has a tokenizer for each side, or one for both, and the tokens around texts: [CLS] and [SEP] for models
trained here, others for other models.

A `PairBatch` is two packed batches with one row per pair. Target rows begin with the begin token, and `labels["next"]`
has the token after each, finally the end token. So the decoder reads [begin, y1 … yn] and predicts [y1 … yn, end]:

>>> batch = PairBatch.of([[7, 8, 3]], [[5, 6]], begin=2, end=3)
>>> batch.source.ids.tolist(), batch.target.ids.tolist(), batch.target.labels["next"].tolist()
([7, 8, 3], [2, 5, 6], [5, 6, 3])

All ids of a side are in one array of 32 bits, so that millions of pairs are a few hundred megabytes. An epoch has every
pair once. Pairs of similar length are batched together, since a step of a recurrent network, and attention on a CPU,
wait for the longest; lengths are perturbed a little in every epoch, so that batches differ. A batch has as many pairs
as fit a budget of tokens on both sides.

Shapes: E pairs, R rows of a batch.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.data.batch import Batch, Integers, chunks, cut_batches
from qkv.data.pairs.files import Pair
from qkv.text.sentence_case import sentence_case
from qkv.text.tokenizer import Encoded, Tokenizer


class Coder(Protocol):
    """The interface of a tokenizer needed here."""

    @property
    def size(self) -> int: ...
    @property
    def special_ids(self) -> Collection[int]: ...
    @property
    def unk_id(self) -> int: ...
    def encode(self, text: str, *, special: bool = True) -> Encoded: ...
    def token(self, id: int) -> str: ...
    def encode_ids(self, texts: Sequence[str]) -> list[list[int]]: ...
    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str: ...


@dataclass(frozen=True)
class SentenceCase:
    """The tokenizer of a source that is read in sentence case. Offsets are those of the text as it was given."""

    coder: Coder

    @property
    def size(self) -> int:
        return self.coder.size

    @property
    def special_ids(self) -> Collection[int]:
        return self.coder.special_ids

    @property
    def unk_id(self) -> int:
        return self.coder.unk_id

    def encode(self, text: str, *, special: bool = True) -> Encoded:
        return self.coder.encode(sentence_case(text), special=special)

    def encode_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return self.coder.encode_ids([sentence_case(text) for text in texts])

    def token(self, id: int) -> str:
        return self.coder.token(id)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return self.coder.decode(ids, skip_special)


class Languages(NamedTuple):
    source: Coder
    target: Coder
    begin: int  # before every target text
    end: int  # after it
    source_end: int  # after every source text
    never: tuple[int, ...] = ()  # tokens that never occur in target texts

    @classmethod
    def of(cls, source: Tokenizer, target: Tokenizer) -> "Languages":
        never = tuple(sorted(set(target.special_ids) - {target.sep_id}))
        return cls(source, target, target.cls_id, target.sep_id, source.sep_id, never)

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode source texts as the encoder reads them: [x1 … xn, end]"""
        return [[*ids, self.source_end] for ids in self.source.encode_ids(texts)]

    def unknown(self, text: str, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Return the spans of unknown tokens in a source text, which cannot be translated; `ids` are from `read`."""
        if self.source.unk_id not in ids:
            return []
        found = self.source.encode(text, special=False)
        spans = zip(found.ids, found.offsets, strict=True)
        return [_without_spaces(text, *span) for token, span in spans if token == self.source.unk_id]


def _without_spaces(text: str, start: int, end: int) -> tuple[int, int]:
    """
    >>> _without_spaces("a  b ", 1, 5)
    (3, 4)
    """
    shown = text[start:end].strip()
    begin = text.index(shown, start) if shown else start
    return begin, begin + len(shown)


NEXT = "next"


@dataclass(frozen=True)
class PairBatch:
    source: Batch
    target: Batch  # row r is the translation of row r of the source

    def __post_init__(self) -> None:
        assert self.source.n_rows == self.target.n_rows, "every source has its target"

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], begin: int, end: int) -> Self:
        """Build from lists of ids: sources as the encoder reads them, targets without begin and end."""
        labels = torch.tensor([token for row in targets for token in (*row, end)], dtype=torch.int64)
        target = Batch.of([[begin, *row] for row in targets], labels={NEXT: labels})
        return cls(Batch.of(sources), target)

    @property
    def n_rows(self) -> int:
        return self.target.n_rows

    @property
    def n_tokens(self) -> int:
        """Tokens of the target, which are predicted."""
        return self.target.n_tokens

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        return type(self)(self.source.to(device, non_blocking), self.target.to(device, non_blocking))

    def pinned(self) -> Self:
        return type(self)(self.source.pinned(), self.target.pinned())


_CHUNK = 4_096  # pairs tokenized together
_CHARACTERS = 1 << 22  # maximum characters of a chunk, both sides
BLUR = 0.15  # maximum relative perturbation of a length


class EncodedSide(NamedTuple):
    ids: NDArray[np.int32]  # of all texts, concatenated
    offsets: Integers  # (E + 1,)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> "EncodedSide":
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        flat = (token for row in rows for token in row)
        return cls(np.fromiter(flat, np.int32, int(lengths.sum())), np.append(0, np.cumsum(lengths)))

    @property
    def lengths(self) -> Integers:
        return np.diff(self.offsets)

    def gather(self, rows: Integers, room: int) -> tuple[Integers, Integers, Integers]:
        """Return the concatenated ids of these texts with `room` free positions after each, lengths (R,) and starts
        (R,)."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]  # (R,)
        sizes = lengths + room
        ends = np.cumsum(sizes)
        begins = ends - sizes
        within = np.arange(int(ends[-1])) - np.repeat(begins, sizes)
        at = np.minimum(np.repeat(self.offsets[rows], sizes) + within, len(self.ids) - 1)
        return self.ids[at].astype(np.int64), sizes, begins


@dataclass(frozen=True)
class EncodedPairs:
    source: EncodedSide  # without the end
    target: EncodedSide

    def __len__(self) -> int:
        return len(self.source.offsets) - 1


class PairEncoding(NamedTuple):
    pairs: EncodedPairs
    too_long: tuple[int, ...]  # dropped pairs, counted from 0
    nothing: tuple[int, ...]  # dropped pairs without a token on one side


def encode_pairs(pairs: Iterable[Pair], languages: Languages, max_length: int) -> PairEncoding:
    """Encode all pairs, a few thousand texts in memory at a time. `max_length` includes begin or end."""
    parts: tuple[list[EncodedSide], list[EncodedSide]] = ([], [])
    too_long: list[int] = []
    nothing: list[int] = []
    number = 0
    for chunk in chunks(pairs, _CHUNK, lambda pair: len(pair.source) + len(pair.target), _CHARACTERS):
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
        parts[0].append(EncodedSide.of([sources[row] for row in kept]))
        parts[1].append(EncodedSide.of([targets[row] for row in kept]))
        number += len(chunk)
    return PairEncoding(EncodedPairs(_concatenate(parts[0]), _concatenate(parts[1])), tuple(too_long), tuple(nothing))


def _concatenate(parts: Sequence[EncodedSide]) -> EncodedSide:
    lengths = np.concatenate([part.lengths for part in parts]) if parts else np.zeros(0, np.int64)
    ids = np.concatenate([part.ids for part in parts]) if parts else np.zeros(0, np.int32)
    return EncodedSide(ids, np.append(0, np.cumsum(lengths)))


class PairBatches:
    """Step → its batches. Safe to call from several threads."""

    def __init__(
        self, pairs: EncodedPairs, languages: Languages, tokens_per_batch: int, *, accumulate: int = 1, seed: int = 0
    ) -> None:
        assert len(pairs), "there is at least one pair"
        self.pairs, self.languages, self.seed = pairs, languages, seed
        self.tokens_per_batch, self.accumulate = tokens_per_batch, accumulate
        self.weights = np.maximum(pairs.source.lengths, pairs.target.lengths) + 1  # (E,) with begin or end
        self._lock = Lock()
        self._starts = [0]  # number of the first batch of every epoch so far
        self._plans: dict[int, list[Integers]] = {}

    @property
    def steps_per_epoch(self) -> float:
        """Steps of the first epoch; others differ by a batch or two."""
        return len(self.epoch(0)) / self.accumulate

    def __call__(self, step: int) -> list[PairBatch]:
        first = step * self.accumulate
        return [self.collate(self.rows(number)) for number in range(first, first + self.accumulate)]

    def rows(self, number: int) -> Integers:
        """Return the pairs of a batch, counted from the beginning of training."""
        with self._lock:
            while self._starts[-1] <= number:
                self._starts.append(self._starts[-1] + len(self._plan(len(self._starts) - 1)))
            epoch = int(np.searchsorted(self._starts, number, side="right")) - 1
            return self._plan(epoch)[number - self._starts[epoch]]

    def epoch(self, number: int) -> list[Integers]:
        with self._lock:
            return self._plan(number)

    def _plan(self, epoch: int) -> list[Integers]:
        """Return the batches of an epoch, drawn independently of other epochs (but its first batch number depends on
        how many batches the earlier epochs have)."""
        if epoch not in self._plans:
            draw = np.random.default_rng((self.seed, epoch))
            order = np.argsort(self.weights * (1 + BLUR * draw.random(len(self.weights))), kind="stable")
            batches = cut_batches(order, self.weights[order], self.tokens_per_batch)
            self._plans = {old: plan for old, plan in self._plans.items() if old >= epoch - 1}
            self._plans[epoch] = [batches[place] for place in draw.permutation(len(batches))]
        return self._plans[epoch]

    def collate(self, rows: Integers) -> PairBatch:
        source, sizes, begins = self.pairs.source.gather(rows, 1)
        source[begins + sizes - 1] = self.languages.source_end
        labels, lengths, starts = self.pairs.target.gather(rows, 1)
        labels[starts + lengths - 1] = self.languages.end
        target = np.roll(labels, 1)  # the previous token of each
        target[starts] = self.languages.begin
        examples = torch.from_numpy(rows)
        return PairBatch(
            Batch.packed(torch.from_numpy(source), sizes.tolist(), examples=examples),
            Batch.packed(
                torch.from_numpy(target), lengths.tolist(), examples=examples, labels={NEXT: torch.from_numpy(labels)}
            ),
        )
