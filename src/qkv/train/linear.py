"""Linear models with a ridge penalty, fitted to the optimum: logistic regression for classes or labels, and ridge.

    minimise over W, b    Σᵢ wᵢ ℓ(xᵢ W + b, yᵢ) + λ/2 ‖W‖²

The loss ℓ is the cross entropy of a softmax (`Classes`), one cross entropy per label (`Labels`) or half the squared
error (`Numbers`); b is not penalised. The problem is convex and is solved in float64 by L-BFGS (Liu and Nocedal 1989)
from zero, so the same examples give the same weights. `try_strengths` cross-validates λ. The sum over
examples is not divided by their number, so a λ that suits a sample suits the whole.

`DenseRows` are standardised vectors (mean 0, deviation 1 per column); `folded` returns the same map for the vectors as
they came. `SparseRows` hold the few columns of each row that are not zero.

Shapes: n examples, F columns, L outputs.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_MEMORY = 10  # pairs of differences that L-BFGS keeps
_MOST_ITERATIONS = 200
_TOLERANCE = 1e-5  # of the largest gradient, relative to that at zero


# Rows.


class Rows(Protocol):
    """A matrix (n, F) by its two products."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def times(self, weight: Floats) -> Floats:
        """(F, L) → (n, L)"""
        ...

    def transposed_times(self, values: Floats) -> Floats:
        """(n, L) → (F, L)"""
        ...

    def take(self, chosen: Integers) -> Self: ...


@dataclass(frozen=True)
class DenseRows:
    values: Floats  # (n, F)

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    def times(self, weight: Floats) -> Floats:
        return self.values @ weight

    def transposed_times(self, values: Floats) -> Floats:
        return self.values.T @ values

    def take(self, chosen: Integers) -> "DenseRows":
        return DenseRows(self.values[chosen])


class _Bags(NamedTuple):
    """Compressed rows: those of row i are `columns[offsets[i]:offsets[i + 1]]`."""

    columns: Tensor
    values: Tensor
    offsets: Tensor

    def times(self, table: Floats) -> Floats:
        """Weighted sums of rows of the table, without a copy of each."""
        found: Floats = functional.embedding_bag(
            self.columns,
            torch.from_numpy(table),
            self.offsets,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        ).numpy()
        return found


class SparseRows:
    """Compressed rows, and the same by column for the transposed product."""

    def __init__(self, columns: Integers, values: Floats, offsets: Integers, width: int) -> None:
        """(nnz,), (nnz,) and (n + 1,)"""
        self.columns, self.values, self.offsets, self.width = columns, values, offsets, width
        self._rows = _Bags(torch.from_numpy(columns), torch.from_numpy(values), torch.from_numpy(offsets))
        order = np.argsort(columns, kind="stable")
        row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[order]
        begins = np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=width))]).astype(np.int64)
        self._columns = _Bags(torch.from_numpy(row), torch.from_numpy(values[order]), torch.from_numpy(begins))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.offsets) - 1, self.width

    def times(self, weight: Floats) -> Floats:
        return self._rows.times(weight)

    def transposed_times(self, values: Floats) -> Floats:
        return self._columns.times(values)

    def take(self, chosen: Integers) -> "SparseRows":
        counts = np.diff(self.offsets)[chosen]
        begins = np.repeat(self.offsets[chosen] - (np.cumsum(counts) - counts), counts)
        places = begins + np.arange(int(counts.sum()))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return SparseRows(self.columns[places], self.values[places], offsets, self.width)


# Losses.


class Targets(Protocol):
    """What is predicted, and its loss."""

    @property
    def outputs(self) -> int: ...
    def losses(self, scores: Floats) -> tuple[Floats, Floats]:
        """(n, L) → (n,) weighted losses and (n, L) their gradient."""
        ...

    def score(self, scores: Floats) -> float:
        """A figure for people: larger is better, 1 is perfect."""
        ...

    def take(self, chosen: Integers) -> Self: ...


@dataclass(frozen=True)
class Classes:
    """One class of several; the score is the accuracy."""

    numbers: Integers  # (n,)
    outputs: int
    weights: Floats  # (n,)

    def losses(self, scores: Floats) -> tuple[Floats, Floats]:
        shifted = scores - scores.max(1, keepdims=True)
        exponentials = np.exp(shifted)
        sums = exponentials.sum(1, keepdims=True)
        at = np.arange(len(scores)), self.numbers
        gradient = exponentials / sums
        gradient[at] -= 1.0
        return self.weights * (np.log(sums[:, 0]) - shifted[at]), gradient * self.weights[:, None]

    def score(self, scores: Floats) -> float:
        return float((scores.argmax(1) == self.numbers).mean())

    def take(self, chosen: Integers) -> "Classes":
        return Classes(self.numbers[chosen], self.outputs, self.weights[chosen])


