"""Duplicate texts, found by 64-bit hashes: 16 bytes of memory per text, 24 with labels. Files of known texts, with
8 bytes per text.

Among a hundred million texts, one corpus in 3,000 has a pair of different texts with equal hashes.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from qkv.files import replaced_file


class RepeatedText(NamedTuple):
    source: int
    line: int
    first_source: int
    first_line: int
    other_label: bool  # differs from the label of the first


class SameTexts:
    """Texts by hash and place, with or without labels.

    >>> texts = SameTexts()
    >>> for line, (text, label) in enumerate([("a", "1"), ("b", "1"), ("a", "2")], 1):
    ...     texts.add(hash(text), 0, line, hash(label))
    >>> list(texts.repeated())
    [RepeatedText(source=0, line=3, first_source=0, first_line=1, other_label=True)]
    """

    def __init__(self) -> None:
        self._hashes, self._labels = array("q"), array("q")
        self._sources, self._lines = array("I"), array("I")

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, hash: int, source: int, line: int, label: int | None = None) -> None:
        """Either all texts have a label, or none has."""
        self._hashes.append(hash)
        self._sources.append(source)
        self._lines.append(line)
        if label is not None:
            self._labels.append(label)

    def repeated(self) -> Iterator[RepeatedText]:
        """Yield every repeated text with its first place, in the order of the texts."""
        hashes = np.frombuffer(self._hashes, np.int64) if len(self) else np.zeros(0, np.int64)
        order = np.argsort(hashes, kind="stable")
        begins = np.ones(len(order), np.bool_)
        begins[1:] = hashes[order[1:]] != hashes[order[:-1]]
        first = order[np.flatnonzero(begins)[np.cumsum(begins) - 1]]  # first occurrence of each text
        again = np.flatnonzero(~begins)
        again = again[np.argsort(order[again])]
        for here, there in zip(order[again].tolist(), first[again].tolist(), strict=True):
            yield RepeatedText(
                self._sources[here],
                self._lines[here],
                self._sources[there],
                self._lines[there],
                bool(self._labels) and self._labels[here] != self._labels[there],
            )


def hash_texts(texts: Sequence[str]) -> int:
    """The hash of one example, of one text or several; the same on every machine, unlike Python's own."""
    return int.from_bytes(blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class KnownTexts:
    """The hashes of the texts of a file that `write` made."""

    def __init__(self, hashes: Iterable[int]) -> None:
        self._hashes = frozenset(hashes)

    def __contains__(self, texts: Sequence[str]) -> bool:
        return hash_texts(texts) in self._hashes

    @staticmethod
    def write(file: Path, examples: Iterable[Sequence[str]]) -> None:
        with replaced_file(file) as part:
            part.write_bytes(np.array(sorted({hash_texts(texts) for texts in examples}), "<u8").tobytes())

    @classmethod
    def read(cls, file: Path) -> "KnownTexts | None":
        """None if there is no such file, or it is damaged."""
        data = file.read_bytes() if file.is_file() else b""
        return cls(np.frombuffer(data, "<u8").tolist()) if data and len(data) % 8 == 0 else None
