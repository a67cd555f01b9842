"""BERT-base pretraining on one GPU: qkv, transformers eager and compiled, and what the machine can do, in one run.

    PYTHONPATH=src python3 bench/pretrain_gpu.py                      # about two and a half minutes
    PYTHONPATH=src python3 bench/pretrain_gpu.py --only qkv --profile # where qkv's time goes
    PYTHONPATH=src python3 bench/pretrain_gpu.py --only eager mixed --dropout 0 --json runs/gpu.json

A step is all of it: forward, backward, clipping, AdamW, in bf16 autocast with fp32 weights; 15 % of the tokens are
masked, and every row has a next-sentence label (gpu_sides.py). Three kinds of rows, ready on the device:

    128     512 rows of 128 tokens, none of them padding
    512     128 rows of 512 tokens, likewise
    mixed   128 rows as long as paragraphs of English Wikipedia, in random order: transformers pads, qkv packs

model-TFLOP/s is one formula for all sides: the arithmetic of the whole model on the rows without padding, the head on
masked tokens alone. What a side computes beyond that does not count for it; what it finds a way to leave out (qkv, most
of the last block for tokens that nobody reads) counts nevertheless. "computed", for qkv, is without what it leaves out:
how busy the machine is with qkv's own products. Only real tokens count. Whoever fills rows with text from several
documents instead of padding finds his figures under 512. Memory is the peak of a step, weights and optimizer included.

"× transformers" compares with the faster transformers line of the same rows, "memory" with the leaner one. Compiled
sides are run last, and what would not end within --seconds is left out.
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_limits import Limits, limits
from gpu_profile import Profile, profiled
from gpu_sides import Measured, Side, emptied, measured, ours, ready, theirs
from rich.console import Console
from rich.table import Table

from qkv.data.batch import Batch
from qkv.models.bert.network import BertConfig

SHARES = [*(np.arange(50) / 50), 0.99, 0.995, 0.999, 1]
# fmt: off
PARAGRAPHS = [
    8, 8, 9, 11, 12, 15, 18, 21, 25, 28, 32, 36, 39, 43, 46, 49, 53, 56, 60, 63, 66, 70, 73, 76, 79, 83, 86, 89, 93,
    96, 99, 103, 107, 111, 115, 119, 124, 129, 134, 139, 145, 151, 159, 166, 176, 187, 200, 217, 240, 279, 318, 361,
    472, 512,
]
# fmt: on
"""Quantiles, at SHARES, of the lengths of 56,858 paragraphs of English Wikipedia (titles and headings are paragraphs
too) as rows of at most 512 tokens, in the vocabulary of bert-base-uncased; mean 94.7."""

SIDES: dict[str, Side] = {
    "qkv": ours,
    "qkv-compiled": partial(ours, compiled=True),
    "eager": theirs,
    "compiled": partial(theirs, compiled=True),
}
NAMES = {
    "qkv": "qkv",
    "qkv-compiled": "qkv, compiled",
    "eager": "transformers",
    "compiled": "transformers, compiled",
}
KINDS = ("128", "512", "mixed")
BEGAN = time.perf_counter()


@dataclass(frozen=True)
class Setting:
    kind: str
    config: BertConfig
    batches: Sequence[Batch]

    @property
    def title(self) -> str:
        batch = self.batches[0]
        shape = "real lengths" if self.kind == "mixed" else f"T={batch.longest}"
        return f"B={batch.n_rows} {shape}, dropout {self.config.dropout:g}"


@dataclass(frozen=True)
class Result:
    setting: Setting
    side: str
    found: Measured | None
    failure: str = ""

    def json(self) -> dict[str, Any]:
        said: dict[str, Any] = self.found.json() if self.found else {"failure": self.failure}
        if not self.side.startswith("qkv"):
            said.pop("computed", None)
        return {"rows": self.setting.kind, "dropout": self.setting.config.dropout, "side": self.side, **said}


def settings(options: argparse.Namespace, kinds: Sequence[str]) -> list[Setting]:
    draw = np.random.default_rng(0)
    mixed = [np.interp(draw.random(options.rows), SHARES, PARAGRAPHS).astype(np.int64) for _ in range(5)]
    lengths = {"128": [np.full(512, 128)] * 2, "512": [np.full(128, 512)] * 2, "mixed": mixed}
    size: dict[str, Any] = {}
    if options.tiny:
        lengths = {kind: [rows[:4] // 4 + 4 for rows in batches] for kind, batches in lengths.items()}
        size = {"layers": 2, "width": 32, "heads": 2, "inner_width": 64, "vocabulary_size": 200}
    found = []
    for dropout in options.dropout:
        config = BertConfig.preset("base", dropout=dropout, attention_dropout=options.attention_dropout, **size)
        found += [Setting(kind, config, ready(config, lengths[kind])) for kind in kinds]
    return found


def result(setting: Setting, side: str, device: torch.device, steps: int) -> Result:
    """What goes wrong in one part is told in its line, and the others go on."""
    try:
        return Result(setting, side, measured(SIDES[side], setting.config, setting.batches, device, steps))
    except Exception as error:  # a compiler raises anything
        return Result(setting, side, None, said(error))


def said(error: Exception) -> str:
    traceback.print_exception(error, limit=-6)
    return f"{type(error).__name__}: {error}".splitlines()[0][:100]


def show(results: Sequence[Result], limit: Limits | None, attention_dropout: float) -> None:
    title = f"BERT-base, masked words and next sentence, bf16, attention dropout {attention_dropout:g}"
    table = Table(title=title)
    headings = (
        "rows",
        "",
        "ms a step",
        "real tokens/s",
        "model-TFLOP/s",
        "computed",
        "of block",
        "× transformers",
        "GiB",
        "memory",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("rows", "") else "right")
    titles = list(dict.fromkeys(one.setting.title for one in results))
    for title in titles:
        group = sorted(
            (one for one in results if one.setting.title == title), key=lambda one: list(SIDES).index(one.side)
        )
        peers = [one.found for one in group if one.found and one.side in ("eager", "compiled")]
        for one in group:
            if one.found is None:
                table.add_row(title, NAMES[one.side], one.failure)
                continue
            found = one.found
            speed, memory = "", ""
            if peers:
                speed = f"{min(peer.milliseconds for peer in peers) / found.milliseconds:.2f}"
                memory = f"{found.memory / max(1e-9, min(peer.memory for peer in peers)):.2f}"
            table.add_row(
                title,
                NAMES[one.side],
                f"{found.milliseconds:.1f}",
                f"{found.tokens:,.0f}",
                f"{found.teraflops:,.0f}",
                f"{found.computed:,.0f}" if one.side.startswith("qkv") else "",
                f"{found.teraflops / limit.block:.0%}" if limit else "",
                speed,
                f"{found.memory:.1f}",
                memory,
            )
        table.add_section()
    Console(width=160).print(table)


def show_profile(setting: Setting, side: str, found: Profile) -> None:
    table = Table(title=f"{NAMES[side]}, {setting.title}: {found.wall:.1f} ms a step, {found.launches:,} kernels")
    table.add_column("")
    for heading in ("ms", "of the step", "launches"):
        table.add_column(heading, justify="right")
    for group, milliseconds in sorted(found.groups.items(), key=lambda pair: -pair[1]):
        table.add_row(group, f"{milliseconds:.2f}", f"{milliseconds / found.wall:.1%}", "")
    table.add_row("nothing", f"{found.wall - found.busy:.2f}", f"{1 - found.busy / found.wall:.1%}", "")
    table.add_section()
    for name, milliseconds, count in found.kernels:
        table.add_row(name[:110], f"{milliseconds:.2f}", f"{milliseconds / found.wall:.1%}", str(count))
    Console(width=150).print(table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("limits", *SIDES, *KINDS)
    parser.add_argument("--only", nargs="+", choices=names, default=[], help="sides and rows; without any, all of them")
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.1, 0.0], help="of hidden states")
    parser.add_argument("--attention-dropout", type=float, default=0.0, help="on both sides")
    parser.add_argument("--rows", type=int, default=128, help="of a batch of mixed lengths")
    parser.add_argument("--steps", type=int, default=5, help="of a block; three blocks are timed")
    parser.add_argument("--seconds", type=float, default=150, help="what would end later is not begun")
    parser.add_argument("--quick", action="store_true", help="two steps, the first dropout, nothing compiled")
    parser.add_argument("--profile", action="store_true", help="of qkv: which kernels take the time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured, after every part")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)  # every path, on a CPU, no figures
    options = parser.parse_args()
    if options.quick:
        options.steps, options.dropout = 2, options.dropout[:1]
    return options


def main() -> None:
    options = arguments()
    if not torch.cuda.is_available() and not options.tiny:
        print("There is no GPU here; bench/pretrain_cpu.py measures a step on a CPU.", file=sys.stderr)
        sys.exit(2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    usual = [side for side in SIDES if side != "qkv-compiled" and not (options.quick and side == "compiled")]
    sides = [side for side in SIDES if side in options.only] or (usual if options.only != ["limits"] else [])
    kinds = [kind for kind in KINDS if kind in options.only] or list(KINDS)
    document: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "attention_dropout": options.attention_dropout,
        "results": [],
        "profiles": [],
    }

    def write() -> None:
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")

    limit = None
    if not options.only or "limits" in options.only:
        square, tokens = (64, 64) if options.tiny else (8192, 65_536)
        limit = limits(BertConfig.preset("base"), tokens, square, device)
        document["limits"] = asdict(limit)
        print(limit.text(square), flush=True)
        write()
    results: list[Result] = []
    # seconds of compiling; what the first one took, once it is known
    compiling = {side: 0.0 if options.tiny else 35.0 for side in sides if side.endswith("compiled")}
    chosen = settings(options, kinds) if sides else []
    for side in sorted(sides, key=lambda side: side in compiling):
        for setting in chosen:
            expected = compiling.get(side, 0.0) + 5
            if time.perf_counter() - BEGAN + expected > options.seconds:
                print(f"left out, no time: {NAMES[side]}, {setting.title}", flush=True)
                continue
            results.append(result(setting, side, device, options.steps))
            print(json.dumps(results[-1].json()), flush=True)
            document["results"].append(results[-1].json())
            if side in compiling and (found := results[-1].found):
                compiling[side] = found.warm_up
            if options.profile and side.startswith("qkv"):
                try:
                    document["profiles"].append(profile_of(setting, side, device))
                except Exception as error:
                    print(f"no profile: {said(error)}", flush=True)
            write()
    emptied(device)
    if results:
        show(results, limit, options.attention_dropout)


def profile_of(setting: Setting, side: str, device: torch.device) -> dict[str, Any]:
    emptied(device)
    step = SIDES[side](setting.config, setting.batches, device)
    for number in range(len(setting.batches) + 2):
        step(number)
    found = profiled(step, device)
    show_profile(setting, side, found)
    return {"rows": setting.kind, "dropout": setting.config.dropout, "side": side, **asdict(found)}


if __name__ == "__main__":
    main()
