"""Attention as plain data, one byte per weight, the same for every kind of attention; and its pictures and page.

An `AttentionMap` is returned by `Model.attention` and read by every picture and page. Its JSON form (`to_dict`) is

    {
      "format": "qkv.attention.1",
      "name":   "self",                     # "self" one text, "pair" two texts in one row, "causal" to the left only,
                                            # "encoder", "decoder" of a translator, "cross" decoder to encoder
      "attn":   "AAECAw…",                  # base64 of the raw bytes, C order; weight = byte / 255
      "shape":  [layers, heads, left, right],
      "layers": [0, 1, …],  "heads": [0, 1, …],       # the model's numbers, from 0
      "left":   [{"token": "[CLS]", "text": "", "start": 0, "end": 0, "segment": 0, "special": true}, …],
      "right":  [… the same …],
      "texts":  ["The animal …"],           # the texts of start and end: one text, or a text pair
      "model":  "all-MiniLM-L6-v2",
      "n_tokens": 14, "n_windows": 1
    }

`left` are the queries, `right` the keys: attn[layer, head, i, j] is the weight of left token i on right token j, and a
row sums to 255 up to rounding. `token` is the vocabulary's spelling (##ing, [UNK]); `text` is
`texts[segment][start:end]`, characters of the user's text, empty for added special tokens. For cross attention,
segment 0 is the left side's text and segment 1 the right side's.

A weight is stored as round(255 · w), with an error of at most 1/510. That is finer than a screen can show and a
twentieth of the size of JSON numbers: 512 tokens, one layer, 12 heads are 3 MB.
"""

import base64
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from qkv.errors import InputError, did_you_mean
from qkv.files import read_object, write_text
from qkv.report.charts import format_share, printable, shorten, text_width

_FORMAT = "qkv.attention.1"


@dataclass(frozen=True)
class Token:
    """One token and the characters it came from."""

    token: str
    text: str
    start: int
    end: int
    segment: int = 0
    special: bool = False

    @property
    def label(self) -> str:
        """The label in a picture: the user's characters, with ## if the token continues a word."""
        if not self.text or self.special:
            return self.token
        return f"##{self.text}" if self.token.startswith("##") else self.text


@dataclass(frozen=True)
class AttentionMap:
    name: str
    attn: NDArray[np.uint8]  # (layers, heads, T left, T right)
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    left: tuple[Token, ...]
    right: tuple[Token, ...]
    texts: tuple[str, ...]
    model: str = ""
    n_windows: int = 1

    def __post_init__(self) -> None:
        expected = (len(self.layers), len(self.heads), len(self.left), len(self.right))
        if self.attn.shape != expected or self.attn.dtype != np.uint8:
            raise InputError(f"Attention has shape {self.attn.shape} {self.attn.dtype}; it must be {expected} uint8.")

    @property
    def n_tokens(self) -> int:
        return len(self.left)

    def weights(self, layer: int, head: int) -> NDArray[np.float32]:
        """(T left, T right) of one head, as fractions; layer and head by the model's numbers, from 0."""
        return self.bytes_of(layer, head).astype(np.float32) / np.float32(255)

    def bytes_of(self, layer: int, head: int) -> NDArray[np.uint8]:
        """(T left, T right) of one head, as stored."""
        return self.attn[_place("layer", layer, self.layers), _place("head", head, self.heads)]

    def _repr_html_(self) -> str:
        """The page with every head, in a notebook cell."""
        frame = 'style="width: 100%; height: 640px; border: 0"'
        return f'<iframe title="attention" {frame} srcdoc="{escape(attention_page(self))}"></iframe>'

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form above."""
        return {
            "format": _FORMAT,
            "name": self.name,
            "attn": base64.b64encode(np.ascontiguousarray(self.attn).tobytes()).decode("ascii"),
            "shape": list(self.attn.shape),
            "layers": list(self.layers),
            "heads": list(self.heads),
            "left": [asdict(token) for token in self.left],
            "right": [asdict(token) for token in self.right],
            "texts": list(self.texts),
            "model": self.model,
            "n_tokens": self.n_tokens,
            "n_windows": self.n_windows,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the JSON form; invalid data is an InputError."""
        if data.get("format") != _FORMAT:
            raise InputError(f"This is not an attention map: its format is {data.get('format')!r}, not {_FORMAT!r}.")
        try:
            raw = base64.b64decode(data["attn"], validate=True)
            shape = tuple(int(size) for size in data["shape"])
            if min(shape, default=0) < 0 or len(raw) != math.prod(shape):
                raise InputError(f"The attention map has {len(raw)} bytes, which does not fit the shape {shape}.")
            return cls(
                name=str(data["name"]),
                attn=np.frombuffer(raw, dtype=np.uint8).reshape(shape),
                layers=tuple(data["layers"]),
                heads=tuple(data["heads"]),
                left=tuple(Token(**token) for token in data["left"]),
                right=tuple(Token(**token) for token in data["right"]),
                texts=tuple(data["texts"]),
                model=str(data.get("model", "")),
                n_windows=int(data.get("n_windows", 1)),
            )
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"The attention map is damaged: {error!r}.") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON form to a file, atomically."""
        write_text(Path(path), json.dumps(self.to_dict(), ensure_ascii=False))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that `save` wrote."""
        return cls.from_dict(read_object(Path(os.path.expanduser(path))))


