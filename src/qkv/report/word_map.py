"""Words on a plane, as a section of a page: each word stands at its place, in the order of how frequent it is.

A word whose letters would lie on those of a more frequent one is drawn as a dot, which says its name when it is pointed
at. Like every picture here it is inline SVG and needs no script. Plain data in: somebody else found the places.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple
from unicodedata import east_asian_width

from qkv.report.bilingual import Phrase, Words, safe, spans

WIDTH, HEIGHT = 1104, 640
MARGIN_X, MARGIN_Y = 48, 20
LINE, LETTER = 15.0, 7.2  # height of a word and width of a letter, at the size of letters that the page gives it


class Placed(NamedTuple):
    word: str
    x: float
    y: float


class _Box(NamedTuple):
    left: float
    right: float
    top: float
    bottom: float

    def meets(self, other: "_Box") -> bool:
        beside = self.right < other.left or other.right < self.left
        return not (beside or self.bottom < other.top or other.bottom < self.top)


@dataclass(frozen=True)
class WordMap:
    title: Words
    words: tuple[Placed, ...]  # the most frequent first
    note: Words = ""
    style: ClassVar[str] = ".chart .map circle { cursor: help } .chart .map text { stroke-width: 3px }"
    narrow: ClassVar[bool] = False

    def html(self) -> str:
        known = [one for one in self.words if math.isfinite(one.x) and math.isfinite(one.y)]
        if not known:
            nothing = spans(Phrase("There is nothing to draw.", "没有可画的东西。"))
            return f'<p class="empty">{nothing}</p>'
        note = f'<p class="note">{spans(self.note)}</p>' if self.note else ""
        parts = list(_drawn(known))
        letters = [part for part in parts if part.startswith("<text")]  # over the dots, whatever came first
        dots = [part for part in parts if not part.startswith("<text")]
        return (
            '<figure class="chart wide map"><div class="plot">'
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(dots + letters)}</svg></div>{note}</figure>'
        )


def _drawn(words: Sequence[Placed]) -> Iterator[str]:
    across = _scale([one.x for one in words], MARGIN_X, WIDTH - MARGIN_X)
    up = _scale([one.y for one in words], HEIGHT - MARGIN_Y, MARGIN_Y)
    taken: list[_Box] = []
    for one, x, y in zip(words, across, up, strict=True):
        half = LETTER * cells(one.word) / 2 + 2
        box = _Box(x - half, x + half, y - LINE / 2, y + LINE / 2)
        if any(box.meets(other) for other in taken):
            name = f"<title>{safe(one.word)}</title>"
            yield f'<circle class="dot train faint" cx="{x:.1f}" cy="{y:.1f}" r="3">{name}</circle>'
            continue
        taken.append(box)
        yield f'<text class="level" x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{safe(one.word)}</text>'


def _scale(values: Sequence[float], begin: float, end: float) -> list[float]:
    """Values on the picture; the same for all if they are."""
    low, high = min(values), max(values)
    if not high > low:
        return [(begin + end) / 2] * len(values)
    return [begin + (value - low) / (high - low) * (end - begin) for value in values]


def cells(word: str) -> float:
    """
    >>> cells("cat"), cells("猫")
    (3.0, 1.8)
    """
    return float(round(sum(1.8 if east_asian_width(letter) in "WF" else 1.0 for letter in word), 1))
