"""Figures of classification as examples stream by: counts for labels, two numbers a text for numbers."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from qkv.data.examples import TextExample
from qkv.metrics.classes import (
    Counts,
    confusion_figures,
    confusion_intervals,
    counts_of_sums,
    multi_label_figures,
    multi_label_intervals,
    multi_label_statistics,
)
from qkv.metrics.numbers import number_figures, number_intervals
from qkv.tasks.task import LabelScore, Scored


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
            per_label(self.labels, Counts.of_confusion(self.confusion)),
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
        return Scored("micro_f1", multi_label_figures(sums), ends, int(counts.sum()), per_label(self.labels, found))


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


def per_label(labels: Sequence[str], counts: Counts) -> tuple[LabelScore, ...]:
    return tuple(
        LabelScore(label, float(p), float(r), float(f), int(n), int(given))
        for label, p, r, f, n, given in zip(
            labels, counts.precision, counts.recall, counts.f1, counts.expected, counts.answered, strict=True
        )
    )