def _place(what: str, number: int, available: Sequence[int]) -> int:
    if number not in available:
        some = f"{available[0]} … {available[-1]}" if len(available) > 1 else f"{available[0]}"
        raise InputError(f"There is no {what} {number} in this attention map; it has {what} {some} (from 0).")
    return available.index(number)


# --- Attention maps as pictures: one head as an SVG for a paper, all heads as an interactive page.
#
# `draw_attention(map, layer, head)` returns one self-contained SVG without script, font file or network access; it
# follows the reader's light or dark setting. On the left lines connect every query token with the key tokens, thicker
# for larger weights, with one chosen token highlighted. On the right are the same weights as a heat map. Special tokens
# ([CLS], [SEP]) are grey; their weights have the same scale.
#
# `attention_page` returns an offline page: every layer × head is a small map, and one of them is enlarged as lines and
# as a heat map that follow the pointer, the arrow keys and the light or dark setting. The weights are in the file, one
# byte each (base64), and are drawn on canvas. The page itself is a template in this folder; user text enters it only as
# JSON.

LONGEST_SIDE = 160
"""Maximum number of tokens per side of a legible picture; the page can scroll further."""
FAINTEST = 0.02
"""Weights below this have no line (but a cell in the heat map)."""
NUMBERED = 24
"""Up to this many tokens, the stronger cells of the heat map show their number."""

_TEXTS = {
    "en": {
        "title": "Layer {layer} · Head {head}",
        "kind": {
            "self": "Attention",
            "pair": "Attention in a pair",
            "causal": "Attention to what came before",
            "cross": "Attention across",
        },
        "looks": "“{token}” looks at",
        "left": "looks",
        "right": "is looked at",
        "note": "Every row adds up to 100 %. Lines below {faintest:.0%} are not drawn. Layers and heads count from 0.",
        "comma": ", ",
    },
    "zh": {
        "title": "第 {layer} 层 · 第 {head} 头",
        "kind": {"self": "注意力", "pair": "句对的注意力", "causal": "因果注意力（只看左边）", "cross": "交叉注意力"},
        "looks": "“{token}”关注",
        "left": "关注者",
        "right": "被关注",
        "note": "每一行之和为 100%。低于 {faintest:.0%} 的连线不画。层与头都从 0 数起。",
        "comma": "、",
    },
}

FONTS = (
    '"Inter", "Helvetica Neue", "Segoe UI", Roboto, Arial, "PingFang SC", "Hiragino Sans GB", '
    '"Microsoft YaHei", "Noto Sans CJK SC", "Noto Sans SC", sans-serif'
)
_COLOURS = {  # by class: what is coloured, on a light ground, on a dark one
    "paper": ("fill", "#ffffff", "#12151c"),
    "ink": ("fill", "#1c2330", "#e8ebf2"),
    "soft": ("fill", "#667085", "#9aa4b8"),
    "faint": ("fill", "#98a2b3", "#717c92"),
    "line": ("stroke", "#7d89a1", "#8f9bb3"),
    "hot": ("stroke", "#d6451b", "#ff8a5c"),
    "hotfill": ("fill", "#d6451b", "#ff7a47"),
    "hottext": ("fill", "#b83611", "#ff9b73"),
    "onhot": ("fill", "#ffffff", "#12151c"),
    "track": ("fill", "#f5f7fa", "#1a1e27"),
    "cell": ("fill", "#27408b", "#8fb0ff"),
    "dull": ("fill", "#667085", "#9aa4b8"),
    "oncell": ("fill", "#ffffff", "#12151c"),
}


