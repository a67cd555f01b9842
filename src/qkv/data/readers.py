"""Lines of text files of any size (.txt and .jsonl, plain or compressed with gzip or xz) and of standard input.

One line is in memory at a time. An unreadable line is an error that names file, line, byte and a fix; nothing is
skipped or replaced silently.
"""

import gzip
import io
import json
import lzma
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from qkv.errors import InputError, did_you_mean, reading

AnyPath = str | os.PathLike[str]
UNREADABLE = (EOFError, lzma.LZMAError, zlib.error, OSError)  # BadGzipFile is an OSError
COMPRESSED = {".gz": "gzip", ".xz": "xz"}  # suffix → program that decompresses it
_KINDS = (".txt", ".jsonl")
SUPPORTED = ", ".join(kind + packing for kind in _KINDS for packing in ("", *COMPRESSED))
BOM = "\ufeff"
STDIN = "-"
"""Argument of commands for standard input, in place of a text or file."""
# Nearly every Chinese line, simplified or traditional, contains some of these: used to detect the encoding.
COMMON = set("的一是不了在人有我他这中大来上国个到说们为子和你地出道也时年，。这個們為說時來國與")


def stream_texts(paths: AnyPath | Iterable[AnyPath], field: str = "text") -> Iterator[str]:
    """Yield every line of every file: a .txt line unchanged, `field` of a .jsonl line.

    Empty lines of a .txt file are texts too (they may separate documents); those of a .jsonl file are skipped. All
    paths are checked before the first line is read, so that a wrong name is reported at once.
    """
    return (text for _, _, text in stream_placed_texts(paths, field))


