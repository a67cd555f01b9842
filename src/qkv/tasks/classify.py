"""Text classification (BERT §4.1): one label, several labels, or a number. texts.py encodes and pools the texts.

    single       one label of several         every label is a name (or a whole number); softmax
    multi        any number of labels         labels are lists; one sigmoid and one fitted threshold per label
    regression   a number                     every label is a number, and at least one has a decimal point

The temperature divides the pooled scores of a text, before softmax or sigmoid; a number is not calibrated. Scorers
stream.

Shapes: E examples, R rows, U units (examples) of a batch, L labels.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from qkv.config import merge
from qkv.data.labelled.examples import LARGEST_NUMBER, TextExample
from qkv.errors import InputError
from qkv.metrics.calibration import best_threshold_f1
from qkv.metrics.classes import (
    Counts,
    confusion_figures,
    confusion_intervals,
    counts_of_sums,
    multi_label_figures,
    multi_label_intervals,
    multi_label_statistics,
)
from qkv.metrics.numbers import correlation, correlation_moments, number_figures, number_intervals
from qkv.models.encoder import LinearHead
from qkv.report.bilingual import Phrase
from qkv.tasks.task import (
    Calibration,
    ClassifySettings,
    ConstantAnswer,
    FloatArray,
    Judgement,
    LabelScore,
    Makers,
    PlainAnswer,
    Scored,
    Scores,
    ShownPart,
    Sure,
    Weighed,
    compute_f1,
    round_result,
)
from qkv.tasks.texts import BEFORE_POOLING, Extra, TextFeatures, TextObjective, TextTask, show_text
from qkv.tasks.transfer import TaskModel
from qkv.text.tokenizer import Tokenizer


class OneLabel(Protocol):
    @property
    def label(self) -> str: ...


class SeveralLabels(Protocol):
    @property
    def labels(self) -> tuple[str, ...]: ...


class Number(Protocol):
    @property
    def value(self) -> float: ...


class SingleLabelScorer:
    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self.ids = {label: number for number, label in enumerate(self.labels)}
        self.confusion = np.zeros((len(self.labels), len(self.labels)), np.int64)

    def add(self, examples: Sequence[TextExample], results: Sequence[OneLabel]) -> None:
        for example, result in zip(examples, results, strict=True):
            assert isinstance(example.label, str)
            self.confusion[self.ids[example.label], self.ids[result.label]] += 1

    def result(self, intervals: bool = True) -> Scored:
        values = confusion_figures(self.confusion)
        ends = confusion_intervals(self.confusion) if intervals else {}
        if len(self.labels) == 2:
            # what GLUE reports for pairs: F1 of the second label, which is "1" where labels are 0 and 1
            values["f1"] = float(Counts.of_confusion(self.confusion).f1[1])
        return Scored(
            "accuracy",
            values,
            ends,
            int(self.confusion.sum()),
            _per_label(self.labels, Counts.of_confusion(self.confusion)),
            self.confusion.copy(),
            self.labels,
        )


class MultiLabelScorer:
    """Keeps a row of flags once for all texts that have the same."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self.ids = {label: number for number, label in enumerate(self.labels)}
        self.seen: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()

    def add(self, examples: Sequence[TextExample], results: Sequence[SeveralLabels]) -> None:
        for example, result in zip(examples, results, strict=True):
            assert example.label is not None
            wanted = (example.label,) if isinstance(example.label, str) else example.label
            self.seen[self._numbers(wanted), self._numbers(result.labels)] += 1

    def _numbers(self, labels: Sequence[str]) -> tuple[int, ...]:
        return tuple(sorted({self.ids[label] for label in labels}))

    def result(self, intervals: bool = True) -> Scored:
        flags = np.zeros((2, len(self.seen), len(self.labels)), bool)
        for row, (wanted, said) in enumerate(self.seen):
            flags[0, row, list(wanted)] = True
            flags[1, row, list(said)] = True
        statistics = multi_label_statistics(flags[0], flags[1])
        counts = np.array(list(self.seen.values()), np.int64)
        sums = counts @ statistics
        ends = multi_label_intervals(statistics, counts=counts) if intervals else {}
        found = counts_of_sums(sums)
        return Scored("micro_f1", multi_label_figures(sums), ends, int(counts.sum()), _per_label(self.labels, found))