def style() -> str:
    """Return the style sheet; every rule is scoped to the picture, since a page may contain it inline."""
    light = [f".qkv-attention .{name} {{ {what}: {day} }}" for name, (what, day, _) in _COLOURS.items()]
    dark = [f".qkv-attention .{name} {{ {what}: {night} }}" for name, (what, _, night) in _COLOURS.items()]
    fonts = f".qkv-attention text {{ font-family: {FONTS} }}"
    return "\n".join([fonts, *light, "@media (prefers-color-scheme: dark) {", *dark, "}"])


def draw_attention(
    attention: AttentionMap, layer: int, head: int, token: str | int | None = None, lang: str = "en"
) -> str:
    """Draw one layer and head (the model's numbers, from 0), with the lines of one token on top.

    `token` is a word of the text or the number of a token; None chooses the word that looks hardest at another word.
    """
    words = caption_texts(lang)
    most = max(len(attention.left), len(attention.right))
    if most > LONGEST_SIDE:
        raise InputError(
            f"A picture holds up to {LONGEST_SIDE} tokens and this text has {most}. "
            "Shorten it, or write an .html page, which scrolls."
        )
    weights = attention.weights(layer, head)
    chosen = choose(attention, weights, token)
    return _Picture(attention, weights, chosen, words).draw(layer, head)


def caption_texts(lang: str) -> dict[str, object]:
    if lang not in _TEXTS:
        raise InputError(f"Unknown language '{lang}'.{did_you_mean(lang, _TEXTS)} Known: {', '.join(_TEXTS)}.")
    return dict(_TEXTS[lang])


def choose(attention: AttentionMap, weights: NDArray[np.float32], token: str | int | None) -> tuple[int, ...]:
    """Choose the left tokens to highlight: a word may have several tokens."""
    if isinstance(token, int):
        if not 0 <= token < len(attention.left):
            raise InputError(f"There is no token {token}: the text has tokens 0 … {len(attention.left) - 1}.")
        return (token,)
    if token is None:
        meaning_left = np.array([not one.special for one in attention.left])
        meaning_right = np.array([not one.special for one in attention.right])
        score = weights * meaning_left[:, None] * meaning_right[None, :]
        if attention.name != "cross":
            np.fill_diagonal(score, 0)  # attention of a word to itself says little
        return (int(score.max(axis=1).argmax()),)
    wanted = token.casefold()
    for spellings in ([one.label for one in attention.left], [one.token for one in attention.left]):
        for number, spelling in enumerate(spellings):
            if spelling.casefold() == wanted:
                return (number,)
    for segment, text in enumerate(attention.texts):
        start = text.casefold().find(wanted) if wanted else -1
        if start >= 0:
            end = start + len(token)
            pieces = tuple(
                number
                for number, one in enumerate(attention.left)
                if one.segment == segment and one.start < end and one.end > start
            )
            if pieces:
                return pieces
    hint = did_you_mean(token, [one.label for one in attention.left])
    raise InputError(
        f"There is no token '{token}' in the text.{hint} Tokens: {' '.join(t.label for t in attention.left)}"
    )


def shade(weight: float) -> float:
    """Return the opacity of a cell, slightly increased for weak weights to keep them visible."""
    return float(weight**0.7)


def curve(x0: float, y0: float, x1: float, y1: float) -> str:
    """The path of a line between two tokens."""
    bend = (x1 - x0) * 0.45
    return f"M{x0:.1f} {y0:.1f}C{x0 + bend:.1f} {y0:.1f} {x1 - bend:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"


