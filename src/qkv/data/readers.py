"""Lines of text files of any size (.txt and .jsonl, plain or compressed with gzip or xz) and of standard input.

One line is in memory at a time. An unreadable line is an error that names file, line, byte and a fix; nothing is
skipped or replaced silently.

Files are UTF-8. A file that is plainly in GB18030 (GBK), Windows-1252 or UTF-16 is converted while it is read
(`detect_encoding`, `open_bytes`), and the caller says so with `encoding_note`.
"""

import gzip
import io
import json
import lzma
import os
import re
import stat
import sys
import unicodedata
import zlib
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from qkv.data.stores import StoredFile, is_url, place_of
from qkv.errors import InputError, did_you_mean, reading

AnyPath = str | os.PathLike[str]
TextFile = Path | StoredFile
UNREADABLE = (EOFError, lzma.LZMAError, zlib.error, OSError)  # BadGzipFile is an OSError
COMPRESSED = {".gz": "gzip", ".xz": "xz"}  # suffix → program that decompresses it
_KINDS = (".txt", ".jsonl")
SUPPORTED = ".txt, .txt.gz, .txt.xz, .jsonl, .jsonl.gz, .jsonl.xz"
BOM = "\ufeff"
STDIN = "-"
"""Argument of commands for standard input, in place of a text or file."""
# Nearly every Chinese line, simplified or traditional, contains some of these: used to detect the encoding.
COMMON = set(
    "的一是不了在人有我他这中大来上国个到说们为子和你地出道也时年，。！？、：；“”（）这個們為說時來國與"
    "要就会可以对生能过得去之学下发都好还没自然里面后心多开方看天成只事行用情想那小么经起意给很太最什吗吧啊"
    "快慢差评坏请问何本物文标签内容正负类别书店"
)
# The same for Japanese and Korean, which are only named in the error of a file that is not UTF-8.
_KANA = {chr(code) for code in range(0x3041, 0x30FF)}
_COMMON_HANGUL = set("이다는의에을를가은도한고로지하기어사서나아인자그대시리정해수있들만일과요보니라원세전으제상안")


def stream_texts(paths: AnyPath | Iterable[AnyPath], field: str = "text") -> Iterator[str]:
    """Yield every line of every file: a .txt line unchanged, `field` of a .jsonl line.

    Empty lines of a .txt file are texts too (they may separate documents); those of a .jsonl file are skipped. All
    paths are checked before the first line is read, so that a wrong name is reported at once.
    """
    return (text for _, _, text in stream_placed_texts(paths, field))


