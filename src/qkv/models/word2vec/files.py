"""Word vectors as the C tool word2vec writes them (Mikolov et al. 2013), text and binary: what gensim, fastText and
most published vectors use. Read and written, plain or packed.

    text     71291 200\\n  then a line a word:  the 0.1 -0.2 …\\n
    binary   71291 200\\n  then a record a word:  the, a space, 200 float32 (little-endian), \\n (gensim leaves it out)

A text file without the first line, as GloVe's are, is read too. Which form a file has is seen in its bytes, not in its
name. The order of the words is kept: it is that of their frequency, wherever such a file comes from training.

A fault names the file and the line, or the byte in the unpacked file. A word that stands twice counts once, the first
time, and one that is not UTF-8 (the C tool cuts words after 100 bytes) is left out; `notes` says which and where.

What this file does NOT do: look for neighbours (models/word2vec/folder.py) or hold our own folders
(models/folders/own.py).
"""

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from qkv.errors import InputError, did_you_mean, reading
from qkv.files import replaced_file

Form = Literal["text", "binary"]
_Floats = NDArray[np.float32]

PACKED: dict[bytes, tuple[str, Callable[..., Any]]] = {
    b"\x1f\x8b": (".gz", gzip.open),
    b"BZh": (".bz2", bz2.open),
    b"\xfd7zXZ": (".xz", lzma.open),
}
"""By the first bytes of a file: its usual ending, and what opens it."""
_ENDINGS: dict[str, Form] = {".txt": "text", ".vec": "text", ".bin": "binary"}
"""What to write, by the name of the file."""
WRITABLE = f"{', '.join(_ENDINGS)}, also with .gz, .bz2 or .xz"
_DAMAGED = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)

_DIGITS = frozenset(b"0123456789+-.eEnaifNAIF \t\r\n")
"""All that may follow a word in a text file."""
_LONGEST_WORD = 4096
"""Bytes. Whatever is longer is not a word: the file is another one, or was read out of step."""
MOST_BROKEN = 0.01
"""Share of words that may be no UTF-8: more of them, and it is not the words that are at fault."""
_LONGEST_LINE = 1 << 20
"""Bytes of a first line. A file of another kind may have none that ends."""
PIECE = 1 << 20


@dataclass(frozen=True)
class VectorFileContents:
    words: list[str]
    vectors: Tensor  # (V, D) float32, a row a word
    form: Form
    notes: tuple[str, ...] = ()  # what was left out, with its place


class Header(NamedTuple):
    words: int | None  # None: there is no header
    width: int
    bytes: int  # where the words begin


def read_vector_file(path: str | os.PathLike[str], most: int | None = None) -> VectorFileContents:
    """The words of a file and their vectors; with `most`, only the first."""
    file = Path(os.path.expanduser(path))
    if most is not None and most < 1:
        raise InputError(f"The number of words to read is {most}; it must be at least 1.")
    with reading(file), _opened(file) as stream:
        if not stream.peek(1):
            raise InputError(f"{file} is empty: there are no word vectors in it.")
        header = _header(file, stream)
        form = _form(stream, header)
        rows = _Rows(file, header, most, "line" if form == "text" else "byte")
        (_read_text if form == "text" else _read_binary)(stream, header, rows)
        return rows.finished(form)


def write_vector_file(path: str | os.PathLike[str], words: Sequence[str], vectors: Tensor) -> Path:
    """Write a file by its ending, whole or not at all: .txt and .vec are text, .bin is binary, each also packed.

    Decimal numbers have as many digits as float32 needs to come back unchanged.
    """
    file = Path(os.path.expanduser(path))
    form, pack = choose_form(file)
    if len(words) != len(vectors):
        raise ValueError(f"{len(words)} words and {len(vectors)} vectors: each word needs its vector.")
    if (unfit := next((word for word in words if not is_writable(word)), None)) is not None:
        raise InputError(f"{unfit!r} cannot stand in a file of word vectors, where a space ends a word.")
    matrix = vectors.detach().cpu().float().numpy()
    line = " ".join(["%.9g"] * matrix.shape[1])
    with replaced_file(file) as part, pack(part, "wb") as stream:
        stream.write(f"{len(words)} {matrix.shape[1]}\n".encode())
        for word, row in zip(words, matrix, strict=True):
            numbers = (line % tuple(row.tolist())).encode() if form == "text" else row.astype("<f4").tobytes()
            stream.write(word.encode() + b" " + numbers + b"\n")
    return file


def choose_form(file: Path) -> tuple[Form, Callable[..., Any]]:
    """The format and compression for a file name; an unknown suffix is refused."""
    packs = dict(PACKED.values())
    suffix = file.suffix.lower()
    inner = Path(file.stem).suffix.lower() if suffix in packs else suffix
    if inner not in _ENDINGS:
        raise InputError(
            f"Cannot tell what to write into '{file.name}'.{did_you_mean(inner, _ENDINGS)} Use an ending of {WRITABLE}."
        )
    return _ENDINGS[inner], packs.get(suffix, open)


