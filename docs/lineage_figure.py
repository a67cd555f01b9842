"""Draws the lineage, in both languages; bench/lineage.py calls it, given --json.

    .venv/bin/python docs/lineage_figure.py docs/images/lineage.json

On the left a panel for every set, with its systems in the order of the lineage; below, the same hidden words guessed
from the left and from both sides. The pictures lie beside the numbers. The same numbers give the same picture.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drawing import Drawing

SYSTEMS = {"word2vec": "word2vec", "elmo": "ELMo", "gpt": "GPT", "bert": "BERT"}
COLOURS = {"word2vec": "soft", "elmo": "red", "gpt": "green", "bert": "blue"}
SETS = {  # English, Chinese
    "sst2": ("SST-2", "SST-2 英文情感"),
    "chnsenticorp": ("ChnSentiCorp", "ChnSentiCorp 中文情感"),
    "conll2003": ("CoNLL-2003", "CoNLL-2003 英文实体"),
    "msra_ner": ("MSRA NER", "MSRA 中文实体"),
    "squad": ("SQuAD 1.1", "SQuAD 1.1 阅读理解"),
    "wic": ("WiC", "WiC 一词多义"),
}
LANGUAGES = {"en": ("English", "英文"), "zh": ("Chinese", "中文")}
LEFT, TOP, WIDTH, HEIGHT = 56, 84, 264, 168
ACROSS, DOWN = 316, 240


class Panel:
    """Points with intervals, side by side, on an axis of percent."""

    def __init__(self, sheet: Drawing, number: int, title: str, low: float, high: float, columns: int) -> None:
        self.sheet, self.columns = sheet, columns
        self.left, self.top = LEFT + number % 3 * ACROSS, TOP + number // 3 * DOWN
        self.low, self.high = low, high
        sheet.text(self.left - 34, self.top - 12, title, 13, bold=True)
        sheet.rect(self.left, self.top, WIDTH, HEIGHT, "f-box", 6)
        step = next(step for step in (2, 5, 10, 20, 25) if (high - low) / step <= 6)
        for tick in range(int(low), int(high) + 1):
            if tick % step == 0:
                y = self.y(tick)
                sheet.line([(self.left, y), (self.left + WIDTH, y)], "s-rule", 1)
                sheet.text(self.left - 6, y + 4, str(tick), 10.5, "f-soft", "end")

    def x(self, column: float) -> float:
        return self.left + (column + 0.5) * WIDTH / self.columns

    def y(self, percent: float) -> float:
        return self.top + HEIGHT - 8 - (percent - self.low) / (self.high - self.low) * (HEIGHT - 16)

    def point(self, column: float, one: Mapping[str, Any], value: str, colour: str) -> None:
        x, middle = self.x(column), 100 * one[value]
        self.sheet.line([(x, self.y(100 * one["low"])), (x, self.y(100 * one["high"]))], f"s-{colour}", 1.6)
        self.sheet.dot(x, self.y(middle), 4, f"f-{colour}")
        self.sheet.text(x, self.y(100 * one["high"]) - 5, f"{middle:.1f}", 11, "f-ink", "middle")


def bounds(values: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Around all intervals, to whole fives."""
    low = 5 * math.floor(min(100 * one["low"] for one in values) / 5 - 0.2)
    high = 5 * math.ceil(max(100 * one["high"] for one in values) / 5 + 0.4)  # with room for a number above
    return max(0, low), min(100, high)


def figure(found: Mapping[str, Any], zh: bool) -> Drawing:
    tasks = [task for task in SETS if any(one["task"] == task for one in found["finetune"])]
    languages = list(found["sides"])
    panels = len(tasks) + len(languages)
    title = (
        "同一语料、同样多的参数、同样长的时间：从词向量到 BERT（竖线为 95 % 区间）"
        if zh
        else "One corpus, equal parameters, equal minutes: from word vectors to BERT (bars are 95 % intervals)"
    )
    sheet = Drawing(LEFT + 3 * ACROSS - 20, TOP + math.ceil(panels / 3) * DOWN - 8, title)
    for number, task in enumerate(tasks):
        own = [one for name in SYSTEMS for one in found["finetune"] if one["task"] == task and one["system"] == name]
        figures = ("准确率" if zh else "accuracy") if own[0]["figure"] == "accuracy" else "F1"
        panel = Panel(
            sheet, number, f"{SETS[task][zh]}，{figures}" if zh else f"{SETS[task][zh]}, {figures}", *bounds(own), 4
        )
        for column, (name, shown) in enumerate(SYSTEMS.items()):
            sheet.text(panel.x(column), panel.top + HEIGHT + 18, shown, 12, f"f-{COLOURS[name]}", "middle", bold=True)
        for one in own:
            panel.point(list(SYSTEMS).index(one["system"]), one, "value", COLOURS[one["system"]])
    for number, language in enumerate(languages, len(tasks)):
        ways = [one for one in found["sides"][language] if one["side"] in ("left", "both")]
        name = LANGUAGES.get(language, (language, language))[zh]
        said = f"猜被遮住的词，{name}，首选命中" if zh else f"Hidden words, {name}, top-1"
        panel = Panel(sheet, number, said, *bounds(ways), 2)
        for column, side in enumerate(("只看左边", "两边都看") if zh else ("left only", "both sides")):
            sheet.text(panel.x(column), panel.top + HEIGHT + 18, side, 12, "f-ink", "middle")
        for one in ways:
            beside = 0.24 * (list(SYSTEMS).index(one["system"]) - 1.5)
            panel.point((one["side"] == "both") + beside, one, "accuracy", COLOURS[one["system"]])
    if panels % 3:
        left, top = LEFT + panels % 3 * ACROSS, TOP + panels // 3 * DOWN
        for row, (name, shown) in enumerate(SYSTEMS.items()):
            sheet.dot(left + 8, top + 20 + 24 * row, 4, f"f-{COLOURS[name]}")
            sheet.text(left + 22, top + 24 + 24 * row, f"{shown}{told(found, name, zh)}", 12.5)
    return sheet


def told(found: Mapping[str, Any], system: str, zh: bool) -> str:
    """How large it is, where that was written down."""
    if system not in found["pretrain"]:
        return ""
    parameters = found["pretrain"][system]["parameters"]
    return f"，{parameters / 1e4:,.0f} 万个参数" if zh else f", {parameters / 1e6:.1f} M parameters"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    file = Path(sys.argv[1])
    found = json.loads(file.read_text(encoding="utf-8"))
    for ending, zh in ((".svg", False), (".zh.svg", True)):
        file.with_suffix(ending).write_text(figure(found, zh).svg(), encoding="utf-8")
    print("2 figures beside their numbers")


if __name__ == "__main__":
    main()