class NumberScorer:
    """Two numbers a text: ranks need all of them."""

    def __init__(self) -> None:
        self.expected: list[float] = []
        self.answered: list[float] = []

    def add(self, examples: Sequence[TextExample], results: Sequence[Number]) -> None:
        self.expected += [float(str(example.label)) for example in examples]
        self.answered += [result.value for result in results]

    def result(self, intervals: bool = True) -> Scored:
        # answers that are all the same have no correlation with anything
        values = {name: 0.0 if math.isnan(value) else value for name, value in self._figures().items()}
        ends = number_intervals(self.expected, self.answered) if intervals else {}
        return Scored("pearson", values, ends, len(self.expected))

    def _figures(self) -> dict[str, float]:
        return number_figures(self.expected, self.answered)


def _per_label(labels: Sequence[str], counts: Counts) -> tuple[LabelScore, ...]:
    return tuple(
        LabelScore(label, float(p), float(r), float(f), int(n), int(given))
        for label, p, r, f, n, given in zip(
            labels, counts.precision, counts.recall, counts.f1, counts.expected, counts.answered, strict=True
        )
    )


# One label.

OTHERS = 3  # labels shown beside the first


@dataclass(frozen=True)
class Classification:
    """One label of several."""

    label: str
    probability: float
    probabilities: dict[str, float]  # of every label, most probable first
    n_tokens: int
    n_windows: int
    abstained: bool = False  # less sure than the model was found to need
    n_unknown: int = 0  # tokens that stand for what the vocabulary lacks

    @property
    def chosen(self) -> tuple[str, ...]:
        return (self.label,)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def shown(self, example: TextExample) -> list[ShownPart]:
        others = list(self.probabilities.items())[1 : 1 + OTHERS]
        return [
            show_text(example),
            ShownPart(f"\n    {self.label}", "bold"),
            ShownPart(f"  {self.probability:.1%} ", share=self.probability),
            ShownPart("  " + "  ".join(f"{label} {share:.1%}" for label, share in others), "dim"),
        ]


