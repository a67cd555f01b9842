"""Which pairs are held out: decided by the source text itself, so that a split can be published as two numbers.

The first 32 bits of the SHA-256 of a text, as a share of 1, say where it falls: below `dev_share` it is dev, from there
to `dev_share + test_share` test, else train. Capitals, marks and spaces make no difference, so that "Hi." and "Hi!"
fall together, and so do all translations of a text. No seed, no order: a pair stays where it is when others are added.

Texts of different places may share a translation ("Hurry!", "Be quick!"). What has the translation of a held-out pair
is therefore left out of train, by `jobs/translate/data.py`; this file looks at the source alone.
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
"""All that `str.isalnum` is false for."""


def fold_to_letters(text: str) -> str:
    """Letters and digits alone; the text itself where it has none.

    >>> folded("Don’t  STOP!"), folded("……")
    ('dontstop', '……')
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    return _no_letter.sub("", plain) or text.strip()


def hash_to_unit(text: str) -> float:
    """From 0 to less than 1.

    >>> place("Hi.") == place("hi!"), round(place("Hello World"), 4)
    (True, 0.5758)
    """
    return int.from_bytes(hashlib.sha256(fold_to_letters(text).encode()).digest()[:4], "big") / 2**32


def choose_part(text: str, dev_share: float, test_share: float) -> str:
    """Of a source text: "train", "dev" or "test"."""
    at = hash_to_unit(text)
    return "dev" if at < dev_share else "test" if at < dev_share + test_share else "train"


# --- Texts and their translations out of files, a pair at a time: two files that go line by line, or one with both.
#
#     two files    line n of the second is the translation of line n of the first (Moses)
#     .jsonl       an object a line: {"source": …, "target": …}, or the fields that are named, also inside
# "translation"
#     any other    columns between tabs; the first two, or those that are named by a header or by number
#
# All of them plain, .gz or .xz. No pair is skipped in silence: one with an empty side is left out and told as a
# `Fault`,
# and files that do not go together are refused by the line where they part. A blank line is no pair in a file with
# both
# sides, and is passed over; in one of two files it is an empty side.
#
# What this file does NOT do: know tokens. Files of any size pass through, one line of each in memory.

SIDES = ("source", "target")
_INSIDE = "translation"
"""Under which data sets of the hub keep both sides."""


class Pair(NamedTuple):
    source: str
    target: str
    place: Place = Place("", 0)


@dataclass
class PairFiles:
    """Read from the beginning whenever it is iterated; `faults` are those of the last time."""

    files: tuple[Path, ...]
    columns: tuple[str, ...] = ()  # of source and target: names, or numbers from 1
    faults: list[Fault] = field(default_factory=list)

    @classmethod
    def of(cls, files: AnyPath | Sequence[AnyPath], columns: Sequence[str] = ()) -> "PairFiles":
        """What cannot be right is refused here, before anything long is begun."""
        paths = [files] if isinstance(files, str) or not isinstance(files, Sequence) else list(files)
        if len(paths) not in (1, 2):
            raise InputError(
                f"Pairs come in two files (source, target) or in one with both sides, not in {len(paths)}: "
                f"{', '.join(map(str, paths)) or 'none was given'}."
            )
        if len(columns) not in (0, 2):
            raise InputError(f"Name two columns, source and target, not {len(columns)}: {', '.join(columns)}.")
        if columns and _column(columns[0]) == _column(columns[1]):
            raise InputError(
                f"The column {columns[0]} was named for both source and target: a text is not its own translation."
            )
        if len(paths) == 2 and columns:
            raise InputError(
                f"Columns are for one file that has both sides; of {paths[0]} and {paths[1]} each is one side."
            )
        opened = tuple(read_beginning(path).path for path in paths)
        if len(opened) == 2 and opened[0].resolve() == opened[1].resolve():
            raise InputError(f"{opened[0]} was given as both sides: its translations belong in another file.")
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
                    f"{path}, line {number}: {_counted(len(cells))} between tabs, and the pairs are in columns "
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
                raise InputError(f"{place} is not JSON ({error}); write one object a line.") from error
            inner = row.get(_INSIDE) if isinstance(row, dict) else None
            row = inner if isinstance(inner, dict) else row
            if not isinstance(row, dict):
                raise InputError(f'{place}: each line must be an object such as {{"source": "…", "target": "…"}}.')
            texts = []
            for name in wanted:
                if name not in row:
                    held = ", ".join(map(repr, row)) or "no field at all"
                    raise InputError(
                        f"{place} has no field {name!r}, only {held}.{did_you_mean(name, row)} Name the two with "
                        "--columns SOURCE,TARGET."
                    )
                if not isinstance(row[name], str):
                    raise InputError(f"{place}: the field {name!r} holds {abbreviate(str(row[name]))}, not a text.")
                texts.append(check_text(row[name], place, f"the field {name!r}"))
            yield Pair(texts[0], texts[1], place)


def _parted(first: Path, second: Path, line: tuple[int, str], rest: Iterator[Any]) -> InputError:
    """One file has ended: which, how long both are, and the first line that is left alone."""
    longer, shorter = (first, second) if _is_shorter(second, line[0]) else (second, first)
    total = line[0] + sum(1 for _ in rest)
    return InputError(
        f"{shorter} has {line[0] - 1:,} lines and {longer} has {total:,}: line {line[0]:,} of {longer} "
        f"({abbreviate(line[1])}) has no translation. Line n of one must be the translation of line n of the other; "
        "look for a line that was lost or broken in two."
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
