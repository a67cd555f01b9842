"""report.html: one offline file after every run, with the same template for every job.

A job composes a `RunPage` from plain data: headline figures, and sections that render themselves. The sections here
serve any job (charts, tables, remarks, samples, settings, notes); a job with another picture adds a small class with
`title`, `style`, `narrow` and `html`. Both languages are in the file, which opens in that of the browser and remembers
another choice; the switch needs no script. Nothing is fetched, and user text is escaped.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import ClassVar, Protocol

from qkv.files import write_text
from qkv.report.bilingual import Phrase, Words, check_page_language, percent, safe, spans
from qkv.report.charts import Chart, render_chart
from qkv.report.remarks import Remark


@dataclass(frozen=True)
class Notes:
    """A list of sentences."""

    title: Words
    notes: tuple[Words, ...]
    style: ClassVar[str] = (
        ".plain-notes { margin: 0; padding: 12px 24px 12px 40px; background: var(--paper); border-radius: 14px; "
        "box-shadow: var(--shadow); overflow-wrap: anywhere }"
    )
    narrow: ClassVar[bool] = False

    def html(self) -> str:
        items = "".join(f"<li>{spans(note)}</li>" for note in self.notes)
        return f'<ul class="plain-notes">{items}</ul>'


@dataclass(frozen=True)
class Commands:
    """Commands to go on with, each with what it does."""

    title: Words
    commands: tuple[tuple[str, Words], ...]
    style: ClassVar[str] = (
        ".commands { margin: 0; padding: 14px 24px; background: var(--paper); border-radius: 14px; "
        "box-shadow: var(--shadow); overflow-wrap: anywhere } .commands dd { margin: 0 0 10px; color: var(--soft) } "
        ".commands dd:last-child { margin-bottom: 0 }"
    )
    narrow: ClassVar[bool] = False

    def html(self) -> str:
        items = "".join(
            f"<dt><code>{safe(command)}</code></dt><dd>{spans(words)}</dd>" for command, words in self.commands
        )
        return f'<dl class="commands">{items}</dl>'


@dataclass(frozen=True)
class Gauge:
    """The position of a value between two ends, with its interval and values to compare with, on one scale."""

    low: float
    high: float
    value: float
    interval: tuple[float, float] | None = None
    marks: tuple[tuple[float, Words], ...] = ()


@dataclass(frozen=True)
class Figure:
    """A headline figure: label, value, and one line of explanation."""

    label: Words
    value: Words
    note: Words = ""
    gauge: Gauge | None = None


class Section(Protocol):
    """Part of a page."""

    @property
    def title(self) -> Words: ...
    @property
    def style(self) -> str: ...  # additional CSS
    @property
    def narrow(self) -> bool: ...  # fits half a page: narrow neighbours are placed side by side
    def html(self) -> str: ...


@dataclass(frozen=True)
class RunPage:
    title: str
    kind: Phrase
    facts: tuple[Words, ...] = ()  # one line under the title
    notices: tuple[Words, ...] = ()  # problems with the run or its files
    figures: tuple[Figure, ...] = ()
    sections: tuple[Section, ...] = ()


@dataclass(frozen=True)
class Charts:
    title: Words
    charts: tuple[Chart, ...]
    style: ClassVar[str] = ""
    narrow: ClassVar[bool] = False

    def html(self) -> str:
        charts = list(self.charts)
        if sum(chart.shape == "half" for chart in charts) % 2 and charts[-1].shape == "half":
            charts[-1] = replace(charts[-1], shape="strip")  # instead of an empty half
        return f'<div class="charts">{"".join(map(render_chart, charts, map(_name, charts)))}</div>'


def _name(chart: Chart) -> str:
    """Return an id that is unique on a page."""
    english = chart.title.en if isinstance(chart.title, Phrase) else chart.title
    return re.sub(r"[^a-z0-9]+", "-", english.lower()).strip("-")


@dataclass(frozen=True)
class Table:
    """A table of facts; the first column names the row."""

    title: Words
    rows: tuple[tuple[Words, ...], ...]
    style: ClassVar[str] = ""
    narrow: ClassVar[bool] = True

    def html(self) -> str:
        body = "".join(
            f'<tr><th scope="row">{spans(name)}</th>{"".join(f"<td>{spans(cell)}</td>" for cell in cells)}</tr>'
            for name, *cells in self.rows
        )
        return f"<table><tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class Remarks:
    title: Words
    remarks: tuple[Remark, ...]
    style: ClassVar[str] = ""
    narrow: ClassVar[bool] = False

    def html(self) -> str:
        if not self.remarks:
            nothing = Phrase("Too little was logged for remarks.", "记录太少，无法给出评语。")
            return f'<p class="empty">{spans(nothing)}</p>'
        names = {
            "good": Phrase("good", "良好"),
            "note": Phrase("note", "提示"),
            "warning": Phrase("warning", "警告"),
            "failure": Phrase("failed", "失败"),
        }
        items = "".join(
            f'<li class="{remark.level}"><b>{spans(names[remark.level])}</b><span>{spans(remark.text)}</span></li>'
            for remark in self.remarks
        )
        return f'<ul class="remarks">{items}</ul>'


@dataclass(frozen=True)
class Answers:
    """The answers at one step: candidates with their probabilities, best first."""

    when: Words
    candidates: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Sample:
    text: str
    expected: str | None
    answers: tuple[Answers, ...]


@dataclass(frozen=True)
class Samples:
    """One question per row, with the answers of successive evaluations from left to right."""

    title: Words
    samples: tuple[Sample, ...]
    note: Words = ""
    style: ClassVar[str] = ""
    narrow: ClassVar[bool] = False

    def html(self) -> str:
        cards = "".join(map(self._card, self.samples))
        note = f'<p class="note">{spans(self.note)}</p>' if self.note else ""
        return f'<div class="samples">{cards}</div>{note}'

    def _card(self, sample: Sample) -> str:
        text = safe(sample.text).replace("[MASK]", '<span class="blank">[MASK]</span>')
        expected = ""
        if sample.expected is not None:
            name = spans(Phrase("expected", "答案"))
            expected = f'<span class="expected">{name} <b>{safe(sample.expected)}</b></span>'
        columns = "".join(
            f'<div class="answers"><h4>{spans(answers.when)}</h4><ol>{self._candidates(sample, answers)}</ol></div>'
            for answers in sample.answers
        )
        question = f'<p class="question">{text}{expected}</p>'
        return f'<article class="sample">{question}<div class="times">{columns}</div></article>'

    @staticmethod
    def _candidates(sample: Sample, answers: Answers) -> str:
        return "".join(
            f"<li{' class=right' if token == sample.expected else ''}>"
            f'<span class="token">{safe(token)}</span><span class="bar"><i style="width:{100 * share:.1f}%"></i></span>'
            f'<span class="share">{percent(share, 0)}</span></li>'
            for token, share in answers.candidates
        )


@dataclass(frozen=True)
class Settings:
    """The resolved config, as in the file."""

    title: Words
    text: str
    style: ClassVar[str] = ""
    narrow: ClassVar[bool] = False

    def html(self) -> str:
        tables = re.split(r"\n(?=\[)", self.text.strip())
        return f'<div class="settings">{"".join(f"<pre>{safe(table.strip())}</pre>" for table in tables)}</div>'


def write_report(run: Path, page: RunPage) -> Path:
    """Write `report.html` into the run's folder, atomically."""
    target = run / "report.html"
    write_text(target, render_page(page))
    return target


