"""ELMo's training step: tokens a second, memory, and where the time goes, beside a plain peer and a limit.

    python bench/elmo.py                                     # on 2 threads: mini and small; some minutes
    python bench/elmo.py --quick                             # mini alone, one block of 4 steps and not three blocks
    PYTHONPATH=src python3 bench/elmo.py --device cuda --precisions fp32 bf16 --rows 32 256 --json runs/elmo.json

A step is all of it: forward, backward, clipping, AdamW, on batches that are ready. Made-up words, as frequent and as
long as English ones, run on through documents, and states are carried. A token is one that both directions have read.

    qkv sampled   what `qkv pretrain elmo` does with a large vocabulary: words are told from 4,096 that are drawn
    qkv full      the same against all words
    torch.nn      a peer as one writes it: nn.Conv1d over the letters of every token, also of one that was met before,
                  nn.LSTM with proj_size, nn.Linear over the whole vocabulary; documents are not told apart
    nn.LSTM       a limit: only the recurrent layers of that peer, forward and backward

The parts of qkv's step are timed each by itself, forward and backward: what they do not add up to is what lies between
them. On a CPU the parts, the ratio and the column "CPU ms" are time that CPUs were busy, all threads together; where
others use the machine too that is the fairer measure, best with --threads 1. Memory is the peak: of the GPU, or of the
process above what it had when nothing was built (each side has one of its own). The size "paper" clips its cells, for
which torch has no kernel: on a GPU its steps in time are launched one by one, and torch.nn, which cannot clip, stands
beside it without.
"""

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from elmo_peer import Peer
from gpu_sides import emptied, finish, timed
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import nn

from qkv.data.corpus.rows import TextConfig
from qkv.data.corpus.shards import ranges
from qkv.models.elmo.network import Elmo, ElmoConfig
from qkv.models.elmo.objective import BothDirections, CarryingBoth, TwoWayBatches, TwoWays, Unigram, sampled_loss
from qkv.nn.gpu.layers import WeightCasts, word_loss
from qkv.nn.recurrent_stack import DIRECTIONS
from qkv.nn.words import PADDING_BYTE, spell
from qkv.train.device import peak_memory
from qkv.train.log import Silent
from qkv.train.loop import PRECISIONS, Job, TrainConfig, Trainer

SIDES = ("qkv sampled", "qkv full", "torch.nn", "nn.LSTM")
NEGATIVES = 4096
LR = 1e-3
BATCHES = 4  # different ones, by turns
Step = Callable[[int], object]


@dataclass(frozen=True)
class Setting:
    size: str
    side: str
    rows: int
    length: int
    words: int  # of the vocabulary
    precision: str
    device: str
    steps: int  # of a block
    blocks: int
    threads: int


