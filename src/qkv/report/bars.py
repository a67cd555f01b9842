"""Tables with bars next to their numbers, and intervals.

The first column names the row. A long table shows its first rows and folds the others; no script is needed to unfold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from qkv.report.bilingual import Phrase, Words, safe, spans


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
