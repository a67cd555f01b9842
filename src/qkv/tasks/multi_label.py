"""Any number of labels a text, none included: every label is asked for by itself.

What the temperature divides: the pooled scores of a text, before each sigmoid. A label is said when its probability
reaches the threshold that was best for it on held-out texts.

Shapes: E examples, R rows, U units (examples) of a batch, L labels.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from qkv.data.examples import TextExample
from qkv.errors import InputError
from qkv.tasks.classify_scorers import MultiLabelScorer
from qkv.tasks.task import Calibration, Judgement, Scores, Sure
from qkv.tasks.texts import Extra, TextFeatures, TextObjective, TextTask
from qkv.train.loop import Term


@dataclass(frozen=True)
class Labels:
    """Any number of labels, none included: those whose probability reaches the label's threshold."""

    labels: tuple[str, ...]
    probabilities: dict[str, float]
    n_tokens: int
    n_windows: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class BinaryCrossEntropy(TextObjective):
    """Every label by itself; a class weight multiplies the loss of the examples that have the label."""

    def term(self, scores: Tensor, targets: Tensor) -> Term:
        losses = functional.binary_cross_entropy_with_logits(
            scores, targets, pos_weight=self.balance(scores), reduction="none"
        )  # (U, L)
        right = ((scores.detach() > 0) == (targets > 0.5)).all(1)
        return Term(losses.mean(1).sum(), right.sum())


class MultiLabel(TextTask):
    kind = "multi"
    problem = "multi_label_classification"
    main = "micro_f1"

    def target(self, example: TextExample, where: str) -> list[int]:
        if example.label is None:
            raise InputError(f"{where}: there is no label; an example with none of them has an empty list.")
        wanted = (example.label,) if isinstance(example.label, str) else example.label
        for label in wanted:
            if label not in self.ids:
                raise self.unknown(label, where)
        return [self.ids[label] for label in wanted]

    def targets(self, examples: Sequence[TextExample]) -> Tensor:
        wanted = torch.zeros(len(examples), len(self.labels))
        for row, example in enumerate(examples):
            wanted[row, self.target(example, str(example.place))] = 1.0
        return wanted

    def balanced_weights(self, examples: Sequence[TextExample]) -> list[float]:
        """By label: how many examples lack it for each that has it, 100 at most."""
        counts = self.targets(examples).sum(0).numpy()
        found: list[float] = np.clip((len(examples) - counts) / np.maximum(counts, 1), 1, 100).tolist()
        return found

    def objective(self, class_weights: Sequence[float] | None = None) -> BinaryCrossEntropy:
        return BinaryCrossEntropy(class_weights=tuple(class_weights) if class_weights else None)

    def decode(self, features: TextFeatures, scores: Scores, extra: Extra, calibration: Calibration) -> list[Labels]:
        probabilities = sigmoid(self.pooled(features, scores) / calibration.temperature)  # (E, L)
        thresholds = np.array([calibration.thresholds.get(label, 0.5) for label in self.labels])
        rows = features.rows
        found = []
        for row, n_tokens, n_windows in zip(
            probabilities, rows.n_tokens.tolist(), rows.n_windows.tolist(), strict=True
        ):
            said = tuple(self.labels[number] for number in np.flatnonzero(row >= thresholds))
            order = np.argsort(-row, kind="stable").tolist()
            found.append(Labels(said, {self.labels[n]: float(row[n]) for n in order}, n_tokens, n_windows))
        return found

    def scorer(self) -> MultiLabelScorer:
        return MultiLabelScorer(self.labels)

    def judge(self, example: TextExample, result: Labels) -> Judgement:
        assert example.label is not None
        wanted = {example.label} if isinstance(example.label, str) else set(example.label)
        given = result.probabilities
        sure = math.prod(p if label in result.labels else 1 - p for label, p in given.items())
        loss = -sum(math.log(max(p if label in wanted else 1 - p, 1e-12)) for label, p in given.items())
        right = wanted == set(result.labels)
        return Judgement(_listed(wanted), _listed(result.labels), right, sure, loss)

    def losses(self, features: TextFeatures, scores: Scores, extra: Extra, temperature: float) -> NDArray[np.float64]:
        assert features.targets is not None
        pooled_scores = self.pooled(features, scores) / temperature
        wanted = features.targets.numpy() > 0.5
        return np.logaddexp(0, np.where(wanted, -pooled_scores, pooled_scores)).sum(1)

    def confidences(self, examples: Sequence[TextExample], results: Sequence[Labels]) -> Sure:
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
