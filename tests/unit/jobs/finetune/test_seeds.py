"""Seeds: mean and deviation by hand, the kept one, and scores that are no numbers."""

import math
import re
from dataclasses import replace

import pytest

from qkv.jobs.finetune.facts import Seeds, choose_best_seed, measure_spread
from qkv.tasks.table import find_metric
from tests.support.finetune_runs import SEEDS
from tests.unit.report.test_run_page import checked


def test_mean_and_deviation() -> None:
    found = measure_spread([replace(SEEDS[0], score=score) for score in (0.8, 0.9, 1.0)])
    assert found and found.mean == pytest.approx(0.9) and found.deviation == pytest.approx(0.1)
    assert measure_spread(()) is None and measure_spread([replace(SEEDS[0], score=math.nan)]) is None


def test_the_best_is_kept_and_the_first_of_equals() -> None:
    assert choose_best_seed(SEEDS) == SEEDS[1] and choose_best_seed(()) is None
    assert choose_best_seed([replace(seed, score=0.5) for seed in SEEDS]) == replace(SEEDS[0], score=0.5)
    assert choose_best_seed([replace(SEEDS[0], score=math.nan), SEEDS[2]]) == SEEDS[2]


def test_drawn() -> None:
    text = Seeds("t", SEEDS, find_metric("accuracy")).html()
    checked(text)
    assert "87.6 ± 0.9\u00a0%" in text and "1 (kept)" in text and "1（保留）" in text
    dots = [float(place) for place in re.findall(r'<i class="[a-z]*" style="left:([\d.]+)%', text)]
    assert len(dots) == 3 and dots[1] == max(dots) and all(0 < place < 100 for place in dots)


def test_equal_and_missing_scores() -> None:
    checked(Seeds("t", tuple(replace(seed, score=0.5) for seed in SEEDS), find_metric("pearson")).html())
    text = Seeds("t", (SEEDS[0], replace(SEEDS[1], score=math.nan)), find_metric("accuracy")).html()
    assert "ruler" not in text and "–" in text, "one score has no spread"
