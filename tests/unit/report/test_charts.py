"""Charts: where a value lies, which ticks are round, and that no text can break out."""

import json
import math
import re
from html import unescape
from xml.etree import ElementTree

import pytest

from qkv.report.bilingual import Phrase
from qkv.report.charts import (
    CHART_SIZES,
    Chart,
    Level,
    Series,
    log_ticks,
    nice_ticks,
    render_chart,
    running_mean,
    thin_points,
    tick_labels,
)

LOSS = Phrase("Loss", "损失")


def picture(chart: Chart) -> ElementTree.Element:
    """The SVG, which must be whole XML."""
    found = re.search(r"<svg.*</svg>", render_chart(chart), re.DOTALL)
    assert found
    return ElementTree.fromstring(found[0])


def of_class(root: ElementTree.Element, *kinds: str) -> list[ElementTree.Element]:
    return [one for one in root.iter() if set(kinds) <= set(one.get("class", "").split())]


def places(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]


@pytest.mark.parametrize(("low", "high"), [(0, 1), (2.9, 9.3), (0, 5.3e-4), (-3, 7), (0, 33_500), (1e-9, 2e-9)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    ticks = nice_ticks(low, high, 6)
    assert 3 <= len(ticks) <= 7
    assert low - 1e-9 * (high - low) <= ticks[0] and ticks[-1] <= high + 1e-9 * (high - low)
    step = ticks[1] - ticks[0]
    assert round(step / 10 ** math.floor(math.log10(step) + 1e-9), 6) in (1, 2, 2.5, 5)
    assert nice_ticks(3.0, 3.0, 5) == [3.0]


def test_log_ticks_span_decades() -> None:
    assert log_ticks(1, 1000) == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    assert log_ticks(1, 10**6) == [10.0**power for power in range(7)]


def test_labels_have_equal_digits() -> None:
    assert tick_labels([4, 4.5, 5], "number") == ["4.0", "4.5", "5.0"]
    assert tick_labels([0, 10_000, 25_000, 1_000_000], "count") == ["0", "10k", "25k", "1M"]
    assert tick_labels([0.0, 2.5e-4], "rate") == ["0", "2.5e-4"]
    assert tick_labels([0.025, 0.05], "percent") == ["2.5%", "5.0%"]


def test_points_lie_where_they_should() -> None:
    chart = Chart(LOSS, (Series("a", ((0, 0.0), (50, 5.0), (100, 10.0))),), from_zero=True)
    (line,) = of_class(picture(chart), "line")
    (x0, y0), (x1, y1), (x2, y2) = places(line.get("d", ""))
    width, height = CHART_SIZES["half"]
    assert 0 < x0 < x2 < width and 0 < y2 < y0 < height, "up is less"
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1) and y1 == pytest.approx((y0 + y2) / 2, abs=0.1)


def test_a_gap_breaks_the_line() -> None:
    values = ((1, 1.0), (2, 2.0), (3, math.nan), (4, 3.0), (5, math.inf), (6, 2.0))
    (line,) = of_class(picture(Chart(LOSS, (Series("a", values),))), "line")
    assert line.get("d", "").count("M") == 3 and len(places(line.get("d", ""))) == 4


def test_a_logarithmic_axis_only_where_values_lie_far_apart() -> None:
    near = Chart(LOSS, (Series("a", ((1, 1.0), (2, 4.0))),), log=True)
    far = Chart(LOSS, (Series("a", ((1, 0.0), (2, 1.0), (3, 10.0), (4, 100.0))),), log=True)
    assert "3" in [one.text for one in of_class(picture(near), "tick")]
    (line,) = of_class(picture(far), "line")
    a, b, c = (y for _, y in places(line.get("d", "")))
    assert a - b == pytest.approx(b - c, abs=0.2), "equal factors, equal steps; zero has no place"
    assert "20" in [one.text for one in of_class(picture(far), "tick")]


def test_levels_spikes_seams_and_intervals() -> None:
    chart = Chart(
        LOSS,
        (
            Series(Phrase("training", "训练"), ((1, 5.0), (100, 3.0))),
            Series("e", ((50, 4.0),), "evaluation", dots=True, intervals=((3.5, 4.5),)),
        ),
        levels=(Level(9.0, Phrase("ln V = 9", "ln V＝9")), Level(8.9, "close")),
        spikes=((100, 3.0), (999, 1.0)),
        seams=(50, 999),
    )
    root = picture(chart)
    labels = of_class(root, "level", "en")
    assert [one.text for one in labels if one.tag == "text"] == ["ln V = 9", "close"]
    heights = [float(one.get("y", 0)) for one in labels]
    assert heights[1] - heights[0] >= 14, "labels do not touch"
    assert [one.text for one in of_class(root, "level", "zh")] == ["ln V＝9", "close"]
    assert len(of_class(root, "spike")) == 1 and len(of_class(root, "seam")) == 1, "what lies outside is left out"
    assert len(of_class(root, "interval")) == 1 and len(of_class(root, "dot")) == 1
    assert "spike" in render_chart(chart) and "续训" in render_chart(chart)


def test_long_logs_are_thinned_but_keep_their_spikes() -> None:
    points = [(float(step), 1.0) for step in range(100_000)]
    points[54_321] = (54_321.0, 99.0)
    points[77] = (77.0, -99.0)
    points[500] = (500.0, math.nan)
    kept = thin_points(points, 600)
    assert len(kept) <= 620 and kept == sorted(kept)
    assert points[54_321] in kept and points[77] in kept and kept[-1] == points[-1]
    assert len(render_chart(Chart(LOSS, (Series("a", tuple(points), smooth=True),), shape="wide"))) < 60_000
    assert thin_points(points[:10]) == points[:10]


def test_running_mean() -> None:
    line = [(float(x), 2.0 * x) for x in range(50)]
    smooth = running_mean(line, 3)
    assert [value for _, value in smooth[:40]] == pytest.approx([2.0 * x for x in range(40)]), "a line stays a line"
    assert smooth[-1][1] == pytest.approx((2 * 46 + 2 * 47 + 2 * 48 + 2 * 49) / 4)


def test_nothing_to_draw() -> None:
    for points in ((), ((1, math.nan),)):
        text = render_chart(Chart(LOSS, (Series("a", points),)))
        assert "Nothing was logged." in text and "没有记录。" in text and "<svg" not in text
    assert "<svg" in render_chart(Chart(LOSS, (Series("a", ((7, 3.0),)),))), "one point is a dot"
    assert "<svg" in render_chart(Chart(LOSS, (Series("a", ((1, 2.0), (2, 2.0))),))), "a constant has a height too"


def test_text_stays_text() -> None:
    nasty = "</svg><script>alert('\"&')</script>\x00\ud800"
    text = render_chart(Chart(nasty, (Series(nasty, ((1, 1.0), (2, 2.0))),), levels=(Level(1, nasty),)))
    assert "<script" not in text and "\x00" not in text
    text.encode("utf-8")


def test_points_can_be_read_out() -> None:
    chart = Chart(LOSS, (Series(Phrase("training", "训练"), ((10, 0.25), (20, 0.5))),), format="percent")
    found = re.search(r'data-chart="([^"]*)"', render_chart(chart))
    assert found
    data = json.loads(unescape(found[1]))
    (series,) = data["series"]
    assert series["name"] == {"en": "training", "zh": "训练"}
    assert [(step, value.replace("\u00a0", " ")) for _, _, step, value in series["points"]] == [
        (10, "25.0 %"),
        (20, "50.0 %"),
    ]


def test_lines_of_one_name_stand_once_in_the_legend() -> None:
    others = tuple(Series(Phrase("other seeds", "其他种子"), ((1, float(i)), (2, 2.0)), "other") for i in range(3))
    text = render_chart(Chart(LOSS, (*others, Series("kept", ((2, 2.0),), "kept", dots=True))))
    assert text.count('class="key other"') == 1 and text.count('class="line other"') == 3 and "key kept dotted" in text