class Text:
    """Made-up words that run on: letters at random, short words first, each as often as its rank says (Zipf)."""

    def __init__(self, words: int, tokens: int) -> None:
        draw = np.random.default_rng(0)
        lengths = 1 + draw.poisson(np.log2(np.arange(words) + 2) / 1.8)
        letters = draw.choice(list("etaoinshrdlcumwfgypbvk"), int(lengths.sum()))
        self.names = ["".join(word) for word in np.split(letters, np.cumsum(lengths)[:-1])]
        self.names[:4] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        self.weights = 1 / (np.arange(words) + 2.7)
        self.weights[:4] = 0
        self.ids = draw.choice(words, tokens, p=self.weights / self.weights.sum())
        self.sentence_offsets = np.append(np.arange(0, tokens, 21), tokens)
        sentences = len(self.sentence_offsets) - 1
        self.document_offsets = np.append(np.arange(0, sentences, 40), sentences)
        self.size, self.cls_id, self.sep_id = words, 2, 3

    def tokens(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.ids[ranges(starts, lengths)]


def made(setting: Setting) -> tuple[ElmoConfig, Text, list[TwoWays]]:
    need = setting.rows * (setting.length * (BATCHES + 1) + 2)
    text = Text(setting.words, need)
    config = ElmoConfig.preset(setting.size, vocabulary_size=setting.words)
    sizes = (spell(text.names, config.longest) != PADDING_BYTE).sum(1).numpy()
    batches = TwoWayBatches(text, text, TextConfig(length=setting.length), rows=setting.rows, sizes=sizes)
    return config, text, [batch for step in range(BATCHES) for batch in batches.two_ways(step)]


def ours(setting: Setting, config: ElmoConfig, text: Text, batches: Sequence[TwoWays]) -> Trainer[TwoWays]:
    device = torch.device(setting.device)
    torch.manual_seed(0)
    model = CarryingBoth(Elmo(config, text.names), setting.rows).to(device)
    sampler = None
    if setting.side == "qkv sampled":
        counts = torch.from_numpy(np.rint(text.weights * 1e7).astype(np.int64)).to(device)
        sampler = Unigram(counts, NEGATIVES)
    job = Job(model, BothDirections(sampler), lambda step: [batches[step % len(batches)]], Path(), around=WeightCasts)
    return Trainer(job, TrainConfig(precision=setting.precision), Silent())


def theirs(setting: Setting, config: ElmoConfig, text: Text, batches: Sequence[TwoWays]) -> Step:
    device = torch.device(setting.device)
    torch.manual_seed(0)
    peer = Peer(config, text.names).to(device)
    fused = device.type == "cuda"
    optimizer = torch.optim.AdamW(peer.parameters(), LR, (0.9, 0.98), 1e-6, 0.01, fused=fused)
    tokens = setting.rows * (setting.length + 1)
    pieces = [torch.from_numpy(text.ids[place * tokens :][:tokens]) for place in range(BATCHES)]
    ids = [piece.view(setting.rows, -1).to(device) for piece in pieces]

    def step(number: int) -> None:
        with torch.autocast(device.type, PRECISIONS[setting.precision], enabled=setting.precision != "fp32"):
            loss = peer(ids[number % len(ids)])
        loss.backward()
        nn.utils.clip_grad_norm_(peer.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def recurrent_alone(setting: Setting, config: ElmoConfig) -> Step:
    """The layers of both directions of the peer on vectors that are there, without an optimizer."""
    device = torch.device(setting.device)
    torch.manual_seed(0)
    layers = [nn.LSTM(config.width, config.cell_width, proj_size=config.width) for _ in range(2 * config.layers)]
    modules = nn.ModuleList(layers).to(device)
    x = torch.randn(setting.length, setting.rows, config.width, device=device, requires_grad=True)

    def step(_: int) -> None:
        with torch.autocast(device.type, PRECISIONS[setting.precision], enabled=setting.precision != "fp32"):
            for module in modules:
                module(x)[0].sum().backward()

    return step


def parts(setting: Setting, trainer: Trainer[TwoWays], batches: Sequence[TwoWays]) -> dict[str, Step]:
    """Each part of qkv's step by itself, forward and backward."""
    model, device, objective = trainer.job.model, trainer.device, trainer.job.objective
    assert isinstance(model, CarryingBoth) and isinstance(objective, BothDirections)
    network, sampler = model.train().network, objective.sampler
    there = [batch.to(device) for batch in batches]
    on = partial(torch.autocast, device.type, PRECISIONS[setting.precision], enabled=setting.precision != "fp32")
    with on(), torch.no_grad():
        spelled = [network.spell(batch.forward.labels["words"], batch.groups) for batch in there]
        hidden = [model(batch) for batch in there]

    def characters(number: int) -> None:
        batch = there[number % BATCHES]
        with on():
            vectors = network.spell(batch.forward.labels["words"], batch.groups)
        vectors.float().sum().backward()

    def layers(number: int) -> None:
        batch, x = there[number % BATCHES], spelled[number % BATCHES].detach().requires_grad_()
        ways = []
        with on():
            for direction in DIRECTIONS:
                one = batch.of(direction)
                states = network.begin(direction, one.n_rows)
                vectors = nn.functional.embedding(one.labels["word"], x)
                ways.append(network.read(direction, vectors, one.lengths, states)[0][-1])
        torch.stack([way.float().sum() for way in ways]).sum().backward()

    def words(number: int) -> None:
        losses = []
        with on():
            for direction in DIRECTIONS:
                labels = there[number % BATCHES].of(direction).labels
                x = hidden[number % BATCHES][direction].detach().requires_grad_()
                scored = network.before_words(x.index_select(0, labels["scored_at"]))
                if sampler is None:
                    loss, _ = word_loss(*scored, labels["next"])
                else:
                    loss, _ = sampled_loss(*scored, labels["next"], sampler)
                losses.append(loss / len(labels["next"]))
        torch.stack(losses).sum().backward()

    def optimizer(_: int) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), trainer.config.clip, foreach=True)
        trainer.optimizer.step()

    for part in (characters, layers, words):  # for every parameter to have a gradient
        part(0)
    return {"character CNN": characters, "LSTMs": layers, "softmax": words, "clipping, AdamW": optimizer}


def measured(setting: Setting) -> dict[str, Any]:
    """Milliseconds of a step, tokens a second, memory, and of qkv the parts."""
    device = torch.device(setting.device)
    torch.set_num_threads(setting.threads)
    warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")
    emptied(device)
    before = peak_memory(device) or 0 if device.type == "cpu" else torch.cuda.memory_allocated(device)
    config, text, batches = made(setting)
    trainer = None
    if setting.side.startswith("qkv"):
        trainer = ours(setting, config, text, batches)
        there = [batch.to(device) for batch in batches]
        step: Step = partial(advance, trainer, there)
    elif setting.side == "torch.nn":
        step = theirs(setting, config, text, batches)
    else:
        step = recurrent_alone(setting, config)
    seconds, busy = per_step(step, setting, device)
    peak = peak_memory(device) or 0 if device.type == "cpu" else torch.cuda.max_memory_allocated(device)
    found: dict[str, Any] = asdict(setting) | {
        "milliseconds": 1000 * seconds,
        "cpu_milliseconds": 1000 * busy,
        "tokens_per_second": setting.rows * setting.length / seconds,
        "memory": peak - before,
    }
    if trainer is not None:
        different = statistics.mean(len(batch.forward.labels["words"]) for batch in batches)
        found["different_words"] = different / (2 * setting.rows * setting.length)
        found["parts"] = {
            name: 1000 * per_step(part, setting, device)[device.type == "cpu"]
            for name, part in parts(setting, trainer, batches).items()
        }
    return found


