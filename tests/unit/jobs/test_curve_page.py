"""The page of a learning curve: what more labels would bring, or that nobody can tell."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from qkv.jobs.curve import (
    NO_FIT_REASONS,
    CurveFacts,
    curve_page,
    mean_score,
    remark_more_labels,
    remark_rising,
    remark_spread,
)
from qkv.metrics.power_law import CurveFit, PowerLaw, Prediction
from qkv.report.bilingual import phrase
from qkv.report.page import render_page
from qkv.report.plane import Band, Dots, Line, Planes, Rule
from qkv.report.remarks import GOOD, NOTE, WARNING
from tests.support.curve_runs import CURVES
from tests.unit.report.test_remarks import check
from tests.unit.report.test_run_page import NASTY, checked

RISING = CURVES["rising"]


def predicted(low: float, score: float, high: float) -> CurveFacts:
    fit = CurveFit(PowerLaw(0.9, 1.0, 0.5), (Prediction(800, score, low, high),))
    return replace(RISING, points=((200, (0.75, 0.77)), (400, (0.79, 0.81))), fit=fit)


@pytest.mark.parametrize("name", CURVES)
def test_every_curve_is_whole_html(name: str) -> None:
    text = render_page(curve_page(Path("curve"), CURVES[name]), "zh")
    found = checked(text)
    assert found.shown.count("svg") == 1 and not re.search(r"src=|href=|https?:", text)
    assert "nan" not in " ".join(found.texts[:-1]).split()


@pytest.mark.parametrize(
    ("low", "high", "level", "words"),
    [(0.81, 0.85, GOOD, "More labels help"), (0.809, 0.85, NOTE, "may help"), (0.795, 0.805, NOTE, "hardly help")],
)
def test_verdict(low: float, high: float, level: str, words: str) -> None:
    found = check(remark_more_labels(predicted(low, (low + high) / 2, high)), level, "80.0", f"{100 * low:.1f}", "400")
    assert words in found.text.en


@pytest.mark.parametrize("reason", NO_FIT_REASONS)
def test_it_says_that_it_cannot_say(reason: str) -> None:
    found = check(
        remark_more_labels(replace(RISING, fit=CurveFit(None, (), reason))), NOTE if reason == "flat" else WARNING
    )
    assert NO_FIT_REASONS[reason].en in found.text.en and NO_FIT_REASONS[reason].zh in found.text.zh


def test_what_was_measured() -> None:
    check(remark_rising(predicted(0.8, 0.8, 0.8)), NOTE, "200", "400", "4.0")
    assert remark_rising(replace(RISING, points=RISING.points[:1])) is None
    check(remark_spread(predicted(0.8, 0.8, 0.8)), NOTE, "1.4", "200", "400")
    assert remark_spread(replace(RISING, points=((10, (0.5,)), (20, (0.6,))))) is None


def test_the_picture() -> None:
    page = curve_page(Path("curve"), RISING)
    (section,) = (one for one in page.sections if isinstance(one, Planes))
    (plane,) = section.planes
    assert plane.x.log and len(page.figures) == 4
    kinds = [type(layer) for layer in plane.layers]
    assert kinds == [Band, Line, Rule, Dots, Dots, Dots], "the baseline lies too far down to be drawn"
    assert "960" in phrase(page.figures[1].label).zh
    (few,) = (one for one in curve_page(Path("c"), CURVES["few"]).sections if isinstance(one, Planes))
    assert [type(layer) for layer in few.planes[0].layers] == [Rule, Dots, Dots]


def test_nothing_measured() -> None:
    for points in ((), ((10, (math.nan,)),)):
        facts = replace(RISING, points=points, fit=CurveFit(None, (), "few_sizes"), config="")
        page = curve_page(Path("curve"), facts)
        assert page.figures == () and page.sections == ()
        checked(render_page(page))
    assert math.isnan(mean_score(())) and mean_score((0.5, math.nan)) == 0.5


def test_text_stays_text() -> None:
    facts = replace(RISING, model=NASTY, main=NASTY, task=NASTY, notes=(NASTY,), config=NASTY, baseline=(NASTY, 0.5))
    assert checked(render_page(curve_page(Path("curve"), facts))).shown.count("script") == 1
