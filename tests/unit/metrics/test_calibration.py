"""Temperatures whose best is known beforehand, and thresholds counted by hand."""

import math

import numpy as np
import pytest

from qkv.metrics.calibration import (
    abstain_threshold,
    best_threshold_f1,
    chance_calibration_error,
    coverage_curve,
    expected_calibration_error,
    fit_temperature,
    folds,
    reliability_bins,
)
from qkv.metrics.intervals import FloatArray


def two_way(margins: FloatArray) -> FloatArray:
    """−log of the right one of two answers, whose score is `margins` above the other's."""
    return np.asarray(np.logaddexp(0, -margins))


@pytest.mark.parametrize("right", [0.6, 0.8, 0.95])
@pytest.mark.parametrize("score", [0.8, 3.0, 12.0])
def test_the_best_is_found(score: float, right: float) -> None:
    """All margins ±s, a share p right: the model should say p, so that T = s / ln(p / (1 − p))."""
    margins = np.where(np.arange(2000) < 2000 * right, score, -score)
    best = score / math.log(right / (1 - right))
    fitted = fit_temperature(lambda temperature: two_way(margins / temperature))
    assert fitted.temperature == pytest.approx(min(best, 20), rel=0.02)


def test_softmax_of_known_heat() -> None:
    """Answers drawn from softmax(scores), then scores tripled: 3 mends them."""
    generator = np.random.default_rng(0)
    scores = generator.normal(0, 2, (4000, 5))
    gold = (scores + generator.gumbel(size=scores.shape)).argmax(1)

    def losses(temperature: float) -> FloatArray:
        hot = 3 * scores / temperature
        return np.asarray(np.log(np.exp(hot - hot.max(1, keepdims=True)).sum(1)) + hot.max(1) - hot[range(4000), gold])

    fitted = fit_temperature(losses)
    assert fitted.temperature == pytest.approx(3, rel=0.05)
    fold = folds(4000, 5)
    others = fit_temperature(lambda temperature: losses(temperature)[fold != 2]).temperature
    assert fitted.best(fold != 2) == pytest.approx(others) and others == pytest.approx(3, rel=0.08)


def test_the_error_of_chance() -> None:
    """Confidences that are right as often as they say exceed it in about one of twenty draws."""
    draw = np.random.default_rng(4)
    exceeded = []
    for _ in range(300):
        sure = draw.uniform(0.5, 1.0, 60)
        right = draw.random(60) < sure
        bins = reliability_bins(sure, right)
        exceeded.append(expected_calibration_error(sure, right) > chance_calibration_error(bins))
    assert 0.01 < np.mean(exceeded) < 0.1


def test_a_subset_has_its_own() -> None:
    margins = np.concatenate([np.where(np.arange(400) < 320, 2.0, -2.0), np.where(np.arange(400) < 320, 8.0, -8.0)])
    fitted = fit_temperature(lambda temperature: two_way(margins / temperature))
    cold, hot = fitted.best(np.arange(800) < 400), fitted.best(np.arange(800) >= 400)
    assert hot == pytest.approx(4 * cold, rel=0.02)
    assert cold < fitted.temperature < hot


def test_what_nothing_decides_stays_at_1() -> None:
    assert fit_temperature(lambda temperature: np.zeros(10)).temperature == pytest.approx(1)
    assert fit_temperature(lambda temperature: np.zeros(0)).temperature == pytest.approx(1)
    assert fit_temperature(lambda temperature: np.full(5, np.inf)).temperature == pytest.approx(1)


def test_all_right_does_not_make_it_certain() -> None:
    """Without the one example that prefers 1 the lowest temperature would win, and every answer say 1.000."""
    fitted = fit_temperature(lambda temperature: two_way(np.full(30, 2.0) / temperature))
    assert 0.3 < fitted.temperature < 0.9


def test_an_impossible_answer_and_an_overflow() -> None:
    margins = np.where(np.arange(100) < 80, 3.0, -3.0)

    def losses(temperature: float) -> FloatArray:
        found = two_way(margins / temperature)
        found[0] = np.inf  # no probability at any temperature
        if temperature < 0.1:
            found[1] = np.inf
        return found

    assert fit_temperature(losses).temperature == pytest.approx(3 / math.log(79 / 20), rel=0.03)


def test_a_task_without_probabilities() -> None:
    with pytest.raises(ValueError, match="no probabilities"):
        fit_temperature(lambda temperature: None)


