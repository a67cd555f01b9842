"""Classification metrics: accuracy, precision, recall, F1, Matthews correlation; for one or several labels per example.

All are functions of three counts per label, `Counts`, so an array of resampled counts gives an interval in the same way
as the counts give the metric. Conventions are those of scikit-learn with zero_division=0. With one label per example, a
mean over labels excludes labels that were neither expected nor answered; with several, such a label counts as 0.

Shapes: L labels, n examples, D draws; `…` is nothing, or D.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qkv.metrics.intervals import FloatArray, IntegerArray, bootstraps, percentiles, resample, wilson_interval


@dataclass(frozen=True)
class Counts:
    """How often each label was answered rightly, answered, and expected; all (…, L).

    >>> counts = Counts.of_confusion([[8, 2], [1, 9]])  # rows expected, columns answered
    >>> float(counts.precision[1]), float(counts.recall[1])
    (0.8181818181818182, 0.9)
    >>> float(counts.accuracy)
    0.85
    """

    right: NDArray[Any]
    answered: NDArray[Any]
    expected: NDArray[Any]

    @staticmethod
    def of_confusion(confusion: ArrayLike) -> "Counts":
        """From (L, L): rows expected, columns answered."""
        table = np.asarray(confusion)
        return Counts(np.diagonal(table).copy(), table.sum(0), table.sum(1))

    # per label, (…, L)

    @property
    def precision(self) -> FloatArray:
        return quotient(self.right, self.answered)

    @property
    def recall(self) -> FloatArray:
        return quotient(self.right, self.expected)

    @property
    def f1(self) -> FloatArray:
        return quotient(2 * self.right, self.answered + self.expected)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Whether a label was expected or answered at all."""
        return (self.answered + self.expected) > 0

    # over all labels, (…)

    @property
    def accuracy(self) -> FloatArray:
        """Right / expected: the accuracy for one label per example, the micro recall for several."""
        return quotient(self.right.sum(-1), self.expected.sum(-1))

    @property
    def micro_precision(self) -> FloatArray:
        return quotient(self.right.sum(-1), self.answered.sum(-1))

    @property
    def micro_recall(self) -> FloatArray:
        return self.accuracy

    @property
    def micro_f1(self) -> FloatArray:
        """Equals the accuracy for one label per example."""
        return quotient(2 * self.right.sum(-1), self.answered.sum(-1) + self.expected.sum(-1))

    @property
    def macro_f1(self) -> FloatArray:
        return quotient(self.f1.sum(-1), self.seen.sum(-1))

    @property
    def weighted_f1(self) -> FloatArray:
        """Mean F1 weighted by how often each label was expected."""
        return quotient((self.f1 * self.expected).sum(-1), self.expected.sum(-1))

    @property
    def mcc(self) -> FloatArray:
        """Matthews correlation (Gorodkin 2004) for one label per example; 0 if either side is constant.

        With c right of s, t expected and p answered per label: (c·s − Σ t·p) / √((s² − Σ p²)(s² − Σ t²)).
        """
        t, p = np.asarray(self.expected, np.float64), np.asarray(self.answered, np.float64)
        c, s = np.asarray(self.right, np.float64).sum(-1), t.sum(-1)
        spread = (s * s - (p * p).sum(-1)) * (s * s - (t * t).sum(-1))
        return quotient(c * s - (t * p).sum(-1), np.sqrt(np.maximum(spread, 0)))


FIGURES: Mapping[str, Callable[[Counts], FloatArray]] = {
    "accuracy": lambda counts: counts.accuracy,
    "macro_f1": lambda counts: counts.macro_f1,
    "micro_f1": lambda counts: counts.micro_f1,
    "weighted_f1": lambda counts: counts.weighted_f1,
    "mcc": lambda counts: counts.mcc,
}


def quotient(above: ArrayLike, below: ArrayLike) -> FloatArray:
    """Divide elementwise; 0 where the divisor is 0."""
    top, bottom = np.asarray(above, np.float64), np.asarray(below, np.float64)
    empty = np.zeros(np.broadcast_shapes(top.shape, bottom.shape))
    return np.asarray(np.divide(top, bottom, out=empty, where=bottom != 0))


def confusion_matrix(expected: ArrayLike, answered: ArrayLike, labels: int) -> IntegerArray:
    """(L, L): rows expected, columns answered; labels are numbers from 0.

    >>> confusion_matrix([0, 0, 1], [0, 1, 1], 2).tolist()
    [[1, 1], [0, 1]]
    """
    rows, columns = np.asarray(expected, np.int64), np.asarray(answered, np.int64)
    for each in (rows, columns):
        if len(each) and not (each.min() >= 0 and each.max() < labels):
            raise ValueError(f"Labels from {each.min()} to {each.max()} are not all between 0 and {labels - 1}.")
    return np.bincount(rows * labels + columns, minlength=labels * labels).reshape(labels, labels)


def confusion_figures(confusion: ArrayLike, names: Iterable[str] = tuple(FIGURES)) -> dict[str, float]:
    """Return metrics by name, for one label per example.

    >>> confusion_figures([[8, 2], [1, 9]], ["accuracy", "micro_f1"])
    {'accuracy': 0.85, 'micro_f1': 0.85}
    """
    counts = Counts.of_confusion(confusion)
    return {name: float(FIGURES[name](counts)) for name in names}


