"""The template of every report: one file, two languages, nothing fetched, text that stays text."""

import os
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import ClassVar

import pytest

from qkv.errors import InputError
from qkv.models.bert.page import pretraining_page
from qkv.report.bilingual import Phrase
from qkv.report.charts import Chart, Series
from qkv.report.page import (
    Answers,
    Charts,
    Figure,
    Gauge,
    Remarks,
    RunPage,
    Sample,
    Samples,
    Settings,
    Table,
    render_page,
    write_report,
)
from qkv.report.remarks import GOOD, NOTE, WARNING, Remark
from qkv.report.tables import BarTable
from tests.support.runs import FACTS, make_run

NASTY = "</section><script>alert(1)</script><!-- __BODY__ \"'& \x00\ud800 汉字"
VOID = {"meta", "input", "br", "path", "circle"}


class Checker(HTMLParser):
    """Every element that is opened is closed, in order; ids are unique."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.shown: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attributes if name == "id"]
        self.shown.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.shown.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def checked(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == [] and len(set(checker.ids)) == len(checker.ids)
    return checker


def full(text: str) -> RunPage:
    """A page with every kind of section, and this text in every place that takes one."""
    chart = Chart(text, (Series(text, ((1, 1.0), (2, 2.0))),))
    return RunPage(
        text,
        Phrase("Report", "报告"),
        facts=(text,),
        notices=(text,),
        figures=(Figure(text, text, text, Gauge(0, 1, 0.4, (0.2, 0.9), ((0.5, text),))),),
        sections=(
            Remarks(text, tuple(Remark(level, Phrase(text, text)) for level in (GOOD, NOTE, WARNING))),
            Charts(text, (chart,)),
            Table(text, ((text, text),)),
            Samples(text, (Sample(text, text, (Answers(text, ((text, 0.5),)),)),), note=text),
            Settings(text, f'[train]\nname = "{text}"'),
        ),
    )


def test_a_real_run_is_whole_html(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    target = write_report(run, pretraining_page(run, FACTS))
    assert target == run / "report.html" and sorted(os.listdir(run))[-2:] == ["report.html", "timing.jsonl"]
    page = target.read_text(encoding="utf-8")
    found = checked(page)
    assert found.shown.count("svg") == 6 and '<html lang="en">' in page
    assert "The <b>animal</b> crossed the " in found.texts and "<i>" in found.texts, "HTML in samples stays text"


def test_nothing_is_fetched(tmp_path: Path) -> None:
    page = render_page(pretraining_page(make_run(tmp_path / "run"), FACTS))
    assert not re.search(r"src=|href=|@import|url\(|fetch\(|XMLHttpRequest|import\(|https?:", page)
    assert "default-src 'none'" in page


def test_text_stays_text_everywhere() -> None:
    page = render_page(full(NASTY))
    found = checked(page)
    assert found.shown.count("script") == 1, "the page's own"
    assert page.count("__BODY__") >= 15 and "<!-- __BODY__" not in page
    page.encode("utf-8")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_both_languages_and_one_shown(lang: str) -> None:
    page = render_page(full("x"), lang)
    assert f'<html lang="{lang}">' in page
    (shown,) = re.findall(r'<input [^>]*id="lang-(\w\w)"[^>]* checked>', page)
    assert shown == lang
    assert page.count('class="en"') == page.count('class="zh"') > 5
    assert "#lang-en:checked ~ * .zh" in page, "the switch is CSS and needs no script"


def test_unknown_language() -> None:
    with pytest.raises(InputError, match="Unknown language"):
        render_page(full("x"), "de")


def test_a_chart_without_a_neighbour_takes_the_width() -> None:
    half = Chart("a", (Series("a", ((1, 1.0),)),))
    for charts, wide in (((half,), 1), ((half, half), 0), ((half, half, half), 1)):
        assert Charts("t", charts).html().count('class="chart wide"') == wide


def test_facts_stand_side_by_side_and_tables_do_not() -> None:
    facts, wide = Table("a", (("x", "y"),)), BarTable("b", ("x",), (("y",),))
    page = render_page(RunPage("x", Phrase("Report", "报告"), sections=(facts, facts, wide)))
    columns = page.partition('<div class="columns">')[2].partition("<thead>")[0]
    assert page.count('<div class="columns">') == 1 and columns.count("<table>") == 2 and "<thead>" in page


@dataclass(frozen=True)
class Own:
    """What another job may add."""

    title: str = "own"
    style: ClassVar[str] = ".own { color: red }"
    narrow: ClassVar[bool] = False

    def html(self) -> str:
        return '<p class="own">drawn</p>'


def test_a_section_of_another_job_brings_its_style_once() -> None:
    page = render_page(RunPage("t", Phrase("k", "k"), sections=(Own(), Own())))
    assert page.count(Own.style) == 1 and page.count("drawn") == 2


def test_gauge_marks_make_room() -> None:
    gauge = Gauge(0, 10, 20, None, ((9.5, "right"), (0, "left"), (5, "near"), (7, "next")))
    page = render_page(RunPage("t", Phrase("k", "k"), figures=(Figure("f", "1", "", gauge),)))
    found = re.findall(r'class="mark (\w+)"[^>]*><em(?: style="top:(\d+)px")?>(\w+)', page)
    assert {name: (side, top) for side, top, name in found} == {
        "right": ("end", ""),
        "next": ("end", "28"),
        "near": ("middle", "42"),
        "left": ("start", ""),
    }
    assert "left:100.00%" in page, "a value beyond the end stays on the ruler"


def test_an_empty_page_and_few_remarks() -> None:
    checked(render_page(RunPage("空", Phrase("Report", "报告"))))
    assert "Too little was logged" in Remarks("t", ()).html()


def test_written_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(InputError, match="report.html"):
        write_report(tmp_path, full("x"))
    assert os.listdir(tmp_path) == ["report.html"]