def heat_cells(
    weights: NDArray[Any], rows: Sequence[float], columns: Sequence[float], row: float, special: Sequence[bool]
) -> list[str]:
    """The cells of a heat map of squares of size `row`, by the middles of its rows and columns, and their numbers if
    there are few; columns that are `special` are grey. Cells of one weight share a path, for a small file."""
    parts = []
    side = row - 1.0 if row >= 16 else row
    square = f"h{side:g}v{side:g}h-{side:g}z"
    for grey, look in ((False, "cell"), (True, "dull")):
        chosen = [j for j, one in enumerate(special) if one == grey]
        levels = np.round(weights[:, chosen].clip(0, 1) * 255).astype(int)
        for level in np.unique(levels[levels > 0]):
            cells = "".join(
                f"M{columns[chosen[j]] - side / 2:.1f} {rows[i] - side / 2:.1f}{square}"
                for i, j in np.argwhere(levels == level).tolist()
            )
            parts.append(f'<path class="{look}" opacity="{shade(level / 255):.3f}" d="{cells}"/>')
    if max(weights.shape) <= NUMBERED:
        for i, j in np.argwhere(weights >= 0.1).tolist():
            look = "oncell" if weights[i, j] >= 0.4 else "ink"
            number = f'text-anchor="middle" class="{look}" font-size="{row * 0.34:.1f}"'
            parts.append(label_at(columns[j], rows[i], f"{100 * weights[i, j]:.0f}", number))
    return parts


def label_at(x: float, y: float, label: str, look: str) -> str:
    """A text whose middle is at this height; `look` has its attributes."""
    return f'<text x="{x:.1f}" y="{y:.1f}" dy=".35em" {look}>{escape(label)}</text>'


