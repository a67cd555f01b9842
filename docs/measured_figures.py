"""Draws from what was measured, in both languages; bench/distance.py and bench/probes.py call it, given --out.

    .venv/bin/python docs/measured_figures.py docs/images/distance.json      # the figure of distance.md
    .venv/bin/python docs/measured_figures.py docs/images/probes.json        # the figure of elmo.md

The pictures lie beside the numbers. The same numbers give the same picture.
"""

import json
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drawing import Drawing

WIDTH, HEIGHT = 392, 216
"""Of a panel."""
FLOOR = 1e-12
"""The lowest gradient that is drawn; what is smaller lies on the bottom."""


@dataclass(frozen=True)
class Look:
    colour: str
    dash: str = ""
    width: float = 2.2


LOOKS = {
    "rnn": Look("red"),
    "lstm": Look("blue"),
    "peephole": Look("blue", "8 3"),
    "coupled": Look("blue", "2 3"),
    "gru": Look("ink", "", 1.6),
    "attention": Look("green", "", 2.8),
    "attention, no positions": Look("green", "5 4"),
}
CONVOLUTION = Look("soft", "", 1.3)
NAMES = {  # English, Chinese
    "rnn": ("RNN", "RNN"),
    "lstm": ("LSTM", "LSTM"),
    "peephole": ("peephole LSTM", "窥视孔 LSTM"),
    "coupled": ("coupled LSTM", "耦合门 LSTM"),
    "gru": ("GRU", "GRU"),
    "attention": ("self-attention", "自注意力"),
    "attention, no positions": ("the same, no positions", "自注意力，无位置"),
}


class Panel:
    """A place on the sheet with a logarithmic axis of distances and one of values, straight or logarithmic."""

    def __init__(
        self, sheet: Drawing, left: float, top: float, distances: Sequence[int], low: float, high: float, log: bool
    ) -> None:
        self.sheet, self.left, self.top = sheet, left, top
        self.first, self.last = distances[0], distances[-1]
        self.low, self.high, self.log = low, high, log
        sheet.rect(left, top, WIDTH, HEIGHT, "f-box", 6)
        for distance in distances:
            if math.log2(distance).is_integer():
                sheet.text(self.x(distance), top + HEIGHT + 16, str(distance), 11, "f-soft", "middle")

    def x(self, distance: float) -> float:
        share = math.log(distance / self.first) / math.log(self.last / self.first)
        return self.left + 14 + share * (WIDTH - 28)

    def y(self, value: float) -> float:
        if self.log:
            value = max(value, self.low)
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.top + HEIGHT - 8 - share * (HEIGHT - 16)

    def ticks(self, values: Sequence[float], write: Callable[[float], str]) -> None:
        for value in values:
            y = self.y(value)
            self.sheet.line([(self.left, y), (self.left + WIDTH, y)], "s-rule", 1)
            self.sheet.text(self.left - 6, y + 4, write(value), 11, "f-soft", "end")

    def curve(self, distances: Sequence[int], seeds: Sequence[Sequence[float]], look: Look) -> None:
        """The mean of all seeds, on a logarithmic axis the geometric one, and from the lowest to the highest seed."""
        points = []
        for distance, values in zip(distances, seeds, strict=True):
            above = [max(value, self.low) for value in values] if self.log else list(values)
            mean = statistics.geometric_mean(above) if self.log else statistics.fmean(above)
            points.append((self.x(distance), self.y(mean)))
            low, high = self.y(min(above)), self.y(max(above))
            if low - high > 3:
                self.sheet.line([(self.x(distance), low), (self.x(distance), high)], f"s-{look.colour}", 1)
        self.sheet.line(points, f"s-{look.colour}", look.width, look.dash)
        if not look.dash:
            for point in points:
                self.sheet.dot(*point, 1 + look.width / 2, f"f-{look.colour}")


