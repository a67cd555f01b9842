"""The interface between formats of labelled files and `reader.py`, and helpers that formats share.

A `Labelling` describes how the examples of one task are written in files; reader.py has the table of them. A format
yields units (rows, objects, sentences) and converts a unit to examples. The two steps are separate so that a check can
continue after a unit that cannot be used.

Character offsets are often wrong in real files (counted in bytes or UTF-16, before the text was cleaned, by hand).
`locate_answer` and `locate_span` repair what is unambiguous, and report every case: nothing is moved or dropped
silently.

NUL characters are rejected; a file that is not UTF-8 is rejected with line and byte (data/readers.py).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import category

from qkv.data.labelled.examples import AnswerSpan, Example, Fault, Place, Span, place_at
from qkv.data.readers import (
    BOM,
    COMPRESSED,
    FIRST_ROW,
    UNREADABLE,
    AnyPath,
    RowStart,
    numbered_lines,
    open_bytes,
    unreadable_error,
)
from qkv.errors import InputError

_LOOKED_AT = 1 << 18  # bytes: hundreds of rows, and little to read
_LONGEST_FIRST = 1 << 22  # bytes of a first line


@dataclass(frozen=True)
class Beginning:
    path: Path
    text: str  # without a byte order mark
    whole: bool  # whether this is the whole file

    @cached_property
    def ending(self) -> str:
        """Suffix of the file name without compression: ".csv" for "a.CSV.gz"."""
        packed = self.path.suffix.lower() in COMPRESSED
        return (Path(self.path.stem) if packed else self.path).suffix.lower()

    @cached_property
    def lines(self) -> list[str]:
        """Complete lines; the last line is dropped if it may be truncated, unless it is the only one."""
        found = [line.removesuffix("\r") for line in self.text.split("\n")]
        if (not self.whole and len(found) > 1) or found[-1] == "":
            found.pop()
        return found


def read_beginning(path: AnyPath, size: int = _LOOKED_AT) -> Beginning:
    numbered = checked_lines(path)  # raises if the file does not exist
    file = Path(os.path.expanduser(path))
    try:
        with open_bytes(file) as stream:
            data = stream.read(size + 1)
            if len(data) > size and b"\n" not in data:  # a header of many columns is read whole
                data += stream.readline(_LONGEST_FIRST)
                size = max(size, len(data) - 1)
    except UNREADABLE as error:
        raise unreadable_error(file, 0, error) from error
    whole = len(data) <= size
    data = data[:size]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if whole or error.start < size - 4:  # not a character truncated at the end
            for _ in numbered:
                pass
        text = data.decode("utf-8", "ignore")
    text = text.removeprefix(BOM)
    if not text.strip():
        raise InputError(f"{file} is empty." if whole else f"{file} begins with nothing but white space.")
    return Beginning(file, text, whole)


def checked_lines(path: AnyPath, start: RowStart = FIRST_ROW) -> Iterator[tuple[int, str]]:
    """Yield numbered lines, rejecting NUL characters. A missing file is reported at once."""
    return _check_lines(path, numbered_lines(path, start))


def _check_lines(path: AnyPath, numbered: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for number, line in numbered:
        if "\0" in line:
            raise InputError(
                f"{path}, line {number} has a NUL character (at {line.index(chr(0)) + 1}), so it is not a text file. "
                "The file is damaged, or it is UTF-16: then convert it with iconv -f utf-16le -t utf-8."
            )
        yield number, line


# A fault with the action "dropped" is reported once per dropped example, so that they can be counted.
ReportFault = Callable[[Fault], None]
Convert = Callable[[int, Any, ReportFault], Iterable[Example]]

ROLES = ("text", "pair", "label", "group", "id", "question", "context", "answer", "choices", "weight")


@dataclass(frozen=True)
class Labelling:
    """How examples of one task are written in files."""

    task: str
    example: type[Example]
    about: str  # contents of such a file
    formats: str  # supported formats
    record: str  # an example record, as JSON
    roles: tuple[
        str, ...
    ]  # the columns that may be given; `text` is another word for the context, `label` for the answer
    needed: tuple[str, ...]  # required columns; the last one has the labels
    columns: "FindColumns"  # in a header, or among the fields of JSON records
    reader: Callable[["Wanted", Mapping[str, str], Sequence[str]], Convert]  # from roles and all names
    nested: Callable[["Wanted", Any], "tuple[str, Convert] | None"]  # format and reader of nested JSON
    numbered: "FindColumns"  # in a table without a header, as given by number
    # in a table without a header, by the contents of its columns; the flag: labels are required
    guessed: Callable[[Sequence[Sequence[str]], bool], dict[str, str] | None] = lambda rows, needs_labels: None
    shape: Callable[[Any, str | None], str] = lambda value, label: ""  # a more specific name for JSON records
    counted: str = "record"  # name of an example in a JSON document without line ends
    inner: Callable[[Any], int] = lambda value: 1  # number of examples in a value of nested JSON
    classes: bool = False  # labels are class names, which can be misspelt, rare or missing
    spans: bool = False  # labels are of spans; then a file may have one word and its tag per line

    @property
    def reads_lines(self) -> bool:
        """Whether an unlabelled example is only a text, so that a file may be plain lines."""
        return [name for name, needed in self.example.fields.items() if needed] == ["text"]

    def missing(self, columns: Mapping[str, str], needs_labels: bool) -> list[str]:
        return [role for role in (self.needed if needs_labels else self.needed[:-1]) if role not in columns]


FindColumns = Callable[["Wanted", Sequence[str], str], dict[str, str]]
"""(wanted, names of all columns, name of the file in messages) → role → column name."""


class Wanted(NamedTuple):
    """The caller's request."""

    path: Path
    labelling: Labelling
    columns: Mapping[str, str]  # as given: role → name or number
    needs_labels: bool
    separator: str | None = None  # between several labels in one cell
    unit: str = "line"  # that examples are counted in
    remembered: Mapping[str, str] = {}  # columns that a model was trained with: used where the file has them

    def place(self, number: int) -> Place:
        return place_at(str(self.path), number, self.unit)

    def recall(self, names: Sequence[str]) -> "Wanted":
        """Add the remembered columns that a file with these names has; given ones come first."""
        roles = set(self.columns) | {_SAME_ROLE[role] for role in self.columns if role in _SAME_ROLE}
        found = {
            role: value
            for role, value in self.remembered.items()
            if role not in roles and (value in names or all(part.strip() in names for part in value.split(",")))
        }
        return self._replace(columns={**found, **self.columns}, remembered={})


