"""Every remark on both sides of its line, with the figures in its words, in both languages."""

import math
import random

import pytest

from qkv.report import remarks
from qkv.report.remarks import GOOD, NOTE, WARNING, Remark


def check(remark: Remark | None, level: str, *figures: str) -> Remark:
    """It speaks, on this level, and both languages name the figures."""
    assert remark is not None
    assert remark.level == level, remark.text.en
    for figure in figures:
        assert figure in remark.text.en and figure in remark.text.zh, (figure, remark.text)
    assert not any("\u4e00" <= character <= "\u9fff" for character in remark.text.en)
    return remark


@pytest.mark.parametrize(
    ("loss", "level", "words"),
    [
        (7.0, WARNING, "equally likely"),  # ln 1000 = 6.91
        (6.0, WARNING, "only how frequent"),
        (5.0, WARNING, "only how frequent"),  # exactly the entropy is not below it
        (4.99, NOTE, "can be copied"),
        (4.0, NOTE, "can be copied"),  # 0.8 × 5
        (3.99, GOOD, "uses context"),
    ],
)
def test_loss_and_frequencies(loss: float, level: str, words: str) -> None:
    remark = check(remarks.loss_and_frequencies(loss, 1000, 5.0), level, f"{loss:.2f}", "6.91")
    assert words in remark.text.en
    if level != WARNING or loss < 6.9:
        assert "5.00" in remark.text.en and "5.00" in remark.text.zh


def test_how_much_better_than_frequencies() -> None:
    remark = check(remarks.loss_and_frequencies(5 - math.log(40), 1000, 5.0), GOOD, "40")
    assert "40 times the probability" in remark.text.en and "40 倍" in remark.text.zh


def test_loss_where_little_is_known() -> None:
    check(remarks.loss_and_frequencies(3.0, 1000, None), NOTE, "3.00", "6.91")
    check(remarks.loss_and_frequencies(3.0, 1000, math.nan), NOTE, "6.91")
    assert remarks.loss_and_frequencies(None, 1000, 5.0) is None
    assert remarks.loss_and_frequencies(math.nan, 1000, 5.0) is None


def test_the_share_of_masks_moves_the_line() -> None:
    check(remarks.loss_and_frequencies(4.5, 1000, 5.0, masked_share=1.0), GOOD)
    check(remarks.loss_and_frequencies(4.5, 1000, 5.0, masked_share=0.8), NOTE, "0.8 × 5.00 = 4.00")


def test_next_sentence_against_chance() -> None:
    # 100 pairs: the interval of 60 is 50.2 to 69.1 %, that of 59 is 49.2 to 68.1 %
    check(remarks.next_sentence_accuracy(60, 100), GOOD, "60.0", "50.2", "69.1", "100")
    check(remarks.next_sentence_accuracy(59, 100), WARNING, "59.0", "49.2", "68.1")
    assert "includes 50" in check(remarks.next_sentence_accuracy(41, 100), WARNING).text.en
    assert "below" in check(remarks.next_sentence_accuracy(40, 100), WARNING).text.en
    check(remarks.next_sentence_accuracy(5_500, 10_000), GOOD, "10,000")
    assert remarks.next_sentence_accuracy(None, None) is None and remarks.next_sentence_accuracy(0, 0) is None


def steady(n: int = 60, level: float = 2.0) -> list[tuple[float, float]]:
    return [(10.0 * step, level) for step in range(1, n + 1)]


def test_gradient_spikes() -> None:
    norms = steady()
    norms[30] = (310.0, 10.0)
    assert remarks.gradient_spikes(norms) is None, "five times is not over five times"
    norms[30] = (310.0, 10.1)
    assert "1 gradient spike over" in check(remarks.gradient_spikes(norms), NOTE, "310", "×5.0").text.en
    for place in (35, 40, 45, 50, 55):
        norms[place] = (norms[place][0], 40.0 + place)
    remark = check(remarks.gradient_spikes(norms), WARNING, "510", "×45.0")
    assert "6 gradient spikes" in remark.text.en and "and 1 more" in remark.text.en
    assert "310" not in remark.text.en, "the smallest is the one that is only counted"


