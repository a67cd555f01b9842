"""Rows of a corpus: two segments for next-sentence prediction, or one long one (BERT); and continuous text.

Next-sentence prediction (Devlin et al. 2019, §3.1 task 2): A is a run of sentences. B is, with probability one half,
what follows in the document (IsNext), otherwise a run of sentences from elsewhere (NotNext):

    "document"  from another document, as in the original code
    "corpus"    from anywhere except the true continuation, as in the lecture notes; works for one document too
    "none"      no second segment: one long run of text

Rows are filled up to the maximum length, except for a share of short ones (appendix A.2). Since long rows are
expensive, most rows may have a usual length and only a few the maximum, which trains the later positions. To fit, A is
truncated at its beginning and B at its end, so the two stay adjacent. A document of a single sentence is split inside
it, so that half of the labels are IsNext.

All instances of an epoch are drawn at once, as a pure function of (corpus, seed, epoch). Where a row ends depends only
on the sentence where it begins; so this is drawn for all sentences together, and then one pass through the corpus finds
where rows begin. Positions are token indices in the whole corpus.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.config import check_known, check_least
from qkv.data.batch import Batch, Epochs, Integers
from qkv.errors import InputError

IS_NEXT, NOT_NEXT = 0, 1
_NEGATIVES = ("document", "corpus", "none")
_TOGETHER = 1 << 20  # sentences drawn at a time, to bound memory; affects the draws


@dataclass(frozen=True)
class PairConfig:
    negatives: str = "document"
    max_length: int = 128
    short_share: float = 0.1
    usual_length: int | None = None  # length of most rows; None: max_length
    long_share: float = 0.05  # share of rows with max_length, if usual_length is set

    def __post_init__(self) -> None:
        check_known(self, negatives=_NEGATIVES)
        if self.max_length < 8:
            raise InputError(f"max_length must be at least 8 tokens, not {self.max_length}.")
        for name in ("short_share", "long_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} must be a share from 0 to 1, not {getattr(self, name)}.")
        if self.usual_length is not None and not 8 <= self.usual_length <= self.max_length:
            raise InputError(
                f"usual_length must be from 8 to max_length, which is {self.max_length}, not {self.usual_length}."
            )
        if self.usual_length is None and self.long_share != PairConfig.long_share:
            raise InputError("long_share is the share of rows beyond the usual length: set usual_length too.")

    def room(self, special: int) -> tuple[int, int]:
        """Return the number of text tokens in a usual row and in the longest, without `special` special tokens."""
        return (self.usual_length or self.max_length) - special, self.max_length - special


class Boundaries(Protocol):
    """Boundaries of the sentences and documents of a corpus."""

    @property
    def sentence_offsets(self) -> NDArray[np.int64]: ...  # (S + 1,) token indices
    @property
    def document_offsets(self) -> NDArray[np.int64]: ...  # (documents + 1,) sentence indices


class Instances(NamedTuple):
    """Rows of an epoch; B is empty if there is one segment per row."""

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
    """Draw every row of an epoch, in the order of the corpus."""
    draw = np.random.default_rng(np.random.SeedSequence((seed, epoch)))
    if config.negatives == "none":
        return _spans(corpus, config, draw)
    if config.negatives == "document" and len(corpus.document_offsets) < 3:
        raise InputError(
            "The corpus has only one document, so a random second segment cannot come from another one. "
            "Take it from elsewhere in the corpus (--set pairs.negatives=corpus), or train without pairs "
            "(--set pairs.negatives=none)."
        )
    return _pairs(corpus, config, draw)


def _spans(corpus: Boundaries, config: PairConfig, draw: np.random.Generator) -> Instances:
    """Split documents into consecutive segments; the first split of a document differs in every epoch."""
    room, _ = config.room(2)  # [CLS] and [SEP]
    bounds = corpus.sentence_offsets[corpus.document_offsets]
    first = draw.integers(1, room + 1, len(bounds) - 1)
    sizes = _targets(config, 2, draw)
    starts = []
    for begin, end, size in zip(bounds[:-1].tolist(), bounds[1:].tolist(), first.tolist(), strict=True):
        starts.append(begin)
        if end - begin > room:
            begin += size
            while begin < end:
                starts.append(begin)
                begin += next(sizes)
    a_start = np.array(starts, np.int64)
    empty = np.zeros_like(a_start)
    return Instances(a_start, np.diff(a_start, append=bounds[-1]), empty, empty, empty)


def _targets(config: PairConfig, special: int, draw: np.random.Generator) -> Iterator[int]:
    """Yield target lengths of rows, forever."""
    while True:
        yield from _lengths(config, special, draw, 1 << 12).tolist()


def _lengths(config: PairConfig, special: int, draw: np.random.Generator, count: int) -> NDArray[np.int64]:
    usual, longest = config.room(special)
    found = np.where(draw.random(count) < config.short_share, draw.integers(2, usual + 1, count), usual)
    return found if usual == longest else np.where(draw.random(count) < config.long_share, longest, found)


def _pairs(corpus: Boundaries, config: PairConfig, draw: np.random.Generator) -> Instances:
    sentences = len(corpus.sentence_offsets) - 1
    found = [Instances(*np.zeros((5, 0), np.int64))]
    begin = 0  # first sentence of the next row
    for first in range(0, sentences, _TOGETHER):
        end = min(sentences, first + _TOGETHER)
        drawn = _Drawn(corpus, config, draw, np.arange(first, end))
        following, begins = drawn.following.tolist(), []
        while begin < end:
            begins.append(begin - first)
            begin = following[begin - first]
        found.append(drawn.rows(np.array(begins, np.int64)))
    return Instances(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


class _Drawn:
    """For each of some sentences, the row that would begin with it."""

    def __init__(
        self, corpus: Boundaries, config: PairConfig, draw: np.random.Generator, sentence: NDArray[np.int64]
    ) -> None:
        self.config, self.draw = config, draw
        self.tokens, self.documents = corpus.sentence_offsets, corpus.document_offsets
        self.sentence = sentence
        self.document = np.searchsorted(self.documents, sentence, side="right") - 1
        self.target = _lengths(config, 3, draw, len(sentence))  # without [CLS], [SEP] and [SEP]
        usual, longest = config.room(3)
        self.room = np.where(self.target > usual, longest, usual)  # whole sentences may exceed the target
        self.begin = self.tokens[sentence]
        stop = self._reach(sentence, self.document, self.target)
        self.end = self.tokens[stop]
        # the boundary between A and B: between sentences, or inside a single sentence
        self.splits_inside = stop - sentence == 1
        choices = np.where(self.splits_inside, self.end - self.begin, stop - sentence) - 1
        place = 1 + draw.integers(0, np.maximum(1, choices))
        self.split_sentence = np.where(self.splits_inside, stop, sentence + place)
        self.split = np.where(self.splits_inside, self.begin + place, self.tokens[self.split_sentence])
        self.is_next = draw.random(len(sentence)) < 0.5
        self.is_pair = self.end - self.begin > 1  # a document of one token has no second segment
        # the true continuation of a NotNext is used by the next row
        self.following = np.where(self.is_next | ~self.is_pair, stop, self.split_sentence)

    def rows(self, chosen: NDArray[np.int64]) -> Instances:
        """Return the rows of the chosen sentences; draws B of each NotNext."""
        chosen = chosen[self.is_pair[chosen]]
        a_start, split, b_end = self.begin[chosen], self.split[chosen], self.end[chosen]
        b_start = split.copy()
        random = ~self.is_next[chosen]
        b_start[random], b_end[random] = self._elsewhere(chosen[random])
        a, b, room = split - a_start, b_end - b_start, self.room[chosen]
        half = room // 2
        # the longer one is truncated first
        a_fits = np.where(b <= half, room - b, np.where(a <= half, a, room - half))
        too_long = a + b > room
        a, b = np.where(too_long, a_fits, a), np.where(too_long, room - a_fits, b)
        return Instances(split - a, a, b_start, b, np.where(random, NOT_NEXT, IS_NEXT))

    def _elsewhere(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw a run of sentences from elsewhere for each row, of about the remaining length."""
        if self.config.negatives == "document":
            document = self.draw.integers(0, len(self.documents) - 2, len(rows))
            document += document >= self.document[rows]
            first, last = self.documents[document], self.documents[document + 1]
            sentence = first + self.draw.integers(0, last - first)
        else:
            sentence = self._not_in_the_row(rows)
            document = np.searchsorted(self.documents, sentence, side="right") - 1
        start = self.tokens[sentence]
        # begins inside a sentence if the true B does, so that the beginning of B does not reveal the label
        within = np.maximum(1, self.tokens[sentence + 1] - start)
        skipped = np.where(self.splits_inside[rows], np.minimum(1 + self.draw.integers(0, within), within - 1), 0)
        wanted = self.target[rows] - (self.split - self.begin)[rows]
        end = self.tokens[self._reach(sentence, document, np.maximum(1, wanted) + skipped)]
        begin = self.begin[rows]
        end = np.where((start < begin) & (end > begin), begin, end)  # no overlap with A
        return start + skipped, end

    def _not_in_the_row(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Draw a sentence that is neither in A nor the true next one; if there is no other, only not the next."""
        first, total = self.sentence[rows], self.documents[-1]
        inside, split = self.splits_inside[rows], self.split_sentence[rows]
        avoided = np.where(inside, 1, split - first + 1)
        all_of_it = avoided >= total
        first = np.where(all_of_it, split, first)
        avoided = np.where(all_of_it, ~inside, avoided)
        sentence = self.draw.integers(0, total - avoided)
        return sentence + np.where(sentence >= first, avoided, 0)

    def _reach(
        self, sentence: NDArray[np.int64], document: NDArray[np.int64], wanted: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the end of a run of whole sentences of one document that reaches the wanted length."""
        return np.minimum(self.documents[document + 1], np.searchsorted(self.tokens, self.tokens[sentence] + wanted))


# --- A corpus as continuous text, for models that predict the next token.
#
# Documents are concatenated in an order drawn again every epoch, with [CLS] before each and [SEP] at the end of each
# sentence (or only of the document).
#
# `StreamBatches` splits the text into as many streams of equal length as a step has rows. Each step takes the next
# chunk of every stream, so that a recurrent state can be carried over. `WindowBatches` takes chunks in random order,
# each with a few tokens before it, for a model with a fixed context. Both are pure functions of (seed, step).
#
# A chunk that spans two documents becomes two rows, so no state passes from one document to another.
#
# Labels of a batch:
#
#     scored_at   (M,)  tokens after which a token is predicted: all but the last of a document and those that are
#                       only context of a window
#     next        (M,)  the predicted token
#     streams     (S,)  the streams of the batch; `examples` has the stream of each row
#     continues   (R,)  whether a row continues the state of its stream; otherwise it starts with an empty state
#     last        (S,)  the row whose state the stream continues from at the next step
#
# Shapes: S streams or windows of a batch, R rows, N tokens of all rows, M predicted tokens, L tokens of a chunk.

ENDS = ("sentence", "document")


class _Corpus(Boundaries, Protocol):
    def tokens(self, starts: Integers, lengths: Integers) -> Integers: ...


class SpecialIds(Protocol):
    @property
    def cls_id(self) -> int: ...
    @property
    def sep_id(self) -> int: ...


@dataclass(frozen=True)
class TextConfig:
    length: int = 35  # tokens per chunk: how far gradients go back in a recurrent model
    ends: str = "sentence"  # where [SEP] is predicted: "sentence" or "document"

    def __post_init__(self) -> None:
        check_least(self, "length")
        check_known(self, ends=ENDS)


class RunningText:
    """All documents with [CLS] and [SEP], in the order of the corpus; ids are looked up by position."""

    def __init__(self, corpus: _Corpus, special: SpecialIds, ends: str = "sentence") -> None:
        self.corpus, self.special = corpus, special
        documents = corpus.document_offsets
        of_documents = corpus.sentence_offsets[documents]
        self.starts = corpus.sentence_offsets if ends == "sentence" else of_documents  # of units that [SEP] ends
        units = np.diff(documents) if ends == "sentence" else np.ones(len(documents) - 1, np.int64)
        document = np.repeat(np.arange(len(units)), units)
        # before a unit are a [SEP] for every earlier unit and a [CLS] for every document up to its own
        self.unit_begins = self.starts[:-1] + np.arange(len(document)) + document + 1
        self.lengths = np.diff(of_documents) + units + 1  # of documents
        self.begins = np.cumsum(self.lengths) - self.lengths

    @property
    def n_tokens(self) -> int:
        return int(self.lengths.sum())

    def ids(self, places: Integers) -> Integers:
        unit = np.searchsorted(self.unit_begins, places, side="right") - 1
        within = places - self.unit_begins[unit]
        length = self.starts[unit + 1] - self.starts[unit]
        begins = (unit < 0) | (within > length)
        ids = np.where(begins, self.special.cls_id, self.special.sep_id)
        inside = ~begins & (within < length)
        wanted = (self.starts[unit] + within)[inside]
        if len(wanted):
            breaks = np.flatnonzero(np.diff(wanted, prepend=wanted[0] - 2) != 1)  # beginnings of contiguous runs
            ids[inside] = self.corpus.tokens(wanted[breaks], np.diff(breaks, append=len(wanted)))
        return ids


class Shuffled:
    """Running text with its documents in another order; positions refer to that order."""

    def __init__(self, text: RunningText, order: Integers) -> None:
        self.text, self.order = text, order
        ends = np.cumsum(text.lengths[order])
        self.begins = ends - text.lengths[order]

    def look_up(self, places: Integers) -> tuple[Integers, Integers]:
        """Return the ids at these positions, and the number of the document of each in this order."""
        document = np.searchsorted(self.begins, places, side="right") - 1
        within = places - self.begins[document]
        return self.text.ids(self.text.begins[self.order[document]] + within), document


def _pack_rows(text: Shuffled, places: Integers, seen: int, streams: Integers, *, goes_on: bool) -> Batch:
    """Build a batch from positions (S, seen + L + 1), consecutive in each line; the last is only predicted.

    The first `seen` of a line are context without predictions; those of an earlier document are dropped.
    """
    ids, document = (part.reshape(places.shape) for part in text.look_up(np.maximum(places, 0).ravel()))
    in_piece = np.arange(places.shape[1] - 1) >= seen
    kept = in_piece | ((document[:, :-1] == document[:, [seen]]) & (places[:, :-1] >= 0))  # (S, seen + L)
    scored = in_piece & (document[:, 1:] == document[:, :-1])
    starts = np.ones_like(kept)
    starts[:, 1:] = (document[:, 1:-1] != document[:, :-2]) | ~kept[:, :-1]
    starts &= kept
    row_begins = np.flatnonzero(starts[kept])
    row_stream = np.repeat(np.arange(len(places)), kept.sum(1))[row_begins]
    pieces = np.bincount(row_stream, minlength=len(places))
    first_of_stream = np.diff(row_stream, prepend=-1) > 0
    at_beginning = places[:, :-1] == text.begins[document[:, :-1]]  # a [CLS]
    continues = goes_on & first_of_stream & ~at_beginning[kept][row_begins]
    return Batch.packed(
        torch.from_numpy(ids[:, :-1][kept]),
        np.diff(row_begins, append=int(kept.sum())).tolist(),
        examples=torch.from_numpy(streams[row_stream]),
        windows=torch.from_numpy(np.arange(len(row_stream)) - np.flatnonzero(first_of_stream)[row_stream]),
        labels={
            "scored_at": torch.from_numpy(np.flatnonzero(scored[kept])),
            "next": torch.from_numpy(ids[:, 1:][scored]),
            "streams": torch.from_numpy(streams),
            "continues": torch.from_numpy(continues),
            "last": torch.from_numpy(np.cumsum(pieces) - 1),
        },
    )


class StreamBatches:
    """Step → the batches of that step; the next step continues every stream."""

    def __init__(
        self,
        corpus: _Corpus,
        special: SpecialIds,
        config: TextConfig,
        *,
        rows: int,
        accumulate: int = 1,
        seed: int = 0,
        seen: int = 0,
        shuffle: bool = True,
    ) -> None:
        """`seen` tokens before each chunk are context; without `shuffle`, documents keep the order of the corpus."""
        self.config, self.seen, self.shuffle = config, seen, shuffle
        self.rows, self.accumulate, self.seed = rows, accumulate, seed
        self.text = RunningText(corpus, special, config.ends)
        self.epoch = Epochs(self._draw_epoch)
        if not self.steps_per_epoch:
            raise InputError(
                f"The corpus has {self.text.n_tokens:,} tokens, but {self.streams} streams with chunks of "
                f"{config.length} need more than {self.streams * config.length:,}. Give more text, fewer rows per step "
                "(--set rows=…) or shorter chunks (--set text.length=…)."
            )

    @property
    def streams(self) -> int:
        return self.rows * self.accumulate

    @property
    def stream_length(self) -> int:
        return self.text.n_tokens // self.streams

    @property
    def steps_per_epoch(self) -> int:
        return max(0, self.stream_length - 1) // self.config.length

    def resized(self, rows: int, accumulate: int) -> Self:
        """Return the same text in batches of another size."""
        other = copy(self)
        other.rows, other.accumulate = rows, accumulate
        return other

    def __call__(self, step: int) -> list[Batch]:
        epoch, within = divmod(step, self.steps_per_epoch)
        streams = np.arange(self.streams)
        begins = streams * self.stream_length + within * self.config.length
        return self._batches(self.epoch(epoch), begins, streams, goes_on=within > 0)

    def _batches(self, text: Shuffled, begins: Integers, streams: Integers, *, goes_on: bool) -> list[Batch]:
        places = begins[:, None] + np.arange(-self.seen, self.config.length + 1)
        parts = zip(np.split(places, self.accumulate), np.split(streams, self.accumulate), strict=True)
        return [_pack_rows(text, place, self.seen, stream, goes_on=goes_on) for place, stream in parts]

    def _draw_epoch(self, epoch: int) -> Shuffled:
        documents = len(self.text.lengths)
        draw = np.random.default_rng(np.random.SeedSequence((self.seed, epoch)))
        return Shuffled(self.text, draw.permutation(documents) if self.shuffle else np.arange(documents))


class WindowBatches(StreamBatches):
    """Step → the batches of that step, of chunks in random order."""

    def __init__(
        self,
        corpus: _Corpus,
        special: SpecialIds,
        config: TextConfig,
        *,
        rows: int,
        accumulate: int = 1,
        seed: int = 0,
        seen: int = 0,
    ) -> None:
        super().__init__(corpus, special, config, rows=rows, accumulate=accumulate, seed=seed, seen=seen)
        self.order = Epochs(self._draw_order)

    @property
    def steps_per_epoch(self) -> int:
        return self.pieces // self.streams

    @property
    def pieces(self) -> int:
        return max(0, self.text.n_tokens - 1) // self.config.length

    def __call__(self, step: int) -> list[Batch]:
        epoch, within = divmod(step, self.steps_per_epoch)
        chosen = self.order(epoch)[within * self.streams : (within + 1) * self.streams]
        return self._batches(self.epoch(epoch), chosen * self.config.length, np.arange(self.streams), goes_on=False)

    def _draw_order(self, epoch: int) -> Integers:
        return np.random.default_rng(np.random.SeedSequence((self.seed, epoch, 1))).permutation(self.pieces)