@dataclass(frozen=True)
class Labels:
    """Any number of labels, one logistic regression each; the score is the micro F1 at probability 0.5."""

    flags: Floats  # (n, L), 0 or 1
    weights: Floats  # (n, L)

    @property
    def outputs(self) -> int:
        return self.flags.shape[1]

    def losses(self, scores: Floats) -> tuple[Floats, Floats]:
        probabilities = np.exp(-np.logaddexp(0.0, -scores))
        losses = np.logaddexp(0.0, scores) - self.flags * scores
        return (self.weights * losses).sum(1), self.weights * (probabilities - self.flags)

    def score(self, scores: Floats) -> float:
        said = scores > 0
        total = float(said.sum() + self.flags.sum())
        return 2 * float((said * self.flags).sum()) / total if total else 0.0

    def take(self, chosen: Integers) -> "Labels":
        return Labels(self.flags[chosen], self.weights[chosen])


@dataclass(frozen=True)
class Numbers:
    """A number; the score is R², the share of its variance that is explained."""

    values: Floats  # (n,)
    weights: Floats  # (n,)
    outputs: int = 1

    def losses(self, scores: Floats) -> tuple[Floats, Floats]:
        off = scores[:, 0] - self.values
        return self.weights * off**2 / 2, (self.weights * off)[:, None]

    def score(self, scores: Floats) -> float:
        spread = ((self.values - self.values.mean()) ** 2).sum()
        return float(1 - ((scores[:, 0] - self.values) ** 2).sum() / spread) if spread else 0.0

    def take(self, chosen: Integers) -> "Numbers":
        return Numbers(self.values[chosen], self.weights[chosen], self.outputs)


# The fit.


class LinearMap(NamedTuple):
    weight: Floats  # (F, L)
    bias: Floats  # (L,)

    def scores(self, rows: Rows) -> Floats:
        return rows.times(self.weight) + self.bias


def fit_linear(
    rows: Rows,
    targets: Targets,
    strength: float,
    start: LinearMap | None = None,
    intercept: bool = True,
    tolerance: float = _TOLERANCE,
    bias_unit: float = 1.0,
) -> LinearMap:
    """The minimum for this λ; `start` is a guess.

    L-BFGS counts b in `bias_unit`. The column of ones that b belongs to has length √n: where the columns of the rows
    are much shorter, a unit of about 1/√n saves iterations.
    """
    columns, outputs = rows.shape[1], targets.outputs
    cut = columns * outputs

    def objective(flat: Floats) -> tuple[float, Floats]:
        weight, bias = flat[:cut].reshape(columns, outputs), flat[cut:] * bias_unit
        losses, gradient = targets.losses(rows.times(weight) + bias)
        down = rows.transposed_times(gradient) + strength * weight
        return (
            float(losses.sum() + strength / 2 * (weight**2).sum()),
            np.concatenate([down.reshape(-1), gradient.sum(0) * bias_unit if intercept else np.zeros(outputs)]),
        )

    guess = LinearMap(np.zeros((columns, outputs)), np.zeros(outputs)) if start is None else start
    found = minimise(objective, np.concatenate([guess.weight.reshape(-1), guess.bias / bias_unit]), tolerance)
    return LinearMap(found[:cut].reshape(columns, outputs), found[cut:] * bias_unit)


def minimise(
    objective: Callable[[Floats], tuple[float, Floats]], start: Floats, tolerance: float = _TOLERANCE
) -> Floats:
    """The minimum of a smooth convex function, given as its value and gradient, by L-BFGS.

    >>> minimise(lambda x: (float(((x - 3) ** 2).sum()), 2 * (x - 3)), np.zeros(2)).round(4).tolist()
    [3.0, 3.0]
    """
    x = start.copy()
    value, gradient = objective(x)
    enough = tolerance * max(float(np.abs(objective(np.zeros_like(x))[1]).max()), 1e-12)
    steps: list[tuple[Floats, Floats, float]] = []
    for _ in range(_MOST_ITERATIONS):
        if float(np.abs(gradient).max()) <= enough:
            break
        direction = _direction(gradient, steps)
        slope = float(direction @ gradient)
        length = 1.0 if steps else min(1.0, 1.0 / float(np.abs(gradient).sum()))
        for _ in range(40):
            moved = x + length * direction
            after, after_gradient = objective(moved)
            if math.isfinite(after) and after <= value + 1e-4 * length * slope:
                break
            length /= 2
        else:
            break  # rounding: nothing lower is found along a descent direction
        step, change = moved - x, after_gradient - gradient
        if (product := float(step @ change)) > 1e-12 * float(change @ change):
            steps = [*steps[-_MEMORY + 1 :], (step, change, product)]
        x, value, gradient = moved, after, after_gradient
    return x


