"""Which texts of a corpus are there twice, with fourteen bytes of memory a text."""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class RepeatedHash(NamedTuple):
    source: int
    line: int
    first_source: int
    first_line: int


class SeenTexts:
    """Texts by hash and place. With 64 bits, among a hundred million texts one pair in 3,000 corpora is taken for equal
    that is not.

    >>> seen = Seen()
    >>> for line, text in enumerate(["a", "b", "a", "a"], 1):
    ...     seen.add(hash(text), 0, line)
    >>> list(seen.repeated())
    [Repeated(source=0, line=3, first_source=0, first_line=1), Repeated(source=0, line=4, first_source=0, first_line=1)]
    """

    def __init__(self) -> None:
        self._hashes, self._sources, self._lines = array("q"), array("H"), array("I")

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, hash: int, source: int, line: int) -> None:
        self._hashes.append(hash)
        self._sources.append(source)
        self._lines.append(line)

    def repeated(self) -> Iterator[RepeatedHash]:
        """Every text that was there before, with the place where it first was, in the order of the corpus."""
        hashes = np.frombuffer(self._hashes, np.int64) if len(self) else np.zeros(0, np.int64)
        order = np.argsort(hashes, kind="stable")
        begins = np.ones(len(order), np.bool_)
        begins[1:] = hashes[order[1:]] != hashes[order[:-1]]
        first = order[np.flatnonzero(begins)[np.cumsum(begins) - 1]]  # of each one's equals
        again = np.flatnonzero(~begins)
        again = again[np.argsort(order[again])]
        for here, there in zip(order[again].tolist(), first[again].tolist(), strict=True):
            yield RepeatedHash(self._sources[here], self._lines[here], self._sources[there], self._lines[there])


# --- Which texts of labelled files are there twice, and whether they bear the same label: 22 bytes of memory a text.


class RepeatedText(NamedTuple):
    source: int
    line: int
    first_source: int
    first_line: int
    other_label: bool  # than the first one has


class SameTexts:
    """Texts by hash and place; hashes are compared, as in same_texts.py.

    >>> texts = SameTexts()
    >>> for line, (text, label) in enumerate([("a", "1"), ("b", "1"), ("a", "2")], 1):
    ...     texts.add(hash(text), hash(label), 0, line)
    >>> list(texts.repeated())
    [Same(source=0, line=3, first_source=0, first_line=1, other_label=True)]
    """

    def __init__(self) -> None:
        self._texts, self._labels = array("q"), array("q")
        self._sources, self._lines = array("H"), array("I")

    def add(self, text: int, label: int, source: int, line: int) -> None:
        self._texts.append(text)
        self._labels.append(label)
        self._sources.append(source)
        self._lines.append(line)

    def repeated(self) -> Iterator[RepeatedText]:
        """Every text that was there before, with the place where it first was, in the order they came."""
        if not self._texts:
            return
        texts = np.frombuffer(self._texts, np.int64)
        _, first, group = np.unique(texts, return_index=True, return_inverse=True)
        for here in np.flatnonzero(first[group] != np.arange(len(texts))).tolist():
            there = int(first[group[here]])
            yield RepeatedText(
                self._sources[here],
                self._lines[here],
                self._sources[there],
                self._lines[there],
                self._labels[here] != self._labels[there],
            )
