"""Read pairs (texts and their translations) from files, and split them by a hash of the source text.

    two files    line n of the second is the translation of line n of the first (Moses)
    .jsonl       an object per line: {"source": …, "target": …}, or other fields, also inside "translation"
    any other    columns separated by tabs; the first two, or those given by name or number

All may be plain, .gz or .xz. No pair is skipped silently: one with an empty side is dropped and reported as a `Fault`,
and files of different lengths are an error that names the line. In a file with both sides blank lines are skipped; in
one of two files a blank line is an empty side. Files are streamed, one line in memory.

The split depends only on the source text, so that it can be published as two numbers: the first 32 bits of its SHA-256,
as a fraction, are below `dev_share` for the development set, below `dev_share + test_share` for the test set, and
otherwise train. Case, punctuation and spaces are ignored, so "Hi." and "Hi!" are in the same part, as are all
translations of a text. There is no seed and no order: adding pairs does not move others.

Different source texts may share a translation ("Hurry!", "Be quick!"): `jobs/translate/data.py` removes training pairs
with the translation of a held-out pair.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from qkv.data.labelled.examples import Fault, Place
from qkv.data.labelled.opened import abbreviate, check_text, checked_lines, read_beginning
from qkv.data.readers import AnyPath
from qkv.errors import InputError, did_you_mean

_no_letter = re.compile(r"[\W_]+")
"""Characters for which `str.isalnum` is false."""


def fold_to_letters(text: str) -> str:
    """Keep only letters and digits, case-folded; the stripped text if it has none.

    >>> fold_to_letters("Don’t  STOP!"), fold_to_letters("……")
    ('dontstop', '……')
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    return _no_letter.sub("", plain) or text.strip()


def hash_to_unit(text: str) -> float:
    """Hash a text to a number from 0 to less than 1.

    >>> hash_to_unit("Hi.") == hash_to_unit("hi!"), round(hash_to_unit("Hello World"), 4)
    (True, 0.5758)
    """
    return int.from_bytes(hashlib.sha256(fold_to_letters(text).encode()).digest()[:4], "big") / 2**32


def choose_part(text: str, dev_share: float, test_share: float) -> str:
    """Return the part of a source text: "train", "dev" or "test"."""
    at = hash_to_unit(text)
    return "dev" if at < dev_share else "test" if at < dev_share + test_share else "train"


SIDES = ("source", "target")
_INSIDE = "translation"
"""The field with both sides in data sets of the Hugging Face hub."""


class Pair(NamedTuple):
    source: str
    target: str
    place: Place = Place("", 0)


