"""The beginning of a file, by which its format is told, and its lines.

No file that is read here may hold NUL characters; a file that is not UTF-8 is refused by line and byte
(data/readers.py).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from qkv.data.labelled.examples import AnswerSpan, Example, Fault, Place, Span
from qkv.data.readers import BOM, COMPRESSED, UNREADABLE, AnyPath, numbered_lines, open_bytes, unreadable_error
from qkv.errors import InputError

_LOOKED_AT = 1 << 18  # bytes: hundreds of rows, and little to read


@dataclass(frozen=True)
class Beginning:
    path: Path
    text: str  # without a byte order mark
    whole: bool  # whether this is all of the file

    @cached_property
    def ending(self) -> str:
        """Of the file's name, below any packing: ".csv" of "a.CSV.gz"."""
        packed = self.path.suffix.lower() in COMPRESSED
        return (Path(self.path.stem) if packed else self.path).suffix.lower()

    @cached_property
    def lines(self) -> list[str]:
        """Whole lines; the last one is left out where the beginning may have cut it, unless it is the only one."""
        found = [line.removesuffix("\r") for line in self.text.split("\n")]
        if (not self.whole and len(found) > 1) or found[-1] == "":
            found.pop()
        return found


def read_beginning(path: AnyPath, size: int = _LOOKED_AT) -> Beginning:
    numbered = checked_lines(path)  # complains when there is no such file
    file = Path(os.path.expanduser(path))
    try:
        with open_bytes(file) as stream:
            data = stream.read(size + 1)
    except UNREADABLE as error:
        raise unreadable_error(file, 0, error) from error
    whole = len(data) <= size
    data = data[:size]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if whole or error.start < size - 4:  # not a character that was cut in two
            for _ in numbered:
                pass
        text = data.decode("utf-8", "ignore")
    text = text.removeprefix(BOM)
    if not text.strip():
        raise InputError(f"{file} is empty." if whole else f"{file} holds nothing but blanks, as far as was looked.")
    return Beginning(file, text, whole)


def checked_lines(path: AnyPath) -> Iterator[tuple[int, str]]:
    """`readers.lines`, and a line with a NUL character is refused. The file is looked for at once."""
    return _check_lines(path, numbered_lines(path))


