"""What a labelled file holds: examples that know their texts, labels, identity and place.

Characters are the truth: a span is `text[start:end]` of the user's own text, whatever a tokenizer makes of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

from qkv.data.labelled.split import fold_text


class Place(NamedTuple):
    """Where an example stands: messages name it, and results lead back to it."""

    file: str
    line: int  # counted from 1; the line where the example begins

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


NO_PLACE = Place("", 0)
"""Of an example that was handed over in Python rather than read."""


class Span(NamedTuple):
    start: int
    end: int
    label: str


class AnswerSpan(NamedTuple):
    """One accepted answer: `context[start:start + len(text)] == text`."""

    start: int
    text: str


class UnlabelledInput(NamedTuple):
    """What a person gives to be answered: typed with its options, as a mapping in Python, or in the fields of look."""

    text: str = ""
    pair: str | None = None
    question: str = ""
    choices: Sequence[str] = ()
    place: Place = NO_PLACE


class Example(ABC):
    """What files, checks, training and reports ask of any example; one class for each kind of labelling."""

    form: ClassVar[str]  # what a model for it reads, in Python, for messages
    fields: ClassVar[Mapping[str, bool]]  # what it is made of beside its labels; True: never missing
    columns: ClassVar[tuple[str, ...]]  # of a table of predictions: the names of `record`, with the line

    text: str
    place: Place
    group: str | None  # what must not be torn apart by a split

    @classmethod
    @abstractmethod
    def of(cls, given: UnlabelledInput) -> Self | None:
        """An example without labels from the `fields` that it has; None where one is missing."""

    @classmethod
    def from_python(cls, item: Any) -> Self | None:
        """What a person hands over in Python, a mapping of the fields at least; None where it is no such example."""
        if not isinstance(item, Mapping):
            return None
        text, pair = item.get("text", item.get("context", "")), item.get("pair")
        question, choices = item.get("question", ""), item.get("choices", ())
        if not isinstance(text, str) or not isinstance(question, str) or not isinstance(pair, str | None):
            return None
        return cls.of(UnlabelledInput(text, pair, question, choices))

    def texts(self) -> tuple[str, str | None]:
        """What a model reads, as one text or two."""
        return self.text, self.beside

    def parts(self) -> dict[str, str]:
        """The texts that must not be empty, by name."""
        return {"text": self.text}

    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The labels by name; () where it has none, or where what is right has no name."""

    @abstractmethod
    def expected(self) -> object:
        """What is right, hashable: two examples with one identity and other expectations contradict each other."""

    @abstractmethod
    def unlabelled(self) -> Self:
        """Without labels, as a model sees it that is asked."""

    def record(self) -> dict[str, Any]:
        """What a file of predictions says of the input."""
        return dict(self.parts())

    def identity(self) -> tuple[str, ...]:
        """Two examples with the same one are the same, whatever their labels: case, width and blanks do not count."""
        return tuple(fold_text(text) for text in self.texts() if text is not None)

    def counted(self) -> tuple[str, ...]:
        """What a check counts: the labels, or what stands for them."""
        return self.labels()

    def stratum(self) -> str:
        """What a split keeps in proportion; "" where there is nothing of the kind."""
        return ""

    def characters(self) -> int:
        """How many a model reads, about."""
        return sum(len(text) for text in self.texts() if text is not None)

    @property
    def beside(self) -> str | None:
        """What is shown with the text: the second text, or the question."""
        return None

    @property
    def several(self) -> bool:
        """Whether it has a list of labels, of any length."""
        return False

    def single(self) -> Self:
        """A list of one label as that label; anything else as it is."""
        return self

    def spanned(self) -> tuple[Span, ...]:
        """The spans of `text` that bear the labels; () where whole texts do."""
        return ()


@dataclass(frozen=True)
class TextExample(Example):
    """A text, or a pair of texts, with a label. Several labels are a tuple; a number is written as in the file."""

    form = 'a text, or a pair such as ("first", "second")'
    fields: ClassVar[Mapping[str, bool]] = {"text": True, "pair": False}
    columns = ("line", "text", "pair")

    text: str
    pair: str | None = None
    label: str | tuple[str, ...] | None = None  # None: not labelled
    place: Place = NO_PLACE
    group: str | None = None

    @classmethod
    def of(cls, given: UnlabelledInput) -> Self:
        return cls(given.text, given.pair, place=given.place)

    @classmethod
    def from_python(cls, item: Any) -> Self | None:
        if isinstance(item, str):
            return cls(item)
        return cls(*item) if is_two_texts(item) else super().from_python(item)

    def parts(self) -> dict[str, str]:
        return {"text": self.text} | ({} if self.pair is None else {"pair": self.pair})

    def labels(self) -> tuple[str, ...]:
        return (self.label,) if isinstance(self.label, str) else self.label or ()

    def expected(self) -> object:
        return self.label

    def unlabelled(self) -> Self:
        return replace(self, label=None)

    def stratum(self) -> str:
        return self.label if isinstance(self.label, str) else ""

    @property
    def beside(self) -> str | None:
        return self.pair

    @property
    def several(self) -> bool:
        return isinstance(self.label, tuple)

    def single(self) -> Self:
        labels = self.labels()
        return replace(self, label=labels[0]) if self.several and len(labels) == 1 else self


