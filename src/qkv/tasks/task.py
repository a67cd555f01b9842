"""The protocol of a task.

A task turns examples into rows for an encoder with one head, defines the loss, and decodes the scores of the head into
results. Training, evaluation, calibration, reports, look and the command line use tasks only through this protocol.

    examples ──features──▶ rows ──encoder + head──▶ scores ──decode──▶ results ──judge, scorer──▶ figures

Shapes: E examples, R rows (windows of examples), N tokens of all rows together, L outputs of the head, U units of a
batch (what the loss counts: an example with all its windows, or one window).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from qkv.data.batch import Batch, Integers
from qkv.data.labelled.examples import Example, Fault, Span
from qkv.data.windows import Windowed
from qkv.errors import InputError
from qkv.report.bilingual import Phrase
from qkv.tasks.transfer import TaskModel
from qkv.text.tokenizer import Tokenizer
from qkv.train.loop import Objective

FloatArray = NDArray[np.float64]
Scores = NDArray[np.float32]
"""What the head said: (R, L) for a head that reads rows, (N, L) for one that reads tokens, rows end to end."""


@dataclass(frozen=True)
class Calibration:
    """What was fitted on held-out examples, to be kept with the model."""

    temperature: float = 1.0  # scores are divided by it; each task's file says which scores
    thresholds: Mapping[str, float] = field(
        default_factory=dict
    )  # by label, where a label is said or not (multi-label)
    # under this probability the model would rather not say; None: no rule was fitted; above 1: it is never sure enough
    abstain_below: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature,
            "thresholds": dict(self.thresholds),
            "abstain_below": self.abstain_below,
        }


class Features(Protocol):
    """Examples made ready: rows to run, and the batches of training."""

    @property
    def rows(self) -> Windowed: ...
    @property
    def n_tokens(self) -> Integers: ...  # (E,)
    @property
    def n_windows(self) -> Integers: ...  # (E,)
    @property
    def unit_tokens(self) -> Integers: ...  # (units,) what each unit of training costs
    @property
    def row_counts(self) -> Integers: ...  # (E,) how many rows each example has; they follow one another

    def count_token(self, number: int | None) -> Integers:
        """(E,) how often a token is in the texts of each example."""
        ...

    def batch(self, units: Integers, draw: np.random.Generator) -> Batch:
        """A training batch of these units with their labels; `draw` chooses windows where a text has too many."""
        ...

    def faults(self) -> list[Fault]:
        """Labels that training cannot use as they are, and what it does about them."""
        ...


class ShownPart(NamedTuple):
    """A part of a result as a terminal shows it."""

    text: str
    style: str = ""  # bold, dim or yellow
    label: str = ""  # whose colour it has
    share: float | None = None  # drawn as a bar


class _Result(Protocol):
    """An answer about one example. `to_dict` is what is written into files and printed as JSON."""

    @property
    def n_tokens(self) -> int: ...
    @property
    def n_windows(self) -> int: ...
    @property
    def n_unknown(self) -> int: ...
    @property
    def abstained(self) -> bool: ...  # less sure than the model was found to need
    def to_dict(self) -> dict[str, Any]: ...
    def shown(self, example: Any) -> list[ShownPart]:
        """The example with what was said about it, from left to right; lines end with "\\n"."""
        ...


class PlainAnswer(NamedTuple):
    """What the scorers read of a result, each its own field."""

    label: str = ""
    labels: tuple[str, ...] = ()
    value: float = math.nan
    spans: tuple[Span, ...] = ()
    choice: int = -1
    text: str = ""


class ConstantAnswer(NamedTuple):
    """One answer for every example, and how a report names it."""

    name: Phrase
    answer: PlainAnswer


class Weighed(NamedTuple):
    """What was said about one example, with all that was weighed, for look."""

    head: dict[str, Any]  # JSON
    arrays: dict[str, NDArray[Any]]


def round_result(value: float) -> float:
    """A number as `Weighed.head` has it; the arrays have all digits."""
    return round(value, 6)


@dataclass(frozen=True)
class Judgement:
    """One example compared with its answer, for a report."""

    expected: str  # in words: a label, "PER Tom; LOC 北京", an answer
    answered: str
    right: bool
    confidence: float  # of the answer that was given; nan where there is none (regression)
    loss: float  # the larger, the harder: −log of what the right answer was given; an error's size for a number


@dataclass(frozen=True)
class Scored:
    """The figures of an evaluation."""

    main: str  # which of the values counts
    values: dict[str, float]  # accuracy, macro_f1, …, all "larger is better" except those named *_error
    intervals: dict[str, tuple[float, float]]  # 95 %, by the same names
    n: int  # examples
    per_label: tuple["LabelScore", ...] = ()
    confusion: NDArray[np.int64] | None = None  # (L, L) rows expected, columns answered
    confusion_labels: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        return self.values[self.main]


@dataclass(frozen=True)
class LabelScore:
    label: str
    precision: float
    recall: float
    f1: float
    support: int  # how often it was expected
    answered: int  # how often it was given


def compute_f1(sums: FloatArray) -> FloatArray:
    """(n, 3) right, answered, expected → (n,) F1."""
    below = sums[:, 1] + sums[:, 2]
    return np.divide(2 * sums[:, 0], below, out=np.zeros(len(below)), where=below > 0)


E_contra = TypeVar("E_contra", contravariant=True)
R_contra = TypeVar("R_contra", contravariant=True)


class Scorer(Protocol[E_contra, R_contra]):
    """Adds up as examples stream by: what it keeps does not grow with their texts."""

    def add(self, examples: Sequence[E_contra], results: Sequence[R_contra]) -> None: ...
    def result(self, intervals: bool = True) -> Scored:
        """Without `intervals` only the figures, for evaluations during training."""
        ...


@dataclass(frozen=True)
class Sure:
    """The data of a reliability diagram, (M,) each: confidence, whether right, and the example."""

    confidence: NDArray[np.float64]
    right: NDArray[np.bool_]
    example: Integers


X = TypeVar("X", contravariant=True)
Y = TypeVar("Y", bound=_Result)


class Task(Protocol[X, Y]):
    """Made by `learn` from training examples, or by `restored` from the record of a saved folder."""

    name: ClassVar[str]  # "classify", "tag", …: the key in tasks/table.py
    head: ClassVar[str]  # of HEADS (models/encoder.py)
    example: ClassVar[type[Example]]
    unit: ClassVar[str]  # what a probability is of: "text", "entity", "question"
    about: ClassVar[str] = ""  # the kind in words, where models of different kinds cannot be compared
    problem: ClassVar[str | None] = None  # what transformers calls the kind
    numbers: ClassVar[bool] = False  # answers are numbers: they are near or far, and are not counted by label
    abstains: ClassVar[bool] = True  # an answer that is not sure enough may be left to a person

    kind: str  # "" where a task has one kind
    paired: bool | None  # whether it reads text pairs; None: not recorded, either is read
    settings: Any  # a dataclass, with what `learn` decided
    labels: tuple[str, ...]  # the head's outputs by name; () where they have none
    outputs: int  # of the head
    main: str  # the metric that model selection goes by; larger is better
    fits_thresholds: bool = False  # on held-out examples: see `thresholds`
    folds_temperature: bool = True  # dividing the scores of the head by T is all that a temperature does
    pooling: str = "cls"  # of a head that reads rows: see tasks/texts.py
    normalize: bool = False

    @classmethod
    def check_labels(cls, examples: Sequence[X]) -> None:
        """Refuse labels from which nothing can be learned, before examples are held out."""
        return

    def extra_tensors(self) -> Mapping[str, tuple[int, ...]]:
        """Parameters beside the head (a CRF's), by name."""
        return {}

    def record(self) -> dict[str, Any]: ...  # what `restored` needs beside the labels; JSON

    def adapted(self, example: Any) -> Any:
        """An example as it was read, in the form that this task expects."""
        return example

    def check(self, examples: Sequence[X], needs_labels: bool = True) -> None:
        """Refuse what cannot be used (a label that training never had, a span outside its text), naming the place."""
        ...

    def misaligned(self, tokenizer: Tokenizer, examples: Sequence[X]) -> list[Fault]:
        """Labels that do not fit what the tokenizer makes of the texts, and what training takes instead."""
        return []

    def features(self, tokenizer: Tokenizer, examples: Sequence[X], max_length: int, training: bool) -> Features: ...
    def balanced_weights(self, features: Any, examples: Sequence[X]) -> list[float]:
        """Each label's weight: as if all were equally frequent."""
        raise InputError(f"class_weights auto is for classify and tag; the task '{self.name}' has no classes.")

    def objective(self, class_weights: Sequence[float] | None) -> Objective[Batch]: ...
    def unfolded(self, head: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A saved head's tensors by name, as this task trains them."""
        return dict(head)

    def folded(self, model: TaskModel) -> "Task[X, Y]":
        """The task after training, with its scaling of answers moved into the weights of the head."""
        return self

    def decode(
        self, features: Any, scores: Scores, extra: Mapping[str, NDArray[np.float32]], calibration: Calibration
    ) -> list[Y]: ...
    def scorer(self) -> Scorer[X, Y]: ...
    def judge(self, example: X, result: Y) -> Judgement: ...
    def constant_answer(self, examples: Sequence[X]) -> ConstantAnswer | None:
        """The best answer that needs no look at the example, by the training examples."""
        return None

    # Two models are compared by their main figure, `figure` of the sums of `summands`.
    def statistics(self, example: X, result: Y, judgement: Judgement) -> tuple[float, ...]:
        """Of one example, what the main figure is computed from."""
        return float(judgement.right), 1.0

    def summands(self, statistics: FloatArray) -> FloatArray:
        """(E, S) statistics of all examples → (E, T) what is summed over the examples of a draw."""
        return statistics

    def figure(self, sums: FloatArray) -> FloatArray:
        """(n, T) sums → (n,) the main figure of each."""
        return np.asarray(sums[:, 0] / sums[:, 1])

    def weighed(self, features: Any, scores: Scores, result: Y, calibration: Calibration) -> Weighed:
        """Of the one example of `features`, what was said and what was weighed."""
        ...

    def thresholds(self, examples: Sequence[X], results: Sequence[Y]) -> dict[str, float]:
        """What `Calibration.thresholds` are best for these examples, if the task `fits_thresholds`."""
        return {}

    # Calibration; a task without probabilities (regression) returns None from both.
    def losses(
        self, features: Any, scores: Scores, extra: Mapping[str, NDArray[np.float32]], temperature: float
    ) -> NDArray[np.float64] | None:
        """(E,) −log probability of what is right, summed over each example, with scores divided by `temperature`."""
        ...

    def confidences(self, examples: Sequence[X], results: Sequence[Y]) -> Sure | None: ...


class Makers(NamedTuple):
    """How a task is made; every task has one, which tasks/table.py names."""

    chosen: Callable[[Sequence[Any], Any], type[Task[Any, Any]]]  # from training examples and settings, before `learn`
    learn: Callable[[Sequence[Any], Any, Tokenizer], Task[Any, Any]]
    restored: Callable[[Sequence[str], Mapping[str, Any]], Task[Any, Any]]
    # the record of a folder that others fine-tuned, from its name, transformers' problem_type, how many outputs it has
    # and whether it reads two texts
    foreign: Callable[[str, object, int, bool], dict[str, Any]] = lambda *_: {}
