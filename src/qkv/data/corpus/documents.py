"""Documents from text files of any size, read in blocks of half a megabyte.

    .txt     documents are separated by blank lines; a line is a sentence or a paragraph
    .jsonl   a line is a document, in the field "text"; a line end inside it ends a paragraph
    .gz .xz  of both

A block ends between documents, or between the lines of a document that is larger than a block. Block boundaries depend
only on the file, so reading can resume at any of them. Reading a block and parsing it are separate steps, so that
several processes can parse.

A section is some blocks of a file: it begins with the first document after a multiple of 8 MB. In a plain file that can
be found without reading what is before it, so several machines can read one file, each its part of one section. A file
that is compressed, or not in UTF-8, is one part, read from its beginning.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import BinaryIO, NamedTuple

from qkv.data.readers import (
    BOM,
    COMPRESSED,
    UNREADABLE,
    UTF_8,
    AnyPath,
    TextFile,
    check_text_file,
    detect_encoding,
    field_of,
    not_utf8_error,
    open_bytes,
    unreadable_error,
)
from qkv.data.stores import StoredFile
from qkv.errors import InputError

BLOCK_BYTES = 1 << 19
SECTION_BLOCKS = 16  # of full length in a section
_Fault = Callable[[str, int, str], None]  # called with the kind of a fault, its line, and a message
_LONGEST_LINE = 1 << 26  # bytes; bounds memory

_blank_lines = re.compile(r"(?:[^\S\n]*\n)*")
_blank = re.compile(r"\n(?:[^\S\n]*\n)+")
_document_end = re.compile(rb"\n\r?\n")


@dataclass(frozen=True)
class SourceFile:
    path: TextFile
    kind: str  # .txt or .jsonl

    @property
    def size(self) -> int:
        """Bytes on disk or in the store."""
        return self.path.bytes() if isinstance(self.path, StoredFile) else self.path.stat().st_size

    @property
    def version(self) -> int | str:
        """What changes when the file is written again."""
        return self.path.version() if isinstance(self.path, StoredFile) else self.path.stat().st_mtime_ns

    def parts(self, size: int = BLOCK_BYTES) -> int:
        """Return the number of its parts, for blocks of `size`; some may be empty."""
        if self.path.suffix.lower() in COMPRESSED or detect_encoding(self.path) != UTF_8:
            return 1
        return max(1, -(-self.size // (size * SECTION_BLOCKS)))


@dataclass(frozen=True)
class CorpusPosition:
    """The beginning of a block, in bytes and lines of the uncompressed file."""

    source: int = 0  # index of the source
    offset: int = 0
    line: int = 1


@dataclass(frozen=True)
class Block:
    place: CorpusPosition
    after: CorpusPosition  # beginning of the next block
    source: SourceFile
    data: bytes
    share: float  # approximate share of all sources up to the end of this block

    @property
    def goes_on(self) -> bool:
        """Whether its first line may continue a document of the previous block."""
        return self.source.kind == ".txt" and self.place.offset > 0


def open_sources(paths: AnyPath | Iterable[AnyPath]) -> list[SourceFile]:
    """Check all files at once, so that a wrong name is reported before any work; return them in the given order."""
    return [SourceFile(*check_text_file(path)) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]


def read_blocks(
    sources: Sequence[SourceFile], begin: CorpusPosition | None = None, size: int = BLOCK_BYTES
) -> Iterator[Block]:
    """Yield all blocks from `begin`."""
    place = begin or CorpusPosition()
    sizes = [source.size for source in sources]
    for number in range(place.source, len(sources)):
        before, total = sum(sizes[:number]), max(1, sum(sizes))
        for after, data, read in _cuts(sources[number], place, size):
            yield Block(place, after, sources[number], data, (before + read) / total)
            place = after
        place = CorpusPosition(number + 1)


def read_part(source: SourceFile, number: int, part: int, size: int = BLOCK_BYTES, line: int = 1) -> Iterator[Block]:
    """Yield the blocks of one part of the file that is the `number`th source, whose first line is `line`."""
    if source.parts(size) == 1:
        for after, data, _ in _cuts(source, CorpusPosition(number), size):
            yield Block(_before(after, data), after, source, data, 1.0)
        return
    mark = part * SECTION_BLOCKS * size
    try:
        with source.path.open("rb") as stream:
            window = _Window(stream, max(0, mark - 2))
            begin = _border(window, source.kind, mark, size) if mark else 0
            if begin is not None:
                for after, data in _blocks(source, window, CorpusPosition(number, begin, line), size, mark, one=True):
                    yield Block(_before(after, data), after, source, data, 1.0)
    except UNREADABLE as error:
        raise unreadable_error(source.path, line, error) from error


def _before(after: CorpusPosition, data: bytes) -> CorpusPosition:
    return CorpusPosition(after.source, after.offset - len(data), after.line - data.count(b"\n"))


def count_lines(source: SourceFile, end: int) -> int:
    """Count the line ends of a plain file before an offset."""
    with source.path.open("rb") as stream:
        return sum(stream.read(min(1 << 20, end - at)).count(b"\n") for at in range(0, end, 1 << 20))


def _cuts(source: SourceFile, place: CorpusPosition, size: int) -> Iterator[tuple[CorpusPosition, bytes, int]]:
    """Yield the blocks of one file: end position, data, and bytes read from disk so far."""
    mark = place.offset // (SECTION_BLOCKS * size) * SECTION_BLOCKS * size
    try:
        with source.path.open("rb") as packed, open_bytes(source.path, packed) as stream:
            window = _Window(stream, max(0, mark - 2))
            for after, data in _blocks(source, window, place, size, mark):
                place = after
                yield place, data, place.offset if stream is packed else packed.tell()
    except UNREADABLE as error:
        raise unreadable_error(source.path, place.line, error) from error


class _Window:
    """The bytes of a stream from some offset on, as far as they are wanted."""

    def __init__(self, stream: BinaryIO, begin: int) -> None:
        if begin:  # a pipe cannot seek
            stream.seek(begin)
        self._stream, self._begin, self._data = stream, begin, b""

    def get(self, begin: int, end: int) -> bytes:
        """Return the bytes from `begin` to `end`, or to the end of the file."""
        if (missing := end - self._begin - len(self._data)) > 0:
            self._data += self._stream.read(missing)
        return self._data[begin - self._begin : end - self._begin]

    def forget(self, before: int) -> None:
        self._data = self._data[before - self._begin :]
        self._begin = before


def _border(window: _Window, kind: str, mark: int, size: int) -> int | None:
    """Return where the section of a mark begins, None for the end of the file.

    That is the first beginning of a document at or after the mark, or of a line if there is none within a block.
    """
    before = mark - 2  # a document may begin at the mark itself
    length, searched = 1 << 16, 1
    while True:
        data = window.get(before, before + length)
        if kind == ".txt" and searched <= size + 2 and (found := _document_end.search(data[: size + 2])):
            return before + found.end()
        if kind == ".jsonl" or len(data) >= size + 2 or len(data) < length:
            if (line := data.find(b"\n", searched)) >= 0:
                return before + line + 1
            searched = len(data)
        if len(data) < length or length > _LONGEST_LINE:
            break
        length = min(2 * length, _LONGEST_LINE + (1 << 16))
    return None  # or the line is too long, which is an error when it is read


def _blocks(
    source: SourceFile, window: _Window, place: CorpusPosition, size: int, mark: int, one: bool = False
) -> Iterator[tuple[CorpusPosition, bytes]]:
    """Yield the blocks from `place` in the section of `mark`, or in the one before it: end position and data.

    Only that section if `one`, else to the end of the file.
    """
    step = SECTION_BLOCKS * size
    if one or mark == 0 or ((begin := _border(window, source.kind, mark, size)) is not None and begin <= place.offset):
        mark += step
    end: int | None = None  # of the section, once it is near; None: it is far, or it is that of the file
    is_near, wanted, searched = False, size, 0
    while True:
        if not is_near and place.offset + wanted > mark:
            end, is_near = _border(window, source.kind, mark, size), True
        stop = place.offset + wanted
        data = window.get(place.offset, stop if end is None else min(stop, end))
        at_end = len(data) < wanted
        # as long as there is no line end, no byte is searched twice
        cut = len(data) if at_end else _cut(data, source.kind) if data.find(b"\n", searched) >= 0 else 0
        searched = 0 if cut or at_end else len(data)
        if cut:
            place = CorpusPosition(place.source, place.offset + cut, place.line + data.count(b"\n", 0, cut))
            window.forget(min(place.offset, mark - 2))
            yield place, data[:cut]
        if at_end and (end is None or one):
            return
        if at_end:
            mark, end, is_near = mark + step, None, False
        wanted = size if cut or at_end else wanted + size
        if wanted > _LONGEST_LINE:
            raise InputError(
                f"{source.path}, line {place.line} is longer than {_LONGEST_LINE >> 20} MB, which is the "
                "limit. Put each paragraph (.txt) or document (.jsonl) on its own line."
            )


def _cut(data: bytes, kind: str) -> int:
    """Return the length of the block: whole documents, or at least whole lines; 0 without a line end."""
    if kind == ".txt" and (blank := max(data.rfind(b"\n\n"), data.rfind(b"\n\r\n"))) >= 0:
        return data.index(b"\n", blank + 1) + 1
    return data.rfind(b"\n") + 1


class Documents(NamedTuple):
    """Contents of a block. A document that begins at the end of the text is empty: it marks a blank line before it."""

    text: str
    begins: list[int]  # position in the text where each document begins
    lines: list[int]  # in a .jsonl file, the line of each; otherwise empty


def read_documents(block: Block, field: str = "text", fault: _Fault | None = None) -> Documents:
    """Parse a block. An unreadable line is an error, or is reported to `fault` and its bad part skipped.

    >>> from pathlib import Path
    >>> data, start = "我。\\n你。\\n \\nShe.\\n\\n".encode(), CorpusPosition()
    >>> read_documents(Block(start, start, SourceFile(Path("a.txt"), ".txt"), data, 1.0))
    Documents(text='我。\\n你。\\n \\nShe.\\n\\n', begins=[0, 8, 14], lines=[])
    """
    text = _decode(block, fault).replace("\r\n", "\n")  # a line end is one character
    if block.place.offset == 0:
        text = text.removeprefix(BOM)
    if block.source.kind == ".txt":
        first = _blank_lines.match(text)
        assert first is not None  # the pattern matches the empty string
        begins = [0] if first.end() == 0 else [0, first.end()]
        return Documents(text, begins + [found.end() for found in _blank.finditer(text, first.end())], [])
    texts: list[str] = []
    lines: list[int] = []
    for number, line in enumerate(text.split("\n"), block.place.line):
        if line.strip():
            try:
                one = field_of(line, f"{block.source.path}, line {number}", field)
                texts.append(one.replace("\r\n", "\n"))
                lines.append(number)
            except InputError as error:
                if fault is None:
                    raise
                fault("object", number, str(error))
    return Documents(
        "\n".join(texts), [0, *accumulate(len(one) + 1 for one in texts[:-1])], lines or [block.place.line]
    )


def _decode(block: Block, fault: _Fault | None) -> str:
    try:
        return block.data.decode("utf-8")
    except UnicodeDecodeError:
        lines = block.data.split(b"\n")
    texts = []
    for number, line in enumerate(lines):
        try:
            texts.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            end = b"" if number == len(lines) - 1 else b"\n"
            message = not_utf8_error(block.source.path, block.place.line + number, line + end, error)
            if fault is None:
                raise message from None
            fault("encoding", block.place.line + number, str(message))
            texts.append(line.decode("utf-8", "ignore"))
    return "\n".join(texts)