def _direction(gradient: Floats, steps: Sequence[tuple[Floats, Floats, float]]) -> Floats:
    """The two loops of L-BFGS: minus the gradient, times an estimate of the inverse Hessian."""
    found, shares = -gradient, []
    for step, change, product in reversed(steps):
        share = float(step @ found) / product
        found = found - share * change
        shares.append(share)
    if steps:
        _, change, product = steps[-1]
        found = found * (product / float(change @ change))
    for (step, change, product), share in zip(steps, reversed(shares), strict=True):
        found = found + (share - float(change @ found) / product) * step
    return found


# Standardised vectors.


@dataclass(frozen=True)
class Standard:
    """Mean and deviation of each column; a column that does not vary counts as it is."""

    mean: Floats  # (F,)
    deviation: Floats  # (F,)

    @classmethod
    def of(cls, vectors: ArrayLike, centred: bool = True, weights: Floats | None = None) -> "Standard":
        """`weights` (n,) are those of the rows; None: all count alike."""
        values = np.asarray(vectors, np.float64)
        mean = np.average(values, 0, weights) if centred else np.zeros(values.shape[1])
        deviation = np.sqrt(np.average((values - mean) ** 2, 0, weights))
        return cls(mean, np.where(deviation > 1e-6 * max(float(deviation.max()), 1e-12), deviation, 1.0))

    def rows(self, vectors: ArrayLike) -> DenseRows:
        return DenseRows((np.asarray(vectors, np.float64) - self.mean) / self.deviation)

    def folded(self, fitted: LinearMap) -> LinearMap:
        """The same map, of vectors that are not standardised."""
        weight = fitted.weight / self.deviation[:, None]
        return LinearMap(weight, fitted.bias - self.mean @ weight)


# Cross-validation.


class Tried(NamedTuple):
    """One λ of a search, with the held-out figures of all folds together."""

    strength: float
    loss: float  # mean over the examples
    score: float


def fold_numbers(strata: Sequence[str], folds: int, seed: int) -> Integers:
    """(n,) the fold of each example: each stratum is spread evenly over the folds."""
    generator = np.random.default_rng(np.random.SeedSequence((seed, 11)))
    order = generator.permutation(len(strata))
    groups: dict[str, list[int]] = {}
    for number in order.tolist():
        groups.setdefault(strata[number], []).append(number)
    sequence = [number for name in sorted(groups) for number in groups[name]]
    found = np.empty(len(strata), np.int64)
    found[sequence] = np.arange(len(strata)) % folds
    return found


def held_out_scores(
    rows: Rows,
    targets: Targets,
    strengths: Sequence[float],
    fold: Integers,
    intercept: bool = True,
    tolerance: float = _TOLERANCE,
    bias_unit: float = 1.0,
) -> Iterator[Floats]:
    """(n, L) for each λ, in the given order: each row is scored by the fit on the other folds, which starts from its
    weights at the λ before."""
    numbers = np.unique(fold)
    parts = [(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in numbers]
    splits = [(rows.take(a), targets.take(a), rows.take(b), b) for a, b in parts]
    before: list[LinearMap | None] = [None] * len(splits)
    for strength in strengths:
        scores = np.empty((len(fold), targets.outputs))
        for place, (train, wanted, held_out, chosen) in enumerate(splits):
            before[place] = fitted = fit_linear(train, wanted, strength, before[place], intercept, tolerance, bias_unit)
            scores[chosen] = fitted.scores(held_out)
        yield scores


def try_strengths(
    rows: Rows, targets: Targets, strengths: Sequence[float], fold: Integers, intercept: bool = True
) -> Iterator[Tried]:
    """Cross-validate each λ, in the given order."""
    for strength, scores in zip(strengths, held_out_scores(rows, targets, strengths, fold, intercept), strict=True):
        losses, _ = targets.losses(scores)
        yield Tried(strength, float(losses.mean()), targets.score(scores))
