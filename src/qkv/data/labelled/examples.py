"""Examples of labelled files: texts, labels, identity and place; one class per kind of labelling; held-out splits.

Spans are in characters: `text[start:end]` of the user's text, independent of any tokenizer.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from qkv.errors import InputError


class Place(NamedTuple):
    """File and line of an example, for messages and results.

    In a table without lines, and in a JSON document on one line, `number` counts from 1 what `unit` names.
    """

    file: str
    line: int  # from 1; the first line of the example. Of a table without lines, the row
    number: int = 0
    unit: str = "line"

    @property
    def within(self) -> str:
        """The place in the file: "line 3", "question 7"."""
        return f"{self.unit} {self.number or self.line}"

    def __str__(self) -> str:
        return f"{self.file}, {self.within}" if self.line else self.file


def place_at(file: str, number: int, unit: str) -> Place:
    """The place of an example in a file whose examples are counted in `unit`.

    >>> str(place_at("a.json", 7, "question")), place_at("a.json", 7, "question").line
    ('a.json, question 7', 1)
    """
    if unit == "line":
        return Place(file, number)
    return Place(file, number if unit.endswith("row") else 1, number, unit)


LARGEST_NUMBER = 1e15
"""Of the labels of a regression: its square and sums of squares are far from overflow."""
NO_PLACE = Place("", 0)
"""The place of an example from Python."""


class Span(NamedTuple):
    start: int
    end: int
    label: str


class AnswerSpan(NamedTuple):
    """One accepted answer: `context[start:start + len(text)] == text`."""

    start: int
    text: str


class UnlabelledInput(NamedTuple):
    """Input for a prediction: from the command line, from a mapping in Python, or from the fields of look."""

    text: str = ""
    pair: str | None = None
    question: str = ""
    choices: Sequence[str] = ()
    place: Place = NO_PLACE


class Example(ABC):
    """The interface of all examples for files, checks, training and reports."""

    form: ClassVar[str]  # the expected Python object, for messages
    fields: ClassVar[Mapping[str, bool]]  # input fields; True: required
    columns: ClassVar[tuple[str, ...]]  # of a table of predictions: the line, and the names of `record`

    text: str
    place: Place
    group: str | None  # examples of one group stay in the same part of a split
    weight: float = 1.0  # in the loss, beside those of the other training examples

    @classmethod
    @abstractmethod
    def of(cls, given: UnlabelledInput) -> Self | None:
        """Return an unlabelled example; None if a required field is missing."""

    @classmethod
    def from_python(cls, item: Any) -> Self | None:
        """Convert a Python object, at least a mapping of the fields; None if it has another form."""
        if not isinstance(item, Mapping):
            return None
        text, pair = item.get("text", item.get("context", "")), item.get("pair")
        question, choices = item.get("question", ""), item.get("choices", ())
        if not isinstance(text, str) or not isinstance(question, str) or not isinstance(pair, str | None):
            return None
        return cls.of(UnlabelledInput(text, pair, question, choices))

    def texts(self) -> tuple[str, str | None]:
        """The input of a model: one text or two."""
        return self.text, self.beside

    def parts(self) -> dict[str, str]:
        """The texts that must not be empty, by name."""
        return {"text": self.text}

    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The names of the labels; () if there are none, or if the right answer has no name."""

    @abstractmethod
    def expected(self) -> object:
        """The right answer, hashable: examples with the same identity but different answers contradict each other."""

    @abstractmethod
    def unlabelled(self) -> Self:
        """A copy without labels, as for prediction."""

    def record(self) -> dict[str, Any]:
        """The input as a record of a file of predictions."""
        return dict(self.parts())

    def identity(self) -> tuple[str, ...]:
        """A key that is equal for examples with the same texts, ignoring labels, case, width and white space."""
        return tuple(fold_text(text) for text in self.texts() if text is not None)

    def together(self) -> str | tuple[str, ...]:
        """A key that is equal for examples that no split may separate: of one group, or with the same texts."""
        return self.identity() if self.group is None else self.group

    def counted(self) -> tuple[str, ...]:
        """Labels, or their equivalent, as counted by a check."""
        return self.labels()

    def stratum(self) -> str:
        """The stratum for stratified splits; "" for none."""
        return ""

    def characters(self) -> int:
        """Approximate number of characters that a model reads."""
        return sum(len(text) for text in self.texts() if text is not None)

    @property
    def beside(self) -> str | None:
        """The second text or the question, shown next to the text."""
        return None

    @property
    def several(self) -> bool:
        """Whether it has a list of labels."""
        return False

    def single(self) -> Self:
        """Convert a list of one label to that label; otherwise return self."""
        return self

    def spanned(self) -> tuple[Span, ...]:
        """The labelled spans of `text`; () if labels are of whole texts."""
        return ()


