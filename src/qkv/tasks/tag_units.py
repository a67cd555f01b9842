"""Units: what a tagger labels, as spans of the user's characters, and where they stand among a model's tokens.

    text     U n h a p p i n e s s   i n   北 京 !
    tokens   un ##happi ##ness       in    北 京 !
    words    [                  ]    [ ]   [][][]     one tag each, at the first token, or at the last

A unit is a word (a token with the ## pieces that continue it), a piece, or what a column file gave on one line. Three
things keep units and characters in step, whatever the text:

- Units that share a token, or tokens that share a character, are one unit: a column file may write A P E C in four
  lines where a vocabulary has one token.
- A mark that no token covers belongs to the unit it stands on: uncased models drop accents, and "café" written with
  a combining accent ends after the accent.
- A unit without any token (a control character on a line of its own) cannot be labelled and is left out.

All texts lie end to end, each followed by one character that belongs to none, and all arrays count through them.

Shapes: E texts, C tokens, U units, S spans.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.data.batch import IGNORE, Batch, Integers
from qkv.data.corpus.shards import ranges
from qkv.data.labelled.examples import Fault, TagExample
from qkv.data.windows import Windowed
from qkv.text.tokenizer import Tokenizer
from qkv.text.wordpiece import CONTINUES

GivenUnits = Sequence[tuple[int, int]] | None
JOINERS = "\u200c\u200d"
"""Zero-width joiner and non-joiner: invisible, inside emoji and in Persian and Indian writing."""


@dataclass(frozen=True)
class Tokens:
    ids: list[list[int]]  # of each text, without special tokens
    begins: Integers  # (E,) where each text's tokens begin
    starts: Integers  # (C,) characters, counted through all texts
    ends: Integers
    opens: NDArray[np.bool_]  # (C,) begins a word
    text_begins: Integers  # (E + 1,) characters


@dataclass(frozen=True)
class Units:
    starts: Integers  # (U,) characters, counted through all texts
    ends: Integers
    first: Integers  # (U,) tokens
    last: Integers
    text_begins: Integers  # (E + 1,) characters
    counts: Integers  # (E,) units of each text

    @property
    def begins(self) -> Integers:
        """(E,) where each text's units begin"""
        return np.cumsum(self.counts) - self.counts

    def spans(self) -> list[list[tuple[int, int]]]:
        """The units of each text, as characters of that text."""
        shift = np.repeat(self.text_begins[:-1], self.counts)
        pairs = list(zip((self.starts - shift).tolist(), (self.ends - shift).tolist(), strict=True))
        stops = np.cumsum(self.counts).tolist()
        return [pairs[begin:stop] for begin, stop in zip([0, *stops], stops, strict=False)]


@dataclass(frozen=True)
class Fitted:
    """Spans in units. All (S,), sorted by text and start."""

    example: Integers
    label: list[str]
    starts: Integers  # characters of the text, as they were given
    ends: Integers
    first: Integers  # units, counted through all texts
    last: Integers  # included; below `first`: there is no unit for this span
    exact: NDArray[np.bool_]  # the units begin and end where the span does