def powers(value: float) -> str:
    digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return "10" + str(round(math.log10(value))).translate(digits) if value != 1 else "1"


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def distance(found: Mapping[str, Any], zh: bool) -> Drawing:
    settings, curves, reach = found["settings"], found["curves"], found["reach"]
    farthest = settings["farthest"]
    title = (
        "能看多远：约一万个参数、同样的训练步数，记住 d 步之前的一个符号"
        if zh
        else "How far back: one symbol, d steps ago, with 10,000 parameters and as many steps for each network"
    )
    heads = (
        (
            "输出对 d 步之前输入的梯度：训练之前",
            "同一梯度：只用距离 d 训练之后",
            "答对的比例：只用距离 d 训练",
            f"答对的比例：距离 1 到 {farthest} 混合训练，只画循环单元",
        )
        if zh
        else (
            "Gradient of the output by the input d steps before: untrained",
            "The same gradient, after training at distance d alone",
            "Right answers, trained at distance d alone",
            f"Right answers, trained on distances 1 to {farthest} together",
        )
    )
    sheet = Drawing(940, 724, title)
    chance = ("猜：" if zh else "guessing: ") + f"{100 * found['chance']:.1f} %"
    for number, key in enumerate(("gradient_before", "gradient_after", "right", "kept")):
        left, top = 60 + number % 2 * 458, 84 + number // 2 * 300
        distances = settings["kept_distances" if key == "kept" else "distances"]
        is_gradient = key.startswith("gradient")
        sheet.text(left - 36, top - 12, heads[number], 13, bold=True)
        panel = Panel(sheet, left, top, distances, *((FLOOR, 10.0, True) if is_gradient else (0.0, 1.0, False)))
        sheet.text(left + WIDTH / 2, top + HEIGHT + 32, "距离 d" if zh else "distance d", 11, "f-soft", "middle")
        if is_gradient:
            panel.ticks([10.0**power for power in range(-12, 2, 3)], powers)
        else:
            panel.ticks([0, 0.25, 0.5, 0.75, 1], percent)
            y = panel.y(found["chance"])
            sheet.line([(left, y), (left + WIDTH, y)], "s-soft", 1, dash="3 3")
            sheet.text(left + 6, y + 13, chance, 10.5, "f-soft")
        if key == "kept":
            x = panel.x(farthest)
            sheet.line([(x, top), (x, top + HEIGHT)], "s-soft", 1, dash="3 3")
            sheet.text(x + 6, top + HEIGHT / 2, "训练时没有这么远" if zh else "farther than trained", 10.5, "f-soft")
        named = sorted(curves[key], key=lambda name: name in LOOKS)  # convolutions below
        for name in named:
            panel.curve(distances, curves[key][name], LOOKS.get(name, CONVOLUTION))
        if key == "right":
            for name, back in reach.items():
                seen = [place for place, distance in enumerate(distances) if distance <= back]
                if seen:  # the number stands where the last of it is seen
                    y = panel.y(statistics.fmean(curves[key][name][seen[-1]]))
                    sheet.text(panel.x(distances[seen[-1]]) + 7, y + 14, str(back), 11, "f-soft", bold=True)
    legend(sheet, 60, 664, zh, reach)
    return sheet


def legend(sheet: Drawing, left: float, top: float, zh: bool, reach: Mapping[str, int]) -> None:
    names = {name: pair[zh] for name, pair in NAMES.items()}
    names["conv"] = (
        f"残差卷积（数字：能看到几步之前，{'、'.join(map(str, reach.values()))}）"
        if zh
        else f"convolutions with residuals (number: how far back they see, {', '.join(map(str, reach.values()))})"
    )
    places = [(0, 0), (110, 0), (230, 0), (400, 0), (570, 0), (0, 26), (170, 26), (400, 26)]
    for (x, y), (name, words) in zip(places, names.items(), strict=True):
        look = LOOKS.get(name, CONVOLUTION)
        line = [(left + x, top + y), (left + x + 30, top + y)]
        sheet.line(line, f"s-{look.colour}", look.width, look.dash)
        sheet.text(left + x + 37, top + y + 4, words, 12)


