"""Documents out of text files of any size, a block of half a megabyte at a time.

    .txt     a blank line lies between documents; a line is a sentence or a paragraph
    .jsonl   a line is a document, in the field "text"; a line end inside it ends a paragraph
    .gz .xz  of both

Blocks are cut where they hold whole documents, and within a document of more than a block, between its lines. Where
they are cut depends on the file alone, so whoever knows where a block begins can go on from there. Reading a block and
making sense of it are two steps, so that the second can be done elsewhere, by several processes at once.
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
_Fault = Callable[[str, int, str], None]  # told the kind of a fault, its line, and what to say
_LONGEST_LINE = 1 << 26  # bytes; what holds memory down is that a line ends some time

_blank_lines = re.compile(r"(?:[^\S\n]*\n)*")
_blank = re.compile(r"\n(?:[^\S\n]*\n)+")


@dataclass(frozen=True)
class SourceFile:
    path: Path
    kind: str  # .txt or .jsonl

    @property
    def size(self) -> int:
        """Bytes as it lies on the disk."""
        return self.path.stat().st_size


@dataclass(frozen=True)
class CorpusPosition:
    """Where a block begins: bytes and lines are those of the unpacked file."""

    source: int = 0  # its number among the sources
    offset: int = 0
    line: int = 1


@dataclass(frozen=True)
class Block:
    place: CorpusPosition
    after: CorpusPosition  # where the next one begins
    source: SourceFile
    data: bytes
    share: float  # of all sources, about how much is read when this block is

    @property
    def goes_on(self) -> bool:
        """Whether its first line belongs to the document the block before it ended in."""
        return self.source.kind == ".txt" and self.place.offset > 0


def open_sources(paths: AnyPath | Iterable[AnyPath]) -> list[SourceFile]:
    """The files in the order given, all of them looked at: a wrong name shows at once."""
    return [SourceFile(*check_text_file(path)) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]


def read_blocks(
    sources: Sequence[SourceFile], begin: CorpusPosition | None = None, size: int = BLOCK_BYTES
) -> Iterator[Block]:
    """All blocks from `begin` on."""
    place = begin or CorpusPosition()
    sizes = [source.size for source in sources]
    for number in range(place.source, len(sources)):
        before, total = sum(sizes[:number]), max(1, sum(sizes))
        for after, data, read in _cuts(sources[number], place, size):
            yield Block(place, after, sources[number], data, (before + read) / total)
            place = after
        place = CorpusPosition(number + 1)


def _cuts(source: SourceFile, place: CorpusPosition, size: int) -> Iterator[tuple[CorpusPosition, bytes, int]]:
    """Blocks of one file: where each ends, what it holds, and how much of the file on the disk has been read."""
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
                        f"{source.path}, line {place.line} is longer than {_LONGEST_LINE >> 20} MB, and a line is held "
                        "in memory whole. Put each paragraph (.txt) or document (.jsonl) on a line of its own."
                    )
    except UNREADABLE as error:
        raise unreadable_error(source.path, place.line, error) from error


def _cut(data: bytes, kind: str) -> int:
    """How much of the data to take: whole documents, or at least whole lines; 0 when there is no line end."""
    if kind == ".txt" and (blank := max(data.rfind(b"\n\n"), data.rfind(b"\n\r\n"))) >= 0:
        return data.index(b"\n", blank + 1) + 1
    return data.rfind(b"\n") + 1


class Documents(NamedTuple):
    """What a block holds. A document that begins at the end of the text has nothing in this block: it stands for the
    blank line before it."""

    text: str
    begins: list[int]  # where in the text each document begins
    lines: list[int]  # in a .jsonl file, the line of each; otherwise empty


def read_documents(block: Block, field: str = "text", fault: _Fault | None = None) -> Documents:
    """A line that cannot be read is an error; or, where `fault` is given, told to it, and left out as far as it is bad.

    >>> block = Block(Place(), Place(), Source(Path("a.txt"), ".txt"), "我。\\n你。\\n \\nShe.\\n\\n".encode(), 1.0)
    >>> read(block)
    Documents(text='我。\\n你。\\n \\nShe.\\n\\n', begins=[0, 8, 14], lines=[])
    """
    text = _decode(block, fault).replace("\r\n", "\n")  # a line end is one character
    if block.place.offset == 0:
        text = text.removeprefix(BOM)
    if block.source.kind == ".txt":
        first = _blank_lines.match(text)
        assert first is not None  # it matches nothing at all, too
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