def tokenize_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokens:
    encoded = tokenizer.encode_batch(texts, special=False)
    ids = [one.ids for one in encoded]
    counts = np.fromiter(map(len, ids), np.int64, len(ids))  # (E,)
    total = int(counts.sum())
    text_begins = _begins(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
    offsets = np.fromiter(
        chain.from_iterable(chain.from_iterable(one.offsets for one in encoded)), np.int64, 2 * total
    ).reshape(-1, 2) + np.repeat(text_begins[:-1], counts).reshape(-1, 1)
    opens = np.ones(total, bool)
    if tokenizer.kind == "wordpiece":
        is_piece = np.zeros(tokenizer.size + 1, bool)
        is_piece[[number for token, number in tokenizer.vocabulary.items() if token.startswith(CONTINUES)]] = True
        # a word past the vocabulary (models/elmo/tokenizer.py) is whole
        opens = ~is_piece[np.minimum(np.fromiter(chain.from_iterable(ids), np.int64, total), tokenizer.size)]
    return Tokens(ids, _begins(counts)[:-1], offsets[:, 0], offsets[:, 1], opens, text_begins)


def cut_units(tokens: Tokens, texts: Sequence[str], given: Sequence[GivenUnits], by: str) -> Units:
    """`given` are the units that a file gave of a text; where there are none, words or pieces, as `by` says."""
    starts, ends = _wanted(tokens, given, by)  # ascending both
    # each token lies on the wanted units low … high, which then are one
    low = np.searchsorted(ends, tokens.starts, side="right")
    high = np.searchsorted(starts, tokens.ends, side="left") - 1
    lies = low <= high
    joins = np.zeros(len(starts) + 1, np.int64)
    np.add.at(joins, low[lies] + 1, 1)
    np.add.at(joins, high[lies] + 1, -1)
    opens = np.cumsum(joins)[:-1] <= 0
    group = np.cumsum(opens) - 1  # of each wanted unit
    seen, first = np.unique(group[low[lies]], return_index=True)
    group_begins = np.flatnonzero(opens)
    group_stops = np.append(group_begins, len(starts))[1:]
    starts, ends = starts[group_begins[seen]], ends[group_stops[seen] - 1]
    ends = _with_marks(starts, ends, texts)
    counts = np.diff(np.searchsorted(starts, tokens.text_begins))
    lying = np.flatnonzero(lies)
    last = np.append(first[1:], len(lying))[: len(first)] - 1
    return Units(starts, ends, lying[first], lying[last], tokens.text_begins, counts)


def fit_spans(units: Units, examples: Sequence[TagExample]) -> Fitted:
    """Every span as the units it touches. Of two that touch one unit, the earlier has it."""
    spans = [(number, *span) for number, example in enumerate(examples) for span in sorted(example.spans or ())]
    example = np.array([span[0] for span in spans], np.int64)
    start = np.array([span[1] for span in spans], np.int64)
    end = np.array([span[2] for span in spans], np.int64)
    base = units.text_begins[example]
    first = np.searchsorted(units.ends, base + start, side="right")
    last = np.searchsorted(units.starts, base + end, side="left") - 1
    if len(spans):
        first[1:] = np.maximum(first[1:], np.maximum.accumulate(last)[:-1] + 1)
    exact = first <= last
    exact[exact] = (units.starts[first[exact]] == (base + start)[exact]) & (
        units.ends[last[exact]] == (base + end)[exact]
    )
    return Fitted(example, [span[3] for span in spans], start, end, first, last, exact)


def _begins(sizes: Integers) -> Integers:
    """Where things of these sizes begin when they lie end to end, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)])


def _wanted(tokens: Tokens, given: Sequence[GivenUnits], by: str) -> tuple[Integers, Integers]:
    assert by in ("word", "piece"), by
    counts = np.diff(np.append(tokens.begins, len(tokens.starts)))
    from_tokens = np.repeat(np.fromiter((units is None for units in given), bool, len(given)), counts)
    visible = np.flatnonzero(from_tokens & (tokens.ends > tokens.starts))
    text = np.searchsorted(tokens.begins, visible, side="right")
    # whatever it looks like, the first token of a text continues nothing
    opens = (tokens.opens[visible] | (np.diff(text, prepend=-1) != 0)) if by == "word" else np.ones(len(visible), bool)
    begins = np.flatnonzero(opens)
    stops = np.append(begins, len(visible))[1:]
    starts = tokens.starts[visible[begins]]
    ends = tokens.ends[visible[stops - 1]]
    sizes = np.fromiter((len(units or ()) for units in given), np.int64, len(given))
    if sizes.any():
        pairs = np.array([pair for units in given for pair in units or ()], np.int64)
        pairs += np.repeat(tokens.text_begins[:-1], sizes).reshape(-1, 1)
        starts, ends = np.append(starts, pairs[:, 0]), np.append(ends, pairs[:, 1])
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    return starts, np.maximum.accumulate(ends)


def _with_marks(starts: Integers, ends: Integers, texts: Sequence[str]) -> Integers:
    """`ends` moved over the marks and joiners that follow directly and that no unit has."""
    characters = np.frombuffer("\n".join([*texts, ""]).encode("utf-32-le", "surrogatepass"), "<u4")
    ends = ends.copy()
    free_until = np.append(starts, len(characters))[1:]
    moving = np.arange(len(ends))
    while len(moving := moving[ends[moving] < free_until[moving]]):
        kinds, which = np.unique(characters[ends[moving]], return_inverse=True)
        is_mark = np.array([_is_mark(chr(kind)) for kind in kinds.tolist()])
        moving = moving[is_mark[which]]
        ends[moving] += 1
    return ends


def _is_mark(character: str) -> bool:
    return character in JOINERS or unicodedata.category(character)[0] == "M"


# Rows: a unit is labelled at its first token (GPT: its last), in one window. In training each window is a unit of the
# batch; for a CRF it is one chain, whose start and end are scored only at the start and end of the text.


class TagFeatures:
    def __init__(
        self,
        tokenizer: Tokenizer,
        examples: Sequence[TagExample],
        tags: Mapping[str, tuple[int, int]],
        *,
        outside: int,
        unit: str,
        max_length: int,
        overlap: int,
        weights: NDArray[np.float64] | None = None,
    ) -> None:
        """`tags` are the numbers of "begins here" and "goes on here" by a span's label; `outside` is the rest's.
        `weights` (E,) are those of the examples in the loss; None: all count alike."""
        self.texts = [example.text for example in examples]
        tokens = tokenize_texts(tokenizer, self.texts)
        self.units = cut_units(tokens, self.texts, [example.units for example in examples], unit)
        marks = tokenizer.marks
        self._labelled_at = self.units.last if marks.leftward else self.units.first  # (U,) tokens
        self.rows = Windowed(
            tokens.ids,
            None,
            marks,
            max_length=max_length,
            overlap=min(overlap, (max_length - 2) // 4),
        )
        self.n_tokens, self.n_windows, self.row_counts = self.rows.n_tokens, self.rows.n_windows, self.rows.n_rows
        self.unit_tokens: Integers = self.rows.lengths
        self.weights = weights
        self.labelled = np.fromiter((example.spans is not None for example in examples), bool, len(examples))  # (E,)
        self.tags = _tags(self.units, fit_spans(self.units, examples), tags, outside)
        self.tags[~np.repeat(self.labelled, self.units.counts)] = IGNORE

        # Counted tokens of the rows, one row after the other, are the tokens of the texts, each once and in order.
        rows = self.rows
        sizes = rows.a.counted_ends - rows.a.counted_starts  # (R,)
        self._position = 1 + rows.a.counted_starts - rows.a.starts  # (R,) of the first counted token in its row
        begins = np.cumsum(sizes) - sizes  # (R,) in the tokens of all texts
        row_begins = np.cumsum(rows.lengths) - rows.lengths
        self.places: Integers = ranges(row_begins + self._position, sizes)[self._labelled_at]  # (U,) in the scores
        self._first_unit = np.searchsorted(self._labelled_at, begins)  # (R,) the units that a row counts
        self._n_units = np.searchsorted(self._labelled_at, begins + sizes) - self._first_unit
        self._position -= begins

    def count_token(self, number: int | None) -> Integers:
        return self.rows.count_token(number)

    def faults(self) -> list[Fault]:
        """Spans off the edges of units are the task's to name, with the user's own characters: `Tag.misaligned`."""
        return []

    def batch(self, units: Integers, draw: np.random.Generator) -> Batch:
        """`tag` (M,) are the tags of the tokens `tag_at`, in chains of `tag_chains` (R,) units; `tag_ends` (R, 2) says
        whether a chain starts where its text starts, and ends where it ends."""
        rows = units[np.argsort(self.rows.lengths[units], kind="stable")]  # a CPU attends rows of equal length together
        sizes, first = self._n_units[rows], self._first_unit[rows]
        which = ranges(first, sizes)  # (M,) units
        tags = self.tags[which]
        assert (tags != IGNORE).all(), "training needs labels"
        lengths = self.rows.lengths[rows]
        row_begins = np.cumsum(lengths) - lengths
        at = np.repeat(row_begins + self._position[rows], sizes) + self._labelled_at[which]
        begins = self.units.begins[self.rows.examples[rows]]
        stops = begins + self.units.counts[self.rows.examples[rows]]
        labels = {
            "tag": torch.from_numpy(tags),
            "tag_at": torch.from_numpy(at),
            "tag_chains": torch.from_numpy(sizes),
            "tag_ends": torch.from_numpy(np.stack([first == begins, first + sizes == stops], axis=1)),
        }
        if self.weights is not None:
            labels["tag_weight"] = torch.from_numpy(self.weights[self.rows.examples[rows]]).float()  # (R,)
        return self.rows.collate(rows, labels)


def _tags(units: Units, spans: Fitted, tags: Mapping[str, tuple[int, int]], outside: int) -> Integers:
    """(U,)"""
    found = np.full(len(units.starts), outside)
    numbers = np.array([tags[label] for label in spans.label], np.int64).reshape(-1, 2)  # (S, 2)
    sizes = np.maximum(spans.last - spans.first + 1, 0)
    found[ranges(spans.first, sizes)] = np.repeat(numbers[:, 1], sizes)
    held = sizes > 0
    found[spans.first[held]] = numbers[held, 0]
    return found