_SAME_ROLE = {"text": "context", "context": "text", "label": "answer", "answer": "label"}


class NoFieldError(InputError):
    """A record lacks a field that is read; without labels it is a row without a text."""


class BrokenUnit(NamedTuple):
    """A unit that cannot be read, although the next one can."""

    error: InputError


class OpenedFile(NamedTuple):
    """A file whose format is known."""

    format: str
    columns: dict[str, str]  # role → column name in the file, or number
    note: str  # other findings: "without a header", "IOB1"
    units: Callable[[], Iterator[tuple[int, Any]]]  # line and unit, from the beginning at each call
    convert: Convert  # (line, unit, report) → examples
    unit: str = "line"  # that units are counted in
    names: tuple[str, ...] = ()  # columns of a table, in order; () for other files
    fields: tuple[str, ...] = ()  # these, or the fields of the first JSON records
    types: Mapping[str, Any] = {}  # of pyarrow, of the columns of a parquet or Arrow file
    record: Callable[[Any], Mapping[str, Any]] | None = None  # the columns or fields of a unit; None: it has none
    units_from: Callable[[RowStart], Iterator[tuple[int, Any]]] | None = None  # None: only from the beginning


def check_text(text: str, place: Place, what: str) -> str:
    """Return `text`; raise if it has a NUL character or a lone surrogate (from JSON escapes)."""
    if "\0" in text:
        raise InputError(f"{place}: {what} has a NUL character: the file is damaged. Remove it.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise InputError(f"{place}: {what} has the lone surrogate {half}: it was truncated.") from None
    return text


def is_blank(text: str) -> bool:
    """Whether a text has nothing to see: only white space, control and format characters such as U+200B.

    >>> is_blank(" \u200b\ufeff"), is_blank("好")
    (True, False)
    """
    return all(one.isspace() or category(one) in ("Cc", "Cf") for one in text)


def empty_text_fault(place: Place, what: str) -> Fault:
    return Fault(place, "empty text", f"{what} is empty", "dropped")


def abbreviate(text: str, length: int = 40) -> str:
    """Quote a text for messages, truncated to `length`.

    >>> abbreviate("a long text indeed", 8)
    "'a long …'"
    """
    return repr(text if len(text) <= length else text[: length - 1] + "…")


def find_occurrences(text: str, part: str) -> list[int]:
    """Return all positions of `part` in `text`, including overlapping ones.

    >>> find_occurrences("ababa", "aba")
    [0, 2]
    """
    found, place = [], text.find(part)
    while place >= 0:
        found.append(place)
        place = text.find(part, place + 1)
    return found


def locate_answer(
    context: str, text: str, start: int | None, place: Place, what: str, report: ReportFault
) -> AnswerSpan | None:
    """Return the answer at `start`, or at the nearest occurrence. If there is none, report it and return None.

    `start` None: the file has no offset; then the first occurrence, with a report if there are several.
    """
    if start is not None and start >= 0 and context.startswith(text, start):
        return AnswerSpan(start, text)
    found = find_occurrences(context, text)
    if not found:
        message = f"{what}: the answer {abbreviate(text)} is not in the text: used for scoring, skipped in training"
        report(Fault(place, "answer", message, "mended"))  # the example may have other answers
        return None
    if start is None:
        if len(found) > 1:
            message = f"{what}: the answer {abbreviate(text)} occurs in the text {len(found)} times, the first is used"
            report(Fault(place, "answer place", message, "noted"))
        return AnswerSpan(found[0], text)
    nearest = min(found, key=lambda one: abs(one - start))
    message = f"{what}: the answer {abbreviate(text)} is not at {start} but at {nearest}"
    report(Fault(place, "answer", message, "mended"))
    return AnswerSpan(nearest, text)


def locate_span(
    text: str, start: int, end: int, label: str, stated: str | None, place: Place, report: ReportFault
) -> Span | None:
    """Return the span, moved to the only occurrence of its stated text if necessary; if impossible, report and None.

    With a stated text its length determines the end: files differ in whether the end is inclusive.
    """
    if stated is None:
        if 0 <= start < end <= len(text):
            return Span(start, end, label)
        message = f"the span {start}–{end} ({label}) is not within the text of {len(text)} characters"
        report(Fault(place, "span", message, "dropped"))
        return None
    if stated and start >= 0 and text.startswith(stated, start):
        return Span(start, start + len(stated), label)
    found = find_occurrences(text, stated) if stated else []
    message = f"the span {start}–{end} ({label}) does not read {abbreviate(stated)}"
    if len(found) == 1:
        report(Fault(place, "span", f"{message}, which is at {found[0]}", "mended"))
        return Span(found[0], found[0] + len(stated), label)
    often = f"occurs in the text {len(found)} times" if found else "is not in the text"
    report(Fault(place, "span", f"{message}, which {often}", "dropped"))
    return None
