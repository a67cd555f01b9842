"""Line charts as inline SVG in both languages, and measuring of labels in pictures.

A `Chart` is plain data. `render_chart` returns the HTML of one chart with its legend, its picture, and in an attribute
the points that the page's script shows for the pointer or the arrow keys. Colours come from the page, by class, so a
chart follows light, dark and print styles. No script is needed to see a chart.

Long logs are thinned for drawing: each stretch of points is drawn by its minimum and maximum, so no spike is lost.

Implemented here, since a chart library needs a script to show anything, and would make the report many times as large.

Widths of labels are estimated (汉字 and full-width forms take one em, combining marks none), since an SVG cannot
measure the reader's font. The estimates are rather too wide.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unicodedata import category, combining, east_asian_width

from qkv.report.bilingual import SPACE, Phrase, Words, phrase, safe, spans


def text_width(text: str, size: float) -> float:
    """Estimate the width of a line of text in a sans-serif font of this size."""
    ems = 0.0
    for character in text:
        if combining(character) or category(character) in ("Mn", "Me", "Cf"):
            continue
        if east_asian_width(character) in "WF":
            ems += 1.0 if ord(character) < 0x1F000 else 1.3  # emoji are wider than 汉字
        elif character in "iljt.,:;'|!()[]fI":
            ems += 0.36
        elif character in "mwMW@%—…":
            ems += 0.92
        elif character.isupper():
            ems += 0.72
        else:
            ems += 0.59
    return ems * size


def shorten(text: str, size: float, room: float) -> str:
    """Truncate a label that does not fit, with an ellipsis."""
    if text_width(text, size) <= room:
        return text
    while text and text_width(text + "…", size) > room:
        text = text[:-1]
    return text + "…"


def printable(text: str) -> str:
    """Replace invisible characters by visible ones, and those forbidden in XML by U+FFFD."""
    shown = "".join("␣" if c.isspace() else "�" if category(c) in ("Cc", "Cs", "Cn", "Co") else c for c in text)
    return shown or "∅"


def format_share(weight: float) -> str:
    return f"{100 * weight:.0f}%"


CHART_SIZES = {"half": (540, 270), "wide": (1104, 380), "strip": (1104, 230)}
"""Half a page, the whole width, or the whole width for a chart without a neighbour."""
LEFT, RIGHT, TOP, BOTTOM = 54, 14, 14, 34  # margins
_DRAWN = 600
"""Maximum number of points of a line."""
READ = 240
"""Points of a line that the script can show."""
SMOOTHED = 40
"""A noisy line with at least this many points gets its running mean."""

ChartPoint = tuple[float, float]


def _number(value: float) -> str:
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e6):
        return f"{value:.3g}"
    return f"{value:,.{3 if size < 1 else 2 if size < 100 else 0}f}"


FORMATS: dict[str, Callable[[float], str]] = {
    "number": _number,
    "percent": lambda value: f"{100 * value:.1f}{SPACE}%",
    "rate": lambda value: f"{value:.3g}",
    "count": lambda value: f"{value:,.0f}",
}


@dataclass(frozen=True)
class Series:
    """Points by ascending x. NaN is a gap in the line."""

    name: Words
    points: tuple[ChartPoint, ...]
    role: str = "train"  # colour: "train", "evaluation", "other" (in the background) or "kept" (a ring)
    dots: bool = False
    smooth: bool = False  # noisy: drawn faintly, with its running mean
    fine: bool = False  # noisy, and the noise matters: a thin line
    intervals: tuple[tuple[float, float], ...] = ()  # low and high of every point


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare the curve with."""

    value: float
    name: Words