class _Picture:
    """Measures and parts of one drawing; every part returns SVG text."""

    def __init__(
        self,
        attention: AttentionMap,
        weights: NDArray[np.float32],
        chosen: Sequence[int],
        words: dict[str, object],
    ) -> None:
        self.map, self.weights, self.chosen, self.words = attention, weights, chosen, words
        self.looks = weights[list(chosen)].mean(axis=0)  # (T right,) attention of the chosen word
        most = max(len(attention.left), len(attention.right))
        self.row = max(13.0, min(28.0, 900 / most))
        self.size = min(14.0, 3.2 + 0.42 * self.row)
        room = 9.0 * self.size
        self.left = [shorten(printable(one.label), self.size, room) for one in attention.left]
        self.right = [shorten(printable(one.label), self.size, room) for one in attention.right]
        self.left_width = max(text_width(label, self.size) for label in self.left)
        self.right_width = max(text_width(label, self.size) for label in self.right)
        self.pad = self.size * 0.55
        self.left_y = self._places(attention.left)
        self.right_y = self._places(attention.right)
        # from left to right: margin, left tokens, lines, right tokens, percentages, labels, heat map
        self.x0 = 32 + self.left_width + 2 * self.pad
        self.x1 = self.x0 + max(150.0, min(260.0, 9 * self.row))
        numbers = 2.6 * self.size
        self.x2 = self.x1 + 2 * self.pad + self.right_width + numbers + 44 + self.left_width
        self.columns = self._places(attention.right)
        slant = 0.72 * self.right_width + self.size
        self.top = 92 + max(slant, 30.0)
        self.width = (
            self.x2 + self.columns[-1] + self.row / 2 + max(0.72 * text_width(self.right[-1], self.size), 0) + 36
        )
        self.height = self.top + max(self.left_y[-1], self.right_y[-1]) + self.row / 2 + 74

    def _places(self, tokens: Sequence[Token]) -> list[float]:
        """Return the middle of each token's row (or column), with a gap before the second segment."""
        places, at = [], 0.0
        for before, token in zip([None, *tokens], tokens, strict=False):
            if before is not None and token.segment != before.segment:
                at += self.row * 0.5
            places.append(at + self.row / 2)
            at += self.row
        return places

    def draw(self, layer: int, head: int) -> str:
        words, size = self.words, self.size
        kind = words["kind"]
        assert isinstance(kind, dict)
        title = str(words["title"]).format(layer=layer, head=head)
        subtitle = " · ".join(part for part in (kind.get(self.map.name, self.map.name), self.map.model) if part)
        name = printable("".join(self.map.left[i].label.removeprefix("##") for i in self.chosen))
        looks = str(words["looks"]).format(token=name)
        best = [int(j) for j in np.argsort(-self.looks, kind="stable")[:3] if self.looks[j] >= FAINTEST]
        found = str(words["comma"]).join(
            f"{printable(self.map.right[j].label)} {format_share(self.looks[j])}" for j in best
        )
        width, height = round(max(self.width, 600)), round(self.height)
        note = str(words["note"]).format(faintest=FAINTEST)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                f'viewBox="0 0 {width} {height}" class="qkv-attention" role="img">',
                f"<title>{escape(f'{title}: {looks} {found}')}</title>",
                f"<style>{style()}</style>",
                f'<rect class="paper" width="{width}" height="{height}"/>',
                f'<text x="32" y="46"><tspan class="ink" font-size="22" font-weight="650">{escape(title)}</tspan>'
                f'<tspan dx="14" class="soft" font-size="14">{escape(subtitle)}</tspan></text>',
                f'<text x="32" y="70" class="soft" font-size="14"><tspan class="hottext" font-weight="600">'
                f"{escape(looks)}</tspan> {escape(found)}</text>",
                f'<g transform="translate(0 {self.top:.1f})" font-size="{size:.1f}">',
                self._headings(),
                self._lines(),
                self._tokens(),
                f'<g transform="translate({self.x2:.1f} 0)">',
                self._heat_map(),
                "</g>",
                "</g>",
                self._scale(height),
                f'<text x="32" y="{height - 24}" class="faint" font-size="11.5">{escape(note)}</text>',
                "</svg>",
                "",
            ]
        )

    def _headings(self) -> str:
        y = -12
        return (
            f'<text x="{self.x0 - self.pad:.1f}" y="{y}" text-anchor="end" class="faint" font-size="11.5">'
            f"{escape(str(self.words['left']))}</text>"
            f'<text x="{self.x1 + self.pad:.1f}" y="{y}" class="faint" font-size="11.5">'
            f"{escape(str(self.words['right']))}</text>"
        )

    def _lines(self) -> str:
        """Draw curves from left to right tokens, those of the chosen token on top."""
        quiet, hot = [], []
        for i in range(len(self.left)):
            for j in np.flatnonzero(self.weights[i] >= FAINTEST):
                weight = float(self.weights[i, j])
                line = curve(self.x0, self.left_y[i], self.x1, self.right_y[j])
                if i in self.chosen:
                    thick = (0.8 + 5.2 * weight) * self.row / 28
                    hot.append(
                        (weight, f'<path d="{line}" stroke-width="{thick:.2f}" opacity="{0.25 + 0.75 * weight:.2f}"/>')
                    )
                else:
                    dull = 0.5 if self.map.right[j].special else 1.0
                    quiet.append(f'<path d="{line}" opacity="{0.62 * weight**0.75 * dull:.3f}"/>')
        hot.sort()
        return (
            f'<g fill="none" class="line" stroke-width="{1.3 * self.row / 28:.2f}">' + "".join(quiet) + "</g>"
            '<g fill="none" class="hot">' + "".join(path for _, path in hot) + "</g>"
        )

    def _tokens(self) -> str:
        parts, tall = [], self.row * 0.84
        for i, (token, label) in enumerate(zip(self.map.left, self.left, strict=True)):
            y, on = self.left_y[i], i in self.chosen
            if on:
                wide = text_width(label, self.size) + 2 * self.pad
                parts.append(_pill(self.x0 - wide, y - tall / 2, wide, tall, 'class="hotfill"'))
            look = "onhot" if on else "faint" if token.special else "ink"
            bold = ' font-weight="650"' if on else ""
            parts.append(label_at(self.x0 - self.pad, y, label, f'text-anchor="end" class="{look}"{bold}'))
        for j, (token, label) in enumerate(zip(self.map.right, self.right, strict=True)):
            y, weight = self.right_y[j], float(self.looks[j])
            wide = text_width(label, self.size) + 2 * self.pad
            if weight >= FAINTEST:
                strength = f'class="hotfill" opacity="{0.08 + 0.55 * weight:.2f}"'
                parts.append(_pill(self.x1, y - tall / 2, wide, tall, strength))
            look = "faint" if token.special else "ink"
            parts.append(label_at(self.x1 + self.pad, y, label, f'class="{look}"'))
            if weight >= FAINTEST:
                number = f'class="hottext" font-size="{self.size * 0.82:.1f}" opacity="{min(1.0, 0.55 + weight):.2f}"'
                parts.append(label_at(self.x1 + wide + 6, y, format_share(weight), number))
        return "".join(parts)

    def _heat_map(self) -> str:
        """Draw the heat map: queries as rows, keys as columns."""
        row, size = self.row, self.size
        parts = []
        wide = self.columns[-1] + row / 2
        high = self.left_y[-1] + row / 2
        parts.append(f'<rect class="track" width="{wide:.1f}" height="{high:.1f}"/>')
        parts += heat_cells(self.weights, self.left_y, self.columns, row, [token.special for token in self.map.right])
        for i in self.chosen:
            y = self.left_y[i] - row / 2
            parts.append(
                f'<rect class="hot" fill="none" stroke-width="1.6" x="-.5" y="{y:.1f}" '
                f'width="{wide + 1:.1f}" height="{row:.1f}" rx="2"/>'
            )
        for i, (token, label) in enumerate(zip(self.map.left, self.left, strict=True)):
            on = i in self.chosen
            look = "hottext" if on else "faint" if token.special else "ink"
            bold = ' font-weight="650"' if on else ""
            parts.append(label_at(-8, self.left_y[i], label, f'text-anchor="end" class="{look}"{bold}'))
        for token, label, x in zip(self.map.right, self.right, self.columns, strict=True):
            look = "faint" if token.special else "ink"
            slanted = f"translate({x + size * 0.3:.1f} -8) rotate(-45)"
            parts.append(f'<text transform="{slanted}" class="{look}">{escape(label)}</text>')
        return "".join(parts)

    def _scale(self, height: int) -> str:
        """Draw the legend of the heat map."""
        steps, x, y = 40, round(self.x2), height - 58
        boxes = "".join(
            f'<rect class="cell" x="{x + 3 * n}" y="{y}" width="3" height="9" opacity="{shade((n + 1) / steps):.3f}"/>'
            for n in range(steps)
        )
        return (
            f'{boxes}<text x="{x - 8:.1f}" y="{y + 8.5}" text-anchor="end" class="faint" font-size="11">0%</text>'
            f'<text x="{x + 128:.1f}" y="{y + 8.5}" class="faint" font-size="11">100%</text>'
        )


