"""A corpus as continuous text, for models that predict the next token.

Documents are concatenated in an order drawn again every epoch, with [CLS] before each and [SEP] at the end of each
sentence (or only of the document).

`StreamBatches` splits the text into as many streams of equal length as a step has rows. Each step takes the next chunk
of every stream, so that a recurrent state can be carried over. `WindowBatches` takes chunks in random order, each with
a few tokens before it, for a model with a fixed context. Both are pure functions of (seed, step).

A chunk that spans two documents becomes two rows, so no state passes from one document to another.

Labels of a batch:

    scored_at   (M,)  tokens after which a token is predicted: all but the last of a document and those that are only
                      context of a window
    next        (M,)  the predicted token
    streams     (S,)  the streams of the batch; `examples` has the stream of each row
    continues   (R,)  whether a row continues the state of its stream; otherwise it starts with an empty state
    last        (S,)  the row whose state the stream continues from at the next step

Shapes: S streams or windows of a batch, R rows, N tokens of all rows, M predicted tokens, L tokens of a chunk.
"""

from copy import copy
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import torch

from qkv.data.batch import Batch
from qkv.data.batching import Epochs, Integers
from qkv.data.corpus.segments import Boundaries
from qkv.errors import InputError, did_you_mean

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
        if self.length < 1:
            raise InputError(f"length must be at least 1, not {self.length}.")
        if self.ends not in ENDS:
            raise InputError(f"Unknown ends '{self.ends}'.{did_you_mean(self.ends, ENDS)} Known: {', '.join(ENDS)}.")


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