def is_writable(word: str) -> bool:
    """
    >>> [is_writable(word) for word in ("New_York", "New York", "", "猫", "\\u3000")]
    [True, False, False, True, True]
    """
    return bool(word) and not any(byte in b" \t\n\r\v\f" for byte in word.encode("utf-8", "surrogatepass"))


@contextmanager
def _opened(file: Path) -> Iterator["io.BufferedReader[io.RawIOBase]"]:
    """The bytes of a file, decompressed."""
    with file.open("rb") as packed:
        start = packed.read(6)
        packed.seek(0)
        opener = next((how for magic, (_, how) in PACKED.items() if start.startswith(magic)), None)
        raw = packed if opener is None else opener(packed, "rb")
        try:
            with io.BufferedReader(cast(io.RawIOBase, raw), 1 << 17) as stream:
                yield stream
        except _DAMAGED as error:
            raise InputError(
                f"{file} is damaged or was not copied completely: it cannot be unpacked to its end ({error}). "
                "Copy or download it again."
            ) from None
        except OSError as error:  # how bz2 reports damage
            if error.errno is not None:
                raise
            raise InputError(f"{file} is damaged, unpacking stops ({error}). Copy or download it again.") from None


def _header(file: Path, stream: BinaryIO) -> Header:
    """The number of words and the width, from the first line; or from a file without such a line."""
    line = stream.readline(_LONGEST_LINE)
    fields = line.split()
    if len(fields) == 2 and all(field.isdigit() and len(field) < 16 for field in fields):
        words, width = int(fields[0]), int(fields[1])
        if words and width:
            return Header(words, width, len(line))
        raise InputError(f"{file}, line 1 says {words} words of {width} numbers: there is nothing in the file.")
    is_odd_header = len(fields) == 3 and all(field.isdigit() for field in fields)  # not a word and a vector of two
    if len(fields) > 2 and not is_odd_header and _numbers(fields[1:]) is not None:
        stream.seek(0)
        return Header(None, len(fields) - 1, 0)
    shown = line[:40].decode("utf-8", "replace").rstrip()
    raise InputError(
        f"{file}, line 1 is {shown!r}, where the number of words and the width of a vector belong, such as "
        "'71291 200'. Is it a file of word vectors (word2vec text or binary, GloVe)?"
    )


def _form(stream: "io.BufferedReader[io.RawIOBase]", header: Header) -> Form:
    """Text or binary, by what follows the first word."""
    if header.words is None:
        return "text"
    ahead = stream.peek(_LONGEST_WORD)[:_LONGEST_WORD]
    first = next((place for place, byte in enumerate(ahead) if byte in b" \t"), -1)
    behind, line_end, _ = ahead[first + 1 :][: min(4 * header.width, 16)].partition(b"\n")
    if not _DIGITS.issuperset(behind):
        return "binary"
    # a line this short may be a number whose second byte is that of a line end; other such bytes give it away
    is_number = bool(line_end) and any(byte < 32 and byte not in b"\t\r\n" for byte in ahead)
    return "binary" if is_number else "text"


def _numbers(fields: Sequence[bytes]) -> _Floats | None:
    """Decimal numbers as float32; None if one is not a number."""
    try:
        with np.errstate(over="ignore"):  # beyond float32 is infinite, which is reported with its position
            return np.array(fields, np.float32)
    except ValueError:
        return None


def _looks_like_number(field: bytes) -> bool:
    """
    >>> [_looks_like_number(field) for field in (b"0.09", b"-1e-3", b"95", b".", b"nan", b"4x")]
    [True, True, True, False, False, False]
    """
    return any(byte in b"0123456789" for byte in field) and _numbers([field]) is not None


