"""Each recurrent cell against torch.nn, forward and backward, as ratios of one run.

    python bench/recurrent.py                       # the sizes below, on 2 threads
    python bench/recurrent.py --device cuda
    python bench/recurrent.py --rows 20 --length 35 --width 650

Rows of one length, and rows of lengths from a quarter of it to all of it. torch.nn has no peepholes and no coupled
gates: these stand beside torch.nn.LSTM. A ratio below 1 is faster than torch.nn. Contenders take turns, and of each the
median is taken, so that a machine that is busy for a while is busy for all of them.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from qkv.nn.recurrent import CELLS, GRU, RNN, Cell, RunCell, Timeline, explicit
from qkv.nn.recurrent_scan import scan
from qkv.nn.recurrent_stack import fastest, has_kernel, run_fused

SIZES = ((32, 35, 256), (20, 35, 650), (64, 64, 128))  # rows, tokens, width; 650 is Zaremba's medium
Step = Callable[[], None]


def ours(cell: Cell, run: RunCell, x: Tensor, lengths: tuple[int, ...]) -> Step:
    timeline = Timeline.of(lengths, device=x.device)

    def step() -> None:
        hidden, _ = run(cell, x, timeline, cell.begin(len(lengths)))
        hidden.sum().backward()

    return step


def theirs(module: nn.Module, x: Tensor, lengths: tuple[int, ...]) -> Step:
    """torch.nn as one uses it: a rectangle where there is one, else its packed rows."""
    even = len(set(lengths)) == 1

    def step() -> None:
        rows = x.view(len(lengths), -1, x.size(1)).transpose(0, 1) if even else None
        packed = nn.utils.rnn.pack_sequence(x.split(lengths), enforce_sorted=False) if rows is None else rows
        hidden, _ = module(packed)
        (hidden if rows is not None else hidden.data).sum().backward()

    return step


def peer(cell: Cell) -> nn.RNNBase:
    kind = nn.RNN if isinstance(cell, RNN) else nn.GRU if isinstance(cell, GRU) else nn.LSTM
    return kind(cell.inputs, cell.width)


def medians(contenders: dict[str, Step], blocks: int, wait: Step) -> dict[str, float]:
    """Seconds of a step; each contender runs once a block."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for block in range(blocks + 2):  # the first two also allocate and compile
        for name, step in contenders.items():
            wait()
            begin = time.perf_counter()
            step()
            wait()
            if block >= 2:
                seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(times) for name, times in seconds.items()}


def measured(rows: int, length: int, width: int, even: bool, device: torch.device, blocks: int) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    draw = torch.randint(max(1, length // 4), length + 1, (rows,))
    lengths = (length,) * rows if even else (length, *draw.tolist()[1:])
    x = torch.randn(sum(lengths), width, device=device, requires_grad=True)
    wait: Step = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    found = []
    for name, build in CELLS.items():
        cell = build(width, width).to(device)
        ways: dict[str, RunCell] = {"explicit": explicit, "scan": scan}
        if has_kernel(cell):
            ways["fused"] = run_fused
        contenders = {way: ours(cell, run, x, lengths) for way, run in ways.items()}
        contenders |= {"qkv": ours(cell, fastest, x, lengths)}
        module = peer(cell).to(device)
        contenders["torch.nn"] = theirs(module, x, lengths)
        seconds = medians(contenders, blocks, wait)
        ratios = {way: seconds[way] / seconds["torch.nn"] for way in contenders}
        found.append({"cell": name, "against": module.mode, "milliseconds": 1e3 * seconds["torch.nn"]} | ratios)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=35)
    parser.add_argument("--width", type=int, help="one size instead of all")
    parser.add_argument("--blocks", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    sizes = SIZES if options.width is None else ((options.rows, options.length, options.width),)
    console, results = Console(width=110), []
    for rows, length, width in sizes:
        for even in (True, False):
            title = f"{rows} rows of {'' if even else f'{length // 4} to '}{length} tokens, width {width}"
            table = Table(title=f"{title}: time by that of torch.nn")
            for heading in ("cell", "torch.nn", "ms", "qkv", "scan", "fused", "explicit"):
                table.add_column(heading, justify="left" if heading in ("cell", "torch.nn") else "right")
            for line in measured(rows, length, width, even, device, options.blocks):
                results.append({"rows": rows, "length": length, "width": width, "even": even} | line)
                ways = (f"{line[way]:.2f}" if way in line else "–" for way in ("qkv", "scan", "fused", "explicit"))
                table.add_row(line["cell"], line["against"], f"{line['milliseconds']:.1f}", *ways)
            console.print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