def advance(trainer: Trainer[TwoWays], batches: Sequence[TwoWays], number: int) -> None:
    trainer.advance([batches[number % len(batches)]], LR)


def per_step(step: Step, setting: Setting, device: torch.device) -> tuple[float, float]:
    """Seconds by the clock and of CPUs: medians of the blocks, after one step on every batch and two more."""
    for number in range(BATCHES + 2):
        step(number)
    finish(device)
    steps = -(-setting.steps // BATCHES) * BATCHES  # a block sees every batch equally often
    clock, busy = [], []
    for _ in range(setting.blocks):
        before = time.process_time()
        clock.append(timed(step, steps, device) / steps)
        busy.append((time.process_time() - before) / steps)
    return statistics.median(clock), statistics.median(busy)


def show(found: Sequence[dict[str, Any]]) -> None:
    shared = found[0]
    where = torch.cuda.get_device_name() if shared["device"] != "cpu" else f"CPU, {shared['threads']} threads"
    table = Table(title=f"ELMo, pieces of {shared['length']} tokens, {shared['words']:,} words; {where}")
    names = ("character CNN", "LSTMs", "softmax", "clipping, AdamW")
    left = ("size", "precision", "")
    for heading in (*left, "rows", "ms a step", "CPU ms", "tokens/s", "× torch.nn", "GiB", *names):
        table.add_column(heading, justify="left" if heading in left else "right")
    for one in found:
        same = [other for other in found if all(other[key] == one[key] for key in ("size", "rows", "precision"))]
        peer = next((other for other in same if other["side"] == "torch.nn"), None)
        fair = "cpu_milliseconds" if one["device"] == "cpu" else "milliseconds"
        ratio = f"{peer[fair] / one[fair]:.2f}" if peer else ""
        shares = [f"{one['parts'][name] / one[fair]:.0%}" if "parts" in one else "" for name in names]
        table.add_row(
            one["size"],
            one["precision"],
            one["side"],
            str(one["rows"]),
            f"{one['milliseconds']:,.1f}",
            f"{one['cpu_milliseconds']:,.1f}" if fair.startswith("cpu") else "",
            f"{one['tokens_per_second']:,.0f}",
            ratio,
            f"{one['memory'] / 2**30:.2f}",
            *shares,
        )
        if one is same[-1]:
            table.add_section()
    Console(width=150).print(table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", help="mini, small, paper; else mini and small, on a GPU small and paper")
    parser.add_argument("--only", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--rows", nargs="+", type=int, default=[32])
    parser.add_argument("--length", type=int, default=35)
    parser.add_argument("--words", type=int, default=60_000, help="of the vocabulary")
    parser.add_argument("--precisions", nargs="+", choices=list(PRECISIONS), default=["fp32"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, help="of a block, in fours; three blocks, one with --quick")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="the size mini, and one block of 4 steps: a look")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured, after every part")
    options = parser.parse_args()
    on_gpu = options.device.startswith("cuda")
    options.sizes = options.sizes or (
        ["mini"] if options.quick else ["small", "paper"] if on_gpu else ["mini", "small"]
    )
    options.steps = options.steps or (20 if on_gpu and not options.quick else BATCHES)
    options.blocks = 1 if options.quick else 3
    return options


def main() -> None:
    options = arguments()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("There is no GPU here: leave out --device.", file=sys.stderr)
        sys.exit(2)
    found: list[dict[str, Any]] = []
    for size in options.sizes:
        for rows in options.rows:
            for precision in options.precisions:
                for side in options.only:
                    setting = Setting(
                        size, side, rows, options.length, options.words, precision, options.device, options.steps,
                        options.blocks, options.threads,
                    )  # fmt: skip
                    found.append(told(setting))
                    print(json.dumps(found[-1]), flush=True)
                    if options.json:
                        options.json.parent.mkdir(parents=True, exist_ok=True)
                        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    show([one for one in found if "failure" not in one])


def told(setting: Setting) -> dict[str, Any]:
    """On a CPU from a process of its own, whose memory nobody else has used."""
    try:
        if setting.device != "cpu":
            return measured(setting)
        with ProcessPoolExecutor(1, get_context("spawn")) as one:
            return one.submit(measured, setting).result()
    except torch.OutOfMemoryError as error:
        return asdict(setting) | {"failure": str(error).splitlines()[0]}


if __name__ == "__main__":
    main()
