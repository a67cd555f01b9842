"""Entity-level metrics: exact match of labelled spans.

`find_chunks` reads tags as conlleval does, the scorer of the CoNLL shared tasks (Tjong Kim Sang, 2004-01-26): it
accepts every sequence, also those that its scheme forbids, such as "I-PER" after "O". The original knows B, I, O and E;
S and M, of later schemes, are read as in later versions of it.

`EntityCounts` compares spans of any unit (words, characters).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from qkv.metrics.classes import Counts
from qkv.metrics.intervals import FloatArray, IntegerArray, bootstraps, wilson_interval

SCHEMES = {"IOB1": "IOB", "IOB2": "IOB", "BIOES": "IOBES", "BMES": "OBMES"}
"""The first letters of tags. IOB1 and IOB2 differ in how they are written, not in how conlleval reads them."""


class EntityChunk(NamedTuple):
    start: int
    end: int  # exclusive
    label: str


def find_chunks(tags: Sequence[str], scheme: str = "IOB2") -> list[EntityChunk]:
    """Return the spans of one sentence's tags, in order; they never overlap.

    A chunk begins at B and S; at I, M and E that follow O, E or S; and wherever the label changes. It ends before O, B
    and S, after E and S, and wherever the label changes. The label is the part of a tag after the first "-".

    >>> [tuple(chunk) for chunk in find_chunks("O I-PER I-PER B-PER I-LOC O".split(), "IOB1")]
    [(1, 3, 'PER'), (3, 4, 'PER'), (4, 5, 'LOC')]
    """
    if scheme not in SCHEMES:
        raise ValueError(f"Scheme '{scheme}' is not one of {', '.join(SCHEMES)}.")
    letters = SCHEMES[scheme]
    found: list[EntityChunk] = []
    begin, open_label, closed = 0, "", True  # closed: no open chunk before this tag
    for place, tag in enumerate(tags):
        letter, _, label = tag.partition("-")
        if letter not in letters or len(letter) != 1:
            raise ValueError(f"Tag '{tag}' does not begin with one of {', '.join(letters)}, as scheme {scheme} needs.")
        if not closed and (letter in "OBS" or label != open_label):
            found.append(EntityChunk(begin, place, open_label))
            closed = True
        if letter == "O":
            continue
        if closed:
            begin, open_label, closed = place, label, False
        if letter in "ES":
            found.append(EntityChunk(begin, place + 1, open_label))
            closed = True
    if not closed:
        found.append(EntityChunk(begin, len(tags), open_label))
    return found


class EntityScore(NamedTuple):
    """Quotients with a divisor of 0 are 0, as in conlleval."""

    precision: float
    recall: float
    f1: float
    right: int
    answered: int
    expected: int


class EntityCounts:
    """Accumulates counts over documents. A span is right if its start, end and label are.

    Documents with equal counts are stored once, to save memory.

    >>> counts = EntityCounts()
    >>> counts.add(expected=[(0, 2, "PER"), (5, 6, "LOC")], answered=[(0, 2, "PER"), (5, 7, "LOC")])
    >>> counts.micro()
    EntityScore(precision=0.5, recall=0.5, f1=0.5, right=1, answered=2, expected=2)
    """

    def __init__(self) -> None:
        self._documents: Counter[tuple[tuple[str, int, int, int], ...]] = Counter()

    def add(self, expected: Iterable[tuple[int, int, str]], answered: Iterable[tuple[int, int, str]]) -> None:
        """Add one document. Spans may overlap; duplicates count once."""
        # plain tuples, so that spans of different classes compare equal
        wanted = {(span[0], span[1], span[2]) for span in expected}
        said = {(span[0], span[1], span[2]) for span in answered}
        right, given, due = (Counter(label for _, _, label in spans) for spans in (wanted & said, said, wanted))
        labels = sorted(given.keys() | due.keys())
        self._documents[tuple((label, right[label], given[label], due[label]) for label in labels)] += 1

    @property
    def documents(self) -> int:
        return self._documents.total()

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels that were expected or answered, sorted."""
        return tuple(sorted({label for document in self._documents for label, *_ in document}))

    def micro(self) -> EntityScore:
        """Return the score over all entities: conlleval's overall figures."""
        rows, counts, _ = self._table()
        right, answered, expected = (int(n) for n in (counts @ rows).reshape(3, -1).sum(1))
        return _score(right, answered, expected)

    def per_label(self) -> dict[str, EntityScore]:
        rows, counts, labels = self._table()
        sums = (counts @ rows).reshape(3, -1)
        return {label: _score(*(int(n) for n in sums[:, place])) for place, label in enumerate(labels)}

    def macro_f1(self) -> float:
        """Return the mean F1 of all labels that were expected or answered."""
        each = self.per_label().values()
        return sum(score.f1 for score in each) / len(each) if each else 0.0

    def values(self) -> dict[str, float]:
        micro = self.micro()
        return {
            "f1": micro.f1,
            "precision": micro.precision,
            "recall": micro.recall,
            "macro_f1": self.macro_f1(),
        }

    def intervals(self, draws: int = 1000, seed: int = 0) -> dict[str, tuple[float, float]]:
        """Return 95 % intervals by the names of `values`: the bootstrap over documents.

        If all entities were right, every draw agrees; then the lower end is Wilson's, with each entity as a trial. If
        none was right, the upper end is Wilson's, over the answered entities for precision and the expected ones for
        the others.
        """
        rows, counts, labels = self._table()

        def of_sums(sums: FloatArray) -> Counts:
            right, answered, expected = np.moveaxis(sums.reshape(len(sums), 3, len(labels)), 1, 0)
            return Counts(right, answered, expected)

        figures = {
            "f1": lambda sums: of_sums(sums).micro_f1,
            "precision": lambda sums: of_sums(sums).micro_precision,
            "recall": lambda sums: of_sums(sums).micro_recall,
            "macro_f1": lambda sums: of_sums(sums).macro_f1,
        }
        found = bootstraps(rows, figures, counts=counts, draws=draws, seed=seed)
        micro = self.micro()
        if micro.right and micro.right == micro.answered == micro.expected:
            low = wilson_interval(micro.right, micro.right)[0]
            return dict.fromkeys(found, (low, 1.0))
        if not micro.right and (micro.answered or micro.expected):
            trials = dict.fromkeys(found, micro.expected or micro.answered) | {"precision": micro.answered}
            return {name: wilson_interval(0, trials[name]) for name in found}
        return found

    def _table(self) -> tuple[FloatArray, IntegerArray, tuple[str, ...]]:
        """Return distinct documents as (n, 3·L) of right, answered, expected; the count of each; the labels."""
        labels = self.labels
        places = {label: place for place, label in enumerate(labels)}
        rows = np.zeros((len(self._documents), 3, len(labels)))
        for row, document in zip(rows, self._documents, strict=True):
            for label, *numbers in document:
                row[:, places[label]] = numbers
        counts = np.fromiter(self._documents.values(), np.int64, len(self._documents))
        return rows.reshape(len(rows), 3 * len(labels)), counts, labels


def _score(right: int, answered: int, expected: int) -> EntityScore:
    return EntityScore(
        right / answered if answered else 0.0,
        right / expected if expected else 0.0,
        2 * right / (answered + expected) if answered + expected else 0.0,
        right,
        answered,
        expected,
    )
