"""Figures of labels: worked by hand, and against scikit-learn where it is installed."""

from typing import Any

import numpy as np
import pytest

from qkv.metrics.classes import (
    FIGURES,
    MULTI_LABEL_FIGURES,
    Counts,
    confusion_figures,
    confusion_intervals,
    confusion_matrix,
    counts_of_sums,
    multi_label_figures,
    multi_label_intervals,
    multi_label_statistics,
    quotient,
)
from qkv.metrics.intervals import wilson_interval

# expected by rows: 6 of a, 4 of b, 2 of c
TABLE = [[5, 1, 0], [2, 2, 0], [0, 1, 1]]


def test_by_hand() -> None:
    counts = Counts.of_confusion(TABLE)
    assert counts.precision.tolist() == [5 / 7, 2 / 4, 1]
    assert counts.recall.tolist() == [5 / 6, 2 / 4, 1 / 2]
    f1 = [10 / 13, 4 / 8, 2 / 3]
    assert counts.f1 == pytest.approx(f1)
    figures = confusion_figures(TABLE)
    assert figures["accuracy"] == figures["micro_f1"] == pytest.approx(8 / 12)
    assert figures["macro_f1"] == pytest.approx(sum(f1) / 3)
    assert figures["weighted_f1"] == pytest.approx((6 * f1[0] + 4 * f1[1] + 2 * f1[2]) / 12)
    # c = 8, s = 12, Σ t·p = 6·7 + 4·4 + 2·1 = 60, Σ p² = 66, Σ t² = 56
    assert figures["mcc"] == pytest.approx((8 * 12 - 60) / ((144 - 66) * (144 - 56)) ** 0.5)


def test_mcc_of_two_is_the_usual_one() -> None:
    """(tp·tn − fp·fn) / √((tp+fp)(tp+fn)(tn+fp)(tn+fn)), with tp 9, tn 8, fp 2, fn 1."""
    assert confusion_figures([[8, 2], [1, 9]])["mcc"] == pytest.approx((72 - 2) / (11 * 10 * 10 * 9) ** 0.5)


def test_nothing_below_the_line_is_0() -> None:
    assert quotient([1, 2], [0, 4]).tolist() == [0, 0.5]
    never_answered = Counts.of_confusion([[3, 0], [2, 0]])
    assert never_answered.precision.tolist() == [0.6, 0] and never_answered.f1[1] == 0
    assert float(never_answered.mcc) == 0  # one answer for all
    assert set(confusion_figures(np.zeros((2, 2), int)).values()) == {0.0}


def test_a_label_nobody_named_is_not_in_the_mean() -> None:
    wide = np.zeros((4, 4), int)
    wide[:3, :3] = TABLE
    assert confusion_figures(wide) == pytest.approx(confusion_figures(TABLE))


def test_draws_are_figured_at_once() -> None:
    tables = np.random.default_rng(0).integers(0, 5, (6, 3, 3))
    each = [Counts.of_confusion(table) for table in tables]
    together = Counts(*(np.stack([getattr(one, name) for one in each]) for name in ("right", "answered", "expected")))
    for figure in FIGURES.values():
        assert figure(together) == pytest.approx([float(figure(one)) for one in each])


def test_confusion_matrix_refuses_strangers() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        confusion_matrix([0, 1], [0, 2], 2)
    assert confusion_matrix([], [], 2).tolist() == [[0, 0], [0, 0]]


def test_intervals() -> None:
    found = confusion_intervals(TABLE)
    values = confusion_figures(TABLE)
    assert found["accuracy"] == found["micro_f1"] == wilson_interval(8, 12)
    for name, (low, high) in found.items():
        assert low < values[name] < high
    assert found == confusion_intervals(TABLE)
    # of ten times as many it is about √10 narrower
    many = confusion_intervals(np.array(TABLE) * 10)
    for name in ("macro_f1", "weighted_f1", "mcc"):
        ratio = (found[name][1] - found[name][0]) / (many[name][1] - many[name][0])
        assert 2.2 < ratio < 4.5


def test_interval_is_that_of_resampled_examples() -> None:
    """Against drawing the twelve examples themselves."""
    pairs = [(row, column) for row in range(3) for column in range(3) for _ in range(TABLE[row][column])]
    generator = np.random.default_rng(1)
    drawn = []
    for _ in range(1500):
        chosen = np.array(pairs)[generator.integers(0, 12, 12)]
        drawn.append(confusion_figures(confusion_matrix(chosen[:, 0], chosen[:, 1], 3), ["mcc"])["mcc"])
    assert confusion_intervals(TABLE, ["mcc"])["mcc"] == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.06)


def test_all_right_is_not_certainty() -> None:
    found = confusion_intervals(np.diag([5, 5]))
    assert set(found.values()) == {wilson_interval(10, 10)}
    assert confusion_intervals([[4, 0], [0, 0]])["mcc"] == (0, 0)  # nothing to correlate


