"""Which spans of a corpus stand in a row: pairs for next-sentence prediction, or one long span.

Next-sentence prediction (Devlin et al. 2019, §3.1 task 2): A is a run of sentences, and B is, half of the time, what
really follows (IsNext), half of the time a run of sentences from elsewhere (NotNext):

    "document"  from another document, as the original code does
    "corpus"    from any other place but the true next one, as the lecture notes say; serves one document too
    "none"      no second span: one long run of text

Spans are filled up to the maximum length, but for a share of short ones (appendix A.2), so that a model sees both.
What A gives up to fit is its beginning, what B gives up is its end: the two stay neighbours. A document of a single
sentence is split inside it, so that a coin decides every label and IsNext stays at one half.

All instances of an epoch are drawn at once, as a pure function of (corpus, seed, epoch). Positions are token indices
of the whole corpus.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from qkv.errors import InputError, did_you_mean

IS_NEXT, NOT_NEXT = 0, 1
NEGATIVES = ("document", "corpus", "none")


@dataclass(frozen=True)
class PairConfig:
    negatives: str = "document"
    max_length: int = 128
    short_share: float = 0.1

    def __post_init__(self) -> None:
        if self.negatives not in NEGATIVES:
            hint = did_you_mean(self.negatives, NEGATIVES)
            raise InputError(f"Unknown negatives '{self.negatives}'.{hint} Known: {', '.join(NEGATIVES)}.")
        if self.max_length < 8:
            raise InputError(f"max_length must be at least 8 tokens, not {self.max_length}.")
        if not 0 <= self.short_share <= 1:
            raise InputError(f"short_share is a share between 0 and 1, not {self.short_share}.")


class Boundaries(Protocol):
    """What pairing has to know of a corpus."""

    @property
    def sentence_offsets(self) -> NDArray[np.int64]: ...  # (S + 1,) token indices
    @property
    def document_offsets(self) -> NDArray[np.int64]: ...  # (documents + 1,) sentence indices


class Instances(NamedTuple):
    """Rows of an epoch; B is empty without pairs."""

    a_start: NDArray[np.int64]
    a_length: NDArray[np.int64]
    b_start: NDArray[np.int64]
    b_length: NDArray[np.int64]
    label: NDArray[np.int64]  # IS_NEXT or NOT_NEXT

    def __len__(self) -> int:  # a named tuple would count its fields
        return len(self.a_start)

    def take(self, rows: NDArray[np.int64]) -> "Instances":
        return Instances(*(column[rows] for column in self))


def instances(corpus: Boundaries, config: PairConfig, seed: int, epoch: int) -> Instances:
    """Every row of an epoch, in the order of the corpus."""
    draw = np.random.default_rng(np.random.SeedSequence((seed, epoch)))
    if config.negatives == "none":
        return _spans(corpus, config, draw)
    if config.negatives == "document" and len(corpus.document_offsets) < 3:
        raise InputError(
            "The corpus is one document only, so a random second span cannot come from another one. "
            "Take it from elsewhere in the corpus (negatives = corpus), or train without pairs (negatives = none)."
        )
    return _Pairs(corpus, config, draw).build()


def _spans(corpus: Boundaries, config: PairConfig, draw: np.random.Generator) -> Instances:
    """Documents cut into spans that leave nothing out; the first cut of a document is elsewhere every epoch."""
    room = config.max_length - 2  # [CLS] and [SEP]
    bounds = corpus.sentence_offsets[corpus.document_offsets]
    starts, lengths = [], []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        size = int(draw.integers(1, room + 1)) if end - begin > room else room
        while begin < end:
            size = min(size, end - begin)
            starts.append(begin)
            lengths.append(size)
            begin += size
            size = int(draw.integers(2, room + 1)) if draw.random() < config.short_share else room
    a_start, a_length = np.array(starts, np.int64), np.array(lengths, np.int64)
    empty = np.zeros_like(a_start)
    return Instances(a_start, a_length, empty, empty, empty)


class _Pairs:
    def __init__(self, corpus: Boundaries, config: PairConfig, draw: np.random.Generator) -> None:
        self.config, self.draw = config, draw
        self.room = config.max_length - 3  # [CLS], [SEP], [SEP]
        # lists, because bisect and indexing one by one are several times faster on them than on arrays
        self.tokens: list[int] = corpus.sentence_offsets.tolist()
        self.documents: list[int] = corpus.document_offsets.tolist()
        self.rows: list[tuple[int, int, int, int, int]] = []

    def build(self) -> Instances:
        for document in range(len(self.documents) - 1):
            self._document(document)
        columns = np.array(self.rows, np.int64).reshape(-1, 5).T.copy()
        return Instances(*columns)

    def _document(self, document: int) -> None:
        sentence, last = self.documents[document], self.documents[document + 1]
        while sentence < last:
            short = self.draw.random() < self.config.short_share
            target = int(self.draw.integers(2, self.room + 1)) if short else self.room
            # as many whole sentences as reach the target
            stop = min(last, bisect_left(self.tokens, self.tokens[sentence] + target, sentence + 1))
            begin, end = self.tokens[sentence], self.tokens[stop]
            if end - begin < 2:  # a document of one token has no second span
                sentence = stop
                continue
            if stop - sentence > 1:
                split_sentence = sentence + 1 + int(self.draw.integers(stop - sentence - 1))
                split = self.tokens[split_sentence]
            else:
                split_sentence = stop
                split = begin + 1 + int(self.draw.integers(end - begin - 1))
            if self.draw.random() < 0.5:
                self._add(begin, split, split, end, IS_NEXT)
                sentence = stop
            else:
                other, other_end = self._elsewhere(document, split, max(1, target - (split - begin)))
                self._add(begin, split, other, other_end, NOT_NEXT)
                sentence = split_sentence  # what would have followed is used by the next row

    def _elsewhere(self, document: int, true_next: int, wanted: int) -> tuple[int, int]:
        """A run of sentences of about the wanted length from another place."""
        if self.config.negatives == "document":
            other = int(self.draw.integers(len(self.documents) - 2))
            other += other >= document
            first, last = self.documents[other], self.documents[other + 1]
            sentence = first + int(self.draw.integers(last - first))
        else:
            sentence = int(self.draw.integers(self.documents[-1]))
            while self.tokens[sentence] == true_next:
                sentence = int(self.draw.integers(self.documents[-1]))
            last = self.documents[bisect_left(self.documents, sentence + 1)]
        stop = min(last, bisect_left(self.tokens, self.tokens[sentence] + wanted, sentence + 1))
        return self.tokens[sentence], self.tokens[stop]

    def _add(self, a_start: int, a_end: int, b_start: int, b_end: int, label: int) -> None:
        a, b = a_end - a_start, b_end - b_start
        half = self.room // 2
        if a + b > self.room:  # the longer one gives way first
            a, b = (self.room - b, b) if b <= half else (a, self.room - a) if a <= half else (self.room - half, half)
        self.rows.append((a_end - a, a, b_start, b, label))