class CrossEntropy(TextObjective):
    """Rare classes may weigh more: then a class's weight multiplies the loss of its examples."""

    def losses(self, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        losses = functional.cross_entropy(scores, targets, reduction="none")  # (U,)
        balance = self.balance(scores)
        return losses if balance is None else losses * balance[targets], scores.detach().argmax(-1) == targets


class SingleLabel(TextTask):
    kind = "single"
    about = "one label a text"
    problem = "single_label_classification"
    main = "accuracy"

    @classmethod
    def check_labels(cls, examples: Sequence[TextExample]) -> None:
        count_valid_labels(examples)

    def adapted(self, example: TextExample) -> TextExample:
        """Some tools write one label as a list of one."""
        return example.single()

    def target(self, example: TextExample, where: str) -> int:
        if not isinstance(example.label, str):
            raise InputError(f"{where}: one label belongs here, not {example.label!r}.")
        if example.label not in self.ids:
            raise self.unknown(example.label, where)
        return self.ids[example.label]

    def targets(self, examples: Sequence[TextExample]) -> Tensor:
        return torch.tensor([self.target(example, str(example.place)) for example in examples], dtype=torch.int64)

    def balanced_weights(self, features: TextFeatures, examples: Sequence[TextExample]) -> list[float]:
        """By label: as if all were equally frequent, with a mean of 1 over these examples."""
        counts = np.bincount(self.targets(examples).numpy(), minlength=len(self.labels))
        found: list[float] = (len(examples) / (len(self.labels) * np.maximum(counts, 1))).tolist()
        return found

    def objective(self, class_weights: Sequence[float] | None = None) -> CrossEntropy:
        return CrossEntropy(class_weights=tuple(class_weights) if class_weights else None)

    def decode(
        self, features: TextFeatures, scores: Scores, extra: Extra, calibration: Calibration
    ) -> list[Classification]:
        probabilities = softmax(self.pooled(features, scores) / calibration.temperature)  # (E, L)
        order = np.argsort(-probabilities, axis=1, kind="stable")
        rows = features.rows
        sure = calibration.abstain_below or 0.0
        return [
            Classification(
                self.labels[best[0]],
                float(row[best[0]]),
                {self.labels[label]: float(row[label]) for label in best},
                n_tokens,
                n_windows,
                abstained=bool(row[best[0]] < sure),
            )
            for row, best, n_tokens, n_windows in zip(
                probabilities, order.tolist(), rows.n_tokens.tolist(), rows.n_windows.tolist(), strict=True
            )
        ]

    def scorer(self) -> SingleLabelScorer:
        return SingleLabelScorer(self.labels)

    def judge(self, example: TextExample, result: Classification) -> Judgement:
        assert isinstance(example.label, str)
        loss = -math.log(max(result.probabilities.get(example.label, 0.0), 1e-12))
        return Judgement(example.label, result.label, example.label == result.label, result.probability, loss)

    def constant_answer(self, examples: Sequence[TextExample]) -> ConstantAnswer:
        """The most frequent label."""
        most = str(Counter(example.label for example in examples).most_common(1)[0][0])
        return ConstantAnswer(Phrase(f"always answering “{most}”", f"总答“{most}”"), PlainAnswer(label=most))

    def losses(self, features: TextFeatures, scores: Scores, extra: Extra, temperature: float) -> NDArray[np.float64]:
        assert features.targets is not None
        probabilities = softmax(self.pooled(features, scores) / temperature)
        right = probabilities[np.arange(len(probabilities)), features.targets.numpy()]
        return -np.log(np.maximum(right, 1e-300))

    def confidences(self, examples: Sequence[TextExample], results: Sequence[Classification]) -> Sure:
        return Sure(
            np.array([result.probability for result in results]),
            np.array([e.label == r.label for e, r in zip(examples, results, strict=True)], dtype=bool),
            np.arange(len(results)),
        )


def count_valid_labels(examples: Sequence[TextExample]) -> Counter[str]:
    """Count each label; refuse labels from which nothing can be learned."""
    several = next((example for example in examples if not isinstance(example.label, str)), None)
    if several is not None:
        raise InputError(f"{several.place}: one label belongs here, not {several.label!r}. Or set --kind multi.")
    counts = Counter(str(example.label) for example in examples)
    if len(counts) < 2:
        only = next(iter(counts))
        raise InputError(
            f"Every example of {examples[0].place.file or 'the training examples'} has the label '{only}': a "
            "classifier needs at least two. Is it the right column? Give another with --label NAME, or add examples."
        )
    if len(counts) == len(examples) > 2:
        raise InputError(
            f"Every example of {examples[0].place.file or 'the training examples'} has a label of its own (the first: "
            f"'{examples[0].label}'): nothing can be learned from that. Is it the right column? Give it: --label NAME."
        )
    return counts


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Along the last axis, in double precision: these are the probabilities people see."""
    shifted = np.exp(scores - scores.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


# Several labels.


@dataclass(frozen=True)
class PredictedLabels:
    """Any number of labels, none included: those whose probability reaches the label's threshold."""

    labels: tuple[str, ...]
    probabilities: dict[str, float]
    n_tokens: int
    n_windows: int
    n_unknown: int = 0  # tokens that stand for what the vocabulary lacks
    abstained: ClassVar[bool] = False  # each label has a threshold, which decides by itself

    @property
    def chosen(self) -> tuple[str, ...]:
        return self.labels

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def shown(self, example: TextExample) -> list[ShownPart]:
        said = ", ".join(f"{label} {self.probabilities[label]:.0%}" for label in self.labels)
        return [show_text(example), ShownPart(f"\n    {said or 'none of the labels'}", "bold")]


class BinaryCrossEntropy(TextObjective):
    """Every label by itself; a class weight multiplies the loss of the examples that have the label."""

    def losses(self, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        losses = functional.binary_cross_entropy_with_logits(
            scores, targets, pos_weight=self.balance(scores), reduction="none"
        )  # (U, L)
        return losses.mean(1), ((scores.detach() > 0) == (targets > 0.5)).all(1)


class MultiLabel(TextTask):
    kind = "multi"
    about = "any number of labels"
    problem = "multi_label_classification"
    main = "micro_f1"
    abstains = False  # each label has a threshold, which decides by itself
    fits_thresholds = True

    def target(self, example: TextExample, where: str) -> list[int]:
        if example.label is None:
            raise InputError(f"{where}: there is no label; an example with none of them has an empty list.")
        for label in example.labels():
            if label not in self.ids:
                raise self.unknown(label, where)
        return [self.ids[label] for label in example.labels()]

    def targets(self, examples: Sequence[TextExample]) -> Tensor:
        wanted = torch.zeros(len(examples), len(self.labels))
        for row, example in enumerate(examples):
            wanted[row, self.target(example, str(example.place))] = 1.0
        return wanted

    def balanced_weights(self, features: TextFeatures, examples: Sequence[TextExample]) -> list[float]:
        """By label: how many examples lack it for each that has it, 100 at most."""
        counts = self.targets(examples).sum(0).numpy()
        found: list[float] = np.clip((len(examples) - counts) / np.maximum(counts, 1), 1, 100).tolist()
        return found

    def objective(self, class_weights: Sequence[float] | None = None) -> BinaryCrossEntropy:
        return BinaryCrossEntropy(class_weights=tuple(class_weights) if class_weights else None)

    def decode(
        self, features: TextFeatures, scores: Scores, extra: Extra, calibration: Calibration
    ) -> list[PredictedLabels]:
        probabilities = sigmoid(self.pooled(features, scores) / calibration.temperature)  # (E, L)
        thresholds = np.array([calibration.thresholds.get(label, 0.5) for label in self.labels])
        rows = features.rows
        found = []
        for row, n_tokens, n_windows in zip(
            probabilities, rows.n_tokens.tolist(), rows.n_windows.tolist(), strict=True
        ):
            said = tuple(self.labels[number] for number in np.flatnonzero(row >= thresholds))
            order = np.argsort(-row, kind="stable").tolist()
            found.append(PredictedLabels(said, {self.labels[n]: float(row[n]) for n in order}, n_tokens, n_windows))
        return found

    def scorer(self) -> MultiLabelScorer:
        return MultiLabelScorer(self.labels)

    def judge(self, example: TextExample, result: PredictedLabels) -> Judgement:
        wanted = set(example.labels())
        given = result.probabilities
        sure = math.prod(p if label in result.labels else 1 - p for label, p in given.items())
        loss = -sum(math.log(max(p if label in wanted else 1 - p, 1e-12)) for label, p in given.items())
        right = wanted == set(result.labels)
        return Judgement(_listed(wanted), _listed(result.labels), right, sure, loss)

    def statistics(self, example: TextExample, result: PredictedLabels, judgement: Judgement) -> tuple[float, ...]:
        wanted, said = set(example.labels()), set(result.labels)
        return float(len(wanted & said)), float(len(said)), float(len(wanted))

    def figure(self, sums: FloatArray) -> FloatArray:
        return compute_f1(sums)

    def constant_answer(self, examples: Sequence[TextExample]) -> ConstantAnswer:
        """The most frequent labels, as many as give the best micro F1."""
        counts = Counter(label for example in examples for label in example.labels())
        right = accumulate(n for _, n in counts.most_common())
        f1 = [2 * hits / (size * len(examples) + counts.total()) for size, hits in enumerate(right, 1)]
        labels = tuple(label for label, _ in counts.most_common(f1.index(max(f1)) + 1))
        named = ", ".join(labels)
        return ConstantAnswer(Phrase(f"always answering “{named}”", f"总答“{named}”"), PlainAnswer(labels=labels))

    def thresholds(self, examples: Sequence[TextExample], results: Sequence[PredictedLabels]) -> dict[str, float]:
        """By label, the one with the best F1."""
        given = np.array([[result.probabilities[label] for label in self.labels] for result in results])
        wanted = self.targets(examples).numpy() > 0.5
        return dict(zip(self.labels, best_threshold_f1(given, wanted).tolist(), strict=True))

    def losses(self, features: TextFeatures, scores: Scores, extra: Extra, temperature: float) -> NDArray[np.float64]:
        assert features.targets is not None
        pooled_scores = self.pooled(features, scores) / temperature
        wanted = features.targets.numpy() > 0.5
        return np.logaddexp(0, np.where(wanted, -pooled_scores, pooled_scores)).sum(1)

    def confidences(self, examples: Sequence[TextExample], results: Sequence[PredictedLabels]) -> Sure:
        """Of every label of every text: how sure of saying it or not, and whether that was right."""
        sure, right, of = [], [], []
        for number, (example, result) in enumerate(zip(examples, results, strict=True)):
            wanted = self.target(example, str(example.place))
            for label, probability in result.probabilities.items():
                said = probability >= 0.5
                sure.append(max(probability, 1 - probability))
                right.append(said == (self.ids[label] in wanted))
                of.append(number)
        return Sure(np.array(sure), np.array(right, dtype=bool), np.array(of, dtype=np.int64))


def sigmoid(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + e^−x) without overflow at either end."""
    return np.exp(-np.logaddexp(0.0, -scores))


def _listed(labels: Iterable[str]) -> str:
    return ", ".join(sorted(labels)) or "–"


# Numbers.


@dataclass(frozen=True)
class PredictedNumber:
    value: float
    n_tokens: int
    n_windows: int
    n_unknown: int = 0  # tokens that stand for what the vocabulary lacks
    abstained: ClassVar[bool] = False  # it has no probability

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def shown(self, example: TextExample) -> list[ShownPart]:
        return [show_text(example), ShownPart(f"\n    {self.value:.4g}", "bold")]


class SquaredError(TextObjective):
    """Against targets of mean 0 and deviation 1; "correct" is within half a deviation, which a log may show."""

    def losses(self, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        difference = scores[:, 0] - targets
        return difference**2, difference.detach().abs() < 0.5


class Regression(TextTask):
    """A number. The head learns it with mean 0 and deviation 1; `folded` puts both into the head when it is saved.

    `spread` is the deviation of the training numbers, folded or not: an answer within half of it counts as right.
    """

    kind = "regression"
    about = "a number"
    problem = "regression"
    main = "pearson"
    numbers = True

    def __init__(
        self,
        settings: ClassifySettings,
        paired: bool | None,
        mean: float = 0.0,
        deviation: float = 1.0,
        spread: float | None = None,
    ) -> None:
        super().__init__(("value",), settings, paired)
        self.mean, self.deviation = mean, deviation
        self.spread = deviation if spread is None else spread

    def record(self) -> dict[str, Any]:
        return super().record() | {"mean": self.mean, "deviation": self.deviation, "spread": self.spread}

    def folded(self, model: TaskModel) -> "Regression":
        """Put mean and deviation into the head, so that other programs get the number itself.

        A head without a bias has no place for the mean, and stays as it is.
        """
        with torch.no_grad():
            head = model.network.heads[self.head]
            assert isinstance(head, LinearHead)
            linear = head.linear
            if linear.bias is None:
                return self
            linear.weight.mul_(self.deviation)
            linear.bias.mul_(self.deviation).add_(self.mean)
        return Regression(self.settings, self.paired, spread=self.spread)

    def unfolded(self, head: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A folded head's tensors by name, as one that learns numbers of this mean and deviation."""
        if not any(name.endswith("bias") for name in head):
            return dict(head)  # it never was folded
        return {
            name: (value - self.mean if name.endswith("bias") else value) / self.deviation
            for name, value in head.items()
        }

    def target(self, example: TextExample, where: str) -> float:
        number = parse_number(example.label)
        if number is None:
            raise InputError(f"{where}: '{example.label}' is not a number, and the task is regression.")
        if abs(number) > LARGEST_NUMBER:
            raise InputError(
                f"{where}: {example.label} is too large to be learned; numbers go up to {LARGEST_NUMBER:.0e}. Correct "
                "it, or scale all labels."
            )
        return number

    def targets(self, examples: Sequence[TextExample]) -> Tensor:
        numbers = torch.tensor([self.target(e, str(e.place)) for e in examples], dtype=torch.float64)
        return ((numbers - self.mean) / self.deviation).float()

    def objective(self, class_weights: Sequence[float] | None = None) -> SquaredError:
        return SquaredError()

    def decode(
        self, features: TextFeatures, scores: Scores, extra: Extra, calibration: Calibration
    ) -> list[PredictedNumber]:
        values = self.pooled(features, scores)[:, 0] * self.deviation + self.mean
        rows = features.rows
        return list(map(PredictedNumber, values.tolist(), rows.n_tokens.tolist(), rows.n_windows.tolist()))

    def scorer(self) -> NumberScorer:
        return NumberScorer()

    def judge(self, example: TextExample, result: PredictedNumber) -> Judgement:
        wanted = self.target(example, str(example.place))
        error = abs(wanted - result.value)
        return Judgement(f"{wanted:g}", f"{result.value:.3g}", error < 0.5 * self.spread, math.nan, error)

    def statistics(self, example: TextExample, result: PredictedNumber, judgement: Judgement) -> tuple[float, ...]:
        return self.target(example, str(example.place)), result.value

    def summands(self, statistics: FloatArray) -> FloatArray:
        return correlation_moments(*statistics.T)

    def figure(self, sums: FloatArray) -> FloatArray:
        return correlation(sums)

    def constant_answer(self, examples: Sequence[TextExample]) -> ConstantAnswer:
        mean = statistics.fmean(float(str(example.label)) for example in examples)
        name = Phrase(f"always answering the mean ({mean:.4g})", f"总答平均值（{mean:.4g}）")
        return ConstantAnswer(name, PlainAnswer(value=mean))

    def weighed(
        self, features: TextFeatures, scores: Scores, result: PredictedNumber, calibration: Calibration
    ) -> Weighed:
        said = self.pooled(features, scores)[0]
        return Weighed({"value": round_result(result.value)}, {"scores": said.astype(np.float32)})

    def losses(self, features: TextFeatures, scores: Scores, extra: Extra, temperature: float) -> None:
        return None

    def confidences(self, examples: Sequence[TextExample], results: Sequence[PredictedNumber]) -> None:
        return None


def parse_number(label: object) -> float | None:
    """
    >>> parse_number("4.5"), parse_number("nan"), parse_number("good")
    (4.5, None, None)
    """
    try:
        number = float(label) if isinstance(label, str) else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


# The choice between the three.

Classify = SingleLabel | MultiLabel | Regression
CLASSIFIERS: Mapping[str, type[Classify]] = {"single": SingleLabel, "multi": MultiLabel, "regression": Regression}


def learn(examples: Sequence[TextExample], settings: ClassifySettings, tokenizer: Tokenizer) -> Classify:
    """The task that these training examples call for, with their labels."""
    paired = examples[0].pair is not None
    kind = choose_task(examples, settings).kind
    if paired and settings.pairs == "auto" and tokenizer.marks.leftward:
        # a number is usually a similarity, which is symmetric; a label may not be (entailment)
        settings = replace(settings, pairs="both" if kind == "regression" else "ordered")
    if kind == "regression":
        numbers = [Regression(settings, paired).target(example, str(example.place)) for example in examples]
        if (deviation := statistics.pstdev(numbers)) == 0:
            raise InputError(
                f"Every label is {numbers[0]:g} ({examples[0].place.file or 'the training examples'}): there is "
                "nothing to learn from numbers that are all the same."
            )
        return Regression(settings, paired, statistics.fmean(numbers), deviation)
    if kind == "multi":
        found = Counter(label for example in examples for label in example.labels())
        if not found:
            raise InputError("No training example has a label. Give the column that holds them: --label NAME.")
        return MultiLabel(sort_labels(found), settings, paired)
    return SingleLabel(sort_labels(count_valid_labels(examples)), settings, paired)


def choose_task(examples: Sequence[TextExample], settings: ClassifySettings) -> type[Classify]:
    """Which of the three these training examples call for."""
    return CLASSIFIERS[infer_label_kind(examples) if settings.kind == "auto" else settings.kind]


def restore_task(labels: Sequence[str], record: Mapping[str, Any]) -> Classify:
    """Restore the task from the record of a saved folder. If it does not mention pairs, texts and pairs are read."""
    settings = merge(BEFORE_POOLING, record.get("settings", {}), "qkv.json")
    paired = record.get("paired")
    kind = record.get("kind", "single")
    if kind == "regression":
        mean, deviation = float(record.get("mean", 0.0)), float(record.get("deviation", 1.0))
        return Regression(settings, paired, mean, deviation, float(record.get("spread", deviation)))
    return (MultiLabel if kind == "multi" else SingleLabel)(labels, settings, paired)


def describe_foreign(where: str, problem: object, outputs: int, reads_pairs: bool) -> dict[str, Any]:
    """The record of a classifier that others trained. Whether it was trained with pairs its folder does not say."""
    kind = infer_problem_kind(problem, outputs)
    if CLASSIFIERS[kind].numbers and outputs != 1:
        raise InputError(f"{where} is for regression with {outputs} numbers at a time; qkv predicts one number.")
    return {"kind": kind, "paired": None if reads_pairs else False}


def infer_problem_kind(problem: object, outputs: int) -> str:
    """What a head of others is for, by transformers' `problem_type` or, as there, by its number of outputs.

    >>> infer_problem_kind("multi_label_classification", 3), infer_problem_kind(None, 1), infer_problem_kind(None, 2)
    ('multi', 'regression', 'single')
    """
    kinds = {task.problem: kind for kind, task in CLASSIFIERS.items()}
    return kinds.get(str(problem)) or ("regression" if outputs == 1 else "single")


def infer_label_kind(examples: Sequence[TextExample]) -> str:
    """
    >>> infer_label_kind([TextExample("a", label="1"), TextExample("b", label="0")])
    'single'
    >>> infer_label_kind([TextExample("a", label="4.5"), TextExample("b", label="0")])
    'regression'
    """
    labels = [example.label for example in examples]
    if any(isinstance(label, tuple) for label in labels):
        return "multi"
    if all(parse_number(label) is not None for label in labels) and any("." in str(label) for label in labels):
        return "regression"
    return "single"


def sort_labels(labels: Mapping[str, int]) -> tuple[str, ...]:
    """Numbers by size, names by the alphabet: the order of the head's outputs, the same on every machine.

    >>> sort_labels({"10": 1, "9": 1}), sort_labels({"好评": 1, "bad": 2})
    (('9', '10'), ('bad', '好评'))
    """
    numbers = {label: parse_number(label) for label in labels}
    if all(number is not None for number in numbers.values()):
        return tuple(sorted(labels, key=lambda label: (numbers[label], label)))
    return tuple(sorted(labels))


CLASSIFY = Makers(choose_task, learn, restore_task, describe_foreign)