def test_nothing_right_is_not_certainty() -> None:
    found = confusion_intervals([[0, 10], [10, 0]], draws=10)
    assert found["macro_f1"] == found["accuracy"] == wilson_interval(0, 20)
    statistics = multi_label_statistics([[1, 0]] * 6 + [[0, 0]] * 4, [[0, 1]] * 6 + [[0, 0]] * 4)
    several = multi_label_intervals(statistics, draws=10)
    assert several["micro_f1"] == several["macro_f1"] == several["samples_f1"] == wilson_interval(0, 6)
    assert several["subset_accuracy"] == wilson_interval(4, 10)


def test_no_examples() -> None:
    found = confusion_intervals(np.zeros((2, 2), int))
    assert found["accuracy"] == (0, 1) and np.isnan(found["macro_f1"]).all()


GOLD = [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]]
SAID = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 1, 1, 0]]


def test_several_labels_by_hand() -> None:
    """Label by label right 1, 2, 0, 0; answered 1, 2, 1, 0; expected 2, 2, 1, 0."""
    sums = multi_label_statistics(GOLD, SAID).sum(0)
    counts = counts_of_sums(sums)
    assert counts.right.tolist() == [1, 2, 0, 0]
    assert counts.answered.tolist() == [1, 2, 1, 0] and counts.expected.tolist() == [2, 2, 1, 0]
    figures = multi_label_figures(sums)
    assert figures["micro_f1"] == pytest.approx(2 * 3 / (4 + 5))
    assert figures["macro_f1"] == pytest.approx((2 / 3 + 1 + 0 + 0) / 4)
    assert figures["samples_f1"] == pytest.approx((2 / 3 + 1 + 0 + 2 / 4) / 4)
    assert figures["subset_accuracy"] == 2 / 4


def test_several_labels_have_intervals() -> None:
    generator = np.random.default_rng(2)
    gold = generator.random((200, 4)) < 0.4
    said = gold ^ (generator.random((200, 4)) < 0.1)
    statistics = multi_label_statistics(gold, said)
    values = multi_label_figures(statistics.sum(0))
    found = multi_label_intervals(statistics, draws=300)
    assert set(found) == set(MULTI_LABEL_FIGURES)
    for name, (low, high) in found.items():
        assert low < values[name] < high and high - low < 0.2
    assert found["subset_accuracy"] == wilson_interval(int((gold == said).all(1).sum()), 200)
    with pytest.raises(ValueError, match="both must be"):
        multi_label_statistics(gold, said[:, :2])


def test_a_rare_label_does_not_pull_the_interval_down() -> None:
    """Each label once, all but one right: a draw misses about four of ten, which says nothing about them."""
    gold = np.eye(10, dtype=bool)
    said = gold.copy()
    said[0, 0] = False
    low, high = multi_label_intervals(multi_label_statistics(gold, said), ["macro_f1"])["macro_f1"]
    assert low <= 0.9 <= high
    perfect = multi_label_intervals(multi_label_statistics(gold, gold))
    assert set(perfect.values()) == {wilson_interval(10, 10)}


def test_like_rows_may_be_counted() -> None:
    rows, counts = multi_label_statistics(GOLD, SAID), [30, 20, 10, 40]
    plain = multi_label_intervals(np.repeat(rows, counts, axis=0))
    for name, ends in multi_label_intervals(rows, counts=counts).items():
        assert ends == pytest.approx(plain[name], abs=0.03)


@pytest.mark.parametrize("seed", range(8))
def test_equals_scikit_learn(seed: int) -> None:
    metrics: Any = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(seed)
    labels, n = int(generator.integers(2, 9)), int(generator.integers(5, 60))
    gold = generator.integers(0, labels, n)
    said = np.where(generator.random(n) < 0.6, gold, generator.integers(0, labels, n))
    table = confusion_matrix(gold, said, labels)
    assert table.tolist() == metrics.confusion_matrix(gold, said, labels=range(labels)).tolist()
    figures = confusion_figures(table)
    assert figures["accuracy"] == pytest.approx(metrics.accuracy_score(gold, said))
    assert figures["mcc"] == pytest.approx(metrics.matthews_corrcoef(gold, said))
    for average in ("macro", "micro", "weighted"):
        expected = metrics.f1_score(gold, said, average=average, zero_division=0)
        assert figures[f"{average}_f1"] == pytest.approx(expected)
    counts = Counts.of_confusion(table)
    precision, recall, f1, support = metrics.precision_recall_fscore_support(
        gold, said, labels=range(labels), zero_division=0
    )
    assert counts.precision == pytest.approx(precision) and counts.recall == pytest.approx(recall)
    assert counts.f1 == pytest.approx(f1) and counts.expected.tolist() == support.tolist()


@pytest.mark.parametrize("seed", range(6))
def test_several_labels_equal_scikit_learn(seed: int) -> None:
    metrics: Any = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(seed)
    gold = generator.random((40, 5)) < 0.3
    said = gold ^ (generator.random((40, 5)) < 0.2)
    gold[:, 4] = said[:, 4] = False  # a label that nobody names
    gold[0] = said[0] = False  # an example without labels
    figures = multi_label_figures(multi_label_statistics(gold, said).sum(0))
    for average in ("micro", "macro", "weighted", "samples"):
        expected = metrics.f1_score(gold, said, average=average, zero_division=0)
        assert figures[f"{average}_f1"] == pytest.approx(expected)
    assert figures["subset_accuracy"] == pytest.approx(metrics.accuracy_score(gold, said))