def probes(found: Mapping[str, Any], zh: bool) -> Drawing:
    """Two panels, models side by side, from the lowest layer to the highest."""
    title = (
        "每一层知道什么：在冻结的向量上训练线性探针（竖线为 95 % 区间）"
        if zh
        else "What each layer knows: linear probes on frozen vectors (bars are 95 % intervals)"
    )
    heads = (
        ("词性（CoNLL-2003）", "同一个词，意思相同吗（WiC）")
        if zh
        else ("Part of speech (CoNLL-2003)", "The same sense in both sentences? (WiC)")
    )
    sheet = Drawing(940, 420, title)
    colours = dict(zip(found["models"], ("red", "blue", "green", "ink", "soft"), strict=False))
    by_word = found["baselines"]["most frequent tag of the word"]["right"]
    words = ("每个词最常见的词性", "猜", "层") if zh else ("the word's most frequent tag", "guessing", "layer")
    for number, (key, level, name) in enumerate(
        (("part of speech", by_word, words[0]), ("wic", found["wic chance"]["right"], words[1]))
    ):
        left, top, height = 60 + number * 458, 84, 236
        scores = [score for model in found["models"].values() for score in model[key]]
        scores += [score["cosine"] for score in scores if "cosine" in score]
        low = math.floor(20 * min([level, *(score["low"] for score in scores)])) / 20
        high = min(1.0, math.ceil(20 * max([level, *(score["high"] for score in scores)])) / 20)
        sheet.text(left - 36, top - 12, heads[number], 13, bold=True)
        sheet.rect(left, top, WIDTH, height, "f-box", 6)

        def y(value: float, low: float = low, high: float = high, top: int = top, height: int = height) -> float:
            return top + height - 8 - (value - low) / (high - low) * (height - 16)

        for tick in range(round(20 * low), round(20 * high) + 1, 1 if high - low < 0.35 else 2):
            sheet.line([(left, y(tick / 20)), (left + WIDTH, y(tick / 20))], "s-rule", 1)
            sheet.text(left - 6, y(tick / 20) + 4, percent(tick / 20), 11, "f-soft", "end")
        sheet.line([(left, y(level)), (left + WIDTH, y(level))], "s-soft", 1.2, dash="3 3")
        sheet.text(left + WIDTH - 6, y(level) - 5, name, 10.5, "f-soft", "end")
        total = sum(len(model["layers"]) + 1 for model in found["models"].values())
        place = 1.25
        for model, colour in colours.items():
            layers = found["models"][model]["layers"]
            xs = [left + (place + index) / total * WIDTH for index in range(len(layers))]
            rows = [(found["models"][model][key], True)]
            if key == "wic":
                rows.insert(0, ([score["cosine"] for score in found["models"][model][key]], False))
            for row, is_probe in rows:
                points = [(x, y(score["right"])) for x, score in zip(xs, row, strict=True)]
                if len(points) > 1:
                    sheet.line(points, f"s-{colour}", 2 if is_probe else 1.2, "" if is_probe else "2 3")
                for (x, middle), score in zip(points, row, strict=True):
                    if is_probe:
                        sheet.line([(x, y(score["low"])), (x, y(score["high"]))], f"s-{colour}", 1)
                    sheet.dot(x, middle, 3.6 if is_probe else 2.2, f"f-{colour}")
            for x, layer in zip(xs, layers, strict=True):
                sheet.text(x, top + height + 15, layer, 10, "f-soft", "middle")
            sheet.text(sum(xs) / len(xs), top + height + 32, model, 12, f"f-{colour}", "middle", bold=True)
            place += len(layers) + 1
        sheet.text(left - 6, top + height + 15, words[2], 10, "f-soft", "end")
    below = (
        "实线：线性探针；虚线（右图）：只对余弦取阈值。"
        if zh
        else "Solid: linear probe. Dotted, on the right: a threshold on the cosine alone."
    )
    sheet.text(60, 398, below, 12, "f-soft")
    return sheet


def main() -> None:
    figures = {"distance": distance, "probes": probes}
    for name in sys.argv[1:] or sys.exit(__doc__):
        file = Path(name)
        found = json.loads(file.read_text(encoding="utf-8"))
        for ending, zh in ((".svg", False), (".zh.svg", True)):
            file.with_suffix(ending).write_text(figures[file.stem](found, zh).svg(), encoding="utf-8")
    print(f"{2 * len(sys.argv[1:])} figures beside their numbers")


if __name__ == "__main__":
    main()
