"""Draws BLEU by the length of the source, in both languages; bench/translation_length.py calls it, given --out.

    .venv/bin/python docs/translation_figure.py docs/images/translation_length.json

The pictures lie beside the numbers. The same numbers give the same picture.
"""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drawing import Drawing

LEFT, TOP, WIDTH, HEIGHT = 64, 84, 620, 300
LOOKS = {  # colour, dashes
    "fixed": ("red", ""),
    "every_step": ("red", "6 4"),
    "attention": ("blue", ""),
    "transformer": ("green", ""),
}
NAMES = {  # English, Chinese
    "fixed": ("seq2seq, fixed context", "序列到序列，固定的 C"),
    "every_step": ("the same, C at every step", "同上，每步都有 C"),
    "attention": ("seq2seq with attention", "序列到序列加注意力"),
    "transformer": ("Transformer", "Transformer"),
}


def figure(found: Mapping[str, Any], zh: bool) -> Drawing:
    groups, systems = found["groups"], found["systems"]
    title = (
        "句子越长，译得越差吗：按原文词数分组的 BLEU（竖线为 95 % 区间）"
        if zh
        else "BLEU by the length of the source (bars are 95 % intervals)"
    )
    sheet = Drawing(LEFT + WIDTH + 36, TOP + HEIGHT + 74 + 22 * math.ceil(len(systems) / 2), title)
    highest = max(score["high"] for one in systems.values() for score in one["by_length"])
    top = 10 * math.ceil(highest / 10 + 1e-9)
    sheet.rect(LEFT, TOP, WIDTH, HEIGHT, "f-box", 6)

    def y(value: float) -> float:
        return TOP + HEIGHT - 8 - value / top * (HEIGHT - 16)

    for tick in range(0, top + 1, 10):
        sheet.line([(LEFT, y(tick)), (LEFT + WIDTH, y(tick))], "s-rule", 1)
        sheet.text(LEFT - 8, y(tick) + 4, str(tick), 11, "f-soft", "end")
    sheet.text(LEFT - 40, TOP - 14, "BLEU", 12, "f-soft")
    places = [LEFT + (number + 0.5) * WIDTH / len(groups) for number in range(len(groups))]
    for x, group in zip(places, groups, strict=True):
        named = str(group["from"]) if group["from"] == group["to"] else f"{group['from']}–{group['to']}"
        sheet.text(x, TOP + HEIGHT + 18, named, 12, "f-ink", "middle")
        sheet.text(x, TOP + HEIGHT + 34, f"n = {group['sentences']}", 10.5, "f-soft", "middle")
    words = "原文的词数" if zh else "words of the source"
    sheet.text(LEFT + WIDTH, TOP + HEIGHT + 54, words, 12, "f-soft", "end")
    for number, (name, one) in enumerate(systems.items()):
        colour, dash = LOOKS.get(name, ("ink", f"{number + 1} 3"))
        aside = 5 * (number - (len(systems) - 1) / 2)  # so that bars do not hide one another
        points = [(x + aside, y(score["bleu"])) for x, score in zip(places, one["by_length"], strict=True)]
        for (x, _), score in zip(points, one["by_length"], strict=True):
            sheet.line([(x, y(score["low"])), (x, y(score["high"]))], f"s-{colour}", 1)
        sheet.line(points, f"s-{colour}", 2.2, dash)
        for point in points:
            sheet.dot(*point, 3.2, f"f-{colour}")
        x, below = LEFT + number % 2 * WIDTH / 2, TOP + HEIGHT + 74 + 22 * (number // 2)
        sheet.line([(x, below), (x + 30, below)], f"s-{colour}", 2.2, dash)
        said = NAMES.get(name, (name, name))[zh]
        sheet.text(x + 38, below + 4, f"{said}{'，全部' if zh else ', all'} {one['all']['bleu']:.1f}", 12)
    return sheet


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
