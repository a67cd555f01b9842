"""The lineage, measured: word2vec, ELMo, GPT and BERT from one corpus, with equal parameters and equal minutes, then
fine-tuned on the same sets with the same budget; and the same hidden words guessed from the left and from both sides.

    python bench/lineage.py prepare --from ../shared/data --sets .device-data/tasks          # once, on any machine
    export PYTHONPATH=src; W="--work /tmp/lineage --data shards --sets .device-data/tasks"
    python bench/lineage.py pretrain $W --systems bert gpt --deadline 560                   # 3 minutes each, on a GPU
    python bench/lineage.py pretrain $W --systems elmo word2vec --deadline 560
    python bench/lineage.py sides $W --held-out en=valid/en zh=valid/zh
    python bench/lineage.py latency $W
    python bench/lineage.py finetune $W --deadline 560                                   # again, until nothing is left
    python bench/lineage.py table --lines /tmp/lineage/lines.jsonl --json docs/images/lineage.json

Every part appends lines of JSON to WORK/lines.jsonl and does nothing twice: what stands there, or in --before FILE, is
done. `finetune` starts the longest runs first, several at a time on one GPU, the first seed of all before the second;
with --deadline it starts nothing that would not end. A training that was cut goes on. --quick is a look on a CPU with
tiny models, a few examples and one seed: it says that everything runs, and nothing about the lineage.

What systems are: lineage_systems.py; how they are fine-tuned: lineage_runs.py; the words: lineage_sides.py; intervals
and tests: lineage_table.py.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from checkpoint_tasks import pack
from end_with_parent import end_with_parent
from lineage_runs import CHOSEN, MOST, SETS, Run, fine_tuned, latency, pack_wic, scored_part
from lineage_sides import asked_all
from lineage_systems import QUICK, SYSTEMS, Budget, trained
from lineage_table import markdown, summed_up

from qkv.errors import InputError

ROOT = Path(__file__).parents[1]
PARTS = ("prepare", "pretrain", "sides", "latency", "finetune", "table", "all")
SLOWER = {"elmo": 3.0, "word2vec": 1.5}  # of a run, beside a BERT's, until one was timed
FEW = 64  # examples of each set in a look
STARTING = 45  # seconds that a training takes beside its minutes, about


def read_lines(*files: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in files
        if file.is_file()
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]


class Lines:
    """What was found so far, here and before."""

    def __init__(self, out: Path, before: Sequence[Path]) -> None:
        self.out = out
        self.found = read_lines(*before, *([] if out in before else [out]))

    def add(self, line: dict[str, Any]) -> None:
        self.found.append(line)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with self.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def has(self, **fields: Any) -> bool:
        return any(
            "error" not in line and all(line.get(key) == value for key, value in fields.items()) for line in self.found
        )


def pretrain(options: argparse.Namespace, lines: Lines) -> None:
    began = time.perf_counter()
    for system in options.systems:
        if lines.has(part="pretrain", system=system):
            print(f"{system}: done before", flush=True)
            continue
        left = options.deadline - (time.perf_counter() - began)
        if left < 60 * options.budget.minutes + STARTING:
            print(f"{system}: not started, {left:.0f} s are left", flush=True)
            continue
        try:
            found = trained(system, options.data, options.work, options.budget)
        except subprocess.CalledProcessError as error:
            print(f"{system}: {error}", flush=True)
            continue
        lines.add(found)
        print(f"{system}: {found['steps']:,} steps in {found['seconds']} s, {found['evaluation']}", flush=True)


def sides(options: argparse.Namespace, lines: Lines) -> None:
    texts = {name: place for name, place in options.held_out.items() if not lines.has(part="sides", language=name)}
    for name in options.held_out.keys() - texts:
        print(f"{name}: done before", flush=True)
    length = options.budget.length
    for line in asked_all(options.data, texts, options.work, options.systems, options.words, length, options.device):
        lines.add(line)
        words = f"{line['words']:,} words"
        print(f"{line['language']} {line['system']} {line['side']}: {line['accuracy']:.1%} of {words}", flush=True)


def a_run(options: argparse.Namespace, task: str, system: str, seed: int, device: str) -> Run:
    folder = str((options.work / system / "model").resolve())
    few = FEW if options.quick else None
    return Run(
        *(task, system, folder, seed, device, str(options.sets.resolve())),
        most=few or options.most,
        scored=few,
        epochs=1.0 if options.quick else options.epochs,
    )


def measure_latency(options: argparse.Namespace, lines: Lines) -> None:
    """On a CPU with two threads, and on the device if it is another."""
    torch.set_num_threads(2)
    for device in dict.fromkeys(("cpu", options.device)):
        for system in options.systems:
            if lines.has(part="latency", system=system, device=device):
                continue
            found = latency(a_run(options, "sst2", system, 0, device))
            lines.add(found)
            print(
                f"{system}, {device}: {found['milliseconds']:.2f} ms a text, {found['texts_per_second']:,.0f} texts/s"
            )


def finetune(options: argparse.Namespace, lines: Lines) -> None:
    """As many at a time as there are workers; a line as soon as one is done."""
    by_length = sorted(options.tasks, key=lambda name: -SETS[name].seconds)
    runs = [
        a_run(options, task, system, seed, options.device)
        for seed in options.seeds
        for task in by_length
        for system in sorted(options.systems, key=lambda system: -SLOWER.get(system, 1.0))
        if not lines.has(part="finetune", task=task, system=system, seed=seed)
    ]
    took = {
        (line["task"], line["system"]): line["whole_seconds"]
        for line in lines.found
        if line.get("part") == "finetune" and "error" not in line
    }
    print(f"{len(runs)} runs are left, {options.workers} at a time", flush=True)
    began, waiting = time.perf_counter(), list(runs)
    going: dict[Future[dict[str, Any]], Run] = {}
    # spawned, since a process that was forked cannot use the GPU
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        while True:
            left = options.deadline - (time.perf_counter() - began)
            # where the longest no longer fits, a shorter one may
            fits = [run for run in waiting if took.get((run.task, run.system), _guess(run)) < left]
            for run in fits[: max(0, options.workers - len(going))]:
                waiting.remove(run)
                going[pool.submit(fine_tuned, run)] = run
            if not going:
                break
            wait(list(going), return_when=FIRST_COMPLETED)
            for future in [future for future in going if future.done()]:
                run, found = going.pop(future), future.result()
                took[run.task, run.system] = found["whole_seconds"]
                lines.add(found)
                print(
                    f"{time.perf_counter() - began:5.0f} s  {' '.join(map(str, run.key))}: {_told(found)}", flush=True
                )
    if waiting:
        print(f"not started, too little time was left: {len(waiting)} runs", flush=True)


def _guess(run: Run) -> float:
    return SETS[run.task].seconds * SLOWER.get(run.system, 1.0) if run.scored is None else 20.0


def _told(found: dict[str, Any]) -> str:
    if "error" in found:
        return str(found["error"])
    figure = SETS[found["task"]].figures[0]
    return (
        f"{scored_part(found['task'])} {figure} {100 * found['scores'][figure]:.2f}; {found['steps']:,} steps in "
        f"{found['seconds']} of {found['whole_seconds']} s"
    )


def table(options: argparse.Namespace, lines: Lines) -> None:
    summary = summed_up(lines.found)
    print(markdown(summary))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        subprocess.run([sys.executable, str(ROOT / "docs" / "lineage_figure.py"), str(options.json)], check=True)


def prepare(options: argparse.Namespace) -> None:
    if options.source is None:
        sys.exit("Where are the sets? Give --from DATA.")
    if any(not SETS[name].file(options.sets, name, "train").is_file() for name in CHOSEN):
        pack(options.source, options.sets)
    pack_wic(options.source, options.sets)
    print(f"{options.sets}: {', '.join(SETS)}")


def _named(text: str) -> tuple[str, Path]:
    name, _, folder = text.rpartition("=")
    return name or Path(folder).name, Path(folder)


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--from", dest="source", type=Path, help="the data folder, for prepare")
    parser.add_argument("--data", type=Path, help="shards that `qkv prepare` wrote")
    parser.add_argument("--held-out", nargs="+", type=_named, default=[], metavar="NAME=SHARDS", help="for sides")
    parser.add_argument("--sets", type=Path, default=ROOT / ".device-data" / "tasks", help="what prepare wrote")
    parser.add_argument("--work", type=Path, default=Path("runs") / "lineage", help="trained systems and lines.jsonl")
    parser.add_argument("--lines", type=Path, help="instead of WORK/lines.jsonl")
    parser.add_argument("--before", nargs="+", type=Path, default=[], metavar="FILE", help="lines of earlier sessions")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--tasks", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--minutes", type=float, help="of each training; 3")
    parser.add_argument("--size", help="of BERT and GPT, and so of all; mini")
    parser.add_argument("--words", type=int, help="that are hidden, of each language; 2,000")
    parser.add_argument("--most", type=int, default=MOST, help="examples of a set to learn from")
    parser.add_argument("--epochs", type=float, help="instead of each set's own")
    parser.add_argument("--workers", type=int, help="processes at once; 12 on a GPU, 1 without")
    parser.add_argument("--deadline", type=float, default=float("inf"), help="seconds after which nothing should end")
    parser.add_argument("--device", help="cuda, if there is one")
    parser.add_argument("--quick", action="store_true", help="a look, on a CPU")
    parser.add_argument("--json", type=Path, help="of table: the figures for the page, and the picture beside them")
    options = parser.parse_args(words)
    options.device = options.device or ("cuda" if torch.cuda.is_available() and not options.quick else "cpu")
    budget = QUICK if options.quick else Budget()
    changes = {"minutes": options.minutes, "size": options.size, "device": options.device}
    options.budget = replace(budget, **{name: value for name, value in changes.items() if value is not None})
    options.seeds = options.seeds or ([0] if options.quick else [0, 1, 2])
    options.words = options.words or (100 if options.quick else 2_000)
    options.workers = options.workers or (12 if options.device.startswith("cuda") else 1)
    options.held_out = dict(options.held_out)
    return options


def main() -> None:
    options = parsed()
    if options.part == "prepare":
        prepare(options)
        return
    lines = Lines(options.lines or options.work / "lines.jsonl", options.before)
    parts = {"pretrain": pretrain, "sides": sides, "latency": measure_latency, "finetune": finetune, "table": table}
    chosen = list(parts) if options.part == "all" else [options.part]
    if options.data is None and {"pretrain", "sides"} & set(chosen):
        sys.exit("Which corpus? Give --data SHARDS.")
    if "sides" in chosen and not options.held_out:
        sys.exit("Which text was not learned from? Give --held-out en=SHARDS zh=SHARDS, of the same tokenizer.")
    if options.device == "cpu" and not options.quick and chosen != ["table"]:
        sys.exit("No GPU here: --quick is a look on a CPU; the whole takes it days.")
    # the processes read these: one thread each for torch, a few for tokenizers
    if "finetune" in chosen:
        threads = max(1, 2 * (os.cpu_count() or 1) // options.workers)
        os.environ |= {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": str(threads)}
    try:
        for name in chosen:
            parts[name](options, lines)
    except InputError as error:
        sys.exit(str(error))
    except BrokenProcessPool:
        sys.exit(f"A process was killed, perhaps for its memory. What was done before is in {lines.out}.")


if __name__ == "__main__":
    main()
