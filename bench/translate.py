"""Decoding on a CPU: qkv's search beside transformers' `generate`, same weights, same sources, same tokens, one run.

    python bench/translate.py                        # the shape of opus-mt, greedy and 4 beams, batches of 1 and 64
    python bench/translate.py --sides transformers qkv    # without 8 bits
    python bench/translate.py --quick --threads 1    # a look: fewer tokens, one round
    python bench/translate.py --model FOLDER         # published weights

The weights are random unless a folder is given, and sources are made-up tokens as many as sentences of news have. Each
text is written to its full length: random weights do not know when a text is done. So nobody gains here by letting
finished texts go, which qkv does. With a folder the makers' end is obeyed, and texts end where they end.

A figure is tokens written (of the best text of each source) a second, with reading the source: all sides are given
ids. The sides take turns within a round, and "×" is the median over rounds of the ratio to transformers within a round,
so that a busy machine slows all alike. "× CPU" is the same of the time that CPUs were busy: where others use the
machine too that is the fairer measure, with --threads 1 (more would wait for each other, busily).

"qkv drafted" is exact: 8 bits guess ahead and the weights judge (nn/cpu/speculative.py), for one text at a time,
without beams.

"same texts" is the share of texts that are those of transformers token for token; beams of random weights can be nearer
to each other than rounding is exact. "same next token" is of 8 bits: after each beginning of the texts that qkv wrote
(greedily) in fp32, how often the likeliest token is the same. Trained weights are surer of it than random ones.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import MarianConfig, MarianMTModel
from transformers.utils import logging

from qkv.data.batch import Batch
from qkv.models.transformer.folder import Marian, load_marian
from qkv.nn.cpu.precision import explain_no_int8, set_precision
from qkv.search.beam import generate
from qkv.search.options import GenerateConfig

BASE: dict[str, Any] = {"vocab_size": 58_101, "layers": 6, "d_model": 512, "heads": 8, "ffn_dim": 2_048}
SIDES = ("transformers", "qkv", "qkv drafted", "qkv int8")
TINY: dict[str, Any] = {"vocab_size": 99, "layers": 2, "d_model": 16, "heads": 2, "ffn_dim": 32}
END = 0
Texts = list[tuple[int, ...]]


@dataclass(frozen=True)
class Setting:
    beams: int
    batch: int
    sources: int
    length: int  # tokens that are written


@dataclass(frozen=True)
class Found:
    setting: Setting
    seconds: dict[str, list[float]]
    busy: dict[str, list[float]]  # the same in seconds of CPUs
    tokens: dict[str, int]
    same: dict[str, float]  # share of texts that are those of transformers

    def speed(self, side: str) -> float:
        return self.tokens[side] / statistics.median(self.seconds[side])

    def ratio(self, side: str, times: dict[str, list[float]]) -> float:
        """Of tokens a second, to transformers"""
        pairs = zip(times["transformers"], times[side], strict=True)
        more = self.tokens[side] / self.tokens["transformers"]
        return more * statistics.median(theirs / ours for theirs, ours in pairs)


def random_weights(folder: Path, shape: dict[str, Any]) -> None:
    """A folder as those of OPUS-MT are."""
    torch.manual_seed(0)
    words, layers = shape["vocab_size"], shape["layers"]
    config = MarianConfig(
        vocab_size=words,
        d_model=shape["d_model"],
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=shape["heads"],
        decoder_attention_heads=shape["heads"],
        encoder_ffn_dim=shape["ffn_dim"],
        decoder_ffn_dim=shape["ffn_dim"],
        max_position_embeddings=512,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=words - 1,
        decoder_start_token_id=words - 1,
        eos_token_id=END,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config)
    assert model.generation_config is not None
    model.generation_config.bad_words_ids = [[words - 1]]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # as far from one another as trained ones are, so that the best word is not a matter of rounding
            if parameter.dim() == 2 and "embed" not in name and "shared" not in name:
                torch.nn.init.xavier_uniform_(parameter)
    model.save_pretrained(folder)


def sources(count: int, words: int) -> list[list[int]]:
    """About 25 tokens and the end, as sentences of news."""
    draw = random.Random(0)
    lengths = [min(80, 4 + int(draw.lognormvariate(3.0, 0.5))) for _ in range(count)]
    return [[*(draw.randrange(2, words - 1) for _ in range(length)), END] for length in lengths]


def ours(
    marian: Marian, rows: Sequence[Sequence[int]], setting: Setting, to_the_end: bool, precision: str = "fp32"
) -> Texts:
    set_precision(marian.model, precision)
    config = GenerateConfig(
        beams=setting.beams, max_length=setting.length, min_length=setting.length - 1 if to_the_end else 0
    )
    device = next(marian.model.parameters()).device
    texts: Texts = []
    for start in range(0, len(rows), setting.batch):
        batch = Batch.of(rows[start : start + setting.batch]).to(device)
        state = marian.model.start(batch.ids, batch.packing, hypotheses=config.hypotheses, longest=setting.length)
        begin = torch.full((batch.n_rows,), marian.begin_id, device=device)
        found = generate(
            marian.model.step, state, begin, marian.end_id, config, source_lengths=batch.lengths, never=marian.banned
        )
        texts += [best.tokens for best, *_ in found]
    return texts


def theirs(model: Any, marian: Marian, rows: Sequence[Sequence[int]], setting: Setting, to_the_end: bool) -> Texts:
    device = next(model.parameters()).device
    texts: Texts = []
    for start in range(0, len(rows), setting.batch):
        batch = Batch.of(rows[start : start + setting.batch]).to(device).padded(marian.pad_id)
        found = model.generate(
            batch.ids,
            attention_mask=batch.mask.long(),
            num_beams=setting.beams,
            do_sample=False,
            max_new_tokens=setting.length,
            min_new_tokens=setting.length - 1 if to_the_end else None,
            bad_words_ids=[[token] for token in marian.banned],
            forced_eos_token_id=None,
        )
        for row in found[:, 1:].tolist():
            end = row.index(marian.end_id) if marian.end_id in row else len(row)
            texts.append(tuple(row[:end]))
    return texts


@torch.inference_mode()
def agreement(marian: Marian, count: int, length: int) -> float:
    """How often 8 bits find the same token the likeliest, after the same beginning: of texts written in fp32."""
    rows = sources(count, marian.model.config.vocabulary_size)
    texts = ours(marian, rows, Setting(1, count, count, length), to_the_end=False)
    batch = Batch.of(rows)
    begun = torch.tensor([[marian.begin_id, *text, *[marian.end_id] * (length - len(text))] for text in texts])
    written = torch.arange(length)[:, None] <= torch.tensor([len(text) for text in texts])  # (length, rows)
    chosen = []
    for precision in ("fp32", "int8"):
        model = set_precision(marian.model, precision)
        state = model.start(batch.ids, batch.packing, longest=length)
        best = []
        for tokens in begun.t()[:length]:
            logits, state, _ = model.step(tokens, state)
            best.append(logits.index_fill_(1, torch.tensor(marian.banned, dtype=torch.int64), -torch.inf).argmax(dim=1))
        chosen.append(torch.stack(best))  # (length, rows)
    return (chosen[0] == chosen[1])[written].double().mean().item()


def measured(
    marian: Marian, model: Any, setting: Setting, rounds: int, to_the_end: bool, wanted: Sequence[str] = SIDES
) -> Found:
    rows = sources(setting.sources, marian.model.config.vocabulary_size)
    ways: dict[str, Callable[[], Texts]] = {
        "transformers": lambda: theirs(model, marian, rows, setting, to_the_end),
        "qkv": lambda: ours(marian, rows, setting, to_the_end),
        "qkv drafted": lambda: ours(marian, rows, setting, to_the_end, "drafted"),
        "qkv int8": lambda: ours(marian, rows, setting, to_the_end, "int8"),
    }
    # guessing ahead is for a text alone; for others it would be "qkv" once more
    alone = setting.beams == 1 and setting.batch == 1
    sides = {side: ways[side] for side in wanted if alone or side != "qkv drafted"}
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
    same = {
        side: statistics.mean(a == b for a, b in zip(texts[side], texts["transformers"], strict=True)) for side in sides
    }
    # the end is written too, where there is room
    tokens = {side: sum(min(len(text) + 1, setting.length) for text in texts[side]) for side in sides}
    return Found(setting, seconds, busy, tokens, same)


def show(found: Sequence[Found], title: str) -> None:
    table = Table(title=title)
    for heading in ("search", "batch", "side", "tokens/s", "×", "× CPU", "same texts"):
        table.add_column(heading, justify="left" if heading in ("search", "side") else "right")
    for one in found:
        for side in one.seconds:
            table.add_row(
                "greedy" if one.setting.beams == 1 else f"{one.setting.beams} beams",
                str(one.setting.batch),
                side,
                f"{one.speed(side):,.0f}",
                f"{one.ratio(side, one.seconds):.2f}",
                f"{one.ratio(side, one.busy):.2f}",
                f"{one.same[side]:.0%}",
            )
    Console(width=110).print(table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a folder of a published model, instead of random weights")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), help="transformers is always one")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64], help="sources at a time")
    parser.add_argument("--length", type=int, default=32, help="tokens that are written")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="12 tokens, batches of 1 and 8, one round")
    parser.add_argument("--tiny", action="store_true", help="a network that computes nothing, to see that all runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    if options.quick:
        options.length, options.batches, options.rounds = 12, [1, 8], 1
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("There is no GPU here: leave out --device.", file=sys.stderr)
        sys.exit(2)
    options.sides = [side for side in SIDES if side in ("transformers", *options.sides)]
    reason = "it is for a CPU" if options.device != "cpu" else explain_no_int8()
    if reason is not None and {"qkv drafted", "qkv int8"} & set(options.sides):
        print(f"No 8 bits: {reason}.", file=sys.stderr)
        options.sides = [side for side in options.sides if side in ("transformers", "qkv")]
    return options


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as made:
        folder = options.model or Path(made)
        if options.model is None:
            random_weights(folder, TINY if options.tiny else BASE)
        marian = load_marian(folder)
        marian.model.to(options.device)
        model = MarianMTModel.from_pretrained(folder).eval().to(options.device)
    found = []
    for batch in options.batches:
        for beams in options.beams:
            setting = Setting(beams, batch, max(batch, 4), options.length)
            found.append(measured(marian, model, setting, options.rounds, options.model is None, options.sides))
            print(json.dumps(asdict(found[-1])), flush=True)
    where = f"{options.threads} threads" if options.device == "cpu" else torch.cuda.get_device_name()
    show(found, f"{options.length} tokens at most, {where}, median of {options.rounds} rounds")
    agreed = None
    if "qkv int8" in options.sides:
        agreed = agreement(marian, 16, options.length)
        weights = sum(parameter.numel() * parameter.element_size() for parameter in marian.model.parameters())
        print(
            f"8 bits: same next token {agreed:.1%}; {marian.model.decoding.int8_bytes() / 1e6:,.0f} MB beside the "
            f"weights' {weights / 1e6:,.0f} MB"
        )
    if options.json:
        lines = [
            asdict(one)
            | {"ratio": {side: one.ratio(side, one.seconds) for side in one.seconds}}
            | {"busy_ratio": {side: one.ratio(side, one.busy) for side in one.seconds}}
            | {"same_next_token": agreed}
            for one in found
        ]
        options.json.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