def _pill(x: float, y: float, width: float, height: float, look: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{height * 0.32:.1f}" {look}/>'


CAUTION = {
    "en": "Arrow keys move between heads. Attention shows where a head looks, not why a model answers as it does "
    "(Jain & Wallace 2019).",
    "zh": "方向键在各个头之间移动。注意力显示一个头看向哪里，并不解释模型为何如此作答（Jain & Wallace 2019）。",
}
GRID = {"en": "layer ↓ head →", "zh": "层 ↓ 头 →"}


def attention_page(
    attention: AttentionMap,
    layer: int | None = None,
    head: int | None = None,
    token: str | int | None = None,
    lang: str = "en",
) -> str:
    """Return the page, with this layer, head and token shown first (default: the first head and its clearest word)."""
    layer = attention.layers[0] if layer is None else layer
    head = attention.heads[0] if head is None else head
    chosen = choose(attention, attention.weights(layer, head), token)
    caption_texts(lang)  # an unknown language is an error here too
    data = {
        "map": attention.to_dict(),
        "layer": attention.layers.index(layer),
        "head": attention.heads.index(head),
        "token": chosen[0],
        "lang": lang,
        "faintest": FAINTEST,
        "texts": {code: _words(code) for code in CAUTION},
    }
    # "</script>" and "<!--" in the text would end or change the script element around it
    inside = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    template = resources.files("qkv.report").joinpath("attention_page.html").read_text(encoding="utf-8")
    return template.replace("__DATA__", inside)


def _words(lang: str) -> dict[str, object]:
    words = caption_texts(lang)
    note = str(words["note"]).format(faintest=FAINTEST)
    return {**words, "note": note, "caution": CAUTION[lang], "grid": GRID[lang]}
