"""Values of JSON files, each with its first line.

    jsonl   one value per line; the file is streamed
    json    a list of values; an object with the list under "data" (SQuAD, CMRC); or a sequence of values, each over
            any number of lines (CLUENER). The text is in memory, the values are decoded one by one.

Numbers with a decimal point become `Decimal`, which keeps their spelling.
"""

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from qkv.data.labelled.opened import Beginning, BrokenUnit, checked_lines
from qkv.data.readers import BOM, FIRST_ROW, UNREADABLE, RowStart, open_bytes, unreadable_error
from qkv.errors import InputError

ITEMS = "data"  # the key of the list in an object

_decoder = json.JSONDecoder(parse_float=Decimal)
_blank = re.compile(r"[ \t\r\n]*")
# an object with a list under "data", after only strings and numbers
_holds_items = re.compile(r'\{(?:\s*"[^"{}\[\]]*"\s*:\s*(?:"[^"]*"|[-\w.]+)\s*,)*\s*"data"\s*:\s*\[')
_looks_like_json = re.compile(r'\s*(?:\{\s*["}]|\[\s*[\[{"\]])')


class Value(NamedTuple):
    value: Any
    raw: str  # its text in the file


def container_of(start: Beginning) -> str | None:
    """Return jsonl, json, or None if it is not JSON.

    >>> container_of(Beginning(Path("a.json"), '{"text": "a"}\\n{"text": "b"}\\n', True))
    'jsonl'
    >>> container_of(Beginning(Path("a.json"), '{"data": [{"paragraphs": []}]}', True))
    'json'
    """
    if not _looks_like_json.match(start.text):
        return None
    filled = [line for line in start.lines if line.strip()]
    if not start.whole and len(start.lines) == 1:  # one line, longer than the beginning
        return "jsonl" if start.ending == ".jsonl" else "json"
    try:
        first = _decoder.decode(filled[0])
    except (ValueError, RecursionError):
        # report a broken first line of a .jsonl file instead of reading it as the beginning of a document
        return "jsonl" if start.ending == ".jsonl" and len(filled[0].strip()) > 1 else "json"
    if isinstance(first, dict) and not isinstance(first.get(ITEMS), list):
        return "jsonl"
    return "json" if len(filled) == 1 or not isinstance(first, dict) else "jsonl"


def read_json_values(path: Path, container: str) -> Iterator[tuple[int, Value | BrokenUnit]]:
    """Yield line and value; a broken line of a jsonl file is a `BrokenUnit`, a broken document an error."""
    return read_json_lines(path) if container == "jsonl" else _of_document(path)


def read_json_lines(path: Path, start: RowStart = FIRST_ROW) -> Iterator[tuple[int, Value | BrokenUnit]]:
    for number, line in checked_lines(path, start):
        if line.strip():
            try:
                yield number, Value(_decoder.decode(line), line)
            except json.JSONDecodeError as error:
                message = f"{path}, line {number} is not JSON, column {error.colno}: {error.msg}."
                yield number, BrokenUnit(InputError(message))
            except (ValueError, RecursionError):
                message = f"{path}, line {number} is nested too deeply, or has a number that is too long."
                yield number, BrokenUnit(InputError(message))


def _of_document(path: Path) -> Iterator[tuple[int, Value]]:
    text = _text(path)
    for begin, end, value in _items(path, text):
        yield begin[1], Value(value, text[begin[0] : end])


def _text(path: Path) -> str:
    try:
        with open_bytes(path) as stream:
            data = stream.read()
    except UNREADABLE as error:
        raise unreadable_error(path, 0, error) from error
    try:
        if b"\0" not in data:
            return data.decode("utf-8").removeprefix(BOM)
    except UnicodeDecodeError:
        pass
    for _ in checked_lines(path):  # raises with the line
        pass
    raise AssertionError(f"{path} changed while it was read")