def test_spikes_are_judged_by_what_came_before() -> None:
    falling = [(float(step), 50.0 if step < 3 else 2.0) for step in range(60)]
    assert remarks.find_spikes(falling) == [], "a run begins with large gradients"
    higher = steady(60) + [(601.0 + step, 30.0) for step in range(60)]
    found = remarks.find_spikes(higher)
    assert found[0][0] == 601.0 and len(found) < 30, "a new level is no endless row of spikes"
    gaps = [(step, math.nan if step == 50 else norm) for step, norm in steady()]
    assert remarks.find_spikes(gaps) == []
    assert remarks.gradient_spikes([]) is None


def test_vocabulary_unseen() -> None:
    assert remarks.vocabulary_unseen(990, 1000) is None
    check(remarks.vocabulary_unseen(989, 1000), NOTE, "1.1", "11", "1,000")
    check(remarks.vocabulary_unseen(800, 1000), NOTE, "20.0")
    assert "learned from this text" in check(remarks.vocabulary_unseen(799, 1000), WARNING, "20.1").text.en
    assert remarks.vocabulary_unseen(None, 1000) is None


def test_slope_by_hand() -> None:
    assert remarks.slope([(float(x), 3.0 - 0.5 * x) for x in range(8)]) == pytest.approx((-0.5, 0.0), abs=1e-12)
    assert remarks.slope([(float(x), 1.0) for x in range(7)]) is None
    assert remarks.slope([(1.0, float(y)) for y in range(8)]) is None
    zigzag = remarks.slope([(float(x), float(x % 2)) for x in range(8)])
    # Σ(x−3.5)(y−0.5) = 2, Σ(x−3.5)² = 42; what is left over is 2 − 4/42
    assert zigzag == pytest.approx((2 / 42, math.sqrt((2 - 4 / 42) / 6 / 42)))


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [(-0.2, NOTE, "still falling"), (-0.005, NOTE, "flat"), (0.0, NOTE, "flat"), (0.2, WARNING, "rising")],
)
def test_trend(change: float, level: str, words: str) -> None:
    """`change` is what the last fifth does."""
    draw = random.Random(0)
    losses = [(float(step), 5.0) for step in range(1, 401)]
    losses += [(400.0 + step, 5.0 + change * step / 100 + draw.gauss(0, 0.01)) for step in range(1, 101)]
    remark = check(remarks.trend(losses), level, "401–500")
    assert words in remark.text.en


def test_trend_needs_certainty_and_points() -> None:
    draw = random.Random(1)
    noisy = [(float(step), 5.0 - 0.0005 * step + draw.gauss(0, 0.5)) for step in range(100)]
    remark = check(remarks.trend(noisy), NOTE)
    assert "flat" in remark.text.en and "±" in remark.text.en
    assert remarks.trend(noisy[:39]) is None
    assert remarks.trend([]) is None
    assert remarks.trend([(step, math.nan) for step, _ in noisy]) is None


def test_waiting_for_batches() -> None:
    assert remarks.waiting_for_batches(0.05) is None
    check(remarks.waiting_for_batches(0.051), WARNING, "5.1")
    assert remarks.waiting_for_batches(None) is None and remarks.waiting_for_batches(math.nan) is None


def test_training_and_evaluation() -> None:
    check(remarks.training_and_evaluation(4.0, 4.19), GOOD, "4.19", "4.00")
    assert "overfits" in check(remarks.training_and_evaluation(4.0, 4.21), WARNING, "0.21").text.en
    check(remarks.training_and_evaluation(4.0, 3.81), GOOD)
    check(remarks.training_and_evaluation(4.0, 3.79), NOTE, "0.21")
    assert remarks.training_and_evaluation(None, 4.0) is None
    assert remarks.training_and_evaluation(4.0, math.nan) is None


def test_best_evaluation() -> None:
    assert remarks.best_evaluation([(500.0, 4.0), (1000.0, 3.9), (1500.0, 3.94)]) is None
    check(remarks.best_evaluation([(500.0, 4.0), (1000.0, 3.9), (1500.0, 3.96)]), WARNING, "1,000", "3.90", "3.96")
    assert remarks.best_evaluation([(500.0, math.nan)]) is None and remarks.best_evaluation([]) is None