def stream_placed_texts(paths: AnyPath | Iterable[AnyPath], field: str = "text") -> Iterator[tuple[Path, int, str]]:
    """Yield the texts of `stream_texts` with file and line number (from 1), for messages."""
    files = [check_text_file(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    return ((file, number, text) for file, kind in files for number, text in _texts(file, kind, field))


def numbered_lines(path: AnyPath) -> Iterator[tuple[int, str]]:
    """Yield line number (from 1) and line of a UTF-8 file, without line end (\\n or \\r\\n) and byte order mark.

    U+2028 and similar characters do not end a line. Files with .gz or .xz are decompressed.
    """
    return _lines(_check_file(path))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with open_bytes(path) as stream:
            for number, raw in enumerate(stream, 1):
                try:
                    line = _line(raw, number)
                except UnicodeDecodeError as error:
                    raise not_utf8_error(path, number, raw, error) from None
                yield number, line
    except UNREADABLE as error:
        raise unreadable_error(path, number, error) from error


def read_texts(source: AnyPath, *fields: str) -> Iterator[tuple[str, str]]:
    """Yield every line of a file or of standard input ("-") as a text, with its place for messages.

    The text of a .jsonl line is the first of `fields` that it has; empty lines are skipped.
    """
    if source == STDIN:
        yield from ((line, f"Standard input, line {number}") for number, line in read_stdin_lines())
        return
    path = Path(os.path.expanduser(source))
    is_json = _kind(path).lower() == ".jsonl"
    for number, line in numbered_lines(path):
        place = f"{path}, line {number}"
        if not is_json:
            yield line, place
        elif line.strip():
            yield field_of(line, place, *fields), place


def read_stdin_lines() -> Iterator[tuple[int, str]]:
    """Yield numbered lines of standard input as they arrive."""
    for number, raw in enumerate(sys.stdin.buffer, 1):
        try:
            line = _line(raw, number)
        except UnicodeDecodeError as error:
            raise InputError(f"Standard input, line {number} is not UTF-8 at byte {error.start + 1}.") from None
        yield number, line


def read_stdin() -> str:
    """Read all of standard input as one text, without trailing line ends and byte order mark."""
    try:
        return sys.stdin.buffer.read().decode("utf-8").removeprefix(BOM).rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(f"Standard input is not UTF-8: byte {error.start} cannot be read.") from error


def _line(raw: bytes, number: int) -> str:
    line = raw.decode("utf-8")
    return (line.removeprefix(BOM) if number == 1 else line).removesuffix("\n").removesuffix("\r")


def unreadable_error(path: Path, number: int, error: Exception) -> InputError:
    """Return the error for a file that cannot be read beyond line `number`."""
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return InputError(f"{path} cannot be read: {error.strerror}.")
    return InputError(
        f"{path} is damaged or truncated: decompression stops after line {number} ({error}). "
        f"Copy it again; `{COMPRESSED[path.suffix.lower()]} -t` checks a copy."
    )


def open_bytes(path: Path, packed: BinaryIO | None = None) -> BinaryIO:
    """Open a file for reading, decompressed. `packed` is the open compressed file, if the caller needs its position."""
    source = path if packed is None else packed
    if path.suffix.lower() == ".gz":
        return io.BufferedReader(cast(io.RawIOBase, gzip.open(source, "rb")), 1 << 17)
    if path.suffix.lower() == ".xz":
        return io.BufferedReader(cast(io.RawIOBase, lzma.open(source, "rb")), 1 << 17)
    return open(path, "rb") if packed is None else packed


def _texts(path: Path, kind: str, field: str) -> Iterator[tuple[int, str]]:
    if kind == ".txt":
        return _lines(path)
    return ((n, field_of(line, f"{path}, line {n}", field)) for n, line in _lines(path) if line.strip())


def field_of(line: str, place: str, *fields: str) -> str:
    """Return the text of one .jsonl line: the first of `fields` that it has. `place` names the line in messages."""
    field = fields[-1]
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        where = f", column {error.colno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        hint = " The file looks like one JSON document; write one object per line." if line.strip() in "[{" else ""
        raise InputError(f"{place} is not JSON{where}.{hint}") from error
    if not isinstance(row, dict):
        raise InputError(f'{place} holds a {_name(row)}; each line must be an object such as {{"{field}": "…"}}.')
    field = next((one for one in fields if one in row), field)
    if field not in row:
        held = ", ".join(map(repr, row)) or "no fields"
        raise InputError(f"{place} has no field {field!r}, only {held}.{did_you_mean(field, row)}")
    text = row[field]
    if not isinstance(text, str):
        raise InputError(f"{place}: field {field!r} holds a {_name(text)}, not a string.")
    if "\\ud" in line.lower():  # an escape may be a lone surrogate, which UTF-8 cannot encode
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(text[error.start]):04x}"
            raise InputError(f"{place}: field {field!r} has the lone surrogate {half}: it was truncated.") from error
    return text


def _name(value: object) -> str:
    """Return the JSON name of a value's type."""
    names = {dict: "object", list: "list", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")


def check_text_file(path: AnyPath) -> tuple[Path, str]:
    """Check a path; return it and its kind, .txt or .jsonl."""
    path = _check_file(path)
    kind = _kind(path)
    if kind.lower() not in _KINDS:
        raise InputError(f"{path}: {kind or 'a name without suffix'} is not supported; use one of {SUPPORTED}.")
    return path, kind.lower()


def _kind(path: Path) -> str:
    """Return the suffix of the name, without that of compression."""
    return Path(path.stem).suffix if path.suffix.lower() in COMPRESSED else path.suffix


def _check_file(path: AnyPath) -> Path:
    path = Path(os.path.expanduser(path))
    with reading(path):
        if path.is_dir():
            raise InputError(f"{path} is a folder; give the files in it, for example {path / '*.txt'}.")
        if not path.exists():
            siblings = (one.name for one in path.parent.iterdir()) if path.parent.is_dir() else ()
            raise InputError(f"There is no file {path}.{did_you_mean(path.name, siblings)}")
    return path


def not_utf8_error(path: Path, number: int, raw: bytes, error: UnicodeDecodeError) -> InputError:
    where = f"{path}, line {number}, byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not UTF-8."
    if error.end == len(raw) and error.reason == "unexpected end of data":
        return InputError(f"{where} The file ends inside a character: it is truncated. Copy it again.")
    encoding = _guess(raw, first=number == 1)
    if encoding is None:
        return InputError(f"{where} No common encoding fits the line; the file may be damaged, or not a text file.")
    packed = path.suffix.lower() in COMPRESSED
    name = Path(path.stem if packed else path.name)
    unpack = f"{COMPRESSED[path.suffix.lower()]} -dc {path} | " if packed else ""
    convert = f"{unpack}iconv -f {encoding} -t utf-8{'' if packed else f' {path}'} > {name.stem}.utf8{name.suffix}"
    return InputError(f"{where} The line looks like {encoding.upper()}; convert the file with: {convert}")


def _guess(raw: bytes, first: bool) -> str | None:
    """Guess the encoding of a line by decoding it."""
    if first and raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    # Chinese and Japanese encodings use two bytes per character; a single high byte between letters is an é or ü
    if not re.search(rb"[\x80-\xff]{2}", raw) and re.search(rb"[A-Za-z][\x80-\xff]|[\x80-\xff][A-Za-z]", raw):
        return "windows-1252"
    fits: dict[str, int] = {}
    for encoding in ("gb18030", "big5"):
        try:
            fits[encoding] = sum(character in COMMON for character in raw.decode(encoding))
        except UnicodeDecodeError:
            continue
    return max(fits, key=fits.__getitem__, default=None)
