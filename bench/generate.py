"""Writing with GPT-2: qkv's search beside transformers' `generate`, same weights, same prompts, same tokens, one run.

    python bench/generate.py                         # on a CPU: the shape of GPT-2, greedy, batches of 1 and 32
    python bench/generate.py --device cuda           # on a GPU, in bf16
    python bench/generate.py --beams 1 4 --sides transformers qkv
    python bench/generate.py --quick --threads 1     # a look: fewer tokens, one round
    python bench/generate.py --model FOLDER          # published weights

The weights are random unless a folder is given: those of the blocks drawn so wide that what is written depends on all
that was read (as transformers draws them, GPT-2 says the same token for ever). Prompts are made-up tokens, as many as a
few sentences have; in a batch they differ in length, and transformers pads them on the left. Each text is written to
its full length, so nobody gains here by letting finished texts go, which qkv does.

A figure is tokens written a second, with reading the prompt: all sides are given ids. The sides take turns within a
round, and "×" is the median over rounds of the ratio to transformers within a round, so that a busy machine slows all
alike. "× CPU" is the same of the time that CPUs were busy: where others use the machine too that is the fairer measure,
with --threads 1 (more would wait for each other, busily).

"same texts" is the share of texts that are those of transformers token for token, "same tokens" that of all tokens up
to the first that differs. "qkv" and "qkv drafted" compute in the type of the weights; "qkv int8" in 8 bits, which is
nearly the same (nn/cpu/precision.py). Drafted: 8 bits propose the next tokens, and the weights themselves judge all
at once (nn/cpu/speculative.py), so that what is written is what they would have written.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

from qkv.data.batch import Batch
from qkv.models.family import WRITES, Loading
from qkv.models.gpt.dialects import GPT2, PREFIX, TURNED, names_of
from qkv.models.gpt.dialects import read_gpt_config as config_of
from qkv.models.gpt.network import GPT
from qkv.models.table import open_model
from qkv.nn.cpu.precision import explain_no_int8, set_precision
from qkv.search.beam import generate
from qkv.search.options import GenerateConfig

BASE: dict[str, Any] = {"vocab_size": 50_257, "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1_024}
TINY: dict[str, Any] = {"vocab_size": 99, "n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 128}
SIDES = ("transformers", "qkv", "qkv drafted", "qkv int8")
PRECISIONS = {"qkv": "fp32", "qkv drafted": "drafted", "qkv int8": "int8"}
END = 0
Texts = list[tuple[int, ...]]


@dataclass(frozen=True)
class Setting:
    beams: int
    batch: int
    prompts: int
    length: int  # tokens that are written


@dataclass(frozen=True)
class Found:
    setting: Setting
    seconds: dict[str, list[float]]
    busy: dict[str, list[float]]  # the same in seconds of CPUs
    same_texts: dict[str, float]
    same_tokens: dict[str, float]

    def speed(self, side: str) -> float:
        return self.setting.prompts * self.setting.length / statistics.median(self.seconds[side])

    def ratio(self, side: str, times: dict[str, list[float]]) -> float:
        """Of tokens a second, to transformers"""
        pairs = zip(times["transformers"], times[side], strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)


def random_weights(shape: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=END, eos_token_id=END))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and ".h." in name:
                torch.nn.init.xavier_uniform_(parameter)
    return model


def as_ours(model: Any) -> GPT:
    """The same weights, and the same memory: a view turns what lies the other way round."""
    config, _, _ = config_of(model.config.to_dict(), Path("config.json"))
    state = model.state_dict()
    with torch.device("meta"):
        ours = GPT(config)
    turned = {
        name: state[PREFIX + other].t() if other.endswith(TURNED) else state[PREFIX + other]
        for name, other in names_of(config, GPT2).items()
    }
    ours.load_state_dict(turned, assign=True)
    return ours.eval().requires_grad_(False)


def prompts(count: int, words: int, longest: int) -> list[list[int]]:
    """About 25 tokens."""
    draw = random.Random(0)
    lengths = [min(longest, 4 + int(draw.lognormvariate(3.0, 0.5))) for _ in range(count)]
    return [[draw.randrange(1, words) for _ in range(length)] for length in lengths]


def ours(model: GPT, rows: Sequence[Sequence[int]], setting: Setting, precision: str) -> Texts:
    set_precision(model, precision)
    config = GenerateConfig(beams=setting.beams, max_length=setting.length, min_length=setting.length - 1)
    device = model.embedding.weight.device
    texts: Texts = []
    for start in range(0, len(rows), setting.batch):
        batch = Batch.of(rows[start : start + setting.batch]).to(device)
        state = model.start(batch.ids, batch.packing, hypotheses=config.hypotheses, longest=setting.length)
        begin = batch.ids[batch.offsets[1:].long() - 1]
        texts += [best.tokens for best, *_ in generate(model.step, state, begin, END, config)]
    return texts


def theirs(model: Any, rows: Sequence[Sequence[int]], setting: Setting) -> Texts:
    texts: Texts = []
    for start in range(0, len(rows), setting.batch):
        some = rows[start : start + setting.batch]
        longest = max(map(len, some))
        ids = torch.tensor([[END] * (longest - len(row)) + list(row) for row in some], device=model.device)
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in some], device=model.device)
        found = model.generate(
            ids,
            attention_mask=mask,
            num_beams=setting.beams,
            do_sample=False,
            max_new_tokens=setting.length,
            min_new_tokens=setting.length - 1,
            pad_token_id=END,
            eos_token_id=END,
        )
        for row in found[:, longest:].tolist():
            texts.append(tuple(row[: row.index(END)] if END in row else row))
    return texts


def measured(model: Any, network: GPT, setting: Setting, rounds: int, wanted: Sequence[str]) -> Found:
    rows = prompts(setting.prompts, network.config.vocabulary_size, network.config.max_length - setting.length)
    sides: dict[str, Callable[[], Texts]] = {"transformers": partial(theirs, model, rows, setting)}
    for side, precision in PRECISIONS.items():
        if side in wanted:
            sides[side] = partial(ours, network, rows, setting, precision)
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    busy: dict[str, list[float]] = {side: [] for side in sides}
    with torch.inference_mode():
        texts = {side: run() for side, run in sides.items()}  # also the warm-up
        for _ in range(rounds):
            for side, run in sides.items():
                begin, before = time.perf_counter(), time.process_time()
                run()
                seconds[side].append(time.perf_counter() - begin)
                busy[side].append(time.process_time() - before)
    pairs = {side: list(zip(texts[side], texts["transformers"], strict=True)) for side in sides}
    return Found(
        setting,
        seconds,
        busy,
        {side: statistics.mean(a == b for a, b in both) for side, both in pairs.items()},
        {side: statistics.mean(agreeing(a, b) / max(1, len(b)) for a, b in both) for side, both in pairs.items()},
    )


def agreeing(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens before the first that differs."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def show(found: Sequence[Found], title: str) -> None:
    table = Table(title=title)
    for heading in ("search", "batch", "side", "tokens/s", "×", "× CPU", "same texts", "same tokens"):
        table.add_column(heading, justify="left" if heading in ("search", "side") else "right")
    for one in found:
        for side in one.seconds:
            table.add_row(
                "greedy" if one.setting.beams == 1 else f"{one.setting.beams} beams",
                str(one.setting.batch),
                side,
                f"{one.speed(side):,.1f}",
                f"{one.ratio(side, one.seconds):.2f}",
                f"{one.ratio(side, one.busy):.2f}",
                f"{one.same_texts[side]:.0%}",
                f"{one.same_tokens[side]:.0%}",
            )
    Console(width=110).print(table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a gpt2 folder, instead of random weights")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), help="transformers is always one")
    parser.add_argument("--beams", type=int, nargs="+", default=[1])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32], help="prompts at a time")
    parser.add_argument("--length", type=int, default=64, help="tokens that are written")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="12 tokens, batches of 1 and 4, one round")
    parser.add_argument("--tiny", action="store_true", help="a network that computes nothing, to see that all runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    if options.quick:
        options.length, options.batches, options.rounds = 12, [1, 4], 1
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("There is no GPU here: leave out --device.", file=sys.stderr)
        sys.exit(2)
    options.sides = [side for side in SIDES if side in ("transformers", *options.sides)]
    reason = "they are for a CPU" if options.device != "cpu" else explain_no_int8()
    if reason is not None:
        print(f"No 8 bits, and no drafts: {reason}.", file=sys.stderr)
        options.sides = [side for side in options.sides if side in ("transformers", "qkv")]
    return options


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    is_gpu = options.device != "cpu"
    dtype = torch.bfloat16 if is_gpu else torch.float32
    if options.model is None:
        model = random_weights(TINY if options.tiny else BASE)
        model.eval().to(options.device, dtype)
        network = as_ours(model)
    else:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype).eval().to(options.device)
        opened = open_model(options.model, Loading(dtype, torch.device(options.device)))
        writer = opened.ability(WRITES).writer
        assert isinstance(writer, GPT)
        network = writer
        network.requires_grad_(False)
    found = []
    for batch in options.batches:
        for beams in options.beams:
            # a few prompts, where one is written at a time; drafts are for one row alone
            setting = Setting(beams, batch, max(batch, 3), options.length)
            sides = [side for side in options.sides if side != "qkv drafted" or batch * beams == 1]
            found.append(measured(model, network, setting, options.rounds, sides))
            print(json.dumps(asdict(found[-1])), flush=True)
    where = f"{options.threads} threads, fp32" if not is_gpu else f"{torch.cuda.get_device_name()}, bf16"
    show(found, f"{options.length} tokens, {where}, median of {options.rounds} rounds")
    if options.json:
        lines = [
            asdict(one)
            | {"tokens_per_second": {side: one.speed(side) for side in one.seconds}}
            | {"ratio": {side: one.ratio(side, one.seconds) for side in one.seconds}}
            | {"busy_ratio": {side: one.ratio(side, one.busy) for side in one.seconds}}
            for one in found
        ]
        options.json.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
