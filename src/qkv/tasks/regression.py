"""A number from [CLS]: how similar two sentences are, how many stars a review gives.

A number has no probability, and nothing to calibrate.

Shapes: E examples, R rows, U units (examples) of a batch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from qkv.data.examples import TextExample
from qkv.errors import InputError
from qkv.models.heads import LinearHead
from qkv.tasks.classify_scorers import NumberScorer
from qkv.tasks.model import TaskModel
from qkv.tasks.task import Calibration, Judgement, Scores
from qkv.tasks.texts import ClassifySettings, Extra, TextFeatures, TextObjective, TextTask
from qkv.train.loop import Term


@dataclass(frozen=True)
class Value:
    value: float
    n_tokens: int
    n_windows: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class SquaredError(TextObjective):
    """Against targets of mean 0 and deviation 1; "correct" is within half a deviation, which a log may show."""

    def term(self, scores: Tensor, targets: Tensor) -> Term:
        difference = scores[:, 0] - targets
        return Term((difference**2).sum(), (difference.detach().abs() < 0.5).sum())


class Regression(TextTask):
    """A number. The head learns it with mean 0 and deviation 1; `folded` puts both into the head when it is saved.

    `spread` is the deviation of the training numbers, folded or not: an answer within half of it counts as right.
    """

    kind = "regression"
    problem = "regression"
    main = "pearson"

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
        """The head's scores become the number itself, for whoever loads the folder elsewhere.

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
        number = as_number(example.label)
        if number is None:
            raise InputError(f"{where}: '{example.label}' is not a number, and the task is regression.")
        return number

    def targets(self, examples: Sequence[TextExample]) -> Tensor:
        numbers = torch.tensor([self.target(e, str(e.place)) for e in examples], dtype=torch.float64)
        return ((numbers - self.mean) / self.deviation).float()

    def objective(self, class_weights: Sequence[float] | None = None) -> SquaredError:
        return SquaredError()

    def decode(self, features: TextFeatures, scores: Scores, extra: Extra, calibration: Calibration) -> list[Value]:
        values = self.pooled(features, scores)[:, 0] * self.deviation + self.mean
        rows = features.rows
        return list(map(Value, values.tolist(), rows.n_tokens.tolist(), rows.n_windows.tolist()))

    def scorer(self) -> NumberScorer:
        return NumberScorer()

    def judge(self, example: TextExample, result: Value) -> Judgement:
        wanted = self.target(example, str(example.place))
        error = abs(wanted - result.value)
        return Judgement(f"{wanted:g}", f"{result.value:.3g}", error < 0.5 * self.spread, math.nan, error)

    def losses(self, features: TextFeatures, scores: Scores, extra: Extra, temperature: float) -> None:
        return None

    def confidences(self, examples: Sequence[TextExample], results: Sequence[Value]) -> None:
        return None


def as_number(label: object) -> float | None:
    """
    >>> as_number("4.5"), as_number("nan"), as_number("good")
    (4.5, None, None)
    """
    try:
        number = float(label) if isinstance(label, str) else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None
