"""Training a Transformer-base to translate: qkv beside the same network in transformers (Marian), one run.

    PYTHONPATH=src python3 bench/train_translate.py --device cuda              # some minutes on one GPU
    PYTHONPATH=src python3 bench/train_translate.py --device cuda --sides qkv compiled --kinds sorted
    python bench/train_translate.py --device cpu --quick                       # a look

A step is all of it: forward, backward, clipping, AdamW, on batches that are ready on the device. Both sides have
dropout 0.1 and none of attention, and label smoothing 0.1; on a GPU bf16 autocast with fp32 weights. Made-up tokens, as
frequent as words are, stand in rows as long as the pairs of Multi30k (de → en). transformers pads a batch to its
longest row, qkv packs. A small batch is computed sooner than Python hands it over, a large one is not: `--tokens` are
the sizes to measure.

    sorted      pairs of like length lie together, as translation is trained everywhere
    shuffled    they do not

A figure is target tokens a second, without padding: the median of three blocks of steps. "×" compares with transformers
on the same batches; "compiled" is transformers under torch.compile, for all lengths. `seq2seq` has no peer here: the
recurrent network with attention of models/seq2seq/network.py on the same batches. Memory is the peak of a step, weights
and optimizer included.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_sides import Step, emptied, finish, timed
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional

from qkv.data.batch import IGNORE
from qkv.data.pairs.batching import NEXT, PairBatch
from qkv.models.seq2seq.network import Seq2Seq, Seq2SeqConfig
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.models.transformer.objective import TranslationObjective
from qkv.nn.gpu.layers import WeightCasts
from qkv.train.log import Silent
from qkv.train.loop import PRECISIONS, Job, TrainConfig, Trainer

SHARES = [*(np.arange(32) / 32), 0.99, 0.999, 1]
# fmt: off
LENGTHS = [
    4, 8, 9, 9, 10, 10, 10, 11, 11, 11, 12, 12, 12, 13, 13, 13, 14, 14, 14, 15, 15, 15, 16, 16, 17, 17, 18, 19, 19, 21,
    22, 24, 28, 38, 46,
]
# fmt: on
"""Quantiles, at SHARES, of the lengths of Multi30k's 29,000 English sides in 10,000 BPE tokens of both languages, with
the end; the German sides are as long, give or take SPREAD (the standard deviation of the logarithm of the ratio)."""
SPREAD = 0.17
PAD, BEGIN, END, FIRST = 0, 1, 2, 3
LR, SMOOTHING = 1e-4, 0.1
KINDS = ("sorted", "shuffled")


@dataclass(frozen=True)
class Setting:
    words: int  # of the one vocabulary
    tokens: int  # of a batch, at most, on either side
    batches: int
    steps: int  # of a block
    precision: str
    device: torch.device
    tiny: bool


def batches(setting: Setting, kind: str) -> list[PairBatch]:
    """As many as are measured, out of a thousand pairs or more."""
    draw = np.random.default_rng(0)
    weights = 1 / (np.arange(setting.words - FIRST) + 2.7)
    weights /= weights.sum()
    count = 2 * setting.batches * setting.tokens // 14
    target = np.rint(np.interp(draw.random(count), SHARES, LENGTHS)).astype(np.int64)
    source = np.maximum(2, np.rint(target * np.exp(draw.normal(0, SPREAD, count)))).astype(np.int64)
    longest = np.maximum(source, target)
    order = np.argsort(longest, kind="stable") if kind == "sorted" else np.arange(count)
    groups = _within(longest[order], setting.tokens)
    chosen = draw.permutation(len(groups))[: setting.batches]

    def ids(length: int) -> list[int]:
        return [*(FIRST + draw.choice(len(weights), length - 1, p=weights)).tolist()]

    found = []
    for number in chosen:
        rows = order[groups[number]]
        sources = [[*ids(int(source[row])), END] for row in rows]
        found.append(PairBatch.of(sources, [ids(int(target[row])) for row in rows], BEGIN, END))
    return found


def _within(lengths: NDArray[np.int64], tokens: int) -> list[slice]:
    """Neighbours, as many as there are within the budget."""
    found, begin, total = [], 0, 0
    for place, length in enumerate(lengths.tolist()):
        if total + length > tokens:
            found.append(slice(begin, place))
            begin, total = place, 0
        total += length
    return found


def ours(setting: Setting, given: Sequence[PairBatch], name: str) -> tuple[nn.Module, Step]:
    torch.manual_seed(0)
    if name == "seq2seq":
        model: nn.Module = Seq2Seq(
            Seq2SeqConfig.preset("small" if setting.tiny else "base", vocabulary_size=setting.words)
        )
    else:
        model = Transformer(TransformerConfig.preset("tiny" if setting.tiny else "base", vocabulary_size=setting.words))
    model.to(setting.device)
    there = [batch.to(setting.device) for batch in given]
    job = Job(
        model, TranslationObjective(SMOOTHING), lambda step: [there[step % len(there)]], Path(), around=WeightCasts
    )
    trainer = Trainer(job, TrainConfig(precision=setting.precision), Silent())
    return model, lambda number: trainer.advance([there[number % len(there)]], LR)


def theirs(setting: Setting, given: Sequence[PairBatch], name: str) -> tuple[nn.Module, Step]:
    from transformers import MarianConfig, MarianMTModel

    shape = TransformerConfig.preset("tiny" if setting.tiny else "base", vocabulary_size=setting.words)
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=setting.words,
        d_model=shape.width,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.inner_width,
        decoder_ffn_dim=shape.inner_width,
        activation_function=shape.activation,
        dropout=shape.dropout,
        attention_dropout=shape.attention_dropout,
        activation_dropout=0.0,
        max_position_embeddings=512,
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=BEGIN,
        forced_eos_token_id=None,
        use_cache=False,
    )
    config._attn_implementation = "sdpa"
    model: nn.Module = MarianMTModel(config)
    model.to(setting.device).train()
    usual = TrainConfig()
    first, second = usual.betas
    fused = setting.device.type == "cuda"
    optimizer = torch.optim.AdamW(
        model.parameters(), LR, (first, second), usual.epsilon, usual.weight_decay, fused=fused
    )
    inputs = [_padded(batch.to(setting.device)) for batch in given]
    network: Callable[..., Any] = torch.compile(model, dynamic=True) if name == "compiled" else model

    def step(number: int) -> None:
        rows, labels = inputs[number % len(inputs)]
        with torch.autocast(setting.device.type, PRECISIONS[setting.precision], enabled=setting.precision != "fp32"):
            logits = network(**rows).logits  # (R, T, V)
            loss = functional.cross_entropy(
                logits.flatten(0, 1), labels, ignore_index=IGNORE, label_smoothing=SMOOTHING
            )
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), usual.clip, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return model, step


def _padded(batch: PairBatch) -> tuple[dict[str, Any], torch.Tensor]:
    source, target = batch.source.padded(PAD), batch.target.padded(PAD)
    rows = {
        "input_ids": source.ids,
        "attention_mask": source.mask.long(),
        "decoder_input_ids": target.ids,
        "use_cache": False,
    }
    return rows, batch.target.pad(batch.target.labels[NEXT], IGNORE).flatten()


SIDES: dict[str, Callable[[Setting, Sequence[PairBatch], str], tuple[nn.Module, Step]]] = {
    "qkv": ours,
    "transformers": theirs,
    "compiled": theirs,
    "seq2seq": ours,
}


def measured(setting: Setting, kind: str, side: str) -> dict[str, Any]:
    emptied(setting.device)
    on_gpu = setting.device.type == "cuda"
    before = torch.cuda.memory_allocated(setting.device) if on_gpu else 0
    given = batches(setting, kind)
    begin = time.perf_counter()
    model, step = SIDES[side](setting, given, side)
    for number in range(len(given) + 2):
        step(number)
    finish(setting.device)
    warm_up = time.perf_counter() - begin
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(setting.device)  # trying out kernels is not training
    steps = -(-setting.steps // len(given)) * len(given)  # a block sees every batch equally often
    seconds = statistics.median(timed(step, steps, setting.device) for _ in range(3)) / steps
    tokens = statistics.mean(batch.n_tokens for batch in given)
    room = statistics.mean(batch.n_rows * batch.target.longest for batch in given)
    return {
        "budget": setting.tokens,
        "kind": kind,
        "side": side,
        "milliseconds": 1000 * seconds,
        "tokens_per_second": tokens / seconds,
        "tokens": tokens,
        "padding": 1 - tokens / room,  # that a rectangle would have
        "memory": (torch.cuda.max_memory_allocated(setting.device) - before) / 2**30 if on_gpu else 0.0,
        "warm_up": warm_up,
        "parameters": sum(one.numel() for one in model.parameters() if one.requires_grad),
    }


def show(found: Sequence[dict[str, Any]], setting: Setting) -> None:
    where = torch.cuda.get_device_name() if setting.device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    table = Table(title=f"Transformer-base on pairs as long as Multi30k's, {setting.precision}; {where}")
    left = ("tokens", "batches", "")
    for heading in (*left, "ms a step", "target tokens/s", "× transformers", "padding", "GiB", "warm-up s"):
        table.add_column(heading, justify="left" if heading in left else "right")
    for one in found:
        batches_of = (one["budget"], one["kind"])
        peers = [other for other in found if (other["budget"], other["kind"]) == batches_of]
        peer = next((other for other in peers if other["side"] == "transformers"), None)
        table.add_row(
            f"{one['budget']:,}",
            one["kind"],
            one["side"],
            f"{one['milliseconds']:,.1f}",
            f"{one['tokens_per_second']:,.0f}",
            f"{one['tokens_per_second'] / peer['tokens_per_second']:.2f}" if peer and one["side"] != "seq2seq" else "",
            f"{one['padding']:.0%}" if one["side"] in ("transformers", "compiled") else "",
            f"{one['memory']:.2f}" if one["memory"] else "",
            f"{one['warm_up']:.0f}",
        )
    Console(width=120).print(table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=["qkv", "transformers"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument(
        "--tokens",
        type=int,
        nargs="+",
        default=[4_096, 25_000],
        help="of a batch, on either side; several are measured",
    )
    parser.add_argument("--batches", type=int, default=8, help="different ones, by turns")
    parser.add_argument("--steps", type=int, default=40, help="of a block; there are three")
    parser.add_argument("--words", type=int, default=10_000, help="of the vocabulary")
    parser.add_argument("--precision", choices=list(PRECISIONS), help="else bf16 on a GPU, fp32 on a CPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2, help="on a CPU")
    parser.add_argument("--quick", action="store_true", help="two small batches, one step each: a look")
    parser.add_argument("--tiny", action="store_true", help="a network that computes little, to see that all runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("There is no GPU here: --device cpu.", file=sys.stderr)
        sys.exit(2)
    if options.quick:
        options.tokens, options.batches, options.steps = [512], 2, 2
    return options


def shared(setting: Setting) -> dict[str, Any]:
    """What all lines have in common: not the size of a batch, of which each has its own."""
    common = asdict(setting) | {"device": str(setting.device)}
    del common["tokens"]
    return common


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    precision = options.precision or ("bf16" if device.type == "cuda" else "fp32")
    found = []
    for tokens in options.tokens:
        setting = Setting(options.words, tokens, options.batches, options.steps, precision, device, options.tiny)
        for kind in options.kinds:
            for side in options.sides:
                found.append(measured(setting, kind, side))
                print(json.dumps(found[-1]), flush=True)
    show(found, setting)
    if options.json:
        lines = [shared(setting) | one for one in found]
        options.json.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
