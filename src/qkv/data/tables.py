"""Rows of csv and tsv files, one at a time, each with the line where it begins.

    csv   a cell in "quotes" may hold separators, line ends, and quotes, doubled ("")
    tsv   cells are what stands between tabs: quotes are characters like any other, as in GLUE's files

Spreadsheets write tabs with quotes, too: a file whose quoted cells are all well-formed and hold doubled quotes is read
that way, whatever its name. The separator is the one that most rows agree about. Python's own csv module is not used
because it goes on reading after a quote that nobody closed, to the end of the file.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from qkv.data.beginning import Beginning, sound_lines
from qkv.data.columns import is_header
from qkv.errors import InputError

SEPARATORS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}
ROWS_LOOKED_AT = 200
LONGEST_CELL = 10_000  # lines: beyond this a quote was left open

_quoted_cell = re.compile(r'"(?:[^"]|"")*"')


@dataclass(frozen=True)
class Table:
    path: Path
    separator: str
    quoted: bool
    header: tuple[str, ...] | None
    width: int  # columns that the header or else most rows have
    sample: tuple[tuple[str, ...], ...]  # rows from the beginning, without the header

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns: by the header, or else numbers from 1."""
        return self.header or tuple(str(number) for number in range(1, self.width + 1))

    @property
    def format(self) -> str:
        return "csv" if self.quoted else "tsv"

    @property
    def note(self) -> str:
        """What is out of the ordinary."""
        notes = [] if self.header else ["without a header"]
        if self.separator != ("," if self.quoted else "\t"):
            notes.append(f"separated by {SEPARATORS.get(self.separator, repr(self.separator))}")
        return " ".join(notes)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Line and cells of every row below the header; blank lines are passed over."""
        found = rows(self.path, sound_lines(self.path), self.separator, self.quoted)
        if self.header is not None:
            next(found, None)
        return found


def table(start: Beginning, format: str, given: Mapping[str, str]) -> Table:
    """What kind of table begins like this; `given` are the columns that the caller named."""
    separator = _sniffed_separator(start, format)
    quoted = _is_quoted(start, separator)
    sample = list(_sample(start, separator, quoted))
    header = None
    if sample and is_header(sample[0], given):
        header = tuple(cell.strip() for cell in sample.pop(0))
    widths = Counter(map(len, sample))
    width = len(header) if header else widths.most_common(1)[0][0] if widths else 0
    return Table(start.path, separator, quoted, header, width, tuple(map(tuple, sample)))


def _sniffed_separator(start: Beginning, format: str) -> str:
    usual = "\t" if format == "tsv" else ","
    best, most = usual, 0.0
    for separator in sorted(SEPARATORS, key=lambda one: one != usual):  # the usual one first: it wins a tie
        widths = Counter(len(row) for row in _sample(start, separator, separator != "\t"))
        width, count = widths.most_common(1)[0] if widths else (0, 0)
        if width >= 2 and (share := count / widths.total()) > most + (0.0 if separator == "\t" else 0.05):
            best, most = separator, share
    return best


def _is_quoted(start: Beginning, separator: str) -> bool:
    if separator != "\t":
        return True
    doubled = 0
    for line in start.lines[:ROWS_LOOKED_AT]:
        for cell in line.split("\t"):
            if cell.startswith('"'):
                if not _quoted_cell.fullmatch(cell):
                    return False
                doubled += '""' in cell[1:-1]
    return doubled > 0


def _sample(start: Beginning, separator: str, quoted: bool) -> Iterator[list[str]]:
    """Rows of the beginning; what is wrong with the last of them, which may be cut, is not said here."""
    found = rows(start.path, iter(enumerate(start.lines, 1)), separator, quoted)
    try:
        for _ in range(ROWS_LOOKED_AT):
            row = next(found, None)
            if row is None:
                return
            yield row[1]
    except InputError:
        return


def rows(path: Path, lines: Iterator[tuple[int, str]], separator: str, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines:
        if not line or line.isspace():
            continue
        if quoted and '"' in line:
            yield number, _cells(path, number, line, lines, separator)
        else:
            yield number, line.split(separator)


def _cells(path: Path, number: int, line: str, lines: Iterator[tuple[int, str]], separator: str) -> list[str]:
    """One row with quotes in it; takes further lines where a quoted cell goes on."""
    cells, place = [], 0
    while True:
        begin = place
        while line.startswith(" ", begin) and separator != " ":  # blanks before a quote do not count
            begin += 1
        if not line.startswith('"', begin):
            end = line.find(separator, place)
            cells.append(line[place:] if end < 0 else line[place:end])
        else:
            cell, line, end = _quoted(path, number, line, begin + 1, lines)
            cells.append(cell)
            rest = line.find(separator, end)
            between = line[end:] if rest < 0 else line[end:rest]
            if between.strip():
                raise InputError(
                    f"{path}, line {number}: after the quoted cell {cell[:30]!r} comes {between[:30]!r}, not the end "
                    'of the cell. A quote in a cell is written twice, and the whole cell in quotes: """So"", he said". '
                    "If quotes are plain characters in this file, separate its columns by tabs and call it .tsv."
                )
            end = rest
        if end < 0:
            return cells
        place = end + 1


def _quoted(path: Path, number: int, line: str, place: int, lines: Iterator[tuple[int, str]]) -> tuple[str, str, int]:
    """The cell that begins after a quote, the line it ends on, and where on that line it has ended."""
    parts: list[str] = []
    taken = 0
    while True:
        end = line.find('"', place)
        if end < 0:
            parts += (line[place:], "\n")
            following = next(lines, None)
            taken += 1
            if following is None or taken > LONGEST_CELL:
                raise InputError(
                    f"{path}, line {number}: the quote before {''.join(parts)[:30]!r} is never closed. Close it, or, "
                    "if quotes are plain characters in this file, separate its columns by tabs and call it .tsv."
                )
            line, place = following[1], 0
        elif line.startswith('"', end + 1):
            parts.append(line[place : end + 1])
            place = end + 2
        else:
            parts.append(line[place:end])
            return "".join(parts), line, end + 1