def test_folds_are_even() -> None:
    found = folds(103, 5, seed=1)
    assert sorted(np.bincount(found)) == [20, 20, 21, 21, 21]
    assert (found != folds(103, 5, seed=2)).any() and (found == folds(103, 5, seed=1)).all()
    assert folds(3, 5).max() == 2 and not len(folds(0, 5))


def test_bins() -> None:
    """Of two bins (0, 0.5] and (0.5, 1]: confidences 0 and 0.5 in the first."""
    found = reliability_bins([0.0, 0.5, 0.51, 1.0], [True, False, True, True], bins=2)
    assert found == ((0.25, 0.5, 2), (0.755, 1.0, 2))
    assert expected_calibration_error([0.0, 0.5, 0.51, 1.0], [True, False, True, True], bins=2) == pytest.approx(0.2475)
    assert reliability_bins([], []) == () and math.isnan(expected_calibration_error([], []))


def test_a_calibrated_model_has_little_error() -> None:
    generator = np.random.default_rng(0)
    confidence = generator.random(20_000)
    assert expected_calibration_error(confidence, generator.random(20_000) < confidence) < 0.015
    assert expected_calibration_error(confidence, generator.random(20_000) < confidence**2) > 0.1


def test_coverage_is_thinned_and_keeps_its_ends() -> None:
    generator = np.random.default_rng(0)
    confidence = generator.random(5000)
    curve = coverage_curve(confidence, generator.random(5000) < confidence)
    assert len(curve) == 200
    assert curve[0][:2] == (confidence.min(), 1.0) and curve[-1][:2] == (confidence.max(), 1 / 5000)
    shares = [share for _, share, _ in curve]
    assert shares == sorted(shares, reverse=True)
    for threshold, share, _ in curve[::20]:
        assert share == pytest.approx((confidence >= threshold).mean())
    assert coverage_curve([], []) == ()


def test_abstaining_by_hand() -> None:
    """The surest 80 all right, then 20 wrong at 0.6, then 100 right at 0.5: all together 180 of 200."""
    confidence = np.concatenate([np.linspace(0.7, 0.99, 80), np.full(20, 0.6), np.full(100, 0.5)])
    right = np.arange(200) // 20 != 4
    assert abstain_threshold(confidence, right, 0.9) == 0  # nothing to hold back
    assert abstain_threshold(confidence, right, 0.95) == 0.7
    assert abstain_threshold(confidence, right, 0.8) == 0
    assert abstain_threshold(confidence, ~right, 0.95) is None


def test_abstaining_rests_on_enough_answers() -> None:
    """Forty-nine sure and right answers are too few to promise by; one more is enough."""
    for sure, expected in ((49, None), (50, 0.9)):
        confidence = np.concatenate([np.full(sure, 0.9), np.full(60, 0.5)])
        right = np.arange(sure + 60) < sure
        assert abstain_threshold(confidence, right, 0.95) == expected


def test_a_target_reached_exactly_is_reached() -> None:
    for target, n in ((0.95, 60), (0.7, 60), (0.9, 50), (0.99, 100)):
        right = np.arange(n) < round(target * n)
        assert abstain_threshold(np.full(n, 0.8), right, target) == 0


def test_thresholds_by_label() -> None:
    probabilities = np.array([[0.9, 0.4, 0.9, 0.2], [0.6, 0.35, 0.8, 0.1], [0.4, 0.3, 0.7, 0.3], [0.1, 0.1, 0.6, 0.4]])
    gold = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    # parted by 0.5; by 0.325, half way from 0.3 to 0.35; by 0.85; nobody has the last
    assert best_threshold_f1(probabilities, gold) == pytest.approx([0.5, 0.325, 0.85, 0.5])
    with pytest.raises(ValueError, match="both must be"):
        best_threshold_f1(probabilities, gold[:, :2])


def test_no_threshold_does_better() -> None:
    generator = np.random.default_rng(4)
    probabilities = generator.random((60, 5))
    gold = generator.random((60, 5)) < probabilities**2

    def f1(threshold: float, label: int) -> float:
        said = probabilities[:, label] >= threshold
        return float(2 * (said & gold[:, label]).sum() / (said.sum() + gold[:, label].sum()))

    for label, threshold in enumerate(best_threshold_f1(probabilities, gold)):
        assert f1(threshold, label) == max(f1(each, label) for each in np.linspace(0, 1, 2001))


def test_lengths_and_nan_are_checked() -> None:
    with pytest.raises(ValueError, match="equal length"):
        reliability_bins([0.5], [True, False])
    with pytest.raises(ValueError, match="NaN"):
        coverage_curve([math.nan], [True])
