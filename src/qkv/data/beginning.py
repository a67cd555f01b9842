"""The beginning of a file, by which its format is told, and its lines.

No file that is read here may hold NUL characters; a file that is not UTF-8 is refused by line and byte (readers.py).
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from qkv.data.readers import BOM, COMPRESSED, UNREADABLE, AnyPath, lines, open_bytes, unreadable
from qkv.errors import InputError

LOOKED_AT = 1 << 18  # bytes: hundreds of rows, and little to read


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


def beginning(path: AnyPath, size: int = LOOKED_AT) -> Beginning:
    numbered = sound_lines(path)  # complains when there is no such file
    file = Path(os.path.expanduser(path))
    try:
        with open_bytes(file) as stream:
            data = stream.read(size + 1)
    except UNREADABLE as error:
        raise unreadable(file, 0, error) from error
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


def sound_lines(path: AnyPath) -> Iterator[tuple[int, str]]:
    """`readers.lines`, and a line with a NUL character is refused. The file is looked for at once."""
    return _sound(path, lines(path))


def _sound(path: AnyPath, numbered: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for number, line in numbered:
        if "\0" in line:
            raise InputError(
                f"{path}, line {number} has a NUL character (at {line.index(chr(0)) + 1}), which no text file holds. "
                "The file is damaged, or it is UTF-16: then convert it with iconv -f utf-16le -t utf-8."
            )
        yield number, line
