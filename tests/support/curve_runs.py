"""Learning curves that look like real ones, for tests of their report."""

import random

from qkv.jobs.curve import CurveFacts
from qkv.metrics.power_law import fit_power_law


def curve_facts(
    a: float = 0.94,
    b: float = 1.9,
    c: float = 0.45,
    noise: float = 0.006,
    sizes: tuple[int, ...] = (30, 60, 120, 240, 480),
) -> CurveFacts:
    draw = random.Random(0)
    points = tuple((n, tuple(a - b * n**-c + draw.gauss(0, noise) for _ in range(4))) for n in sizes)
    fit = fit_power_law([(n, score) for n, scores in points for score in scores])
    return CurveFacts(
        "classify",
        "single",
        "all-MiniLM-L6-v2",
        "full",
        "accuracy",
        sizes[-1],
        240,
        points,
        fit,
        ("always '退款'", 0.118),
        318.0,
        config='task = "classify"\ndraws = 4\n',
    )


CURVES = {
    "rising": curve_facts(),
    "flat": curve_facts(b=0.0),
    "noisy": curve_facts(noise=0.05),
    "few": curve_facts(sizes=(100, 200)),
    "saturated": curve_facts(a=0.93, b=6.0, c=1.1, noise=0.002),
}
