"""What is asked of a labelled file, and what a format makes of it: the two ends that labelled.py ties together.

A format hands out units (rows, objects, sentences: whatever stands or falls together) and says how one unit becomes
examples. The two are apart so that a check can go on after a unit that cannot be used.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from qkv.data.examples import Example, Fault, Place
from qkv.errors import InputError

# Whoever tells of a fault with the action "dropped" drops one example: counting them counts the examples.
Told = Callable[[Fault], None]
Convert = Callable[[int, Any, Told], Iterable[Example]]

ROLES = ("text", "pair", "label", "group", "id", "question", "context", "answer", "choices")


class Wanted(NamedTuple):
    """What the caller asked for."""

    path: Path
    task: str
    columns: Mapping[str, str]  # as given: role → name or number
    needs_labels: bool
    separator: str | None = None  # between several labels in one cell

    def place(self, line: int) -> Place:
        return Place(str(self.path), line)


class Broken(NamedTuple):
    """A unit that could not even be read, where the next one can."""

    error: InputError


class Opened(NamedTuple):
    """A file whose format is known."""

    format: str
    columns: dict[str, str]  # role → name as the file has it, or number
    note: str  # what was found out beside: "without a header", "IOB1"
    units: Callable[[], Iterator[tuple[int, Any]]]  # line and unit, from the beginning each time it is called
    convert: Convert  # line, unit and whom to tell of faults → examples


def sound(text: str, place: Place, what: str) -> str:
    """`text` itself; refused when it holds what no text file can: NUL, or half of a surrogate pair (JSON escapes)."""
    if "\0" in text:
        raise InputError(f"{place}: {what} has a NUL character, which no text holds: the file was damaged. Remove it.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise InputError(f"{place}: {what} has {half} without its other half: it was cut.") from None
    return text


def empty(place: Place, what: str) -> Fault:
    return Fault(place, "empty text", f"{what} is empty", "dropped")


def shortened(text: str, length: int = 40) -> str:
    """For messages.

    >>> shortened("a long text indeed", 8)
    "'a long …'"
    """
    return repr(text if len(text) <= length else text[: length - 1] + "…")