class _Rows:
    """The words of a file: kept, dropped with a note, or refused."""

    def __init__(self, file: Path, header: Header, most: int | None, unit: Literal["line", "byte"]) -> None:
        self.file, self.expected, self.unit = file, header.words, unit
        self.most = most if header.words is None or (most is not None and most < header.words) else header.words
        self.seen = 0  # words of the file so far, kept or not
        self.places: dict[str, int] = {}
        self.twice: list[str] = []
        self.broken: list[str] = []
        try:
            # memory that is never written to costs nothing, so a header that promises too much does no harm
            self.matrix: _Floats = np.empty((self.most or 1024, header.width), np.float32)
        except (MemoryError, ValueError):
            raise InputError(
                f"{file}, line 1 says {header.words:,} words of {header.width:,} numbers: more than fits into memory. "
                "Is the line right? If so, read only the first words of the file."
            ) from None

    @property
    def is_full(self) -> bool:
        return self.most is not None and self.seen >= self.most

    def at(self, place: int) -> str:
        return f"{self.file}, {self.unit} {place:,}"

    def add(self, raw: bytes, row: _Floats, place: int) -> None:
        self.seen += 1
        try:
            word = raw.decode("utf-8")
        except UnicodeDecodeError:
            self.broken.append(f"{self.at(place)}: {raw[:40]!r}")
            return
        number = len(self.places)
        if (first := self.places.setdefault(word, place)) != place:
            self.twice.append(f"{self.at(place)}: {word!r} stands at {self.unit} {first:,} already")
            return
        if number == len(self.matrix):  # only without a header
            self.matrix = np.concatenate([self.matrix, np.empty_like(self.matrix)])
        self.matrix[number] = row

    def finished(self, form: Form) -> VectorFileContents:
        if len(self.broken) > MOST_BROKEN * self.seen:
            raise InputError(
                f"{self.file}: {len(self.broken):,} of {self.seen:,} words are not UTF-8, the first at "
                f"{self.broken[0].removeprefix(f'{self.file}, ')}. Either the first line states a wrong width, or the "
                "words are in another encoding: convert them to UTF-8."
            )
        words = list(self.places)
        matrix = self.matrix[: len(words)]
        if not (sound := np.isfinite(matrix).all(1)).all():
            word = words[int(np.argmin(sound))]
            raise InputError(
                f"{self.at(self.places[word])}: the vector of {word!r} holds NaN or infinity ({int((~sound).sum()):,} "
                "such vectors in all). The training that wrote it went wrong: take them out, or train again with a "
                "lower learning rate."
            )
        notes = []
        for found, what in (
            (self.twice, "the first one counts"),
            (self.broken, "the word is not UTF-8 and is left out"),
        ):
            if found:
                more = f" ({len(found) - 1:,} more like it)" if len(found) > 1 else ""
                notes.append(f"{found[0]}; {what}{more}")
        return VectorFileContents(words, from_numpy(matrix), form, tuple(notes))

    def cut_short(self, where: str) -> InputError:
        return InputError(
            f"{self.file} ends {where}, after {self.seen:,} words; its first line says {self.expected:,}. The file "
            "was not copied completely, or its first line is wrong: copy or download it again."
        )


def _read_text(stream: BinaryIO, header: Header, rows: _Rows) -> None:
    width = header.width
    number = above = 0 if header.words is None else 1
    for number, line in enumerate(stream, above + 1):
        fields = line.split()
        if rows.is_full:
            if rows.most == header.words and fields:
                raise InputError(
                    f"{rows.at(number)}: more words follow than the {header.words:,} that line 1 says. Write the right "
                    "number there, or take the lines out."
                )
            return
        if not fields and header.words is None:
            continue
        row = _numbers(fields[-width:]) if len(fields) > width else None
        # some published words have spaces in them; a number between word and vector says that the width is another
        if row is None or (len(fields) > width + 1 and _looks_like_number(fields[-width - 1])):
            raise _wrong_line(rows, number, fields, width, header.words is None)
        rows.add(b" ".join(fields[:-width]), row, number)
    if header.words is not None and not rows.is_full:
        raise rows.cut_short(f"at line {number:,}")


def _wrong_line(rows: _Rows, number: int, fields: Sequence[bytes], width: int, is_bare: bool) -> InputError:
    wrong = next((field for field in fields[-width:] if _numbers([field]) is None), None)
    if len(fields) > width and wrong is not None:
        return InputError(f"{rows.at(number)}: {wrong[:40].decode('utf-8', 'replace')!r} is not a number.")
    # from the end, as far as it is a vector; the first field is the word, whatever it looks like
    held = sum(1 for _ in takewhile(lambda field: _numbers([field]) is not None, reversed(fields[1:])))
    source = "line 1 has" if is_bare else "line 1 says"
    fault = "is cut short" if held < width else "is too long"
    return InputError(
        f"{rows.at(number)} has a word and {held} numbers, where {source} {width}. The line {fault}, or line 1 wrong."
    )


def _read_binary(stream: BinaryIO, header: Header, rows: _Rows) -> None:
    size = 4 * header.width
    held, start, base = b"", 0, header.bytes  # what was read, how far it is used, where it begins in the file

    def more() -> bool:
        nonlocal held, start, base
        piece = stream.read(PIECE + size)
        base += start
        held, start = held[start:] + piece, 0
        return bool(piece)

    while not rows.is_full:
        while held[start : start + 1] == b"\n" or start == len(held):  # the C tool ends a record with it
            if start < len(held):
                start += 1
            elif not more():
                raise rows.cut_short(f"at byte {base + start:,}")
        while (space := held.find(b" ", start, start + _LONGEST_WORD)) < 0:
            if len(held) - start >= _LONGEST_WORD:
                raise InputError(
                    f"{rows.at(base + start)}: no word begins here. The width on line 1 ({header.width:,}) is wrong, "
                    "or the file is not what the C tool word2vec writes."
                )
            if not more():
                raise rows.cut_short(f"at byte {base + len(held):,}, inside a word")
        word, place = held[start:space], base + start
        while len(held) < start + len(word) + 1 + size:
            if not more():
                shown = word[:40].decode("utf-8", "replace")
                raise rows.cut_short(f"at byte {base + len(held):,}, inside the vector of {shown!r}")
        begin = start + len(word) + 1
        rows.add(word, np.frombuffer(held, "<f4", header.width, begin), place)
        start = begin + size
    if rows.most == header.words and (rest := (held[start:] + stream.read(PIECE)).strip(b"\n")):
        raise InputError(
            f"{rows.at(base + start)}: {len(rest):,} bytes or more follow the {header.words:,} words that line 1 says. "
            "The first line is wrong, or two files were put together."
        )