@dataclass(frozen=True)
class TagExample(Example):
    """A text with labelled spans.

    `units` are the words (or 汉字) that a column file gave one line each, as spans of `text`: scorers that count by
    word, as CoNLL's does, read them. None: the file gave running text.
    """

    form = "a text"
    fields: ClassVar[Mapping[str, bool]] = {"text": True}
    columns = ("line", "text")

    text: str
    spans: tuple[Span, ...] | None = None  # None: not labelled; (): labelled, and nothing is there
    units: tuple[tuple[int, int], ...] | None = None
    place: Place = NO_PLACE
    group: str | None = None

    @classmethod
    def of(cls, given: UnlabelledInput) -> Self:
        return cls(given.text, place=given.place)

    @classmethod
    def from_python(cls, item: Any) -> Self | None:
        return cls(item) if isinstance(item, str) else super().from_python(item)

    def labels(self) -> tuple[str, ...]:
        return tuple(span.label for span in self.spanned())

    def expected(self) -> object:
        return self.spans

    def unlabelled(self) -> Self:
        return replace(self, spans=None)

    def spanned(self) -> tuple[Span, ...]:
        return self.spans or ()


@dataclass(frozen=True)
class AnswerExample(Example):
    """A question about a text, and every accepted answer. Labelled and empty: the text does not answer it.

    `others` are accepted answers that stand nowhere in the text: nobody can learn to point at them, but scorers accept
    them (a file with wrong offsets often has answers in other words or other punctuation).
    """

    form = 'a pair (question, passage), or {"question": …, "text": …}'
    fields: ClassVar[Mapping[str, bool]] = {"question": True, "text": True}
    columns = ("line", "id", "question")

    question: str
    text: str
    answers: tuple[AnswerSpan, ...] | None = None
    id: str = ""
    place: Place = NO_PLACE
    group: str | None = None
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: UnlabelledInput) -> Self | None:
        return cls(given.question, given.text, place=given.place) if given.question else None

    @classmethod
    def from_python(cls, item: Any) -> Self | None:
        return cls(*item) if is_two_texts(item) else super().from_python(item)

    def texts(self) -> tuple[str, str]:
        return self.question, self.text

    def parts(self) -> dict[str, str]:
        return {"text": self.text, "question": self.question}

    def labels(self) -> tuple[str, ...]:
        return () if self.answers is None else ("answered" if self.answers else "no answer",)

    def expected(self) -> object:
        return None if self.answers is None else frozenset(answer.text for answer in self.answers)

    def unlabelled(self) -> Self:
        return replace(self, answers=None, others=())

    def record(self) -> dict[str, Any]:
        return ({"id": self.id} if self.id else {}) | {"question": self.question}

    def stratum(self) -> str:
        return "".join(self.labels())

    @property
    def beside(self) -> str:
        return self.question


@dataclass(frozen=True)
class ChoiceExample(Example):
    """A text (it may be empty), a question, and choices of which `answer` (counted from 0) is right."""

    form = '{"text": …, "question": …, "choices": […]}'
    fields: ClassVar[Mapping[str, bool]] = {"text": False, "question": False, "choices": True}
    columns = ("line", "id", "question", "choices")

    text: str
    question: str
    choices: tuple[str, ...]
    answer: int | None = None
    id: str = ""
    place: Place = NO_PLACE
    group: str | None = None

    @classmethod
    def of(cls, given: UnlabelledInput) -> Self | None:
        complete = len(given.choices) > 1 and all(isinstance(one, str) for one in given.choices)
        return cls(given.text, given.question, tuple(given.choices), place=given.place) if complete else None

    def texts(self) -> tuple[str, str]:
        return self.text, " ".join((self.question, max(self.choices, key=len))).strip()

    def parts(self) -> dict[str, str]:
        return {f"choice {number}": choice for number, choice in enumerate(self.choices, 1)}

    def labels(self) -> tuple[str, ...]:
        return ()

    def expected(self) -> object:
        return None if self.answer is None else self.choices[self.answer]

    def unlabelled(self) -> Self:
        return replace(self, answer=None)

    def record(self) -> dict[str, Any]:
        return ({"id": self.id} if self.id else {}) | {"question": self.question, "choices": list(self.choices)}

    def identity(self) -> tuple[str, ...]:
        return tuple(map(fold_text, (self.text, self.question, *self.choices)))

    def counted(self) -> tuple[str, ...]:
        return () if self.answer is None else (f"choice {self.answer + 1} of {len(self.choices)}",)

    def characters(self) -> int:
        return (len(self.text) + len(self.question)) * len(self.choices)

    @property
    def beside(self) -> str:
        return self.question


def is_two_texts(item: object) -> bool:
    return isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(part, str) for part in item)


class Fault(NamedTuple):
    """Something wrong with one example, and what was done about it: nothing is dropped in silence."""

    place: Place
    kind: str
    message: str
    action: str  # "dropped", "mended" or "noted"
