"""The two pictures of calibration."""

from dataclasses import replace

from qkv.jobs.finetune.facts import draw_reliability
from qkv.report.bilingual import phrase
from qkv.report.plane import Dots, Rule
from tests.support.finetune_runs import calibration_facts
from tests.unit.report.test_run_page import checked

FACTS = calibration_facts()


def test_before_and_after_stand_in_one_diagram() -> None:
    diagram, coverage = draw_reliability(FACTS).planes
    dots = [layer for layer in diagram.layers if isinstance(layer, Dots)]
    assert [layer.points[0] for layer in dots] == [FACTS.before[0][:2], FACTS.after[0][:2]]
    assert dots[0].weights == tuple(float(n) for _, _, n in FACTS.before)
    assert "1.62" in phrase(diagram.note).zh
    assert coverage.y.low is not None and coverage.y.low < 0.92
    assert any(isinstance(layer, Rule) and layer.y == 0.95 for layer in coverage.layers)
    checked(draw_reliability(FACTS).html())


def test_the_kept_threshold_is_marked_where_it_lies() -> None:
    (kept,) = (one for one in draw_reliability(FACTS).planes[1].layers if isinstance(one, Dots))
    assert kept.points[0][0] == 0.82 and kept.labels == (("p ≥ 0.71", "p ≥ 0.71"),)
    without = draw_reliability(replace(FACTS, abstain_below=None, answered=None)).planes[1]
    assert not any(isinstance(one, Dots) for one in without.layers)


def test_without_a_coverage_curve() -> None:
    assert len(draw_reliability(replace(FACTS, coverage=())).planes) == 1
    assert replace(FACTS, before=()).answers == 0
