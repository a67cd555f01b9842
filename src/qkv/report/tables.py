"""Tables with bars next to their numbers, and intervals; and the confusion matrix.

The first column names the row. A long table shows its first rows and folds the others; no script is needed to unfold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from qkv.report.bilingual import Phrase, Words, percent, safe, spans
from qkv.report.charts import printable, shorten, svg_text, text_width


@dataclass(frozen=True)
class Bar:
    share: float  # of the bar's full width; NaN has no bar
    text: Words
    role: str = "train"  # which colour: "train", "evaluation", "good", "hot" or "faint"
    interval: tuple[float, float] | None = None
    mark: float | None = None  # a value to compare with


@dataclass(frozen=True)
class Label:
    """A user's word; truncated at the column width, with the full text as a tooltip."""

    text: str


TableCell = Words | Bar | Label


@dataclass(frozen=True)
class BarTable:
    title: Words
    headings: tuple[Words, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    note: Words = ""
    shown: int = 20  # rows before the others are folded
    narrow: bool = False
    style: ClassVar[str] = ""

    def html(self) -> str:
        return render_bar_table(self.headings, self.rows, self.shown) + (
            f'<p class="note">{spans(self.note)}</p>' if self.note else ""
        )


def render_bar_table(headings: Sequence[Words], rows: Sequence[Sequence[TableCell]], shown: int = 20) -> str:
    """Return the table alone, for sections with more content."""
    # do not fold fewer than six rows
    cut = len(rows) if len(rows) <= shown + 5 else shown
    kinds = [_kind(column, rows) for column in range(len(headings))]
    head = "".join(
        f'<th scope="col" class="{kind}">{spans(heading)}</th>' for kind, heading in zip(kinds, headings, strict=True)
    )
    columns = f"<thead><tr>{head}</tr></thead>"
    text = f'<div class="scroll"><table class="bars">{columns}<tbody>{"".join(map(_row, rows[:cut]))}</tbody></table>'
    left = len(rows) - cut
    if left:
        more = Phrase(f"{left:,} more", f"其余 {left:,} 行")
        text += (
            f'<details class="more"><summary>{spans(more)}</summary><table class="bars">{columns}'
            f"<tbody>{''.join(map(_row, rows[cut:]))}</tbody></table></details>"
        )
    return text + "</div>"


def _kind(column: int, rows: Sequence[Sequence[TableCell]]) -> str:
    """Return the alignment class of a column: words left, numbers right."""
    cell = next((row[column] for row in rows), "")
    if not column or isinstance(cell, Label):
        return "label"
    return "bar" if any(isinstance(row[column], Bar) for row in rows) else "number"


def _row(row: Sequence[TableCell]) -> str:
    first, *cells = row
    return f'<tr><th scope="row">{_content(first)}</th>{"".join(map(_cell, cells))}</tr>'


def _cell(cell: TableCell) -> str:
    kind = "bar" if isinstance(cell, Bar) else "label" if isinstance(cell, Label) else "number"
    return f'<td class="{kind}">{_content(cell)}</td>'


def _content(cell: TableCell) -> str:
    if isinstance(cell, Label):
        return f'<span class="cut" title="{safe(cell.text)}">{safe(cell.text)}</span>'
    if not isinstance(cell, Bar):
        return spans(cell)
    if not math.isfinite(cell.share):
        return f'<span class="figure-bar"><span></span><span>{spans(cell.text)}</span></span>'
    parts = f'<i style="width:{_place(cell.share):.1f}%"></i>'
    if cell.interval and all(map(math.isfinite, cell.interval)):
        low, high = map(_place, cell.interval)
        parts += f'<u style="left:{low:.1f}%;width:{max(0.0, high - low):.1f}%"></u>'
    if cell.mark is not None and math.isfinite(cell.mark):
        parts += f'<s style="left:{_place(cell.mark):.1f}%"></s>'
    track = f'<span class="track {cell.role}" aria-hidden="true">{parts}</span>'
    return f'<span class="figure-bar">{track}<span>{spans(cell.text)}</span></span>'


def _place(share: float) -> float:
    return 100 * min(1.0, max(0.0, share))


# --- Confusion matrix as a heat map, and a table of the largest confusions.
#
# The colour of a cell is its share of the texts with the expected label; the diagonal is right. With more labels than
# `MOST_LABELS` only the table is shown.

MOST_LABELS = 30
"""Maximum number of labels of a map."""
_SIZE = 12.5  # font size of labels
ROOM = 150.0  # maximum width of a label
_TURN = math.radians(40)  # rotation of the column labels


@dataclass(frozen=True)
class Confused:
    expected: str
    answered: str
    n: int
    of: int  # texts with the expected label


def largest_confusions(counts: NDArray[np.int64], labels: tuple[str, ...], most: int = 10) -> tuple[Confused, ...]:
    """Return the largest confusions, most frequent first, then by share; single ones only if there are few others."""
    totals = counts.sum(axis=1)
    found = [
        Confused(labels[row], labels[column], int(counts[row, column]), int(totals[row]))
        for row, column in np.argwhere(counts > 0).tolist()
        if row != column
    ]
    ordered = sorted(found, key=lambda one: (-one.n, -one.n / one.of, one.expected, one.answered))[:most]
    again = [one for one in ordered if one.n > 1]
    return tuple(again if len(again) >= 6 else ordered[:6])


_LARGE = 420  # pixels of a confusion matrix that is rather scrolled than shrunk further


@dataclass(frozen=True)
class Confusion:
    title: Words
    counts: NDArray[np.int64]  # (L, L) rows expected, columns answered
    labels: tuple[str, ...]
    narrow: bool = False

    @property
    def style(self) -> str:
        return resources.files("qkv.report").joinpath("confusion.css").read_text(encoding="utf-8")

    def html(self) -> str:
        drawn = len(self.labels) <= MOST_LABELS
        found = largest_confusions(self.counts, self.labels, 10 if drawn else 25)
        wrong = int(self.counts.sum() - np.trace(self.counts))
        if not found:
            words = f'<p class="empty">{spans(Phrase("Nothing was confused.", "没有混淆。"))}</p>'
        else:
            rows = [
                (
                    Label(one.expected),
                    Label(one.answered),
                    Bar(
                        one.n / found[0].n,
                        Phrase(
                            f"{one.n:,} of {one.of:,} ({percent(one.n / one.of, 0)})",
                            f"{one.of:,} 条中 {one.n:,} 条（{percent(one.n / one.of, 0)}）",
                        ),
                        "hot",
                    ),
                )
                for one in found
            ]
            headings = (Phrase("expected", "应为"), Phrase("answered", "答成"), Phrase("how often", "次数"))
            words = render_bar_table(headings, rows, 25)
            named = sum(one.n for one in found)
            if named < wrong:
                rest = Phrase(
                    f"These are {named:,} of {wrong:,} wrong answers.",
                    f"以上占全部 {wrong:,} 个错误中的 {named:,} 个。",
                )
                words += f'<p class="note">{spans(rest)}</p>'
        heading = f"<h3>{spans(Phrase('Most often confused', '最常混淆的'))}</h3>"
        if not drawn:
            n = len(self.labels)
            why = Phrase(f"{n} labels are too many for a map.", f"共 {n} 个标签，画成图看不清，只列出次数。")
            return f'<div class="confused">{words}</div><p class="note">{spans(why)}</p>'
        key = Phrase(
            "A row is an expected label, a column an answer; the deeper, the larger the share of the row. "
            "Blue is right, red is wrong.",
            "每行是应有的标签，每列是模型的回答；颜色越深，占该行的比例越大。蓝色为答对，红色为答错。",
        )
        map_ = f'<div class="map">{self._svg()}<p class="note">{spans(key)}</p></div>'
        wide = " wide" if len(self.labels) > 12 else ""
        return f'<div class="confusion{wide}">{map_}<div class="confused">{heading}{words}</div></div>'

    def _svg(self) -> str:
        n = len(self.labels)
        cell = 46 if n <= 6 else 40 if n <= 12 else 32 if n <= 20 else 27
        names = [shorten(printable(label).replace("␣", " "), _SIZE, ROOM) for label in self.labels]
        widths = [text_width(name, _SIZE) for name in names]
        corner = Phrase("expected ↓  answered →", "应为 ↓  答成 →")
        # short column labels stand beside the caption, not above it
        beside = text_width(corner.en, _SIZE) if max(widths) * math.sin(_TURN) < 2 * _SIZE else 60.0
        left = max(*widths, beside) + 14
        top = max(widths) * math.sin(_TURN) + 22
        # rotated column labels may extend beyond the right edge
        over = max(width * math.cos(_TURN) - (n - place - 0.5) * cell for place, width in enumerate(widths))
        width, height = left + n * cell + max(8.0, over + 8), top + n * cell + 6
        large = ' class="large"' if width > _LARGE else ""
        parts = [
            f'<svg viewBox="0 0 {width:.0f} {height:.0f}" style="width:{width:.0f}px" role="img"{large}>',
            svg_text(corner, "corner", 'x="2" y="13"'),
        ]
        degrees = -math.degrees(_TURN)
        for place, name in enumerate(names):
            y, x = top + (place + 0.5) * cell, left + (place + 0.5) * cell
            parts.append(f'<text x="{left - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{safe(name)}</text>')
            at = f"translate({x + 3:.1f} {top - 6:.1f}) rotate({degrees:.0f})"
            parts.append(f'<text transform="{at}">{safe(name)}</text>')
        totals = self.counts.sum(axis=1)
        for row, column in np.ndindex(n, n):
            parts.append(self._cell(row, column, int(totals[row]), left + column * cell, top + row * cell, cell))
        return "".join(parts) + "</svg>"

    def _cell(self, row: int, column: int, total: int, x: float, y: float, cell: int) -> str:
        amount = int(self.counts[row, column])
        place = f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="{cell - 2}" height="{cell - 2}" rx="4"'
        if not amount:
            return f'<rect class="none" {place}/>'
        share = amount / total
        # the square root keeps one wrong answer among fifty visible
        strength = 0.12 + 0.88 * math.sqrt(share)
        kind = "right" if row == column else "wrong"
        what = f"{self.labels[row]} → {self.labels[column]}: {amount:,} / {total:,} ({percent(share)})"
        light = " on" if strength > 0.62 else ""
        small = " small" if amount >= 1000 or (amount >= 100 and cell < 30) else ""
        return (
            f'<g><title>{safe(what)}</title><rect class="{kind}" fill-opacity="{strength:.2f}" {place}/>'
            f'<text class="count{light}{small}" x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4:.1f}" '
            f'text-anchor="middle">{amount}</text></g>'
        )