@dataclass
class PairFiles:
    """Files of pairs; each iteration starts from the beginning, and `faults` are those of the latest."""

    files: tuple[Path, ...]
    columns: tuple[str, ...] = ()  # source and target: names, or numbers from 1
    faults: list[Fault] = field(default_factory=list)

    @classmethod
    def of(cls, files: AnyPath | Sequence[AnyPath], columns: Sequence[str] = ()) -> "PairFiles":
        """Check the arguments before any long work."""
        paths = [files] if isinstance(files, str) or not isinstance(files, Sequence) else list(files)
        if len(paths) not in (1, 2):
            raise InputError(
                f"Give two files (source, target) or one file with both sides, not {len(paths)}: "
                f"{', '.join(map(str, paths)) or 'none was given'}."
            )
        if len(columns) not in (0, 2):
            raise InputError(f"Name two columns, source and target, not {len(columns)}: {', '.join(columns)}.")
        if columns and _column(columns[0]) == _column(columns[1]):
            raise InputError(f"The column {columns[0]} was given for both source and target; give two columns.")
        if len(paths) == 2 and columns:
            raise InputError(f"Columns are for one file with both sides; {paths[0]} and {paths[1]} are one side each.")
        opened = tuple(read_beginning(path).path for path in paths)
        if len(opened) == 2 and opened[0].resolve() == opened[1].resolve():
            raise InputError(f"{opened[0]} was given for both sides; give another file for the translations.")
        return cls(opened, tuple(columns))

    @property
    def name(self) -> str:
        return " and ".join(map(str, self.files))

    def __iter__(self) -> Iterator[Pair]:
        self.faults = []
        for pair in self._found():
            if lacking := [side for side, text in zip(SIDES, pair[:2], strict=True) if not text.strip()]:
                what = "both sides are" if len(lacking) == 2 else f"the {lacking[0]} is"
                self.faults.append(Fault(pair.place, "empty text", f"{what} empty", "dropped"))
            else:
                yield pair

    def _found(self) -> Iterator[Pair]:
        if len(self.files) == 2:
            return self._two_files(*self.files)
        start = read_beginning(self.files[0])
        return self._objects(start.path) if start.ending in (".jsonl", ".json") else self._rows(start.path)

    def _two_files(self, first: Path, second: Path) -> Iterator[Pair]:
        lines = zip_longest(checked_lines(first), checked_lines(second))
        for one, other in lines:
            if one is None or other is None:
                raise _parted(first, second, one or other, lines)
            yield Pair(one[1], other[1], Place(str(first), one[0]))

    def _rows(self, path: Path) -> Iterator[Pair]:
        lines = checked_lines(path)
        wanted = self.columns or ("1", "2")
        if all(name.isdecimal() for name in wanted):
            numbers = [int(name) - 1 for name in wanted]
        else:
            header = [cell.strip() for cell in next(lines, (1, ""))[1].split("\t")]
            numbers = [_named(path, name, header) for name in wanted]
        if min(numbers) < 0:
            raise InputError(f"{path}: columns are counted from 1.")
        for number, line in lines:
            if not line.strip():
                continue
            cells = line.split("\t")
            if len(cells) <= max(numbers):
                raise InputError(
                    f"{path}, line {number}: {_counted(len(cells))} between tabs, but the pairs are in columns "
                    f"{numbers[0] + 1} and {numbers[1] + 1}: {abbreviate(line)}. Put a tab between a text and its "
                    "translation, or give the two sides as two files."
                )
            yield Pair(cells[numbers[0]], cells[numbers[1]], Place(str(path), number))

    def _objects(self, path: Path) -> Iterator[Pair]:
        wanted = self.columns or SIDES
        for number, line in checked_lines(path):
            if not line.strip():
                continue
            place = Place(str(path), number)
            try:
                row: Any = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{place} is not JSON ({error}); write one object per line.") from error
            inner = row.get(_INSIDE) if isinstance(row, dict) else None
            row = inner if isinstance(inner, dict) else row
            if not isinstance(row, dict):
                raise InputError(f'{place}: each line must be an object such as {{"source": "…", "target": "…"}}.')
            texts = []
            for name in wanted:
                if name not in row:
                    held = ", ".join(map(repr, row)) or "no fields"
                    raise InputError(
                        f"{place} has no field {name!r}, only {held}.{did_you_mean(name, row)} Name the two with "
                        "--columns SOURCE,TARGET."
                    )
                if not isinstance(row[name], str):
                    raise InputError(f"{place}: the field {name!r} holds {abbreviate(str(row[name]))}, not a text.")
                texts.append(check_text(row[name], place, f"the field {name!r}"))
            yield Pair(texts[0], texts[1], place)


def _parted(first: Path, second: Path, line: tuple[int, str], rest: Iterator[Any]) -> InputError:
    """Return the error for files of different lengths, with both lengths and the first line without translation."""
    longer, shorter = (first, second) if _is_shorter(second, line[0]) else (second, first)
    total = line[0] + sum(1 for _ in rest)
    return InputError(
        f"{shorter} has {line[0] - 1:,} lines and {longer} has {total:,}: line {line[0]:,} of {longer} "
        f"({abbreviate(line[1])}) has no translation. Line n of one must be the translation of line n of the other; "
        "look for a line that was lost or split in two."
    )


def _is_shorter(path: Path, lines: int) -> bool:
    """Whether a file has fewer lines than this."""
    return sum(1 for _ in zip(range(lines), checked_lines(path), strict=False)) < lines


def _column(name: str) -> str | int:
    return int(name) if name.isdecimal() else name


def _named(path: Path, name: str, header: Sequence[str]) -> int:
    if name not in header:
        raise InputError(
            f"{path}, line 1: no column is called {name!r}, only {', '.join(map(repr, header))}."
            f"{did_you_mean(name, header)} Name both columns, or give their numbers, counted from 1."
        )
    return header.index(name)


def _counted(cells: int) -> str:
    return "there is 1 text" if cells == 1 else f"there are {cells} texts"
