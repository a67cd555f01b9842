"""How the cost of a training step grows with the length of rows, the width of the model and the size of the batch.

    python bench/scaling.py                              # on a GPU if there is one: a minute; else small, on a CPU
    python bench/scaling.py --only length --json runs/scaling.json

One thing grows and the rest stays: rows get longer while the tokens of a step stay the same, so that what is seen is
attention; the model gets wider, heads and inner width with it; a batch gets more rows. All rows are full, dropout is 0,
and a step is all of it, as in pretrain_gpu.py.

"work ∝" is the exponent by which the arithmetic grows from one line to the next, counted; "time ∝" the one by which
time does, measured. Where time grows more slowly than work, the machine was not busy before; where faster, something
beside the arithmetic takes over.
"""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_sides import Measured, measured, ours, ready
from rich.console import Console
from rich.table import Table

from qkv.models.bert.network import BertConfig

BAR = 24


@dataclass(frozen=True)
class Scale:
    """What stays while another thing grows, and how far each goes."""

    model: dict[str, Any]
    tokens: int
    length: int
    lengths: Sequence[int]
    widths: Sequence[int]
    rows: Sequence[int]
    head: int  # width of a head


GPU = Scale(
    model={"layers": 12, "width": 768},
    tokens=65_536,
    length=128,
    lengths=(64, 128, 256, 512, 1024, 2048),
    widths=(128, 256, 512, 768, 1024, 1536, 2048),
    rows=(1, 4, 16, 64, 256, 1024),
    head=64,
)
CPU = Scale(
    model={"layers": 2, "width": 128, "vocabulary_size": 4096},
    tokens=2048,
    length=64,
    lengths=(32, 64, 128, 256, 512, 1024),
    widths=(64, 128, 256, 512),
    rows=(1, 4, 16, 64),
    head=32,
)
TINY = Scale(
    model={"layers": 1, "width": 32, "vocabulary_size": 128},
    tokens=64,
    length=16,
    lengths=(16, 32),
    widths=(32, 64),
    rows=(1, 2),
    head=16,
)


@dataclass(frozen=True)
class Point:
    size: int  # of what grows
    rows: int
    length: int
    config: BertConfig

    @classmethod
    def of(cls, scale: Scale, size: int, rows: int, length: int, **changes: Any) -> "Point":
        model = scale.model | changes
        width = model["width"]
        config = BertConfig(
            **model,
            heads=width // scale.head,
            inner_width=4 * width,
            max_length=max(512, length),
            dropout=0.0,
            attention_dropout=0.0,
        )
        return cls(size, rows, length, config)


def by_length(scale: Scale) -> list[Point]:
    return [Point.of(scale, length, max(1, scale.tokens // length), length) for length in scale.lengths]


def by_width(scale: Scale) -> list[Point]:
    rows = max(1, scale.tokens // scale.length)
    return [Point.of(scale, width, rows, scale.length, width=width) for width in scale.widths]


def by_rows(scale: Scale) -> list[Point]:
    return [Point.of(scale, rows, rows, scale.length) for rows in scale.rows]


GROWING: dict[str, tuple[str, Callable[[Scale], list[Point]]]] = {
    "length": ("tokens a row", by_length),
    "width": ("width", by_width),
    "batch": ("rows", by_rows),
}


def slope(sizes: tuple[float, float], values: tuple[float, float]) -> float:
    """The exponent of the power law through two points.

    >>> slope((64, 128), (3.0, 12.0))
    2.0
    """
    return math.log(values[1] / values[0]) / math.log(sizes[1] / sizes[0])


def show(name: str, points: Sequence[Point], found: Sequence[Measured], place: str) -> None:
    heading, _ = GROWING[name]
    first = points[0].config
    shape = f"{first.layers} layers" + ("" if name == "width" else f" of {first.width}")
    rest = {
        "length": f"{points[0].rows * points[0].length:,} tokens a step",
        "width": f"{points[0].rows} rows of {points[0].length}",
        "batch": f"rows of {points[0].length}",
    }
    table = Table(title=f"By {name}: {shape}, {rest[name]}, {place}")
    counted = all(one.memory for one in found)  # not on a CPU
    growths: dict[str, Callable[[Measured], float]] = {
        "work ∝": lambda one: one.teraflops * one.milliseconds,
        "time ∝": lambda one: one.milliseconds,
    } | ({"memory ∝": lambda one: one.memory} if counted else {})
    for text in (heading, "ms a step", "tokens/s", "TFLOP/s", *(["GiB"] if counted else []), *growths):
        table.add_column(text, justify="right")
    table.add_column("time a token")
    costs = [1 / one.tokens for one in found]
    for number, (point, one, cost) in enumerate(zip(points, found, costs, strict=True)):
        exponents = [""] * len(growths)
        if number:
            before, sizes = found[number - 1], (points[number - 1].size, point.size)
            exponents = [f"{slope(sizes, (value(before), value(one))):.2f}" for value in growths.values()]
        table.add_row(
            f"{point.size:,}",
            f"{one.milliseconds:.2f}",
            f"{one.tokens:,.0f}",
            f"{one.teraflops:,.3g}",
            *([f"{one.memory:.2f}"] if counted else []),
            *exponents,
            "█" * max(1, round(BAR * cost / max(costs))),
        )
    Console(width=130).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(GROWING), default=list(GROWING))
    parser.add_argument("--steps", type=int, default=5, help="of a block; three blocks are timed")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2, help="on a CPU")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)  # every path, no figures
    options = parser.parse_args()
    device = torch.device(options.device)
    on_gpu = device.type == "cuda"
    torch.set_num_threads(options.threads)
    scale = TINY if options.tiny else GPU if on_gpu else CPU
    precision = "bf16" if on_gpu else "fp32"
    place = f"{torch.cuda.get_device_name()}, bf16" if on_gpu else f"CPU, {options.threads} threads, fp32"
    document: dict[str, Any] = {"device": place, "torch": torch.__version__}
    for name in options.only:
        points, found = [], []
        for point in GROWING[name][1](scale):
            batches = ready(point.config, [np.full(point.rows, point.length)])
            try:
                found.append(measured(partial(ours, precision=precision), point.config, batches, device, options.steps))
            except torch.OutOfMemoryError:
                print(f"{name} {point.size:,} and more do not fit into the memory", flush=True)
                break
            points.append(point)
        if not found:
            continue
        show(name, points, found, place)
        document[name] = [{"size": point.size, **one.json()} for point, one in zip(points, found, strict=True)]
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