@dataclass(frozen=True)
class Chart:
    title: Words
    series: tuple[Series, ...]
    levels: tuple[Level, ...] = ()
    spikes: tuple[ChartPoint, ...] = ()  # highlighted points
    seams: tuple[float, ...] = ()  # steps at which a run was resumed
    format: str = "number"
    from_zero: bool = False
    log: bool = False  # logarithmic axis if values differ by orders of magnitude
    shape: str = "half"


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers between low and high, inclusive.

    >>> nice_ticks(0, 10, 5)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    span = high - low
    if not span > 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10, 20) if span / (factor * power) <= most + 1e-9)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """
    >>> log_ticks(0.5, 30)
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high < 3000 * low else (1,)
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def thin_points(points: Sequence[ChartPoint], most: int = _DRAWN) -> list[ChartPoint]:
    """Reduce to about `most` points: minimum and maximum of every stretch, and the last point."""
    if len(points) <= most:
        return list(points)
    kept: list[ChartPoint] = []
    stretch = max(1, 2 * len(points) // most)
    for begin in range(0, len(points), stretch):
        part = range(begin, min(len(points), begin + stretch))
        finite = [place for place in part if math.isfinite(points[place][1])] or [begin]
        chosen = {min(finite, key=lambda place: points[place][1]), max(finite, key=lambda place: points[place][1])}
        kept += [points[place] for place in sorted(chosen | ({len(points) - 1} & set(part)))]
    return kept


def running_mean(points: Sequence[ChartPoint], half: int) -> list[ChartPoint]:
    """Return the mean over a centred window, which narrows towards the beginning, where a curve is steep, and is cut
    off at the end, where a curve is flat."""
    sums = [0.0]
    for _, value in points:
        sums.append(sums[-1] + value)
    smooth = []
    for place, (x, _) in enumerate(points):
        reach = min(half, place)
        begin, end = place - reach, min(len(points), place + reach + 1)
        smooth.append((x, (sums[end] - sums[begin]) / (end - begin)))
    return smooth


class _Frame:
    """Maps values to positions in the picture."""

    def __init__(self, chart: Chart) -> None:
        self.width, self.height = CHART_SIZES[chart.shape]
        self.positive = chart.log
        points = [point for one in chart.series for point in one.points if self._fits(point[1])]
        values = [value for _, value in points]
        values += [end for one in chart.series for pair in one.intervals for end in pair if self._fits(end)]
        values += [level.value for level in chart.levels if self._fits(level.value)]
        self.x0, self.x1 = min(x for x, _ in points), max(x for x, _ in points)
        if self.x1 == self.x0:
            self.x0, self.x1 = self.x0 - 1, self.x1 + 1
        elif self.x0 < 0.1 * self.x1:
            self.x0 = min(self.x0, 0.0)  # the beginning of the run
        low, high = min(values), max(values)
        self.log = chart.log and high > 8 * low
        if self.log:
            self.y0, self.y1 = low / 1.15, high * 1.15
        else:
            room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
            self.y0, self.y1 = (min(0.0, low) if chart.from_zero else low - room), high + room
            if chart.format == "percent":
                self.y0, self.y1 = max(0.0, self.y0), min(1.0, self.y1)

    def _fits(self, value: float) -> bool:
        return math.isfinite(value) and (value > 0 or not self.positive)

    def x(self, value: float) -> float:
        return LEFT + (value - self.x0) / (self.x1 - self.x0) * (self.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        if self.log:
            share = math.log(value / self.y0) / math.log(self.y1 / self.y0)
        else:
            share = (value - self.y0) / (self.y1 - self.y0)
        return TOP + (1 - min(1.0, max(0.0, share))) * (self.height - TOP - BOTTOM)

    def path(self, points: Sequence[ChartPoint]) -> str:
        """Return the path of a line, with gaps for NaN."""
        parts, pen = [], "M"
        for x, value in points:
            if self._fits(value):
                parts.append(f"{pen}{self.x(x):.1f} {self.y(value):.1f}")
                pen = "L"
            else:
                pen = "M"
        return "".join(parts)

    def drawn(self, series: Series) -> list[ChartPoint]:
        return [point for point in series.points if self._fits(point[1])]


def render_chart(chart: Chart, name: str = "0") -> str:
    """Render one chart as HTML; `name` is unique on a page."""
    title = f'<h3 id="chart-{name}">{spans(chart.title)}</h3>'
    kind = "chart" if chart.shape == "half" else "chart wide"
    positive = [one for one in chart.series if any(_is_shown(chart, value) for _, value in one.points)]
    if not positive:
        nothing = Phrase("Nothing was logged.", "没有记录。")
        return f'<figure class="{kind}"><figcaption>{title}</figcaption><p class="empty">{spans(nothing)}</p></figure>'
    frame = _Frame(chart)
    keys = [] if [one.name for one in positive] == [chart.title] else positive
    # lines of one kind share a name
    legend = "".join(
        dict.fromkeys(
            f'<span class="key {one.role}{" dotted" if one.dots else ""}">{spans(one.name)}</span>' for one in keys
        )
    )
    # explain marks in the legend
    if chart.spikes:
        legend += f'<span class="key spike">{spans(Phrase("spike", "尖峰"))}</span>'
    if chart.seams and keys:
        legend += f'<span class="key seam">{spans(Phrase("resumed", "续训"))}</span>'
    return (
        f'<figure class="{kind}" data-chart="{safe(json.dumps(_readout(chart, frame), ensure_ascii=False))}">'
        f'<figcaption>{title}<span class="legend">{legend}</span></figcaption>'
        f'<div class="plot" tabindex="0" role="group" aria-labelledby="chart-{name}">{_svg(chart, frame, name)}'
        f'<output class="readout" hidden></output></div></figure>'
    )


def _is_shown(chart: Chart, value: float) -> bool:
    return math.isfinite(value) and (value > 0 or not chart.log)


def _svg(chart: Chart, frame: _Frame, name: str) -> str:
    right, bottom = frame.width - RIGHT, frame.height - BOTTOM
    parts = [f'<svg viewBox="0 0 {frame.width} {frame.height}" role="img" aria-labelledby="chart-{name}">']
    ticks = log_ticks(frame.y0, frame.y1) if frame.log else nice_ticks(frame.y0, frame.y1, 6)
    for tick, label in zip(ticks, tick_labels(ticks, chart.format), strict=True):
        y = frame.y(tick)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    steps = nice_ticks(frame.x0, frame.x1, 5 if chart.shape == "half" else 10)
    for tick in steps:
        if tick != int(tick):
            continue  # steps are integers
        anchor = "end" if frame.x(tick) > right - 16 else "middle"
        parts.append(f'<path class="axis" d="M{frame.x(tick):.1f} {bottom}v4"/>')
        x = min(right, frame.x(tick))
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 18}" text-anchor="{anchor}">{tick:,.0f}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {bottom}H{right}"/>')
    place = f'x="{right}" y="{frame.height - 3}" text-anchor="end"'
    parts.append(svg_text(Phrase("step", "步"), "tick unit", place))
    for seam in chart.seams:
        if frame.x0 <= seam <= frame.x1:
            parts.append(f'<path class="seam" d="M{frame.x(seam):.1f} {TOP}V{bottom}"/>')
    for one in chart.series:
        parts.append(_line(one, frame))
    parts += _levels(chart, frame)
    for x, value in chart.spikes:
        if frame.x0 <= x <= frame.x1 and _is_shown(chart, value):
            parts.append(f'<circle class="spike" cx="{frame.x(x):.1f}" cy="{frame.y(value):.1f}" r="5"/>')
    parts.append(f'<path class="cursor" d="M0 {TOP}V{bottom}" visibility="hidden"/></svg>')
    return "".join(parts)


def _line(series: Series, frame: _Frame) -> str:
    points, parts = frame.drawn(series), []
    for (x, _), (low, high) in zip(series.points, series.intervals, strict=False):
        if math.isfinite(low) and math.isfinite(high) and len(series.points) <= 120:
            a, b = frame.y(low), frame.y(high)
            parts.append(
                f'<path class="interval {series.role}" d="M{frame.x(x):.1f} {a:.1f}V{b:.1f}m-3 0h6m-6 {a - b:.1f}h6"/>'
            )
    smooth = series.smooth and len(points) >= SMOOTHED
    faint = " faint" if smooth else " fine" if series.fine else ""
    parts.append(f'<path class="line {series.role}{faint}" d="{frame.path(thin_points(series.points))}"/>')
    if smooth:
        mean = running_mean(points, max(2, len(points) // 60))
        # a smooth line needs few points
        parts.append(
            f'<path class="line {series.role}" d="{frame.path(mean[:: max(1, len(mean) // 300)] + mean[-1:])}"/>'
        )
    if len(points) == 1 or (series.dots and len(points) <= 120):
        parts += [
            f'<circle class="dot {series.role}" cx="{frame.x(x):.1f}" cy="{frame.y(value):.1f}" r="3.4"/>'
            for x, value in points
        ]
    return "".join(parts)


def _levels(chart: Chart, frame: _Frame) -> list[str]:
    """Render levels with labels above their line at the right end, or below it if they would overlap."""
    parts, last = [], -math.inf
    for level in sorted(chart.levels, key=lambda level: -level.value):
        if not _is_shown(chart, level.value):
            continue
        y, end = frame.y(level.value), frame.width - RIGHT
        parts.append(f'<path class="level" d="M{LEFT} {y:.1f}H{end}"/>')
        label = y - 6 if y - 6 >= max(TOP + 4, last + 15) else max(y + 15, last + 15)
        parts.append(svg_text(level.name, "level", f'x="{end - 4}" y="{label:.1f}" text-anchor="end"'))
        last = label
    return parts


def svg_text(words: Words, kind: str, attributes: str) -> str:
    """Return text in both languages at one position, of which the page hides one."""
    both = phrase(words)
    return "".join(
        f'<text class="{kind} {lang}" lang="{lang}" {attributes}>{safe(getattr(both, lang))}</text>'
        for lang in ("en", "zh")
    )


def tick_labels(ticks: Sequence[float], kind: str) -> list[str]:
    """Format all ticks with the number of digits that the finest needs.

    >>> tick_labels([0.0, 0.25, 0.5], "percent"), tick_labels([0.0, 5e-5, 1e-4], "rate")
    (['0%', '25%', '50%'], ['0', '5e-5', '1e-4'])
    """
    if kind == "percent":
        digits = 0 if all(abs(100 * tick - round(100 * tick)) < 1e-6 for tick in ticks) else 1
        return [f"{100 * tick:.{digits}f}%" for tick in ticks]
    largest = max(map(abs, ticks), default=0)
    if largest >= 10_000 or (largest < 0.01 and largest > 0):
        return [_short(tick) for tick in ticks]
    digits = next((d for d in range(5) if all(abs(round(t, d) - t) < 1e-9 for t in ticks)), 5)
    return [f"{tick:,.{digits}f}" for tick in ticks]


def _short(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        unit, letter = (1e6, "M") if abs(value) >= 1e6 else (1e3, "k")
        return f"{value / unit:g}{letter}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def _readout(chart: Chart, frame: _Frame) -> dict[str, object]:
    """Return the data of the script: for every series [x in the picture, y in the picture, step, value as text]."""
    show = FORMATS[chart.format]
    return {
        "width": frame.width,
        "height": frame.height,
        "series": [
            {
                "name": phrase(one.name)._asdict(),
                "role": one.role,
                "points": [
                    [round(frame.x(x), 1), round(frame.y(value), 1), x, show(value)]
                    for x, value in thin_points(frame.drawn(one), READ)
                ],
            }
            for one in chart.series
        ],
    }
