"""Curves whose law is known, and points that do not determine one."""

import json

import numpy as np
import pytest

from qkv.jobs.curve import NO_FIT_REASONS
from qkv.metrics.power_law import PowerLaw, _student, fit_power_law

SIZES = (100, 200, 400, 800, 1600)


def points(
    law: PowerLaw, sizes: tuple[int, ...] = SIZES, draws: int = 1, noise: float = 0, seed: int = 0
) -> list[tuple[float, float]]:
    generator = np.random.default_rng(seed)
    return [(n, law(n) + noise * float(generator.normal())) for n in sizes for _ in range(draws)]


@pytest.mark.parametrize("law", [PowerLaw(0.93, 1.7, 0.42), PowerLaw(0.8, 30, 1.1), PowerLaw(1.0, 0.9, 0.1)])
def test_an_exact_law_is_found(law: PowerLaw) -> None:
    found = fit_power_law(points(law))
    assert found.law is not None and found.reason == ""
    assert (found.law.a, found.law.b, found.law.c) == pytest.approx((law.a, law.b, law.c), rel=1e-4)
    for factor, prediction in zip((2, 4, 10), found.predictions, strict=True):
        assert prediction.n == factor * 1600 and prediction.score == pytest.approx(law(factor * 1600))
        assert prediction.low <= prediction.score <= prediction.high < prediction.low + 1e-3


def test_sizes_may_be_few_or_millions() -> None:
    small = fit_power_law(points(PowerLaw(0.9, 2, 0.5), (8, 16, 32, 64), 3, 0.002))
    large = fit_power_law(
        points(PowerLaw(0.9, 2 * 1000, 0.5), (8 * 10**6, 16 * 10**6, 32 * 10**6, 64 * 10**6), 3, 0.002)
    )
    assert small.law is not None and large.law is not None
    for here, there in zip(small.predictions, large.predictions, strict=True):
        assert here[1:] == pytest.approx(there[1:]) and here.n * 10**6 == there.n


def test_intervals_hold_the_truth() -> None:
    """60 times three draws of four sizes: nine times of ten or more the interval holds the true score."""
    for law in (PowerLaw(0.92, 2, 0.5), PowerLaw(0.95, 0.8, 0.15)):
        held = total = 0
        for seed in range(60):
            for prediction in fit_power_law(points(law, (200, 400, 800, 1600), 3, 0.01, seed), widest=1).predictions:
                held += prediction.low <= law(prediction.n) <= prediction.high
                total += 1
        assert total > 120 and held / total >= 0.9


def test_nothing_is_promised_above_the_ceiling() -> None:
    found = fit_power_law(points(PowerLaw(1.0, 0.9, 0.1), SIZES, 4, 0.01, 2))
    assert found.law is not None and found.law.a <= 1
    assert all(prediction.high <= 1 for prediction in found.predictions)
    rising = fit_power_law([(n, 0.2 * np.log10(n)) for n in SIZES for _ in range(2)], ceiling=0.7)
    assert rising.law is None or rising.law.a <= 0.7


def test_too_few() -> None:
    assert fit_power_law([]).reason == "few_sizes"
    assert fit_power_law([(100, 0.7), (100, 0.72), (200, 0.8), (200, 0.79)]).reason == "few_sizes"
    assert fit_power_law([(100, 0.7), (200, 0.75), (400, 0.78)]).reason == "few_points"


def test_flat_within_noise() -> None:
    taken = [fit_power_law(points(PowerLaw(0.8, 0, 1), SIZES, 3, 0.01, seed)).reason for seed in range(40)]
    assert taken.count("flat") >= 36
    assert fit_power_law([(n, 0.8) for n in SIZES]).reason == "flat"
    falling = fit_power_law([(n, 0.9 - 0.05 * np.log10(n)) for n in SIZES])
    assert falling.law is None and falling.reason == "flat"


def test_wide() -> None:
    """Four single points that jump: nothing is left to tell noise from bend."""
    found = fit_power_law([(100, 0.5), (200, 0.85), (400, 0.88), (800, 0.885)])
    assert (found.law, found.predictions, found.reason) == (None, (), "wide")


def test_far_predictions_are_left_out_first() -> None:
    near = fit_power_law(points(PowerLaw(0.95, 0.8, 0.15), (50, 100, 200, 400), 4, 0.01), widest=0.06)
    assert near.law is not None and 1 <= len(near.predictions) < 3


def test_more_draws_narrow_it() -> None:
    law = PowerLaw(0.92, 2, 0.5)
    few, many = (fit_power_law(points(law, (200, 400, 800, 1600), n, 0.01), widest=1).predictions for n in (3, 30))
    assert (many[0].high - many[0].low) * 2 < few[0].high - few[0].low


def test_nonsense_is_refused() -> None:
    for bad in ((0, 0.5), (-1, 0.5), (10, float("nan"))):
        with pytest.raises(ValueError, match="sizes above 0"):
            fit_power_law([bad, (20, 0.5), (40, 0.6)])


def test_it_is_written_as_json() -> None:
    for found in (fit_power_law(points(PowerLaw(0.9, 2, 0.5))), fit_power_law([])):
        written = json.loads(json.dumps(found.to_dict()))
        assert written["reason"] == found.reason and len(written["predictions"]) == len(found.predictions)
        assert found.reason == "" or found.reason in NO_FIT_REASONS


def test_student_equals_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for freedom in range(1, 200):
        assert _student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=0.006)
