"""Which texts of labelled files are there twice, and whether they bear the same label: 22 bytes of memory a text."""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class Same(NamedTuple):
    source: int
    line: int
    first_source: int
    first_line: int
    other_label: bool  # than the first one has


class SameTexts:
    """Texts by hash and place; hashes are compared, as in duplicates.py.

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

    def repeated(self) -> Iterator[Same]:
        """Every text that was there before, with the place where it first was, in the order they came."""
        if not self._texts:
            return
        texts = np.frombuffer(self._texts, np.int64)
        _, first, group = np.unique(texts, return_index=True, return_inverse=True)
        for here in np.flatnonzero(first[group] != np.arange(len(texts))).tolist():
            there = int(first[group[here]])
            yield Same(
                self._sources[here],
                self._lines[here],
                self._sources[there],
                self._lines[there],
                self._labels[here] != self._labels[there],
            )