def _check_lines(path: AnyPath, numbered: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for number, line in numbered:
        if "\0" in line:
            raise InputError(
                f"{path}, line {number} has a NUL character (at {line.index(chr(0)) + 1}), which no text file holds. "
                "The file is damaged, or it is UTF-16: then convert it with iconv -f utf-16le -t utf-8."
            )
        yield number, line


# --- What is asked of a labelled file, and what a format makes of it: the two ends that reader.py ties together.
#
# How the examples of one task are labelled in files is a `Labelling`; kinds.py has the table of them. A format hands
# out units (rows, objects, sentences: whatever stands or falls together) and says how one unit becomes examples. The
# two
# are apart so that a check can go on after a unit that cannot be used.

# Whoever tells of a fault with the action "dropped" drops one example: counting them counts the examples.
ReportFault = Callable[[Fault], None]
Convert = Callable[[int, Any, ReportFault], Iterable[Example]]

ROLES = ("text", "pair", "label", "group", "id", "question", "context", "answer", "choices")


@dataclass(frozen=True)
class Labelling:
    """How examples of one task are written in files."""

    task: str
    example: type[Example]
    about: str  # what such a file holds
    formats: str  # which of them are read
    record: str  # a record of it, as JSON
    roles: tuple[
        str, ...
    ]  # the columns that may be given; `text` is another word for the context, `label` for the answer
    needed: tuple[str, ...]  # those that cannot be missing; the last one holds the labels
    columns: "FindColumns"  # in a header, or among the fields of JSON records
    reader: Callable[["Wanted", Mapping[str, str], Sequence[str]], Convert]  # from roles and all names
    nested: Callable[["Wanted", Any], "tuple[str, Convert] | None"]  # format and reader of JSON that is no flat record
    numbered: "FindColumns"  # in a table without a header, as given by number
    # in a table without a header, by what stands in its columns; the flag says whether there must be labels
    guessed: Callable[[Sequence[Sequence[str]], bool], dict[str, str] | None] = lambda rows, needs_labels: None
    shape: Callable[[Any, str | None], str] = lambda value, label: ""  # a better name for JSON records, by their labels
    classes: bool = False  # labels are names that people chose, which can be misspelt, rare or missing
    spans: bool = False  # labels are of spans; then a file may have a word and its tag a line

    @property
    def reads_lines(self) -> bool:
        """Whether a text alone makes an example, so that a file without labels may be plain lines."""
        return [name for name, needed in self.example.fields.items() if needed] == ["text"]

    def missing(self, columns: Mapping[str, str], needs_labels: bool) -> list[str]:
        return [role for role in (self.needed if needs_labels else self.needed[:-1]) if role not in columns]


FindColumns = Callable[["Wanted", Sequence[str], str], dict[str, str]]
"""From the names of all columns, and what to call the file in messages: role → name."""


class Wanted(NamedTuple):
    """What the caller asked for."""

    path: Path
    labelling: Labelling
    columns: Mapping[str, str]  # as given: role → name or number
    needs_labels: bool
    separator: str | None = None  # between several labels in one cell

    def place(self, line: int) -> Place:
        return Place(str(self.path), line)


class BrokenUnit(NamedTuple):
    """A unit that could not even be read, where the next one can."""

    error: InputError


class OpenedFile(NamedTuple):
    """A file whose format is known."""

    format: str
    columns: dict[str, str]  # role → name as the file has it, or number
    note: str  # what was found out beside: "without a header", "IOB1"
    units: Callable[[], Iterator[tuple[int, Any]]]  # line and unit, from the beginning each time it is called
    convert: Convert  # line, unit and whom to tell of faults → examples


def check_text(text: str, place: Place, what: str) -> str:
    """`text` itself; refused when it holds what no text file can: NUL, or half of a surrogate pair (JSON escapes)."""
    if "\0" in text:
        raise InputError(f"{place}: {what} has a NUL character, which no text holds: the file was damaged. Remove it.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise InputError(f"{place}: {what} has {half} without its other half: it was cut.") from None
    return text


def empty_text_fault(place: Place, what: str) -> Fault:
    return Fault(place, "empty text", f"{what} is empty", "dropped")


def abbreviate(text: str, length: int = 40) -> str:
    """For messages.

    >>> shortened("a long text indeed", 8)
    "'a long …'"
    """
    return repr(text if len(text) <= length else text[: length - 1] + "…")


# --- Answers and spans that are not where the file says they are.
#
# Character positions go wrong in real files (counted in bytes or UTF-16, before the text was cleaned, by hand). What
# can
# be set right without a doubt is, and every case is told: nothing is moved or left out in silence.


def find_occurrences(text: str, part: str) -> list[int]:
    """Where `part` stands in `text`, overlapping ones too.

    >>> occurrences("ababa", "aba")
    [0, 2]
    """
    found, place = [], text.find(part)
    while place >= 0:
        found.append(place)
        place = text.find(part, place + 1)
    return found


def locate_answer(
    context: str, text: str, start: int | None, place: Place, what: str, told: ReportFault
) -> AnswerSpan | None:
    """The answer where it stands: at `start`, or else nearest to it. None, and told, where it stands nowhere.

    `start` None: the file does not say; then the first occurrence, which is told where there are several.
    """
    if start is not None and start >= 0 and context.startswith(text, start):
        return AnswerSpan(start, text)
    found = find_occurrences(context, text)
    if not found:
        message = f"{what}: the answer {abbreviate(text)} does not stand in the text: it is scored by, not learned"
        told(Fault(place, "answer", message, "mended"))  # of the example: others may be left
        return None
    if start is None:
        if len(found) > 1:
            message = (
                f"{what}: the answer {abbreviate(text)} stands in the text {len(found)} times, the first was taken"
            )
            told(Fault(place, "answer place", message, "noted"))
        return AnswerSpan(found[0], text)
    nearest = min(found, key=lambda one: abs(one - start))
    message = f"{what}: the answer {abbreviate(text)} does not stand at {start} but at {nearest}"
    told(Fault(place, "answer", message, "mended"))
    return AnswerSpan(nearest, text)


def locate_span(
    text: str, start: int, end: int, label: str, stated: str | None, place: Place, told: ReportFault
) -> Span | None:
    """The span as given, or moved to the one place where its stated string stands. None, and told, where it cannot be.

    With a stated string its length decides where the span ends: files differ in whether the end is counted in.
    """
    if stated is None:
        if 0 <= start < end <= len(text):
            return Span(start, end, label)
        message = f"the span {start}–{end} ({label}) is not within the text of {len(text)} characters"
        told(Fault(place, "span", message, "dropped"))
        return None
    if stated and start >= 0 and text.startswith(stated, start):
        return Span(start, start + len(stated), label)
    found = find_occurrences(text, stated) if stated else []
    message = f"the span {start}–{end} ({label}) does not read {abbreviate(stated)}"
    if len(found) == 1:
        told(Fault(place, "span", f"{message}, which stands at {found[0]}", "mended"))
        return Span(found[0], found[0] + len(stated), label)
    often = f"stands in the text {len(found)} times" if found else "stands nowhere in the text"
    told(Fault(place, "span", f"{message}, which {often}", "dropped"))
    return None
