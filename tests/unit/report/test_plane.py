"""Planes: points lie where they should on both kinds of axis, and what is no number is left out."""

import json
import math
import re
from html import unescape
from xml.etree import ElementTree

import pytest

from qkv.report.bilingual import Phrase
from qkv.report.plane import FAINT, PLANE_SIZES, Axis, Band, Dots, Line, Plane, Planes, Rule, _render_plane
from tests.unit.report.test_charts import of_class
from tests.unit.report.test_run_page import NASTY, checked


def picture(plane: Plane) -> ElementTree.Element:
    found = re.search(r"<svg.*</svg>", _render_plane(plane), re.DOTALL)
    assert found
    return ElementTree.fromstring(found[0])


def places(root: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(one.get("cx", 0)), float(one.get("cy", 0))) for one in of_class(root, "dot")]


def plane(*layers: Dots | Line | Band | Rule, log: bool = False) -> Plane:
    return Plane(Phrase("Title", "题"), Axis("x", log=log), Axis("y"), layers)


def test_equal_factors_are_equal_steps() -> None:
    straight = places(picture(plane(Dots("d", ((10, 1), (20, 2), (30, 3))))))
    assert straight[1] == pytest.approx([(a + b) / 2 for a, b in zip(straight[0], straight[2], strict=True)], abs=0.1)
    (x0, _), (x1, _), (x2, _) = places(picture(plane(Dots("d", ((10, 1), (100, 2), (1000, 3))), log=True)))
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1)
    width, height = PLANE_SIZES["half"]
    assert all(0 < x < width and 0 < y < height for x, y in straight)


def test_what_is_no_number_is_left_out() -> None:
    points = ((1.0, 1.0), (math.nan, 2.0), (3.0, math.inf), (0.0, 1.0))
    assert len(places(picture(plane(Dots("d", points))))) == 2
    assert len(places(picture(plane(Dots("d", points), log=True)))) == 1, "zero has no place on a logarithmic axis"
    for empty in ((), ((math.nan, 1.0),)):
        text = _render_plane(plane(Dots("d", empty), Rule("r", y=0.5)))
        assert "no data to draw" in text and "<svg" not in text


def test_layers_are_drawn() -> None:
    root = picture(
        plane(
            Band("b", ((1, 0.2, 0.4), (2, 0.3, math.nan), (3, 0.3, 0.6))),
            Line("l", ((1, 0.3), (3, 0.5)), dashed=True),
            Dots("d", ((2, 0.4),), "good", (5.0,), ((0.3, 0.5),), labels=(Phrase("here", "此处"),)),
            Rule("all", x=2),
            Rule("goal", y=0.95),
            Rule("even"),
        )
    )
    (band,) = of_class(root, "band")
    assert band.get("d", "").count("L") == 3, "the gap is bridged"
    assert len(of_class(root, "line", "dashed")) == 1 and len(of_class(root, "interval")) == 1
    names = {one.text for one in of_class(root, "level", "zh")}
    assert names == {"此处", "all", "goal"}, "the diagonal's name stands in the legend"
    assert len([one for one in of_class(root, "level") if one.tag == "path"]) == 3


def test_a_line_of_one_point_is_a_dot() -> None:
    assert len(places(picture(plane(Line("l", ((1, 1.0),)))))) == 1


def test_many_dots_are_faint_and_not_read_out() -> None:
    many = plane(Dots("d", tuple((float(x), float(x)) for x in range(FAINT))))
    assert "dot train faint" in _render_plane(many)
    found = re.search(r'data-chart="([^"]*)"', _render_plane(many))
    assert found and json.loads(unescape(found[1]))["series"] == []


def test_points_can_be_read_out_by_the_name_of_x() -> None:
    line = Line(Phrase("right", "对"), ((0.5, 0.9), (math.nan, 1.0)), more=(" (p ≥ 0.7)", " never"))
    drawn = Plane("t", Axis(Phrase("answered", "作答"), "percent"), Axis("y", "percent"), (line,))
    found = re.search(r'data-chart="([^"]*)"', _render_plane(drawn))
    assert found
    data = json.loads(unescape(found[1]))
    assert data["x"] == {"en": "answered", "zh": "作答"}
    assert [point[2:] for point in data["series"][0]["points"]] == [["50.0\u00a0%", "90.0\u00a0% (p ≥ 0.7)"]]


def test_a_plane_without_a_neighbour_takes_the_width() -> None:
    one = plane(Dots("d", ((1, 1.0),)))
    assert Planes("t", (one,)).html().count("chart wide") == 1 and "chart wide" not in Planes("t", (one, one)).html()


def test_text_stays_text() -> None:
    drawn = Plane(
        NASTY, Axis(NASTY), Axis(NASTY), (Dots(NASTY, ((1, 1.0),), labels=(NASTY,)), Rule(NASTY, x=1)), note=NASTY
    )
    assert "script" not in checked(Planes(NASTY, (drawn,)).html()).shown