def confusion_intervals(
    confusion: ArrayLike, names: Sequence[str] = tuple(FIGURES), *, draws: int = 1000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Return 95 % intervals by name: Wilson's for accuracy (and micro F1, which is the same), else the bootstrap's.

    If everything or nothing was right, all draws agree; then Wilson's is returned for metrics of 1 and for an F1 of 0.
    """
    table = np.asarray(confusion, np.int64)
    labels, total = len(table), int(table.sum())
    rows, columns = np.nonzero(table)
    drawn: dict[str, list[FloatArray]] = {name: [] for name in names if name not in ("accuracy", "micro_f1")}
    if drawn and total:
        for block in resample(table[rows, columns], draws, seed, 3 * labels):
            diagonal = rows == columns
            counts = Counts(
                _sum_blocks(block[:, diagonal], rows[diagonal], labels),
                _sum_blocks(block, columns, labels),
                _sum_blocks(block, rows, labels),
            )
            for name, found in drawn.items():
                found.append(FIGURES[name](counts))
    share = wilson_interval(int(np.trace(table)), total)
    values = confusion_figures(table, names)
    alike = {name for name, value in values.items() if value == 1 or (total and value == 0 and name.endswith("f1"))}
    return {
        name: share if name in alike or name not in drawn else percentiles(np.concatenate([*drawn[name], []]))
        for name in names
    }


def _sum_blocks(block: IntegerArray, places: IntegerArray, labels: int) -> IntegerArray:
    """Sum (D, cells) to (D, L) by the label of each cell."""
    found = np.zeros((len(block), labels), np.int64)
    for draw, row in enumerate(block):
        found[draw] = np.bincount(places, weights=row, minlength=labels)
    return found


# Several labels per example. `expected` and `answered` are (n, L), true where the example has the label.


def multi_label_statistics(expected: ArrayLike, answered: ArrayLike) -> FloatArray:
    """(n, 3·L + 3): right, answered, expected per label; F1 of the example, whether all labels are right, 1.

    `multi_label_figures` takes the sum of the rows, `multi_label_intervals` the rows.
    """
    wanted, said = np.asarray(expected, np.bool_), np.asarray(answered, np.bool_)
    if wanted.shape != said.shape or wanted.ndim != 2:
        raise ValueError(f"Labels of shape {wanted.shape} and {said.shape}: both must be (examples, labels).")
    both = wanted & said
    f1 = quotient(2 * both.sum(1), wanted.sum(1) + said.sum(1))
    exact = (wanted == said).all(1)
    return np.concatenate([both, said, wanted, f1[:, None], exact[:, None], np.ones((len(both), 1))], axis=1)


def counts_of_sums(sums: FloatArray) -> Counts:
    """Return `Counts` from sums (…, 3·L + 3) of `multi_label_statistics`."""
    labels = (sums.shape[-1] - 3) // 3
    return Counts(sums[..., :labels], sums[..., labels : 2 * labels], sums[..., 2 * labels : 3 * labels])


MULTI_LABEL_FIGURES: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "micro_f1": lambda sums: counts_of_sums(sums).micro_f1,
    "macro_f1": lambda sums: counts_of_sums(sums).f1.mean(-1),
    "weighted_f1": lambda sums: counts_of_sums(sums).weighted_f1,
    "samples_f1": lambda sums: quotient(sums[..., -3], sums[..., -1]),
    "subset_accuracy": lambda sums: quotient(sums[..., -2], sums[..., -1]),
}
"""Metrics by name, from sums (…, 3·L + 3) of `multi_label_statistics`.

samples_f1 is the mean F1 of the examples, where an example without expected and answered labels counts as 0;
subset_accuracy is the share of examples with exactly the expected labels.
"""


def multi_label_figures(sums: FloatArray, names: Iterable[str] = tuple(MULTI_LABEL_FIGURES)) -> dict[str, float]:
    """
    >>> statistics = multi_label_statistics([[1, 0, 1], [0, 1, 0]], [[1, 0, 0], [0, 1, 0]])
    >>> figures = multi_label_figures(statistics.sum(0))
    >>> figures["micro_f1"], figures["subset_accuracy"]
    (0.8, 0.5)
    """
    return {name: float(MULTI_LABEL_FIGURES[name](sums)) for name in names}


def multi_label_intervals(
    statistics: FloatArray,
    names: Sequence[str] = tuple(MULTI_LABEL_FIGURES),
    *,
    counts: ArrayLike | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Return 95 % intervals by name, from rows of `multi_label_statistics`, or distinct rows with `counts`.

    Wilson's for subset_accuracy and for metrics of 1, the bootstrap's for the others. If no label was right, all draws
    agree; then Wilson's with each expected label as a trial, at most one per example. A rare label is missing from many
    draws: it is excluded from their macro F1, not counted as 0.
    """
    rows = np.asarray(statistics, np.float64)
    sums = rows.sum(0) if counts is None else np.asarray(counts, np.float64) @ rows
    named = float(counts_of_sums(sums).seen.mean())
    metrics = {**MULTI_LABEL_FIGURES, "macro_f1": lambda sums: named * counts_of_sums(sums).macro_f1}
    share = wilson_interval(round(sums[-2]), round(sums[-1]))
    values = multi_label_figures(sums, names)
    drawn = {name: metrics[name] for name in names if name != "subset_accuracy" and values[name] != 1}
    found = bootstraps(rows, drawn, counts=counts, draws=draws, seed=seed) if drawn else {}
    trials = round(min(sums[-1], counts_of_sums(sums).expected.sum()))
    found |= dict.fromkeys((name for name in drawn if values[name] == 0), wilson_interval(0, trials))
    return {name: found.get(name, share) for name in names}
