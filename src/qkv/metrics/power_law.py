"""Learning curves: score(n) = a − b·n^(−c), fitted to scores at several training set sizes, to predict larger ones.

Learning curves of one model on one task follow a power law well (Hestness et al. 2017). b and c are positive, so the
curve rises, and its limit a is at most the best possible score.

For a given c, the best a and b are a linear fit of (n^(−c), score), so only c is searched: on a grid, then on finer
grids around the best value. The interval of a prediction is that of the profile likelihood: all values of curves that
fit the points not much worse than the best one. (Resampling the residuals gives intervals that are too narrow: where
the points do not determine c, the refitted curves stay near the c that happened to fit best.) It covers the random
choice of training examples, but not of the development set, which is the same for all points.

If the points do not determine a curve, there is none, and `CurveFit.reason` says why.

Shapes: P points, S values of c.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qkv.metrics.intervals import FloatArray

FEWEST_SIZES = 3  # there are three unknowns
WIDEST = 0.15  # widest useful interval of a prediction

_STEEPNESS = np.geomspace(0.02, 3.0, 121)
_FACTORS = (2.0, 4.0, 10.0)
_CHANCE = 0.05  # significance level of the rise
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # 97.5 %, 1 … 9 degrees of freedom


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
    law: PowerLaw | None  # None: no fit, see `reason`
    predictions: tuple[Prediction, ...]  # at multiples of the largest size, as far as reliable
    # why there is none: few_sizes, few_points (as many unknowns as points), flat (no significant rise), or wide (the
    # points are consistent with very different curves); "" if there is a law
    reason: str = ""

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
    """Fit a power law to (n, score) points, with several points per size if there were several draws.

    Predicts at `factors` times the largest size, in order, up to the first interval wider than `widest`; if there is no
    prediction, there is no law.

    >>> points = [(n, 0.9 - 2 * n**-0.5 + noise) for n in (100, 200, 400, 800) for noise in (-0.002, 0.002)]
    >>> fit = fit_power_law(points)
    >>> round(fit.predictions[0].score, 2), fit.reason
    (0.85, '')
    """
    pairs = np.array([(n, score) for n, score in points], np.float64).reshape(-1, 2)
    if not np.isfinite(pairs).all() or (pairs[:, 0] <= 0).any():
        raise ValueError("A learning curve needs sizes above 0 and finite scores.")
    sizes, scores = pairs[:, 0], pairs[:, 1]
    if len(np.unique(sizes)) < FEWEST_SIZES:
        return CurveFit(None, (), "few_sizes")
    spare = len(pairs) - 3
    if spare < 1:
        return CurveFit(None, (), "few_points")
    unit = float(sizes.max())
    n = sizes / unit  # scales b and the search independently of the sizes
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
    """Score = a − b·n^(−c): for each c the best a ≤ ceiling and b ≥ 0, and the residual sum of squares. All (S,)."""

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
        # if the unconstrained limit is too high, the best line with its limit at the ceiling
        held = a > ceiling
        b = np.where(held, np.maximum((x @ (ceiling - scores)) / (x @ x.T).diagonal(), 0), b)
        a = np.where(held, ceiling, a)
        return _Lines(a, b, c, ((scores - (a[:, None] - b[:, None] * x)) ** 2).sum(1))

    def within(self, n: FloatArray, factor: float, room: FloatArray, ceiling: float) -> tuple[float, float]:
        """Return the lowest and highest score at `factor` of lines that add at most `room` (S,) to their squares.

        Shifting the prediction there by d adds d² / h, where h is the leverage of the point.
        """
        x, there = n ** -self.c[:, None], factor**-self.c
        away = x - x.mean(1, keepdims=True)
        leverage = 1 / len(n) + (there - x.mean(1)) ** 2 / (away**2).sum(1)
        score, fine = self.a - self.b * there, room >= 0
        beside = np.sqrt(np.maximum(room, 0) * leverage)
        return float((score - beside)[fine].min()), min(float((score + beside)[fine].max()), ceiling)


def _best(n: FloatArray, scores: FloatArray, ceiling: float) -> _Lines:
    """Return the least squares line over all c, as arrays of length 1."""
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
    """Whether the law explains the scores better than a constant, by an F test.

    The law has two more unknowns than the constant; then the probability of an F above f is
    (1 + 2·f / spare)^(−spare / 2): the residual share of the squares, to the power of spare / 2.
    """
    before = float(((scores - scores.mean()) ** 2).sum())
    return before > 1e-18 and float(squares[0] / before) ** (spare / 2) <= _CHANCE


def _student(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t; beyond the table an approximation, slightly too large."""
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96 + 2.6 / freedom
