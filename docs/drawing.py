"""A sheet to draw on, written out as SVG: the pen of figures.py. Light and dark follow the reader's setting."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape

from torch import Tensor

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1c2330",
    "soft": "#5d6779",
    "rule": "#dde2ea",
    "box": "#f4f6fa",
    "edge": "#c0c8d6",
}
DARK = {"paper": "#12151c", "ink": "#e8ebf2", "soft": "#9aa4b8", "rule": "#2a303c", "box": "#1b202a", "edge": "#4a5467"}
COLOURS = {"blue": ("#27408b", "#8fb0ff"), "red": ("#d6451b", "#ff8a5c"), "green": ("#1f7a4d", "#5fcf9a")}
LEVELS = 8
"""Steps of a heat map on either side of nothing."""


def mixed(one: str, other: str, share: float) -> str:
    """A colour between two: all of `other` at share 1."""
    pairs = ((int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def style() -> str:
    """Classes: f-name fills, s-name strokes, t-name is a pale tint, n8 … n1, z, p1 … p8 the steps of a heat map."""

    def rules(theme: dict[str, str], number: int) -> Iterator[str]:
        for name, colour in (theme | {name: pair[number] for name, pair in COLOURS.items()}).items():
            yield f".f-{name}{{fill:{colour}}}.s-{name}{{stroke:{colour}}}"
        for name, pair in COLOURS.items():
            yield f".t-{name}{{fill:{mixed(theme['paper'], pair[number], 0.14)}}}"
        for sign, name in (("n", "blue"), ("p", "red")):
            for level in range(1, LEVELS + 1):
                yield f".{sign}{level}{{fill:{mixed(theme['paper'], COLOURS[name][number], level / LEVELS)}}}"
        yield f".z{{fill:{theme['paper']}}}"

    latin = '"Inter","Helvetica Neue","Segoe UI",Roboto,Arial'
    fonts = f'{latin},"PingFang SC","Microsoft YaHei","Noto Sans CJK SC",sans-serif'
    code = 'ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace'
    dark = f"@media(prefers-color-scheme:dark){{{''.join(rules(DARK, 1))}}}"
    return f"text{{font-family:{fonts}}}.code{{font-family:{code}}}{''.join(rules(LIGHT, 0))}{dark}"


def number(value: float) -> str:
    """To a tenth of a pixel, in as few characters as that takes."""
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written


class Drawing:
    """A sheet with a rounded background and a title; everything is added at absolute places, in pixels."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []
        self.text(24, 36, title, 16, bold=True)

    def rect(self, x: float, y: float, w: float, h: float, look: str, radius: float = 0) -> None:
        names = ("x", "y", "width", "height", "rx")
        shape = " ".join(f'{k}="{number(v)}"' for k, v in zip(names, (x, y, w, h, radius), strict=True))
        self.parts.append(f'<rect {shape} class="{look}"/>')

    def line(self, points: Sequence[tuple[float, float]], look: str, width: float = 1.5, dash: str = "") -> None:
        route = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
        stroke = f'fill="none" stroke-width="{width}" stroke-linejoin="round"'
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<path d="{route}" class="{look}" {stroke}{dashes}/>')

    def arrow(self, points: Sequence[tuple[float, float]], stroke: str = "s-edge", head: str = "f-soft") -> None:
        self.line(points, stroke, 1.6)
        (x0, y0), (x, y) = points[-2:]
        length = ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5
        u, v = 7 * (x - x0) / length, 7 * (y - y0) / length
        corners = ((x, y), (x - u - v / 2, y - v + u / 2), (x - u + v / 2, y - v - u / 2))
        places = " ".join(f"{number(a)},{number(b)}" for a, b in corners)
        self.parts.append(f'<polygon points="{places}" class="{head}"/>')

    def dot(self, x: float, y: float, radius: float, look: str) -> None:
        self.parts.append(f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" class="{look}"/>')

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float = 13,
        look: str = "f-ink",
        at: str = "start",
        bold: bool = False,
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        place = f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}" text-anchor="{at}"'
        self.parts.append(f'<text {place} class="{look}"{weight} xml:space="preserve">{escape(words)}</text>')

    def heat(self, x: float, y: float, cell_w: float, cell_h: float, values: Tensor, top: float) -> None:
        """Values (rows, columns) as cells, `top` the darkest; neighbours of one colour become one shape."""
        shapes: defaultdict[str, list[str]] = defaultdict(list)
        steps = (values / top * LEVELS).round().clamp(-LEVELS, LEVELS).int().tolist()
        for row, levels in enumerate(steps):
            start = 0
            for column in range(1, len(levels) + 1):
                if column == len(levels) or levels[column] != levels[start]:
                    level = levels[start]
                    name = "z" if level == 0 else f"{'n' if level < 0 else 'p'}{abs(level)}"
                    left, wide = number(x + start * cell_w), number((column - start) * cell_w)
                    shapes[name].append(f"M{left} {number(y + row * cell_h)}h{wide}v{number(cell_h)}h-{wide}z")
                    start = column
        for name in sorted(shapes):
            self.parts.append(f'<path class="{name}" shape-rendering="crispEdges" d="{"".join(shapes[name])}"/>')

    def svg(self) -> str:
        size = f'width="{number(self.width)}" height="{number(self.height)}"'
        view = f'viewBox="0 0 {number(self.width)} {number(self.height)}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {view} {size} role="img"><title>{escape(self.title)}</title>'
        body = "\n".join(self.parts)
        return f'{head}\n<style>{style()}</style>\n<rect {size} rx="12" class="f-paper"/>\n{body}\n</svg>\n'
