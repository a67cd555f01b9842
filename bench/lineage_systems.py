"""The four steps of the lineage as they are trained for bench/lineage.py: equal parameters, equal minutes, one corpus.

    word2vec   one vector a token, wherever it stands
    elmo       two recurrent language models, one a direction; features
    gpt        a Transformer that looks to the left
    bert       a Transformer that looks both ways, with words hidden

Parameters are counted as a task gets them: all that reads a text, without what scored words in training.

A training is its recipe in recipes/ with the differences that `settings` makes, which a test names one by one, and none
was searched. Nothing is dropped out in any of them: minutes do not overfit. The optimizer is not the same for all.
word2vec has the descent of its program, ELMo AdamW, both from their recipes. Both Transformers have Muon for their
matrices and AdamW for the rest, at one rate, with one warm-up and one decay: qkv-mini's, since a BERT under AdamW at
that rate had not left its plateau after 900 steps (docs/gpu.md). GPT's own recipe has AdamW.

What this file does NOT do: fine-tune.
"""

import json
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from qkv.data.corpus.shards import Shards
from qkv.errors import InputError
from qkv.models.bert.network import Bert, BertConfig
from qkv.models.elmo.network import BothWays, ElmoConfig
from qkv.models.encoder import SkipInit
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.train.run_folder import folder_sha256, latest_checkpoint

SYSTEMS = ("word2vec", "elmo", "gpt", "bert")
"""In the order of the lineage."""
FILTERS = (32, 32, 64, 128, 128, 128)  # of ELMo's spelling: half a million parameters, not eight as in the paper
POSITIONS = 512
ALIGNED = 8  # ELMo's cells are a multiple: a GPU's fast products take no other width
RECIPES = {"word2vec": "word2vec.toml", "elmo": "elmo.toml", "gpt": "gpt.toml", "bert": "qkv-mini.toml"}
ROOT = Path(__file__).parents[1]


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
    with torch.device("meta"), SkipInit():
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

        widths = range(shape.width // ALIGNED * ALIGNED + ALIGNED, 65_536, ALIGNED)
        above = bisect_left(widths, bert, key=elmo)  # more cells are more parameters
        cells = min(widths[max(0, above - 1) : above + 1], key=lambda cells: abs(elmo(cells) - bert))
        found = {"word2vec": width * vocabulary_size, "elmo": elmo(cells), "gpt": gpt, "bert": bert}
        return cls(width, shape.width, cells, found)


def settings(system: str, shapes: Shapes, budget: Budget) -> list[str]:
    """What `qkv pretrain` would be told with --set, beside the recipe."""
    rows = max(1, budget.tokens // budget.length)
    loop = ["train.log_every=50", "train.evaluate_every=2000", "train.save_every=2000"]
    if not budget.device.startswith("cuda"):
        loop += ["train.precision=fp32", "train.threads=1"]
    return {
        # at its recipe's rate, such wide vectors were no numbers any more after 64 steps on a GPU
        "word2vec": [f"model.width={shapes.word2vec_width}", "train.lr=0.025", "train.save_every=100000"],
        "elmo": [
            *(f"model.filters=[{', '.join(map(str, FILTERS))}]", f"model.width={shapes.elmo_width}"),
            *(f"model.cell_width={shapes.elmo_cells}", "text.ends=document"),
            *(f"rows={max(1, budget.tokens // 128)}", *loop),
        ],
        "gpt": [
            *(f"length={budget.length}", f"model.max_length={POSITIONS}", f"rows={rows}"),
            *("train.optimizer=muon", "train.warmup=0.03", *loop),  # as BERT's recipe has them
        ],
        "bert": [
            *("model.layers=none", "model.inner_width=none", "model.dropout=0.0"),  # the shape of its size
            *("pairs.usual_length=none", f"pairs.max_length={budget.length}", f"rows={rows}", *loop),
        ],
    }[system]


def told(
    system: str, data: Path, out: Path, shapes: Shapes, budget: Budget, steps: int | None = None
) -> dict[str, Any]:
    """What lineage_train.py reads."""
    time_or_steps = {"train.minutes": budget.minutes} if steps is None else {"train.steps": steps}
    size = {"model.size": budget.size} if system in ("gpt", "bert") else {}
    return {
        "system": system,
        "data": str(data),
        "out": str(out),
        "recipe": str(ROOT / "src" / "qkv" / "zoo" / "recipes" / RECIPES[system]),
        "flags": {**time_or_steps, "device": budget.device, **size},
        "settings": settings(system, shapes, budget),
    }


def check_budget(system: str, work: Path, budget: Budget) -> None:
    """A training that was begun is of this budget: else what it comes to would be told as what it is not."""
    file, run = work / f"{system}.budget.json", work / system
    asked = json.dumps(asdict(budget))
    found = file.read_text(encoding="utf-8") if file.is_file() else None
    if run.is_dir() and found != asked:
        raise InputError(
            f"{run} was begun with {found or 'a budget that nobody wrote down'}, and {asked} is asked for. Remove it, "
            "or give another --work."
        )
    work.mkdir(parents=True, exist_ok=True)
    file.write_text(asked, encoding="utf-8")


def weights_of(run: Path) -> str:
    """What tells the training in this folder from any other."""
    if not (run / "model").is_dir():
        raise InputError(f"{run} has no trained model. Run `pretrain` first, or bring the folder here.")
    return folder_sha256(run / "model")[:16]


def filling(steps: int, seconds: float, budget: Budget) -> int | None:
    """How many steps would have filled the minutes, where these missed them by more than a tenth.

    The first steps promise how many that is, and not all trainings stay as fast: ELMo spells a word once and gets
    faster with every word it knows.

    >>> filling(635, 91.0, Budget(minutes=2.6))
    1089
    >>> filling(5_140, 157.4, Budget(minutes=2.6))
    """
    wanted = 60 * budget.minutes
    return round(steps * wanted / seconds) if abs(seconds - wanted) > 0.1 * wanted else None


def trained(system: str, data: Path, work: Path, budget: Budget, steps: int | None = None) -> dict[str, Any]:
    """Train one system in WORK/SYSTEM, for so many steps or for the budget's minutes; what came of it. One that is
    finished stays as it is; one that fails has said why, and is a CalledProcessError."""
    out, shapes = work / system, Shapes.equal(Shards.open(data).tokenizer().size, budget.size)
    check_budget(system, work, budget)
    began = time.perf_counter()
    print(f"{system}: {shapes.parameters[system]:,} parameters, {budget.minutes:g} minutes", flush=True)
    program = [sys.executable, "-u", str(ROOT / "bench" / "lineage_train.py")]
    subprocess.run([*program, json.dumps(told(system, data, out, shapes, budget, steps))], check=True)
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
        "weights": weights_of(out),
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
        found = latest_checkpoint(out / "checkpoints", print)
        assert found is not None, f"{out} has no checkpoint"
        save_file({"context": found.tensors["model"]["context"].contiguous()}, out / "context.safetensors")
