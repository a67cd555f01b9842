"""A translation as a picture for a paper: the alignment of its words with the words of the text.

`draw_alignment(found)` returns one self-contained SVG in the style of `attention_picture`, without script, font file or
network access; it follows the reader's light or dark setting. On the left lines connect the words of the translation
with those of the text, thicker for larger weights. On the right are the same weights as a heat map: a row for each word
of the translation, a column for each word of the text, and a grey one for the end token. The links of text/alignment.py
are highlighted in both.
"""

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from qkv.errors import InputError, did_you_mean
from qkv.report.attention import FAINTEST, LONGEST_SIDE, curve, heat_cells, label_at, style
from qkv.report.charts import printable, shorten, text_width
from qkv.text.alignment import Alignment, WordAttention, WordSpan, align

_HEADING = 11.5
"""Size of the words over both texts."""

TEXTS = {
    "en": {
        "title": "Alignment",
        "left": "translation",
        "right": "text",
        "end": "end of text",
        "note": "Every row adds up to 100 %. Lines below {faintest:.0%} are not drawn. Outlined: the links.",
        "link": "{target} ← {source} {weight:.0%}",
        "between": " · ",
    },
    "zh": {
        "title": "对齐",
        "left": "译文",
        "right": "原文",
        "end": "原文结束",
        "note": "每一行之和为 100%。低于 {faintest:.0%} 的连线不画。有框的是对齐的词。",
        "link": "{target} ← {source} {weight:.0%}",
        "between": "，",
    },
}


def draw_alignment(found: WordAttention, lang: str = "en") -> str:
    """Draw a translation and its links."""
    if lang not in TEXTS:
        raise InputError(f"Unknown language '{lang}'.{did_you_mean(lang, TEXTS)} Known: {', '.join(TEXTS)}.")
    if not found.weights.size:
        raise InputError("There is nothing to align: the text or its translation has no words.")
    if (most := max(found.weights.shape)) > LONGEST_SIDE:
        raise InputError(
            f"A picture holds up to {LONGEST_SIDE} words and there are {most}. Translate sentence by sentence."
        )
    return _Picture(found, align(found), TEXTS[lang]).draw()


