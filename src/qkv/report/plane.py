"""Pictures with two free axes as inline SVG: scatter plots, diagrams, curves over other quantities than steps.

A `Plane` is plain data: two axes and layers, drawn in order. Like the line charts (charts.py) it needs no script, has
both languages, and takes its colours from the page by class. The script shows values of lines and larger dots for the
pointer. NaN, and values of zero or below on a logarithmic axis, are skipped.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from qkv.report.bilingual import Phrase, Words, phrase, safe, spans
from qkv.report.charts import FORMATS, log_ticks, nice_ticks, svg_text, tick_labels

PLANE_SIZES = {"half": (540, 340), "wide": (1104, 420)}
LEFT, RIGHT, TOP, BOTTOM = 70, 18, 16, 50  # margins
FAINT = 400
"""With at least this many dots, each is small and faint."""

_Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    name: Words
    format: str = "number"  # a key of charts.FORMATS
    low: float | None = None  # None: from the data, with a margin
    high: float | None = None
    log: bool = False
    nothing: bool = False  # no tick labels


@dataclass(frozen=True)
class Dots:
    name: Words
    points: tuple[_Point, ...]
    role: str = "train"
    weights: tuple[float, ...] = ()  # relative areas of the dots
    intervals: tuple[tuple[float, float], ...] = ()  # low and high of every point's y
    joined: bool = False
    faint: bool = False
    labels: tuple[Words, ...] = ()  # next to each dot
    read: bool = True


@dataclass(frozen=True)
class Line:
    name: Words
    points: tuple[_Point, ...]
    role: str = "train"
    dashed: bool = False
    read: bool = True
    more: tuple[str, ...] = ()  # text after the value of every point


@dataclass(frozen=True)
class Band:
    """Between low and high: (x, low, high)."""

    name: Words
    points: tuple[tuple[float, float, float], ...]
    role: str = "train"


@dataclass(frozen=True)
class Rule:
    """A straight line from edge to edge: at one x, at one y, or the diagonal."""

    name: Words
    x: float | None = None
    y: float | None = None


Layer = Dots | Line | Band | Rule


@dataclass(frozen=True)
class Plane:
    title: Words
    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    shape: str = "half"
    note: Words = ""


@dataclass(frozen=True)
class Planes:
    """Planes as a section of a page, two next to each other."""

    title: Words
    planes: tuple[Plane, ...]
    style: ClassVar[str] = ""
    narrow: ClassVar[bool] = False

    def html(self) -> str:
        planes = list(self.planes)
        if sum(plane.shape == "half" for plane in planes) % 2:
            planes[-1] = replace(planes[-1], shape="wide")  # instead of an empty half
        return f'<div class="charts">{"".join(map(_render_plane, planes))}</div>'


class _Scale:
    """Maps values of one axis to positions in the picture."""

    def __init__(self, axis: Axis, values: Sequence[float], begin: float, end: float, most: int) -> None:
        self.log = axis.log
        known = [value for value in values if self.fits(value)] or [1.0]
        low, high = min(known), max(known)
        if axis.log:
            low, high = low / 1.15, high * 1.15
        else:
            room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
            low, high = low - room, high + room
        self.low = low if axis.low is None else axis.low
        self.high = high if axis.high is None else axis.high
        if not self.high > self.low:
            self.high = self.low + 1.0
        self._begin, self._end = begin, end
        ticks = tuple(log_ticks(self.low, self.high) if axis.log else nice_ticks(self.low, self.high, most))
        self.ticks = tuple(tick for tick in ticks if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9))
        self.labels = [""] * len(self.ticks) if axis.nothing else tick_labels(self.ticks, axis.format)

    def fits(self, value: float) -> bool:
        return math.isfinite(value) and (value > 0 or not self.log)

    def at(self, value: float) -> float:
        if self.log:
            share = math.log(max(value, self.low / 2) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self._begin + min(1.0, max(0.0, share)) * (self._end - self._begin)


class _Frame:
    def __init__(self, plane: Plane) -> None:
        self.width, self.height = PLANE_SIZES[plane.shape]
        xs, ys = _values(plane.layers)
        self.right, self.bottom = self.width - RIGHT, self.height - BOTTOM
        self.x = _Scale(plane.x, xs, LEFT, self.right, 6 if plane.shape == "half" else 10)
        self.y = _Scale(plane.y, ys, self.bottom, TOP, 6)

    def fits(self, point: _Point) -> bool:
        return self.x.fits(point[0]) and self.y.fits(point[1])

    def path(self, points: Sequence[_Point]) -> str:
        kept = [point for point in points if self.fits(point)]
        return "".join(
            f"{'L' if place else 'M'}{self.x.at(x):.1f} {self.y.at(y):.1f}" for place, (x, y) in enumerate(kept)
        )


def _values(layers: Sequence[Layer]) -> tuple[list[float], list[float]]:
    xs: list[float] = []
    ys: list[float] = []
    for layer in layers:
        if isinstance(layer, Band):
            xs += [x for x, _, _ in layer.points]
            ys += [end for _, low, high in layer.points for end in (low, high)]
        elif isinstance(layer, Rule):
            xs += [] if layer.x is None else [layer.x]
            ys += [] if layer.y is None else [layer.y]
        else:
            xs += [x for x, _ in layer.points]
            ys += [y for _, y in layer.points]
            if isinstance(layer, Dots):
                ys += [end for pair in layer.intervals for end in pair]
    return xs, ys


def _render_plane(plane: Plane) -> str:
    """Render one plane as HTML, with its legend and the data of the script."""
    name = "plane-" + "".join(c if c.isalnum() else "-" for c in phrase(plane.title).en.lower())
    kind = "chart" if plane.shape == "half" else "chart wide"
    title = f'<h3 id="{safe(name)}">{spans(plane.title)}</h3>'
    note = f'<p class="note">{spans(plane.note)}</p>' if plane.note else ""
    frame = _Frame(plane)
    if not any(
        frame.fits(point) for layer in plane.layers for point in getattr(layer, "points", ()) if len(point) == 2
    ):
        nothing = Phrase("There is no data to draw.", "没有可绘制的数据。")
        return f'<figure class="{kind}"><figcaption>{title}</figcaption><p class="empty">{spans(nothing)}</p></figure>'
    legend = "".join(map(_key, plane.layers))
    return (
        f'<figure class="{kind}" data-chart="{safe(json.dumps(_readout(plane, frame), ensure_ascii=False))}">'
        f'<figcaption>{title}<span class="legend">{legend}</span></figcaption>'
        f'<div class="plot" tabindex="0" role="group" aria-labelledby="{safe(name)}">{_svg(plane, frame, safe(name))}'
        f'<output class="readout" hidden></output></div>{note}</figure>'
    )


def _key(layer: Layer) -> str:
    """Return a legend entry; a rule has its name in the picture, unless it is the diagonal."""
    if isinstance(layer, Rule):
        leaning = layer.x is None and layer.y is None and layer.name
        return f'<span class="key rule dashed">{spans(layer.name)}</span>' if leaning else ""
    if not layer.name or not layer.points:
        return ""
    mark = {Dots: " dotted", Band: " band"}.get(type(layer), " dashed" if getattr(layer, "dashed", False) else "")
    return f'<span class="key {layer.role}{mark}">{spans(layer.name)}</span>'


def _svg(plane: Plane, frame: _Frame, name: str) -> str:
    parts = [f'<svg viewBox="0 0 {frame.width} {frame.height}" role="img" aria-labelledby="{name}">']
    for tick, label in zip(frame.y.ticks, frame.y.labels, strict=True):
        y = frame.y.at(tick)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{frame.right}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for tick, label in zip(frame.x.ticks, frame.x.labels, strict=True):
        x = frame.x.at(tick)
        anchor = "end" if x > frame.right - 12 else "middle"
        parts.append(f'<path class="axis" d="M{x:.1f} {frame.bottom}v4"/>')
        parts.append(
            f'<text class="tick" x="{min(x, frame.right + 6):.1f}" y="{frame.bottom + 18}" '
            f'text-anchor="{anchor}">{label}</text>'
        )
    parts.append(f'<path class="axis" d="M{LEFT} {frame.bottom}H{frame.right}"/>')
    middle = (LEFT + frame.right) / 2
    parts.append(svg_text(plane.x.name, "axis-name", f'x="{middle}" y="{frame.height - 8}" text-anchor="middle"'))
    up = (TOP + frame.bottom) / 2
    turned = f'transform="translate(11 {up}) rotate(-90)" text-anchor="middle"'
    parts.append(svg_text(plane.y.name, "axis-name", turned))
    rules = [layer for layer in plane.layers if isinstance(layer, Rule)]
    for layer in plane.layers:
        parts.extend(_rule_line(layer, frame) if isinstance(layer, Rule) else _layer(layer, frame))
    for rule in rules:
        parts += _rule_name(rule, frame)
    parts.append(f'<path class="cursor" d="M0 {TOP}V{frame.bottom}" visibility="hidden"/></svg>')
    return "".join(parts)


def _layer(layer: Dots | Line | Band, frame: _Frame) -> Iterator[str]:
    if isinstance(layer, Band):
        kept = [point for point in layer.points if all(map(math.isfinite, point)) and frame.x.fits(point[0])]
        up = frame.path([(x, high) for x, _, high in kept])
        down = frame.path([(x, low) for x, low, _ in reversed(kept)]).replace("M", "L", 1)
        if kept:
            yield f'<path class="band {layer.role}" d="{up}{down}Z"/>'
    elif isinstance(layer, Line):
        if len(layer.points) == 1:  # a single point is drawn as a dot
            yield from _dots(Dots(layer.name, layer.points, layer.role), frame)
        dashed = " dashed" if layer.dashed else ""
        yield f'<path class="line {layer.role}{dashed}" d="{frame.path(layer.points)}"/>'
    else:
        yield from _dots(layer, frame)


def _dots(layer: Dots, frame: _Frame) -> Iterator[str]:
    if layer.joined:
        yield f'<path class="line {layer.role}" d="{frame.path(layer.points)}"/>'
    for (x, _), (low, high) in zip(layer.points, layer.intervals, strict=False):
        if frame.fits((x, low)) and frame.fits((x, high)):
            a, b = frame.y.at(low), frame.y.at(high)
            shape = f"M{frame.x.at(x):.1f} {a:.1f}V{b:.1f}m-3 0h6m-6 {a - b:.1f}h6"
            yield f'<path class="interval {layer.role}" d="{shape}"/>'
    many = len(layer.points) >= FAINT
    faint = " faint" if layer.faint or many else ""
    largest = max(layer.weights, default=1.0) or 1.0
    for place, (x, y) in enumerate(layer.points):
        if not frame.fits((x, y)):
            continue
        weight = layer.weights[place] if layer.weights else 0.0
        radius = 3.5 + 7.5 * math.sqrt(weight / largest) if layer.weights else 2.2 if many else 3.8
        at = f'cx="{frame.x.at(x):.1f}" cy="{frame.y.at(y):.1f}"'
        yield f'<circle class="dot {layer.role}{faint}" {at} r="{radius:.1f}"/>'
        if layer.labels:
            end = frame.x.at(x) > frame.right - 80
            place_of = f'x="{frame.x.at(x) + (-12 if end else 12):.1f}" y="{frame.y.at(y) - 9:.1f}"'
            yield svg_text(layer.labels[place], "level", f'{place_of} text-anchor="{"end" if end else "start"}"')


def _rule_line(rule: Rule, frame: _Frame) -> Iterator[str]:
    if rule.x is not None:
        shape = f"M{frame.x.at(rule.x):.1f} {TOP}V{frame.bottom}"
    elif rule.y is not None:
        shape = f"M{LEFT} {frame.y.at(rule.y):.1f}H{frame.right}"
    else:
        low, high = max(frame.x.low, frame.y.low), min(frame.x.high, frame.y.high)
        shape = f"M{frame.x.at(low):.1f} {frame.y.at(low):.1f}L{frame.x.at(high):.1f} {frame.y.at(high):.1f}"
    yield f'<path class="level" d="{shape}"/>'


def _rule_name(rule: Rule, frame: _Frame) -> Iterator[str]:
    if not rule.name:
        return
    if rule.x is not None:
        x = frame.x.at(rule.x)
        end = x > (LEFT + frame.right) / 2
        at = f'x="{x + (-6 if end else 6):.1f}" y="{frame.bottom - 8}" text-anchor="{"end" if end else "start"}"'
    elif rule.y is not None:
        y = frame.y.at(rule.y)
        at = f'x="{LEFT + 6}" y="{y - 6 if y > TOP + 16 else y + 15:.1f}"'
    else:
        return
    yield svg_text(rule.name, "level", at)


def _readout(plane: Plane, frame: _Frame) -> dict[str, object]:
    """As in charts.py, with the name of x: [x in the picture, y in the picture, x as text, value as text]."""
    show_x, show_y = FORMATS[plane.x.format], FORMATS[plane.y.format]
    layers = [
        layer
        for layer in plane.layers
        if isinstance(layer, Dots | Line) and layer.read and len(layer.points) < FAINT and layer.points
    ]
    return {
        "width": frame.width,
        "x": phrase(plane.x.name)._asdict(),
        "series": [
            {
                "name": phrase(layer.name)._asdict(),
                "points": [
                    [round(frame.x.at(x), 1), round(frame.y.at(y), 1), show_x(x), show_y(y) + more]
                    for (x, y), more in zip(layer.points, _more(layer), strict=True)
                    if frame.fits((x, y))
                ],
            }
            for layer in layers
        ],
    }


def _more(layer: Dots | Line) -> Sequence[str]:
    return layer.more if isinstance(layer, Line) and layer.more else [""] * len(layer.points)
