"""Tagged texts as rows for an encoder, and each unit's place in what the encoder's head says.

A unit is labelled at its first token; of a GPT, where the first has not seen the others, at its last. A text longer
than the model is read in overlapping windows, in training as in prediction. A unit counts once: in the window that
counts this token. In training a row is a unit of its own, with the tags of the units it counts; for a CRF these are one
chain, whose start and end are scored only where the text itself starts and ends.

Shapes: E examples, R rows, N tokens of all rows, C tokens of all texts, U units, M units of a batch.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from qkv.batch import IGNORE, Batch
from qkv.data.batching import Integers
from qkv.data.examples import Fault, TagExample
from qkv.data.ranges import ranges
from qkv.data.task_marks import marks_of
from qkv.data.windowed import Windowed
from qkv.tasks.tag_units import Fitted, Units, fitted, tokens_of, units_of
from qkv.tokenizer import Tokenizer


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
    ) -> None:
        """`tags` are the numbers of "begins here" and "goes on here" by a span's label; `outside` is the rest's."""
        self.texts = [example.text for example in examples]
        tokens = tokens_of(tokenizer, self.texts)
        self.units = units_of(tokens, self.texts, [example.units for example in examples], unit)
        marks = marks_of(tokenizer)
        self._labelled_at = self.units.last if marks.leftward else self.units.first  # (U,) tokens
        self.rows = Windowed(
            tokens.ids,
            None,
            cls_id=marks.start,
            sep_id=marks.between,
            end_id=marks.end,
            max_length=max_length,
            overlap=min(overlap, (max_length - 2) // 4),
        )
        self.unit_tokens: Integers = self.rows.lengths
        self.labelled = np.fromiter((example.spans is not None for example in examples), bool, len(examples))  # (E,)
        self.tags = _tags(self.units, fitted(self.units, examples), tags, outside)
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

    @property
    def n_tokens(self) -> Integers:
        return self.rows.n_tokens

    @property
    def n_windows(self) -> Integers:
        return self.rows.n_windows

    def faults(self) -> list[Fault]:
        """Spans off the edges of units are the task's to name, with the user's own characters: `Tag.misaligned`."""
        return []

    def batch(self, units: Integers, draw: np.random.Generator) -> Batch:
        """`tag` (M,) stands at the tokens `tag_at`, in chains of `tag_chains` (R,) units; `tag_ends` (R, 2) says
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
