"""One label of several, from [CLS] (BERT §4.1).

What the temperature divides: the pooled scores of a text, before the softmax.

Shapes: E examples, R rows, U units (examples) of a batch, L labels.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from qkv.data.examples import TextExample
from qkv.errors import InputError
from qkv.tasks.classify_scorers import SingleLabelScorer
from qkv.tasks.task import Calibration, Judgement, Scores, Sure
from qkv.tasks.texts import Extra, TextFeatures, TextObjective, TextTask
from qkv.train.loop import Term


@dataclass(frozen=True)
class Classification:
    """One label of several."""

    label: str
    probability: float
    probabilities: dict[str, float]  # of every label, most probable first
    n_tokens: int
    n_windows: int
    abstained: bool = False  # less sure than the model was found to need

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class CrossEntropy(TextObjective):
    """Rare classes may weigh more: then a class's weight multiplies the loss of its examples."""

    def term(self, scores: Tensor, targets: Tensor) -> Term:
        losses = functional.cross_entropy(scores, targets, reduction="none")  # (U,)
        balance = self.balance(scores)
        loss = losses.sum() if balance is None else (losses * balance[targets]).sum()
        return Term(loss, (scores.detach().argmax(-1) == targets).sum())


class SingleLabel(TextTask):
    kind = "single"
    problem = "single_label_classification"
    main = "accuracy"

    def target(self, example: TextExample, where: str) -> int:
        if not isinstance(example.label, str):
            raise InputError(f"{where}: one label belongs here, not {example.label!r}.")
        if example.label not in self.ids:
            raise self.unknown(example.label, where)
        return self.ids[example.label]

    def targets(self, examples: Sequence[TextExample]) -> Tensor:
        return torch.tensor([self.target(example, str(example.place)) for example in examples], dtype=torch.int64)

    def balanced_weights(self, examples: Sequence[TextExample]) -> list[float]:
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


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Along the last axis, in double precision: these are the probabilities people see."""
    shifted = np.exp(scores - scores.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)
