"""How sure a figure of bench/lineage.py is, and a difference between two.

Two things could have come out otherwise: which examples were scored, and which numbers the trainings drew. So each draw
takes examples again, and seeds again. Questions about one passage are drawn together (`groups`); seeds of two systems
have nothing in common, and are drawn apart, while the examples are the same for both. Of three seeds a draw knows only
these three: chance in training then counts for two thirds of what it should (variance, (S - 1) / S), and of one seed
for nothing. p is two-sided: twice the smaller share of draws on either side of no difference.

Shapes: S seeds, n examples, c groups of them, k statistics of each, D draws, d of a block.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from qkv.metrics.intervals import Difference, percentiles, resample

Floats = NDArray[np.float64]
Metric = Callable[[Floats], Floats]
"""Sums of statistics (D, k) → figures (D,)"""
DRAWS = 2_000


def grouped(rows: Floats, groups: Sequence[int] | None) -> Floats:
    """(n, k), and the group of each → (c, k). None: every example is a group.

    >>> grouped(np.array([[1.0], [2.0], [4.0]]), [0, 0, 1]).tolist()
    [[3.0], [4.0]]
    """
    if groups is None:
        return rows
    found = np.zeros((max(groups) + 1, rows.shape[1]))
    np.add.at(found, np.asarray(groups), rows)
    return found


def figure(rows: Floats, metric: Metric) -> float:
    """Of all seeds (S, c, k) together."""
    return float(metric(rows.sum((0, 1))[None] / len(rows))[0])


def interval(rows: Floats, metric: Metric) -> tuple[float, float]:
    """Where 95 % of the draws lie."""
    return percentiles(np.concatenate([metric(sums) for (sums,) in _drawn(rows)]))


def difference(a: Floats, b: Floats, metric: Metric) -> Difference:
    """The figure of a (S, c, k) less that of b (S', c, k), which answered the same examples."""
    if a.shape[1:] != b.shape[1:]:
        raise ValueError(f"Statistics of {a.shape[1:]} and {b.shape[1:]}: both systems answer the same examples.")
    found = np.concatenate([metric(first) - metric(second) for first, second in _drawn(a, b)])
    tail = min(int((found <= 0).sum()), int((found >= 0).sum()))
    p = min(1.0, 2 * (tail + 1) / (len(found) + 1))  # one draw added: p is never 0 for want of draws
    return Difference(figure(a, metric) - figure(b, metric), *percentiles(found), p)


def _drawn(*systems: Floats) -> Iterator[list[Floats]]:
    """Sums (d, k) of each system, block after block."""
    draws = [np.random.default_rng((1, number)) for number in range(len(systems))]
    for drawn in resample(np.ones(systems[0].shape[1], np.int64), DRAWS):
        yield [_sums(rows, drawn, draw) for rows, draw in zip(systems, draws, strict=True)]


def _sums(rows: Floats, drawn: NDArray[np.int64], draw: np.random.Generator) -> Floats:
    seeds = len(rows)
    shares = draw.multinomial(seeds, np.full(seeds, 1 / seeds), len(drawn)) / seeds  # (d, S)
    return np.einsum("ds,sdk->dk", shares, np.stack([drawn @ one for one in rows]))


def holm(values: Sequence[float]) -> list[float]:
    """p of comparisons that are shown together, corrected for their number (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    found, largest = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=lambda place: values[place])):
        largest = max(largest, min(1.0, values[place] * (len(values) - rank)))
        found[place] = largest
    return found
