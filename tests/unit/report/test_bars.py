"""Tables with bars: a bar is as long as its share, numbers that are none have no bar, long tables fold."""

import math
import re

from qkv.report.bilingual import Phrase
from qkv.report.tables import Bar, BarTable, Label, render_bar_table
from tests.unit.report.test_run_page import NASTY, checked


def test_a_bar_is_as_long_as_its_share() -> None:
    text = render_bar_table(
        ("a", "b"), [(Label("x"), Bar(0.25, "25", interval=(0.2, 0.5), mark=0.4)), ("y", Bar(7.0, "7"))]
    )
    assert re.findall(r'<i style="width:([\d.]+)%', text) == ["25.0", "100.0"]
    assert 'left:20.0%;width:30.0%"' in text and '<s style="left:40.0%"' in text


def test_what_is_no_number_has_no_bar() -> None:
    text = render_bar_table(
        ("a", "b"), [("x", Bar(math.nan, "–", interval=(0.1, 0.2))), ("y", Bar(0.5, "", interval=(math.nan, 1)))]
    )
    assert text.count("<i ") == 1 and "<u " not in text and "–" in text


def test_columns_are_set_by_what_they_hold() -> None:
    text = render_bar_table(("a", "b", "c", "d"), [("x", Label("l"), Bar(0.1, "1"), "12")])
    assert re.findall(r'<th scope="col" class="(\w+)"', text) == ["label", "label", "bar", "number"]


def test_a_long_table_folds_and_a_short_one_does_not() -> None:
    rows = tuple((str(row), "1") for row in range(60))
    text = BarTable("t", ("a", "b"), rows, shown=20).html()
    checked(text)
    assert text.count("<tr>") == 62 and "40 more" in text and "其余 40 行" in text
    assert "<details" not in BarTable("t", ("a", "b"), rows[:25], shown=20).html()
    assert "<table" in render_bar_table(("a",), []), "no rows"


def test_text_stays_text() -> None:
    text = BarTable("t", (NASTY,), ((Label(NASTY),), (Phrase(NASTY, "x"),), (Bar(0.5, NASTY),)), note=NASTY).html()
    assert "script" not in checked(text).shown
