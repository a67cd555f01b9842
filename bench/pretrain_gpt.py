"""GPT-2's pretraining step on one GPU: qkv beside transformers' GPT2LMHeadModel, eager and compiled, in one run.

    PYTHONPATH=src python3 bench/pretrain_gpt.py                      # about three minutes
    PYTHONPATH=src python3 bench/pretrain_gpt.py --only qkv 1024 --profile    # where qkv's time goes
    PYTHONPATH=src python3 bench/pretrain_gpt.py --only eager mixed --dropout 0 --json runs/gpt.json

A step is all of it: forward, backward, clipping, fused AdamW, in bf16 autocast with fp32 weights, the next token of
every token predicted. Two kinds of rows, ready on the device:

    1024    16 rows of 1,024 tokens, none of them padding
    mixed   160 rows as long as paragraphs of English Wikipedia (pretrain_gpu.py): transformers pads, qkv packs

transformers is given no mask: with padding on the right no token sees it, its predictions are not scored, and without a
mask the faster attention is taken. Only real tokens count. TFLOP/s are of the model on them, by one formula for all
sides. Memory is the peak of a step, weights and optimizer included. "× transformers" compares with the faster
transformers line of the same rows, "memory" with the leaner one. Compiled sides are run last, and what would not end
within --seconds is left out.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_profile import profiled
from gpu_sides import LR, Step, emptied, finish, their_step, timed
from numpy.typing import NDArray
from pretrain_gpu import PARAGRAPHS, SHARES, said
from rich.console import Console
from rich.table import Table
from torch import nn

from qkv.data.batch import IGNORE, Batch
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.models.gpt.objective import Causal, causal_flops
from qkv.nn.gpu.layers import WeightCasts
from qkv.train.log import Silent
from qkv.train.loop import Job, TrainConfig, Trainer

KINDS = ("1024", "mixed")
BEGAN = time.perf_counter()
Side = Callable[[GPTConfig, Sequence[Batch], torch.device], Step]


@dataclass(frozen=True)
class Setting:
    kind: str
    config: GPTConfig
    batches: Sequence[Batch]

    @property
    def title(self) -> str:
        batch = self.batches[0]
        shape = "real lengths" if self.kind == "mixed" else f"T={batch.longest}"
        return f"B={batch.n_rows} {shape}, dropout {self.config.dropout:g}"


@dataclass(frozen=True)
class Measured:
    milliseconds: float  # a step
    tokens: float  # real ones a second
    teraflops: float  # a second, of the model on real tokens
    memory: float  # GiB at the peak; 0 on a CPU, where nobody counts
    warm_up: float  # seconds of building, the first steps and compiling


@dataclass(frozen=True)
class Result:
    setting: Setting
    side: str
    found: Measured | None
    failure: str = ""

    def json(self) -> dict[str, Any]:
        facts: dict[str, Any] = asdict(self.found) if self.found else {"failure": self.failure}
        return {"rows": self.setting.kind, "dropout": self.setting.config.dropout, "side": self.side, **facts}


def ready(config: GPTConfig, lengths: Sequence[NDArray[np.int64]]) -> list[Batch]:
    """A batch for each array of row lengths, of made-up tokens as often as words are (Zipf); rows by their lengths, as
    a run has them."""
    weights = 1 / (np.arange(config.vocabulary_size) + 2.7)
    batches = []
    for number, sizes in enumerate(lengths):
        draw = np.random.default_rng(number)
        sizes = np.sort(sizes)
        both = torch.from_numpy(draw.choice(len(weights), int(sizes.sum()) + len(sizes), p=weights / weights.sum()))
        ends = np.cumsum(sizes + 1)
        read = np.ones(len(both), np.bool_)
        read[ends - 1] = False
        predicted = np.ones(len(both), np.bool_)
        predicted[ends - sizes - 1] = False
        batches.append(
            Batch.packed(
                both[torch.from_numpy(read)], sizes.tolist(), labels={"next": both[torch.from_numpy(predicted)]}
            )
        )
    return batches


def ours(config: GPTConfig, batches: Sequence[Batch], device: torch.device) -> Step:
    torch.manual_seed(0)
    model = GPT(config).to(device)
    there = [batch.to(device) for batch in batches]
    job = Job(model, Causal(), lambda step: [there[step % len(there)]], Path(), around=WeightCasts)
    trainer = Trainer(job, TrainConfig(precision="bf16"), Silent())

    def step(number: int) -> None:
        trainer.advance([there[number % len(there)]], LR)

    return step


def theirs(config: GPTConfig, batches: Sequence[Batch], device: torch.device, *, compiled: bool = False) -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "vocab_size": config.vocabulary_size,
        "n_positions": config.max_length,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.inner_width,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.embedding_dropout,
        "attn_pdrop": config.attention_dropout,
        "attn_implementation": "sdpa",
        "use_cache": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    model: nn.Module = GPT2LMHeadModel(GPT2Config(**settings))
    model.to(device).train()
    return their_step(model, [padded(batch.to(device)) for batch in batches], device, compiled)


def padded(batch: Batch) -> dict[str, Any]:
    """What GPT2LMHeadModel takes: it predicts each token from those before it, by itself; -100 is not scored."""
    return {"input_ids": batch.padded().ids, "labels": batch.pad(batch.ids, IGNORE)}


SIDES: dict[str, Side] = {"qkv": ours, "eager": theirs, "compiled": partial(theirs, compiled=True)}
NAMES = {"qkv": "qkv", "eager": "transformers", "compiled": "transformers, compiled"}


def measured(side: Side, setting: Setting, device: torch.device, steps: int) -> Measured:
    """The median of three blocks of `steps` steps, after one step on every batch and two more."""
    batches = setting.batches
    emptied(device)
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    begin = time.perf_counter()
    step = side(setting.config, batches, device)
    for number in range(len(batches) + 2):
        step(number)
    finish(device)
    warm_up = time.perf_counter() - begin
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)  # trying out kernels is not training
    # a block sees every batch equally often
    steps = -(-steps // len(batches)) * len(batches)
    seconds = statistics.median(timed(step, steps, device) for _ in range(3)) / steps
    peak = (torch.cuda.max_memory_allocated(device) - before) / 2**30 if device.type == "cuda" else 0.0
    tokens = statistics.mean(batch.n_tokens for batch in batches)
    with torch.device("meta"):
        model = GPT(setting.config)
    flops = statistics.mean(causal_flops(model, batch) for batch in batches) / seconds / 1e12
    return Measured(1000 * seconds, tokens / seconds, flops, peak, warm_up)


def settings(options: argparse.Namespace, kinds: Sequence[str]) -> list[Setting]:
    draw = np.random.default_rng(0)
    mixed = [np.interp(draw.random(options.rows), SHARES, PARAGRAPHS).astype(np.int64) for _ in range(5)]
    lengths = {"1024": [np.full(16, 1024)] * 2, "mixed": mixed}
    size: dict[str, Any] = {}
    if options.tiny:
        lengths = {kind: [rows[:4] // 16 + 4 for rows in batches] for kind, batches in lengths.items()}
        size = {"layers": 2, "width": 32, "heads": 2, "inner_width": 64}
    words = 200 if options.tiny else options.words
    found = []
    for dropout in options.dropout:
        config = GPTConfig.preset(
            "gpt2",
            vocabulary_size=words,
            dropout=dropout,
            embedding_dropout=dropout,
            attention_dropout=options.attention_dropout,
            **size,
        )
        found += [Setting(kind, config, ready(config, lengths[kind])) for kind in kinds]
    return found


def show(results: Sequence[Result], options: argparse.Namespace) -> None:
    title = f"GPT-2, {options.words:,} words, bf16, attention dropout {options.attention_dropout:g}"
    table = Table(title=title)
    headings = ("rows", "", "ms a step", "real tokens/s", "model-TFLOP/s", "× transformers", "GiB", "memory")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("rows", "") else "right")
    for title in dict.fromkeys(one.setting.title for one in results):
        group = [one for side in SIDES for one in results if one.setting.title == title and one.side == side]
        peers = [one.found for one in group if one.found and one.side != "qkv"]
        for one in group:
            if (found := one.found) is None:
                table.add_row(title, NAMES[one.side], one.failure)
                continue
            speed = f"{min(peer.milliseconds for peer in peers) / found.milliseconds:.2f}" if peers else ""
            memory = f"{found.memory / max(1e-9, min(peer.memory for peer in peers)):.2f}" if peers else ""
            table.add_row(
                title,
                NAMES[one.side],
                f"{found.milliseconds:.1f}",
                f"{found.tokens:,.0f}",
                f"{found.teraflops:,.0f}",
                speed,
                f"{found.memory:.1f}",
                memory,
            )
        table.add_section()
    Console(width=140).print(table)


def show_profile(setting: Setting, device: torch.device) -> None:
    emptied(device)
    step = ours(setting.config, setting.batches, device)
    for number in range(len(setting.batches) + 2):
        step(number)
    found = profiled(step, device)
    table = Table(title=f"qkv, {setting.title}: {found.wall:.1f} ms a step, {found.launches:,} kernels")
    for heading in ("", "ms", "of the step", "launches"):
        table.add_column(heading, justify="right" if heading else "left")
    for group, milliseconds in sorted(found.groups.items(), key=lambda pair: -pair[1]):
        table.add_row(group, f"{milliseconds:.2f}", f"{milliseconds / found.wall:.1%}", "")
    table.add_row("nothing", f"{found.wall - found.busy:.2f}", f"{1 - found.busy / found.wall:.1%}", "")
    table.add_section()
    for name, milliseconds, count in found.kernels:
        table.add_row(name[:110], f"{milliseconds:.2f}", f"{milliseconds / found.wall:.1%}", str(count))
    Console(width=150).print(table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=(*SIDES, *KINDS), default=[], help="sides and rows; without, all")
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.1, 0.0], help="of hidden states")
    parser.add_argument("--attention-dropout", type=float, default=0.0, help="on both sides")
    parser.add_argument("--words", type=int, default=50_257, help="of the vocabulary")
    parser.add_argument("--rows", type=int, default=160, help="of a batch of mixed lengths")
    parser.add_argument("--steps", type=int, default=5, help="of a block; three blocks are timed")
    parser.add_argument("--seconds", type=float, default=240, help="what would end later is not begun")
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
        print("There is no GPU here: this measures a step on one.", file=sys.stderr)
        sys.exit(2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    usual = [side for side in SIDES if not (options.quick and side == "compiled")]
    sides = [side for side in SIDES if side in options.only] or usual
    chosen = settings(options, [kind for kind in KINDS if kind in options.only] or KINDS)
    results: list[Result] = []
    compiling = 0.0 if options.tiny else 40.0  # seconds; what the first one took, once it is known
    for side in sides:  # the compiled one last
        for setting in chosen:
            expected = 5 + (compiling if side == "compiled" else 0.0)
            if time.perf_counter() - BEGAN + expected > options.seconds:
                print(f"left out, no time: {NAMES[side]}, {setting.title}", flush=True)
                continue
            try:
                one = Result(setting, side, measured(SIDES[side], setting, device, options.steps))
            except Exception as error:  # a compiler raises anything; the others go on
                one = Result(setting, side, None, said(error))
            if side == "compiled" and one.found:
                compiling = one.found.warm_up
            results.append(one)
            print(json.dumps(one.json()), flush=True)
            if options.profile and side == "qkv":
                show_profile(setting, device)
            if options.json:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                document = {
                    "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
                    "torch": torch.__version__,
                    "attention_dropout": options.attention_dropout,
                    "words": options.words,
                    "results": [found.json() for found in results],
                }
                options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    emptied(device)
    show(results, options)


if __name__ == "__main__":
    main()
