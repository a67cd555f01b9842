"""The four steps of the lineage as they are trained for bench/lineage.py: equal parameters, equal minutes, one corpus.

    word2vec   one vector a token, wherever it stands
    elmo       two recurrent language models, one a direction; features
    gpt        a Transformer that looks to the left
    bert       a Transformer that looks both ways, with words hidden

Parameters are counted as a task gets them: all that reads a text, without what scored words in training. Everything
else of a training is what its recipe in recipes/ has for a corpus of this size, and was not searched.

What this file does NOT do: fine-tune.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from qkv.data.shards import Shards
from qkv.interop.plan import Undrawn
from qkv.models.bert import Bert, BertConfig
from qkv.models.elmo import BothWays, ElmoConfig
from qkv.models.gpt import GPT, GPTConfig
from qkv.train.checkpoint import latest

SYSTEMS = ("word2vec", "elmo", "gpt", "bert")
"""In the order of the lineage."""
FILTERS = (32, 32, 64, 128, 128, 128)  # of ELMo's spelling: half a million parameters, not eight as in the paper
POSITIONS = 512


@dataclass(frozen=True)
class Budget:
    """What all systems are given."""

    size: str = "mini"  # of BERT and GPT; the others are made as large
    length: int = 256  # tokens that a Transformer sees at once
    tokens: int = 131_072  # of a step, about
    minutes: float = 3.0
    device: str = "cuda"


QUICK = Budget("tiny", 64, 2_048, 0.2, "cpu")
"""A look on a CPU, which says that everything runs and nothing else."""


def counted(build: Callable[[], nn.Module]) -> int:
    """Parameters of a network, which is not drawn."""
    with torch.device("meta"), Undrawn():
        return sum(parameter.numel() for parameter in build().parameters())


def elmo_config(vocabulary_size: int, cell_width: int, width: int) -> ElmoConfig:
    return ElmoConfig(vocabulary_size, filters=FILTERS, width=width, cell_width=cell_width)


@dataclass(frozen=True)
class Shapes:
    """Sizes that make the systems equally large, as near as whole numbers come."""

    word2vec_width: int
    elmo_width: int
    elmo_cells: int
    parameters: dict[str, int]

    @classmethod
    def equal(cls, vocabulary_size: int, size: str) -> "Shapes":
        """As large as a BERT of this size, its pooler included.

        >>> shapes = Shapes.equal(20_000, "mini")
        >>> max(shapes.parameters.values()) / min(shapes.parameters.values()) < 1.02
        True
        """
        shape = BertConfig.preset(size, vocabulary_size=vocabulary_size, max_length=POSITIONS)
        bert = counted(lambda: Bert(shape))
        gpt = counted(lambda: GPT(GPTConfig.preset(size, vocabulary_size=vocabulary_size, max_length=POSITIONS)))
        width = round(bert / vocabulary_size)

        def elmo(cells: int) -> int:
            return counted(lambda: BothWays(elmo_config(vocabulary_size, cells, shape.width)))

        low, high = shape.width + 1, 65_536
        while low < high:  # more cells are more parameters
            middle = (low + high) // 2
            low, high = (low, middle) if elmo(middle) >= bert else (middle + 1, high)
        found = {"word2vec": width * vocabulary_size, "elmo": elmo(low), "gpt": gpt, "bert": bert}
        return cls(width, shape.width, low, found)


def settings(system: str, shapes: Shapes, budget: Budget) -> list[str]:
    """What `qkv pretrain` is told with --set."""
    rows = max(1, budget.tokens // budget.length)
    on_gpu = budget.device.startswith("cuda")
    loop = ["train.precision=bf16"] if on_gpu else ["train.threads=1"]
    loop += ["train.log_every=50", "train.evaluate_every=2000", "train.save_every=2000"]
    blocks = ["train.optimizer=muon", "train.lr=2e-3", "train.warmup=0.03", "train.weight_decay=0.1"]
    blocks += ["model.dropout=0.1", "model.attention_dropout=0.0", f"rows={rows}"]
    return {
        "word2vec": [
            *("model.architecture=cbow", f"model.width={shapes.word2vec_width}"),
            *("sampling.window=8", "sampling.negatives=10", "sampling.subsample=1e-4", "train.save_every=100000"),
        ],
        "elmo": [
            *(f"model.filters=[{', '.join(map(str, FILTERS))}]", f"model.width={shapes.elmo_width}"),
            *(f"model.cell_width={shapes.elmo_cells}", "model.dropout=0.0", "text.ends=document", "train.lr=2e-3"),
            *(f"rows={max(1, budget.tokens // 128)}", *loop),
        ],
        "gpt": [
            *(f"length={budget.length}", f"model.max_length={POSITIONS}", "model.embedding_dropout=0.1"),
            *("train.betas=[0.9, 0.95]", *blocks, *loop),
        ],
        "bert": [f"pairs.max_length={budget.length}", "masking.rate=0.2", *blocks, *loop],
    }[system]


def command(system: str, data: Path, out: Path, shapes: Shapes, budget: Budget) -> list[str]:
    """A training that was begun goes on."""
    begin = [sys.executable, "-u", "-m", "qkv", "pretrain"]
    if (out / "config.toml").is_file():
        return [*begin, "--resume", str(out)]
    size = ["--size", budget.size] if system in ("gpt", "bert") else []
    chosen = [word for one in settings(system, shapes, budget) for word in ("--set", one)]
    minutes = ["--minutes", str(budget.minutes), "--device", budget.device]
    return [*begin, system, "--data", str(data), "--out", str(out), *size, *minutes, *chosen]


def trained(system: str, data: Path, work: Path, budget: Budget) -> dict[str, Any]:
    """Train one system in WORK/SYSTEM; what came of it. One that is finished stays as it is; one that fails has said
    why, and is a CalledProcessError."""
    out, shapes = work / system, Shapes.equal(Shards.open(data).tokenizer().size, budget.size)
    began = time.perf_counter()
    print(f"{system}: {shapes.parameters[system]:,} parameters, {budget.minutes:g} minutes", flush=True)
    subprocess.run(command(system, data, out, shapes, budget), check=True)
    if system == "word2vec":
        keep_context(out)
    sessions = [json.loads(line) for line in (out / "sessions.jsonl").read_text(encoding="utf-8").splitlines()]
    log = [json.loads(line) for line in (out / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    timing = [json.loads(line) for line in (out / "timing.jsonl").read_text(encoding="utf-8").splitlines()]
    evaluations = [line["evaluation"] for line in log if "evaluation" in line]
    figures = {key: value for key, value in (evaluations or [{}])[-1].items() if isinstance(value, int | float)}
    rates = sorted(line["tokens_per_second"] for line in timing if line.get("tokens_per_second"))
    return {
        "part": "pretrain",
        "system": system,
        "parameters": shapes.parameters[system],
        "steps": sessions[-1].get("to"),
        "seconds": round(sum(line.get("seconds", 0.0) for line in sessions), 1),  # with evaluation and writing
        "whole_seconds": round(time.perf_counter() - began, 1),  # with starting
        "tokens_per_second": rates[len(rates) // 2] if rates else None,
        "evaluation": figures,
        "budget": asdict(budget),
        "torch": torch.__version__,
    }


def keep_context(out: Path) -> None:
    """word2vec's second matrix, which its folder does without: what the side test scores words with."""
    from safetensors.torch import save_file

    if not (out / "context.safetensors").is_file():
        found = latest(out / "checkpoints", print)
        assert found is not None, f"{out} has no checkpoint"
        save_file({"context": found.tensors["model"]["context"].contiguous()}, out / "context.safetensors")