class _Cursor:
    """A position in the text that moves over values and punctuation, with its line."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text
        self.place, self._counted, self._line = 0, 0, 1
        self.blanks()

    def blanks(self) -> None:
        found = _blank.match(self.text, self.place)
        assert found is not None  # the pattern matches the empty string
        self.place = found.end()

    @property
    def line(self) -> int:
        self._line += self.text.count("\n", self._counted, self.place)
        self._counted = self.place
        return self._line

    def at_end(self) -> bool:
        return self.place >= len(self.text)

    def take(self, sign: str) -> bool:
        if not self.text.startswith(sign, self.place):
            return False
        self.place += len(sign)
        self.blanks()
        return True

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            found = "the file ends" if self.at_end() else f"found {self.text[self.place : self.place + 20]!r}"
            raise InputError(f"{self.path}, line {self.line} is not JSON: expected {sign!r}, but {found}.")

    def value(self) -> Any:
        try:
            value, self.place = _decoder.raw_decode(self.text, self.place)
        except json.JSONDecodeError as error:
            raise InputError(
                f"{self.path}, line {error.lineno} is not JSON, column {error.colno}: {error.msg}. "
                "The file may be truncated."
            ) from None
        except (ValueError, RecursionError):
            raise InputError(
                f"{self.path}, line {self.line} is nested too deeply, or has a number that is too long."
            ) from None
        return value


def _items(path: Path, text: str) -> Iterator[tuple[tuple[int, int], int, Any]]:
    """Yield (position, line), end and value of each item."""
    cursor = _Cursor(path, text)
    if cursor.take("["):
        yield from _list_items(cursor)
    elif _holds_items.match(text, cursor.place):
        cursor.expect("{")
        yield from _under_data(cursor)
    else:
        while not cursor.at_end():  # one object after another, perhaps with commas between
            begin = cursor.place, cursor.line
            value = cursor.value()
            if isinstance(value, dict) and isinstance(value.get(ITEMS), list):  # after nested values
                yield from ((begin, cursor.place, item) for item in value[ITEMS])
            else:
                yield begin, cursor.place, value
            cursor.blanks()
            cursor.take(",")
        return
    if not cursor.at_end():
        raise InputError(f"{path}, line {cursor.line}: text follows after the end of the JSON document.")


def _list_items(cursor: _Cursor) -> Iterator[tuple[tuple[int, int], int, Any]]:
    """Yield the items of a list, from after [ to its end."""
    if cursor.take("]"):
        return
    while True:
        begin = cursor.place, cursor.line
        value = cursor.value()
        yield begin, cursor.place, value
        cursor.blanks()
        if not cursor.take(","):
            cursor.expect("]")
            return


def _under_data(cursor: _Cursor) -> Iterator[tuple[tuple[int, int], int, Any]]:
    """Yield the items of the list under "data", from after {, skipping other keys."""
    while True:
        name = cursor.value()
        cursor.blanks()
        cursor.expect(":")
        if name == ITEMS and cursor.take("["):
            yield from _list_items(cursor)
        else:
            cursor.value()
            cursor.blanks()
        if not cursor.take(","):
            cursor.expect("}")
            return


def number_values(
    values: Iterator[tuple[int, Value | BrokenUnit]], inner: Callable[[Any], int]
) -> Iterator[tuple[int, Value | BrokenUnit]]:
    """Number the examples of a document instead of its lines; `inner` is how many of them a value has."""
    number = 1
    for _, one in values:
        yield number, one
        number += inner(one.value) if isinstance(one, Value) else 1


def line_of_each(raw: str, line: int, names: str, count: int) -> list[int]:
    """Return the lines of `count` inner objects of a value, by a key that each has once ("question", "query_text").

    If the number of keys differs, all get the line of the value.

    >>> line_of_each('{"qas": [\\n{"question": "a"},\\n{"question": "b"}]}', 7, "question", 2)
    [8, 9]
    """
    if "\n" not in raw:
        return [line] * count
    places = [found.start() for found in re.finditer(rf'(?<!\\)"(?:{names})"\s*:', raw)]
    if len(places) != count:
        return [line] * count
    found, counted = [], 0
    for place in places:
        line += raw.count("\n", counted, place)
        counted = place
        found.append(line)
    return found
