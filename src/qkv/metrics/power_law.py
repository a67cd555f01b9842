"""What more labelled examples would bring: score(n) = a − b·n^(−c), fitted to scores at several sizes.

Learning curves of one model on one task follow a power law well (Hestness et al. 2017). b and c are positive, so that
the curve rises, and a, where it would end, is not above the best possible score.

For a given c the best a and b are a straight line through (n^(−c), score), so that only c is searched: a grid, then
finer ones around the best of it. The interval of a prediction is the profile likelihood's: every value that some curve
passes through which fits the points not much worse than the best one does. (Resampling the residuals was tried and is
too sure of itself: where the points leave c open, the refitted curves stay near the c that happened to fit best.)
It holds what chance does in the draws of training examples. That the dev set is itself a sample, the same for all
points, is not in it.

A curve that the points do not determine is not drawn: `CurveFit.reason` says why.

Shapes: P points, S values of c.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qkv.metrics.intervals import FloatArray

FEWEST_SIZES = 3  # there are three unknowns
WIDEST = 0.15  # of a prediction's interval, in points of score: beyond, it tells nobody whether to label more
NO_FIT_REASONS = {
    "few_sizes": "fewer than three sizes were measured",
    "few_points": "as many unknowns as points: nothing is left to tell noise by",
    "flat": "the scores do not rise by more than chance",
    "wide": "the points leave room for very different curves",
}

_STEEPNESS = np.geomspace(0.02, 3.0, 121)
_FACTORS = (2.0, 4.0, 10.0)
_CHANCE = 0.05  # that a flat curve is taken for a rising one
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # 97.5 %, of 1 … 9 degrees of freedom


class Prediction(NamedTuple):
    n: int
    score: float
    low: float  # 95 %
    high: float


@dataclass(frozen=True)
class PowerLaw:
    a: float
    b: float
    c: float

    def __call__(self, n: float) -> float:
        """
        >>> PowerLaw(0.9, 1.0, 0.5)(100)
        0.8
        """
        return float(self.a - self.b * n**-self.c)


@dataclass(frozen=True)
class CurveFit:
    law: PowerLaw | None  # None: cannot say, and `reason` why
    predictions: tuple[Prediction, ...]  # at multiples of the largest size, as far as they can be made
    reason: str = ""  # of `REASONS`; "" where there is a law

    def to_dict(self) -> dict[str, object]:
        law = self.law
        return {
            "law": None if law is None else {"a": law.a, "b": law.b, "c": law.c},
            "predictions": [each._asdict() for each in self.predictions],
            "reason": self.reason,
        }


def fit_power_law(
    points: Iterable[tuple[float, float]],
    factors: Sequence[float] = _FACTORS,
    *,
    ceiling: float = 1.0,
    widest: float = WIDEST,
) -> CurveFit:
    """The law of (n, score) points, several for a size where there were several draws, and what it says of more.

    Predictions are made at `factors` times the largest size, in order, up to the first whose interval is wider than
    `widest`; where that is the first of them there is no law.

    >>> points = [(n, 0.9 - 2 * n**-0.5 + noise) for n in (100, 200, 400, 800) for noise in (-0.002, 0.002)]
    >>> fit = fit_power_law(points)
    >>> round(fit.predictions[0].score, 2), fit.reason
    (0.85, '')
    """
    pairs = np.array([(n, score) for n, score in points], np.float64).reshape(-1, 2)
    if not np.isfinite(pairs).all() or (pairs[:, 0] <= 0).any():
        raise ValueError("A learning curve is made of sizes above 0 and scores that are numbers.")
    sizes, scores = pairs[:, 0], pairs[:, 1]
    if len(np.unique(sizes)) < FEWEST_SIZES:
        return CurveFit(None, (), "few_sizes")
    spare = len(pairs) - 3
    if spare < 1:
        return CurveFit(None, (), "few_points")
    unit = float(sizes.max())
    n = sizes / unit  # b and the search are then of the same size for ten examples and for a million
    best = _best(n, scores, ceiling)
    if not _rises(scores, best.squares, spare):
        return CurveFit(None, (), "flat")

    tried = _Lines.through(n, scores, np.append(_STEEPNESS, best.c), ceiling)
    room = best.squares * (1 + _student(spare) ** 2 / spare) - tried.squares  # (S,)
    predictions: list[Prediction] = []
    for factor in factors:
        low, high = tried.within(n, factor, room, ceiling)
        if high - low > widest:
            break
        score = float(best.a[0] - best.b[0] * factor ** -best.c[0])
        predictions.append(Prediction(round(factor * unit), score, min(low, score), max(high, score)))
    if not predictions:
        return CurveFit(None, (), "wide")
    a, b, c = (float(each[0]) for each in (best.a, best.b, best.c))
    return CurveFit(PowerLaw(a, b * unit**c, c), tuple(predictions))


class _Lines(NamedTuple):
    """Score = a − b·n^(−c): for each c the best a ≤ ceiling and b ≥ 0, and the squares that are left. All (S,)."""

    a: FloatArray
    b: FloatArray
    c: FloatArray
    squares: FloatArray

    @staticmethod
    def through(n: FloatArray, scores: FloatArray, c: FloatArray, ceiling: float) -> "_Lines":
        x = n ** -c[:, None]  # (S, P)
        away = x - x.mean(1, keepdims=True)
        b = np.maximum(-(away @ scores) / (away**2).sum(1), 0)
        a = scores.mean() + b * x.mean(1)
        # where the free line ends too high, it is the best of those that end at the ceiling
        held = a > ceiling
        b = np.where(held, np.maximum((x @ (ceiling - scores)) / (x @ x.T).diagonal(), 0), b)
        a = np.where(held, ceiling, a)
        return _Lines(a, b, c, ((scores - (a[:, None] - b[:, None] * x)) ** 2).sum(1))

    def within(self, n: FloatArray, factor: float, room: FloatArray, ceiling: float) -> tuple[float, float]:
        """Lowest and highest score at `factor` of all lines that add no more than `room` (S,) to their squares.

        A line that is made to pass d beside its prediction there adds d² / h, with h the leverage of the place.
        """
        x, there = n ** -self.c[:, None], factor**-self.c
        away = x - x.mean(1, keepdims=True)
        leverage = 1 / len(n) + (there - x.mean(1)) ** 2 / (away**2).sum(1)
        score, fine = self.a - self.b * there, room >= 0
        beside = np.sqrt(np.maximum(room, 0) * leverage)
        return float((score - beside)[fine].min()), min(float((score + beside)[fine].max()), ceiling)


def _best(n: FloatArray, scores: FloatArray, ceiling: float) -> _Lines:
    """The line of least squares over all c, alone in its arrays."""
    step = np.log(_STEEPNESS[1] / _STEEPNESS[0])
    tried, spread = _STEEPNESS, step
    while True:
        lines = _Lines.through(n, scores, tried, ceiling)
        place = int(np.argmin(lines.squares))
        found = _Lines(*(each[place : place + 1] for each in lines))
        if spread < 1e-9:
            return found
        # nine values between the neighbours of the best one
        tried = np.clip(found.c * np.exp(spread * np.linspace(-1, 1, 9)), _STEEPNESS[0], _STEEPNESS[-1])
        spread /= 4


def _rises(scores: FloatArray, squares: FloatArray, spare: int) -> bool:
    """Whether the law explains more of the scores than chance would: the F test against a constant.

    The law has two unknowns more than the constant, and for two the chance of an F above f is
    (1 + 2·f / spare)^(−spare / 2): the share of the squares that is left, to the power of spare / 2.
    """
    before = float(((scores - scores.mean()) ** 2).sum())
    return before > 1e-18 and float(squares[0] / before) ** (spare / 2) <= _CHANCE


def _student(freedom: int) -> float:
    """97.5 % of Student's t lie below; past the table its usual approximation, a little to the wide side."""
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96 + 2.6 / freedom