def render_page(page: RunPage, lang: str = "en") -> str:
    """The page as HTML; `lang` is the language shown first."""
    check_page_language(lang)
    return _fill_template(
        page.title, _header(page), "".join(_body(page)), {section.style for section in page.sections}, lang
    )


def _fill_template(title: str, header: str, body: str, styles: set[str], lang: str) -> str:
    """Fill the template in one pass, so that no text can be mistaken for a placeholder."""
    places = {
        "LANG": lang,
        "TITLE": safe(title),
        "STYLE": "\n".join(sorted(styles - {""})),
        "EN_CHECKED": " checked" if lang == "en" else "",
        "ZH_CHECKED": " checked" if lang == "zh" else "",
        "HEADER": header,
        "BODY": body,
    }
    template = resources.files("qkv.report").joinpath("run_page.html").read_text(encoding="utf-8")
    return re.sub("__([A-Z_]+)__", lambda found: places[found[1]], template)


def _header(page: RunPage) -> str:
    facts = "".join(f"<li>{spans(fact)}</li>" for fact in page.facts)
    return (
        f'<p class="kind">{spans(page.kind)}</p><h1>{safe(page.title)}</h1>'
        f"{f'<ul class=facts>{facts}</ul>' if facts else ''}"
    )


def _body(page: RunPage) -> Iterator[str]:
    if page.notices:
        notices = "".join(f"<li>{spans(notice)}</li>" for notice in page.notices)
        yield f'<ul class="notices" role="note">{notices}</ul>'
    if page.figures:
        yield f'<div class="figures">{"".join(map(_figure, page.figures))}</div>'
    for narrow, group in groupby(page.sections, key=lambda section: section.narrow):
        drawn = "".join(f"<section><h2>{spans(one.title)}</h2>{one.html()}</section>" for one in group)
        yield f'<div class="columns">{drawn}</div>' if narrow else drawn


def _figure(one: Figure) -> str:
    note = f'<p class="note">{spans(one.note)}</p>' if one.note else ""
    gauge = _gauge(one.gauge) if one.gauge else ""
    return (
        f'<div class="figure"><p class="label">{spans(one.label)}</p><p class="value">{spans(one.value)}</p>'
        f"{gauge}{note}</div>"
    )


def _gauge(gauge: Gauge) -> str:
    """Render a ruler: a track, the interval, the value, and labelled marks."""

    def place(value: float) -> float:
        return 100 * min(1.0, max(0.0, (value - gauge.low) / ((gauge.high - gauge.low) or 1.0)))

    parts, row, lowest, after = [], 0, 0, 200.0
    if gauge.interval:
        low, high = map(place, gauge.interval)
        parts.append(f'<i class="interval" style="left:{low:.2f}%;width:{high - low:.2f}%"></i>')
    for value, name in sorted(gauge.marks, key=lambda mark: -mark[0]):
        at = place(value)
        # labels stay inside the ruler, and move down a line if the next one is too close
        side = "start" if at < 12 else "end" if at > 55 else "middle"
        row = row + 1 if after - at < 38 else 0
        name_style = f' style="top:{14 + 14 * row}px"' if row else ""
        parts.append(f'<i class="mark {side}" style="left:{at:.2f}%"><em{name_style}>{spans(name)}</em></i>')
        lowest, after = max(lowest, row), at
    parts.append(f'<i class="value" style="left:{place(gauge.value):.2f}%"></i>')
    room = f' style="margin-bottom:{24 + 14 * lowest}px"' if gauge.marks else ""
    return f'<div class="gauge"{room} aria-hidden="true">{"".join(parts)}</div>'