def stream_placed_texts(paths: AnyPath | Iterable[AnyPath], field: str = "text") -> Iterator[tuple[TextFile, int, str]]:
    """Yield the texts of `stream_texts` with file and line number (from 1), for messages."""
    files = [check_text_file(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    return ((file, number, text) for file, kind in files for number, text in _texts(file, kind, field))


class RowStart(NamedTuple):
    """Where a row of a file begins."""

    line: int  # from 1; of a parquet or Arrow file, the row
    byte: int = 0  # of the text as UTF-8, decompressed; of other files 0


FIRST_ROW = RowStart(1)


def numbered_lines(path: AnyPath, start: RowStart = FIRST_ROW) -> Iterator[tuple[int, str]]:
    """Yield line number (from 1) and line of a UTF-8 file, without line end (\\n or \\r\\n) and byte order mark.

    U+2028 and similar characters do not end a line. Files with .gz or .xz are decompressed.
    """
    return _lines(check_file(path), start)


def _lines(path: TextFile, start: RowStart = FIRST_ROW) -> Iterator[tuple[int, str]]:
    number = start.line - 1
    try:
        with open_bytes(path) as stream:
            if start.byte:
                stream.seek(start.byte)
            for number, raw in enumerate(stream, start.line):
                try:
                    line = _line(raw, number)
                except UnicodeDecodeError as error:
                    raise not_utf8_error(path, number, raw, error) from None
                yield number, line
    except UNREADABLE as error:
        raise unreadable_error(path, number, error) from error


def block_texts(path: TextFile, kind: str, data: bytes, first: int, field: str = "text") -> Iterator[str]:
    """Yield the texts of some whole lines of a file as `stream_texts` does; `first` is the number of the first one."""
    for number, raw in enumerate(io.BytesIO(data), first):
        try:
            line = _line(raw, number)
        except UnicodeDecodeError as error:
            raise not_utf8_error(path, number, raw, error) from None
        if kind == ".txt":
            yield line
        elif line.strip():
            yield field_of(line, f"{path}, line {number}", field)


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


def read_whole(path: AnyPath) -> str:
    """Read a file as one text, without trailing line ends."""
    return "\n".join(line for _, line in numbered_lines(path)).rstrip("\n")


def read_stdin_lines() -> Iterator[tuple[int, str]]:
    """Yield numbered lines of standard input as they arrive."""
    for number, raw in enumerate(_open_stdin(), 1):
        try:
            line = _line(raw, number)
        except UnicodeDecodeError as error:
            raise InputError(f"Standard input, line {number} is not UTF-8 at byte {error.start + 1}.") from None
        yield number, line


def read_stdin() -> str:
    """Read all of standard input as one text, without trailing line ends and byte order mark."""
    try:
        return b"".join(_open_stdin()).decode("utf-8").removeprefix(BOM).rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(f"Standard input is not UTF-8: byte {error.start} cannot be read.") from error


def _open_stdin() -> Iterator[bytes]:
    """Yield the lines of standard input."""
    if sys.stdin is None:  # closed by the caller: qkv … <&-
        raise InputError("Standard input is closed, so there is nothing to read. Give a text or a file instead of -.")
    try:
        yield from sys.stdin.buffer
    except OSError as error:
        raise InputError(f"Standard input cannot be read: {error.strerror}.") from error


def _line(raw: bytes, number: int) -> str:
    line = raw.decode("utf-8")
    return (line.removeprefix(BOM) if number == 1 else line).removesuffix("\n").removesuffix("\r")


def unreadable_error(path: TextFile, number: int, error: Exception) -> InputError:
    """Return the error for a file that cannot be read beyond line `number`."""
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return InputError(f"{path} cannot be read: {error.strerror or error}.")
    return InputError(
        f"{path} is damaged or truncated: decompression stops after line {number} ({error}). "
        f"Copy it again; `{COMPRESSED[path.suffix.lower()]} -t` checks a copy."
    )


def open_bytes(path: TextFile, packed: BinaryIO | None = None) -> BinaryIO:
    """Open a text file as UTF-8, decompressed and converted. `packed` is the open file, if its position is needed."""
    encoding = detect_encoding(path)
    stream = _open_unpacked(path, packed)
    if encoding == UTF_8:
        return stream
    return io.BufferedReader(_Converted(path, stream, encoding), 1 << 17)


def _open_unpacked(path: TextFile, packed: BinaryIO | None = None) -> BinaryIO:
    source = packed if packed is not None else path if isinstance(path, Path) else path.open()
    if path.suffix.lower() == ".gz":
        return io.BufferedReader(cast(io.RawIOBase, gzip.open(source, "rb")), 1 << 17)
    if path.suffix.lower() == ".xz":
        return io.BufferedReader(cast(io.RawIOBase, lzma.open(source, "rb")), 1 << 17)
    return path.open("rb") if packed is None else packed


class _Converted(io.RawIOBase):
    """A stream in another encoding, read as UTF-8. Seeking backwards reads from the beginning again."""

    def __init__(self, path: TextFile, stream: BinaryIO, encoding: str) -> None:
        self._path, self._stream, self._encoding = path, stream, encoding
        self._restart()

    def _restart(self) -> None:
        self._stream.seek(0)
        self._decoder = getincrementaldecoder(self._encoding)()
        self._ready, self._place, self._lines = b"", 0, 1

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        assert whence == os.SEEK_SET, "only absolute positions are used"
        if offset < self._place:
            self._restart()
        while self._place < offset and self.read(min(offset - self._place, 1 << 17)):
            pass
        return self._place

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        while not self._ready:
            data = self._stream.read(1 << 17)
            try:
                text = self._decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                line = self._lines + error.object[: error.start].count(b"\n")
                raise InputError(
                    f"{self._path}, line {line} is not {ENCODINGS[self._encoding]}, as the beginning of the file is: "
                    "it is damaged, or mixes encodings."
                ) from None
            self._lines += text.count("\n")
            self._ready = text.encode("utf-8", "surrogatepass")
            if not data:
                break
        count = min(len(target), len(self._ready))
        target[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        self._place += count
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


# --- Detection of the encoding.

UTF_8 = "utf-8"
ENCODINGS = {
    UTF_8: "UTF-8",
    "gb18030": "GB18030",
    "cp1252": "Windows-1252",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
}
"""Codecs that `detect_encoding` returns, and their names for people."""
_SAMPLE = 1 << 18  # bytes
_MOST_OF_STORED = 1 << 24  # bytes of a file in a store that are read for it: all of a long one would take too long
_FEWEST_NULS = 4  # in UTF-16 without a byte order mark
_control = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f]")
# letters of Western European languages and typographic signs. Others (š, ý, þ, ³ …) stand where Czech, Turkish, Polish
# and other encodings have frequent letters, so a text with many of them is not plainly Windows-1252.
_WESTERN = set("àâäáãåæçèéêëìíîïñòóôöõøœùúûüßÀÂÄÁÃÅÆÇÈÉÊËÍÎÑÓÔÖØŒÙÚÛÜ‘’“”„–—…•€£«»°·´¿¡§©®™ºª½×±\xa0")


def detect_encoding(path: TextFile) -> str:
    """Return the encoding of a text file, a key of ENCODINGS; UTF-8 unless it is plainly another one.

    Looks at the first part of the file that is not ASCII. A file that fits none is left to the reader, which raises
    with line and byte.
    """
    if isinstance(path, StoredFile):
        return _detect_encoding(path, path.version(), _MOST_OF_STORED)
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return UTF_8  # what is read of a pipe is gone
        return _detect_encoding(path, str(found.st_mtime_ns), found.st_size)
    except UNREADABLE:
        return UTF_8  # the reader raises


@lru_cache(maxsize=256)
def _detect_encoding(path: TextFile, version: str, most: int) -> str:
    """`version` and `most`, the bytes to look at, belong to the key of the cache."""
    with _open_unpacked(path) as stream:
        first = True
        while (sample := stream.read(_SAMPLE)) and (isinstance(path, Path) or stream.tell() <= most):
            if first and (sample.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in sample):
                return _detect_utf16(sample) or UTF_8
            if not sample.isascii():
                return _detect_without_nul(sample)
            first = False
    return UTF_8


def encoding_note(path: AnyPath | StoredFile) -> str:
    """Return "read as GB18030", or "" for UTF-8."""
    if isinstance(path, StoredFile):
        encoding = detect_encoding(path)
    else:
        encoding = detect_encoding(StoredFile(place_of(path)) if is_url(path) else Path(os.path.expanduser(path)))
    return "" if encoding == UTF_8 else f"read as {ENCODINGS[encoding]}"


def _decoded(sample: bytes, encoding: str) -> str | None:
    """Decode a sample whose last character may be truncated; None if it is not in this encoding."""
    try:
        return getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return None


def _detect_utf16(sample: bytes) -> str | None:
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16" if _looks_like_utf16(sample, "utf-16") else None
    if sample.count(0) < _FEWEST_NULS:  # line ends, spaces and Latin letters each have one
        return None
    found = {encoding: _looks_like_utf16(sample, encoding) for encoding in ("utf-16-le", "utf-16-be")}
    best = max(found, key=found.__getitem__)
    return best if found[best] else None


def _looks_like_utf16(sample: bytes, encoding: str) -> float:
    """Return the share of ASCII and of frequent 汉字; 0 if it is too small, or if other characters are unlikely."""
    text = _decoded(sample, encoding)
    if not text or _control.search(text):
        return 0.0
    known = sum(unicodedata.category(character) not in ("Cn", "Co") for character in text) / len(text)
    usual = sum(character.isascii() or character in COMMON for character in text) / len(text)
    return usual if known >= 0.99 and usual >= 0.05 else 0.0


def _detect_without_nul(sample: bytes) -> str:
    if _decoded(sample, UTF_8) is not None:
        return UTF_8
    lines = [line for line in sample.split(b"\n") if not line.isascii()]
    if sum(_decoded(line, UTF_8) is not None for line in lines) > 0.05 * len(lines):
        return UTF_8  # some lines are UTF-8: the file mixes encodings, or is damaged
    return next((one for one in ("gb18030", "cp1252") if _PLAINLY[one](sample)), UTF_8)


_utf8_character = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_high_bytes = re.compile(rb"[\x80-\xff]+")


_MOST_UTF8 = 0.4


def _share_of_utf8(sample: bytes, shortest: int) -> float:
    """Return the share of the bytes above ASCII that form UTF-8 characters of at least `shortest` bytes.

    It is high in damaged UTF-8. GB18030 has by chance many pairs of bytes that are UTF-8, but few triples;
    Windows-1252 has neither.
    """
    runs = _high_bytes.findall(sample)
    found = sum(len(one) for run in runs for one in _utf8_character.findall(run) if len(one) >= shortest)
    return found / sum(map(len, runs))


def _is_gb18030(sample: bytes) -> bool:
    """Whether nearly all characters are in GB 2312, many of them are the most frequent ones, and few are kana.

    Korean and Japanese encodings share the bytes of GB 2312, but not the frequent characters.
    """
    text = _decoded(sample, "gb18030")
    if text is None or _control.search(text) or _share_of_utf8(sample, 3) > _MOST_UTF8:
        return False
    characters = [character for character in text if not character.isascii()]
    usual = len("".join(characters).encode("gb2312", "ignore")) / 2
    kana = sum("\u3040" <= character <= "\u30ff" for character in characters)
    common = sum(character in COMMON for character in characters)
    n = len(characters)
    return n >= 2 and usual >= 0.9 * n and kana <= 0.05 * n and common >= 0.1 * n


def _is_cp1252(sample: bytes) -> bool:
    """Whether few characters are not ASCII, and nearly all of those are usual in Western European languages."""
    text = _decoded(sample, "cp1252")
    if text is None or _control.search(text) or _share_of_utf8(sample, 2) > _MOST_UTF8:
        return False
    others = [character for character in text if not character.isascii()]
    letters = sum(character.isalpha() for character in text)
    if len(others) < 3 or ("õ" in text and "ã" not in text):  # a stray byte; Hungarian ő
        return False
    return (
        sum(character in _WESTERN for character in others) >= 0.95 * len(others)
        and sum(character.isalpha() for character in others) <= 0.4 * letters
    )


_PLAINLY = {"gb18030": _is_gb18030, "cp1252": _is_cp1252}


def _texts(path: TextFile, kind: str, field: str) -> Iterator[tuple[int, str]]:
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


def check_text_file(path: AnyPath) -> tuple[TextFile, str]:
    """Check a path or URL; return it and its kind, .txt or .jsonl."""
    file: TextFile
    if is_url(path):
        file = StoredFile(place_of(path))
        file.bytes()
    else:
        file = check_file(path)
    kind = _kind(file)
    if kind.lower() not in _KINDS:
        raise InputError(f"{file}: {kind or 'a name without suffix'} is not supported; use one of {SUPPORTED}.")
    return file, kind.lower()


def _kind(path: TextFile) -> str:
    """Return the suffix of the name, without that of compression."""
    return Path(path.stem).suffix if path.suffix.lower() in COMPRESSED else path.suffix


def check_file(path: AnyPath) -> Path:
    """Return the path of a file that exists, with ~ expanded."""
    if is_url(path):
        raise InputError(
            f"{place_of(path)} is a URL, and a path on this machine is needed here. Copy the file, or mount the store."
        )
    path = Path(os.path.expanduser(path))
    with reading(path):
        if path.is_dir():
            raise InputError(f"{path} is a folder; give the files in it, for example {path / '*.txt'}.")
        if not path.exists():
            siblings = (one.name for one in path.parent.iterdir()) if path.parent.is_dir() else ()
            raise InputError(f"There is no file {path}.{did_you_mean(path.name, siblings)}")
    return path


def not_utf8_error(path: TextFile, number: int, raw: bytes, error: UnicodeDecodeError) -> InputError:
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


_LOOKS_LIKE = {
    "gb18030": COMMON,
    "big5": COMMON,
    "shift_jis": _KANA | COMMON,
    "cp932": _KANA | COMMON,
    "euc-jp": _KANA,  # its 汉字 share their bytes with those of GB 2312
    "euc-kr": _COMMON_HANGUL,
    "cp949": _COMMON_HANGUL,
}
"""The characters by which a line is recognized; of two encodings with as many of them, the first is named."""


def _guess(raw: bytes, first: bool) -> str | None:
    """Guess the encoding of a line by decoding it."""
    if first and raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    # East Asian encodings use two bytes per character; a single high byte between letters is an é or ü
    if not re.search(rb"[\x80-\xff]{2}", raw) and re.search(rb"[A-Za-z][\x80-\xff]|[\x80-\xff][A-Za-z]", raw):
        return "windows-1252"
    fits: dict[str, int] = {}
    for encoding, usual in _LOOKS_LIKE.items():
        try:
            found = sum(character in usual for character in raw.decode(encoding))
        except UnicodeDecodeError:
            continue
        if found or usual is COMMON:  # Chinese has too many characters to know a short line by them
            fits[encoding] = found
    return max(fits, key=fits.__getitem__, default=None)
