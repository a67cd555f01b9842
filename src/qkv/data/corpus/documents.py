"""Documents from text files of any size, read in blocks of half a megabyte.

    .txt     documents are separated by blank lines; a line is a sentence or a paragraph
    .jsonl   a line is a document, in the field "text"; a line end inside it ends a paragraph
    .gz .xz  of both

A block ends between documents, or between the lines of a document that is larger than a block. Block boundaries depend
only on the file, so reading can resume at any of them. Reading a block and parsing it are separate steps, so that
several processes can parse.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from qkv.data.readers import (
    BOM,
    UNREADABLE,
    AnyPath,
    check_text_file,
    field_of,
    not_utf8_error,
    open_bytes,
    unreadable_error,
)
from qkv.errors import InputError

BLOCK_BYTES = 1 << 19
_Fault = Callable[[str, int, str], None]  # called with the kind of a fault, its line, and a message
_LONGEST_LINE = 1 << 26  # bytes; bounds memory

_blank_lines = re.compile(r"(?:[^\S\n]*\n)*")
_blank = re.compile(r"\n(?:[^\S\n]*\n)+")


@dataclass(frozen=True)
class SourceFile:
    path: Path
    kind: str  # .txt or .jsonl

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.path.stat().st_size


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


def _cuts(source: SourceFile, place: CorpusPosition, size: int) -> Iterator[tuple[CorpusPosition, bytes, int]]:
    """Yield the blocks of one file: end position, data, and bytes read from disk so far."""
    try:
        with open(source.path, "rb") as packed, open_bytes(source.path, packed) as stream:
            stream.seek(place.offset)
            data, wanted = b"", size
            while True:
                data += stream.read(wanted - len(data))
                at_end = len(data) < wanted
                cut = len(data) if at_end else _cut(data, source.kind)
                if cut:
                    place = CorpusPosition(place.source, place.offset + cut, place.line + data.count(b"\n", 0, cut))
                    yield place, data[:cut], packed.tell()
                if at_end:
                    return
                data, wanted = data[cut:], size if cut else wanted + size
                if wanted > _LONGEST_LINE:
                    raise InputError(
                        f"{source.path}, line {place.line} is longer than {_LONGEST_LINE >> 20} MB, which is the "
                        "limit. Put each paragraph (.txt) or document (.jsonl) on its own line."
                    )
    except UNREADABLE as error:
        raise unreadable_error(source.path, place.line, error) from error


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
