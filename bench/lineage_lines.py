"""What bench/lineage.py has found: lines of JSON, one a result, added as soon as it is there.

A machine may go away in the middle of a line: a last line that was cut is left out, with a note, and taken off before
the next is added. Any other line that cannot be read is an error. A file that replaces another is written whole.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qkv.errors import InputError


def read_lines(*files: Path) -> list[dict[str, Any]]:
    """Of all files that are there."""
    found = []
    for file in files:
        if not file.is_file():
            continue
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
        for number, line in enumerate(lines, 1):
            try:
                found += [json.loads(line)] if line.strip() else []
            except ValueError as error:
                if number < len(lines):  # the last is what follows the last line end: nothing, or a line that was cut
                    raise InputError(f"{file}, line {number}: {line[:60]!r} is no JSON ({error}).") from error
                print(f"note: {file}, line {number} was cut, and is left out", file=sys.stderr, flush=True)
    return found


class Lines:
    """What was found so far, here and before."""

    def __init__(self, out: Path, before: Sequence[Path]) -> None:
        self.out = out
        if missing := [str(file) for file in before if not file.is_file()]:
            raise InputError(f"--before: there is no {', '.join(missing)}.")
        self.found = read_lines(*before, *([] if out in before else [out]))

    def add(self, line: dict[str, Any]) -> None:
        self.found.append(json.loads(json.dumps(line)))  # as it will be read
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with self.out.open("a+b") as file:
            file.seek(0)
            whole = file.read()
            file.truncate(whole.rfind(b"\n") + 1)
            tail = whole[whole.rfind(b"\n") + 1 :]
            file.write(
                (tail + b"\n" if _is_json(tail) else b"") + json.dumps(line, ensure_ascii=False).encode() + b"\n"
            )

    def of(self, part: str, **fields: Any) -> list[dict[str, Any]]:
        """Those that did not fail and say all of this."""
        wanted = {"part": part, **fields}
        return [
            line
            for line in self.found
            if "error" not in line and all(line.get(key) == value for key, value in wanted.items())
        ]

    def has(self, part: str, **fields: Any) -> bool:
        return bool(self.of(part, **fields))


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def write_whole(file: Path, text: str) -> None:
    """Either the old text stands there or the new, never a part."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