class _Picture:
    """Measures and parts of one drawing; every part returns SVG text."""

    def __init__(self, found: WordAttention, links: Sequence[Alignment], words: dict[str, str]) -> None:
        self.found, self.links, self.words = found, links, words
        self.row = max(13.0, min(34.0, 900 / max(found.weights.shape)))
        self.size = min(16.0, 3.2 + 0.42 * self.row)
        self.left = [self._label_of(found.target, span) for span in found.target_words]
        self.right = [self._label_of(found.source, span) for span in found.source_words]
        self.columns = list(self.right)
        self.weights: NDArray[np.float64] = found.weights
        if found.rest.max() >= 0.005:  # would show as 1 %
            self.columns.append(words["end"])
            self.weights = np.concatenate([found.weights, found.rest[:, None]], axis=1)
        headings = (text_width(words[side], _HEADING) for side in ("left", "right"))
        self.left_width = max(next(headings), *(text_width(label, self.size) for label in self.left))
        right_width = max(next(headings), *(text_width(label, self.size) for label in self.right))
        # from left to right: margin, translation, lines, text, labels of the rows, heat map
        self.pad = self.size * 0.55
        self.x0 = 32 + self.left_width + self.pad
        self.x1 = self.x0 + max(130.0, min(240.0, 6 * self.row))
        self.x2 = self.x1 + self.pad + right_width + 48 + self.left_width
        slant = max(0.72 * text_width(label, self.size) for label in self.columns) + self.size
        self.top = 92 + max(slant, 30.0)
        last = self.row * len(self.columns) + 0.72 * text_width(self.columns[-1], self.size)
        self.width = self.x2 + max(last, self.row * len(self.columns)) + 40
        self.height = self.top + self.row * max(len(self.left), len(self.right)) + 58

    def _label_of(self, text: str, span: WordSpan) -> str:
        return shorten(printable(text[slice(*span)]), self.size, 9.0 * self.size)

    def draw(self) -> str:
        words = self.words
        found = words["between"].join(self._describe(link) for link in self.links)
        needed = text_width(found, 15)  # with a margin for bold letters
        width = round(max(self.width, 480, min(needed + 64, 900)))
        height = round(self.height)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" class="qkv-attention" role="img">',
            f"<title>{escape(words['title'] + ': ' + found)}</title>",
            f"<style>{style()}</style>",
            f'<rect class="paper" width="{width}" height="{height}"/>',
            f'<text x="32" y="46" class="ink" font-size="22" font-weight="650">{escape(words["title"])}</text>',
            f'<text x="32" y="70" class="hottext" font-size="14" font-weight="600">'
            f"{escape(shorten(found, 15, width - 64))}</text>",
            f'<g transform="translate(0 {self.top:.1f})" font-size="{self.size:.1f}">',
            self._sentences(),
            f'<g transform="translate({self.x2:.1f} 0)">',
            self._heat_map(),
            "</g>",
            "</g>",
            f'<text x="32" y="{height - 22}" class="faint" font-size="11.5">'
            f"{escape(words['note'].format(faintest=FAINTEST))}</text>",
            "</svg>",
            "",
        ]
        return "\n".join(parts)

    def _describe(self, link: Alignment) -> str:
        source, target = self.found.source[slice(*link.source)], self.found.target[slice(*link.target)]
        return self.words["link"].format(source=printable(source), target=printable(target), weight=link.weight)

    def _middle(self, number: int) -> float:
        return (number + 0.5) * self.row

    def _cells(self) -> list[tuple[list[int], list[int]]]:
        """Rows and columns of each link."""
        return [
            (
                [n for n, word in enumerate(self.found.target_words) if _meet(word, link.target)],
                [n for n, word in enumerate(self.found.source_words) if _meet(word, link.source)],
            )
            for link in self.links
        ]

    def _sentences(self) -> str:
        """Draw the words of both texts and the lines between them, those of links on top."""
        linked = {(i, j) for rows, columns in self._cells() for i in rows for j in columns}
        quiet: list[str] = []
        hot: list[str] = []
        for i, j in np.argwhere(self.found.weights >= FAINTEST).tolist():
            weight = float(self.found.weights[i, j])
            line = curve(self.x0, self._middle(i), self.x1, self._middle(j))
            thick = (0.6 + 4.4 * weight) * self.row / 34
            path = f'<path d="{line}" stroke-width="{thick:.2f}" opacity="{0.25 + 0.75 * weight:.2f}"/>'
            (hot if (i, j) in linked else quiet).append(path)
        headings = (
            f'<text x="{self.x0 - self.pad:.1f}" y="-12" text-anchor="end" class="faint" font-size="{_HEADING}">'
            f"{escape(self.words['left'])}</text>"
            f'<text x="{self.x1 + self.pad:.1f}" y="-12" class="faint" font-size="{_HEADING}">'
            f"{escape(self.words['right'])}</text>"
        )
        labels = [_label(self.x0 - self.pad, self._middle(i), label, "end") for i, label in enumerate(self.left)]
        labels += [_label(self.x1 + self.pad, self._middle(j), label) for j, label in enumerate(self.right)]
        return (
            headings
            + f'<g fill="none" class="line">{"".join(quiet)}</g><g fill="none" class="hot">{"".join(hot)}</g>'
            + "".join(labels)
        )

    def _heat_map(self) -> str:
        """Draw the heat map: target words as rows, source words as columns."""
        row, real = self.row, len(self.right)
        wide, high = row * len(self.columns), row * len(self.left)
        parts = [f'<rect class="track" width="{wide:.1f}" height="{high:.1f}"/>']
        rows, columns = (list(map(self._middle, range(size))) for size in self.weights.shape)
        parts += heat_cells(self.weights, rows, columns, row, [j >= real for j in range(len(columns))])
        for high_of, wide_of in self._cells():
            if high_of and wide_of:
                parts.append(
                    f'<rect class="hot" fill="none" stroke-width="2" x="{row * wide_of[0] - 0.5:.1f}" '
                    f'y="{row * high_of[0] - 0.5:.1f}" width="{row * (wide_of[-1] - wide_of[0] + 1):.1f}" '
                    f'height="{row * (high_of[-1] - high_of[0] + 1):.1f}" rx="3"/>'
                )
        parts += [_label(-8, self._middle(i), label, "end") for i, label in enumerate(self.left)]
        for j, label in enumerate(self.columns):
            slanted = f"translate({self._middle(j) + self.size * 0.3:.1f} -8) rotate(-45)"
            look = "ink" if j < real else "faint"
            parts.append(f'<text transform="{slanted}" class="{look}">{escape(label)}</text>')
        return "".join(parts)


def _label(x: float, y: float, label: str, at: str = "start") -> str:
    return label_at(x, y, label, f'text-anchor="{at}" class="ink"')


def _meet(word: WordSpan, link: WordSpan) -> bool:
    return word.start < link.end and link.start < word.end
