"""What a labelled file holds: examples that know where they stand in it.

Characters are the truth: a span is `text[start:end]` of the user's own text, whatever a tokenizer makes of it.
"""

from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """Where an example stands: messages name it, and results lead back to it."""

    file: str
    line: int  # counted from 1; the line where the example begins

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


NOWHERE = Place("", 0)
"""Of an example that was handed over in Python rather than read."""


class Span(NamedTuple):
    start: int
    end: int
    label: str


class Answer(NamedTuple):
    """One accepted answer: `context[start:start + len(text)] == text`."""

    start: int
    text: str


@dataclass(frozen=True)
class TextExample:
    """A text, or a pair of texts, with a label. Several labels are a tuple; a number is written as in the file."""

    text: str
    pair: str | None = None
    label: str | tuple[str, ...] | None = None  # None: not labelled
    place: Place = NOWHERE
    group: str | None = None  # what must not be torn apart by a split


@dataclass(frozen=True)
class TagExample:
    """A text with labelled spans.

    `units` are the words (or 汉字) that a column file gave one line each, as spans of `text`: scorers that count by
    word, as CoNLL's does, read them. None: the file gave running text.
    """

    text: str
    spans: tuple[Span, ...] | None = None  # None: not labelled; (): labelled, and nothing is there
    units: tuple[tuple[int, int], ...] | None = None
    place: Place = NOWHERE
    group: str | None = None


@dataclass(frozen=True)
class AnswerExample:
    """A question about a text, and every accepted answer. Labelled and empty: the text does not answer it.

    `others` are accepted answers that stand nowhere in the text: nobody can learn to point at them, but scorers accept
    them (a file with wrong offsets often has answers in other words or other punctuation).
    """

    question: str
    text: str
    answers: tuple[Answer, ...] | None = None
    id: str = ""
    place: Place = NOWHERE
    group: str | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChoiceExample:
    """A text (it may be empty), a question, and choices of which `answer` (counted from 0) is right."""

    text: str
    question: str
    choices: tuple[str, ...]
    answer: int | None = None
    id: str = ""
    place: Place = NOWHERE
    group: str | None = None


Example = TextExample | TagExample | AnswerExample | ChoiceExample


class Fault(NamedTuple):
    """Something wrong with one example, and what was done about it: nothing is dropped in silence."""

    place: Place
    kind: str
    message: str
    action: str  # "dropped", "mended" or "noted"