def relative_weights(examples: Sequence[Example]) -> NDArray[np.float64] | None:
    """(n,) the weights of training examples with a mean of 1; None if all are equal.

    >>> relative_weights([TextExample("a", weight=1.0), TextExample("b", weight=3.0)]).tolist()
    [0.5, 1.5]
    """
    weights = np.array([example.weight for example in examples], np.float64)
    if not len(weights) or (weights == weights[0]).all():
        if len(weights) and not weights[0]:
            raise InputError("The weight of every training example is 0: nothing is left to learn from.")
        return None
    weights = weights / weights.max()  # so that their sum is finite
    found: NDArray[np.float64] = weights / weights.mean()
    return found


@dataclass(frozen=True)
class TextExample(Example):
    """A text or text pair with a label. Several labels are a tuple; numbers keep their spelling."""

    form = 'a text, or a pair such as ("first", "second")'
    fields: ClassVar[Mapping[str, bool]] = {"text": True, "pair": False}
    columns = ("line", "text", "pair")

    text: str
    pair: str | None = None
    label: str | tuple[str, ...] | None = None  # None: unlabelled
    place: Place = NO_PLACE
    group: str | None = None
    weight: float = 1.0

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

    `units` are the words (or 汉字) of a column file, one per line, as spans of `text`; word-based scorers such as
    CoNLL's need them. None: the file has running text.
    """

    form = "a text"
    fields: ClassVar[Mapping[str, bool]] = {"text": True}
    columns = ("line", "text")

    text: str
    spans: tuple[Span, ...] | None = None  # None: unlabelled; (): labelled, without spans
    units: tuple[tuple[int, int], ...] | None = None
    place: Place = NO_PLACE
    group: str | None = None
    weight: float = 1.0

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
    """A question about a text with all accepted answers; () if the text does not answer it.

    `others` are accepted answers that are not in the text: they cannot be learned as spans, but scorers accept them (a
    file with wrong offsets often has answers in other words or punctuation).
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
    """A text (may be empty), a question, and choices; `answer` (from 0) is the right one."""

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
    """A problem with one example, and the action taken: nothing is dropped silently."""

    place: Place
    kind: str
    message: str
    action: str  # "dropped", "mended" or "noted"


# --- Stratified held-out splits of labelled files that keep groups together.
#
# A group is a user, document or article if the file states it, and otherwise a text, so that a repeated sentence is
# never in both training and held-out examples.

_space = re.compile(r"\s+")


def fold_text(text: str) -> str:
    """Normalise full width, case and white space, for comparisons.

    >>> fold_text("ＡＢＣ  hello\\tWorld ") == fold_text("abc Hello world")
    True
    """
    return _space.sub(" ", normalize("NFKC", text)).strip().casefold()


def _goals(counts: Counter[str], share: float) -> dict[str, int]:
    """Return the number of held-out examples of each stratum: its share rounded down, and the remainder to the strata
    with the largest fractions, so that the total is right even with many small strata."""
    exact = {name: share * n for name, n in counts.items()}
    goals = {name: min(int(value), counts[name] - 1) for name, value in exact.items()}
    missing = max(1, round(share * counts.total())) - sum(goals.values())
    by_loss = sorted(exact, key=lambda name: (int(exact[name]) - exact[name], name))
    for name in by_loss:
        if missing > 0 and goals[name] < counts[name] - 1:
            goals[name] += 1
            missing -= 1
    return goals


def choose_held_out(
    groups: Sequence[Hashable], strata: Sequence[str], share: float, seed: int, most: int
) -> NDArray[np.bool_]:
    """(n,) True for held-out examples: about `share` of every stratum, at most `most`, whole groups only.

    At least one example of each stratum stays for training. Deterministic for the same arguments.
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for number, group in enumerate(groups):
        members[group].append(number)
    counts = Counter(strata)
    share = min(share, most / max(1, len(groups)))
    goals = _goals(counts, share)
    taken: Counter[str] = Counter()
    chosen = np.zeros(len(groups), dtype=bool)
    names = sorted(members, key=lambda group: members[group][0])
    order = np.random.default_rng(np.random.SeedSequence((seed, len(groups)))).permutation(len(names))

    def can_go(adds: Counter[str]) -> bool:
        return all(taken[name] + n < counts[name] for name, n in adds.items())

    for place in order.tolist():
        here = members[names[place]]
        adds = Counter(strata[number] for number in here)
        if can_go(adds) and all(taken[name] + n <= goals[name] for name, n in adds.items()):
            chosen[here] = True
            taken.update(adds)
    # if all groups exceed the goals, hold out the smallest that leaves training examples
    for place in sorted(order.tolist(), key=lambda number: len(members[names[number]])):
        if chosen.any():
            break
        here = members[names[place]]
        adds = Counter(strata[number] for number in here)
        if can_go(adds):
            chosen[here] = True
            taken.update(adds)
    return chosen
