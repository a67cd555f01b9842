"""The lineage, measured: word2vec, ELMo, GPT and BERT from one corpus, with equal parameters and equal minutes, then
fine-tuned on the same sets with the same budget; and the same hidden words guessed from the left and from both sides.

    python bench/lineage.py prepare --from ../shared/data --sets sets                      # once, on any machine
    export PYTHONPATH=src; W="--work runs/lineage --data shards --sets sets"
    python bench/lineage.py pretrain $W --systems bert gpt --deadline 560                   # 3 minutes each, on a GPU
    python bench/lineage.py pretrain $W --systems elmo word2vec --deadline 560
    python bench/lineage.py sides $W --held-out en=valid/en zh=valid/zh
    python bench/lineage.py latency $W
    python bench/lineage.py finetune $W --deadline 560                                   # again, until nothing is left
    python bench/lineage.py table --lines runs/lineage/lines.jsonl --json docs/images/lineage.json

Every part appends lines of JSON to WORK/lines.jsonl and does nothing twice: what stands there, or in --before FILE, is
done, if it is of the same training, examples and epochs. `pretrain` trains one system after the other, and nothing else
should run meanwhile: side by side on one GPU, equal minutes are not equal work. Where the first steps of a training
promised too few of them or too many, it says how many would fill the minutes: remove its folder and give --steps.
`finetune` has equal epochs, so it runs several at a time, the longest first, the first seed of all before the second;
before GPT it chooses GPT's language_model_weight, which `choose` does by itself. With --deadline nothing is started
that would not end. A training that was cut goes on. A part of which something failed ends with 1. --quick is a look on
a CPU with tiny models, a few examples and one seed, in a WORK of its own: it says that everything runs, and nothing
about the lineage.

What systems are: lineage_systems.py; how they are fine-tuned: lineage_runs.py; what is chosen, and how:
lineage_choice.py; the words: lineage_sides.py; intervals and tests: lineage_table.py, lineage_statistics.py.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from checkpoint_tasks import pack
from end_with_parent import end_with_parent
from lineage_choice import SYSTEM, choices, chosen, left_of
from lineage_lines import Lines, write_whole
from lineage_runs import CHOSEN, MOST, SETS, Run, fine_tuned, latency, pack_wic
from lineage_sides import ONE_WORD, Text, asked_all, check_held_out, contents
from lineage_systems import QUICK, SYSTEMS, Budget, filling, trained, weights_of
from lineage_table import markdown, summed_up

from qkv.errors import InputError

ROOT = Path(__file__).parents[1]
PARTS = ("prepare", "pretrain", "sides", "latency", "choose", "finetune", "table", "all")
SLOWER = {"elmo": 3.0, "word2vec": 1.5}  # of a run, beside a BERT's, until one was timed
FEW = 64  # examples of each set in a look
STARTING = 45  # seconds that a training takes beside its minutes, about


def pretrain(options: argparse.Namespace, lines: Lines) -> int:
    """One after the other; how many failed."""
    began, failures = time.perf_counter(), 0
    for system in options.systems:
        if _is_trained(options, lines, system):
            print(f"{system}: done before", flush=True)
            continue
        left = options.deadline - (time.perf_counter() - began)
        if left < 60 * options.budget.minutes + STARTING:
            print(f"{system}: not started, {left:.0f} s are left", flush=True)
            continue
        try:
            found = trained(system, options.data, options.work, options.budget, options.steps.get(system))
        except (InputError, subprocess.CalledProcessError) as error:
            # a process has said why itself, and its command is no news
            print(f"{system}: {error if isinstance(error, InputError) else 'the training failed'}", flush=True)
            failures += 1
            continue
        lines.add(found)
        print(f"{system}: {found['steps']:,} steps in {found['seconds']} s, {found['evaluation']}", flush=True)
        if steps := filling(found["steps"], found["seconds"], options.budget):
            print(f"{system}: not {options.budget.minutes:g} minutes; --steps {system}={steps} would be", flush=True)
    return failures


def _is_trained(options: argparse.Namespace, lines: Lines, system: str) -> bool:
    """A line without its folder helps nobody."""
    run = options.work / system
    budget = asdict(options.budget)
    return (run / "model").is_dir() and lines.has("pretrain", system=system, budget=budget, weights=weights_of(run))


def sides(options: argparse.Namespace, lines: Lines) -> int:
    check_held_out(options.data, options.held_out)
    text = Text.of(options.data, torch.device(options.device))
    for language, folder in options.held_out.items():
        asked = {"language": language, "held_out": contents(folder), "most": options.words}
        asked |= {"length": options.budget.length}
        keys: dict[str, dict[str, Any]] = {ONE_WORD: asked}
        keys |= {system: asked | {"weights": weights_of(options.work / system)} for system in options.systems}
        left = [system for system, key in keys.items() if not lines.has("sides", system=system, **key)]
        print(f"{language}: {len(keys) - len(left)} of {len(keys)} done before", flush=True)
        for line in asked_all(text, language, folder, options.work, left, options.words, options.budget.length):
            lines.add(line | keys[line["system"]])
            words = f"{line['words']:,} words"
            print(f"{language} {line['system']} {line['side']}: {line['accuracy']:.1%} of {words}", flush=True)
    return 0


def a_run(options: argparse.Namespace, task: str, system: str, seed: int, device: str) -> Run:
    folder = (options.work / system / "model").resolve()
    few = FEW if options.quick else None
    return Run(
        *(task, system, str(folder), seed, device, str(options.sets.resolve())),
        most=few or options.most,
        scored=few,
        epochs=1.0 if options.quick else options.epochs,
        weights=weights_of(options.work / system),
    )


def measure_latency(options: argparse.Namespace, lines: Lines) -> int:
    """On a CPU with two threads, and on the device if it is another."""
    torch.set_num_threads(2)
    for device in dict.fromkeys(("cpu", options.device)):
        for system in options.systems:
            run = a_run(options, "sst2", system, 0, device)
            if lines.has("latency", system=system, device=device, weights=run.weights):
                continue
            found = latency(run)
            lines.add(found)
            print(
                f"{system}, {device}: {found['milliseconds']:.2f} ms a text, {found['texts_per_second']:,.0f} texts/s"
            )
    return 0


def choose(options: argparse.Namespace, lines: Lines) -> int:
    deciding = choices(a_run(options, "sst2", SYSTEM, 0, options.device))
    failures = _run_all(options, lines, left_of(deciding, lines))
    print(f"language_model_weight of {SYSTEM}: {chosen(deciding, lines)}", flush=True)
    return failures


def finetune(options: argparse.Namespace, lines: Lines) -> int:
    """GPT's runs wait for what decides their weight, and others do not wait for them."""
    systems = sorted(options.systems, key=lambda system: -SLOWER.get(system, 1.0))
    first = {system: a_run(options, "sst2", system, 0, options.device) for system in systems}  # a folder is read once
    deciding = choices(first[SYSTEM]) if SYSTEM in systems else []

    def ready(run: Run) -> Run | None:
        if run.system != SYSTEM or run.part == "choose":
            return run
        weight = chosen(deciding, lines)
        return None if weight is None else replace(run, language_model_weight=weight)

    runs = [
        replace(first[system], task=task, seed=seed)
        for seed in options.seeds
        for task in sorted(options.tasks, key=lambda name: -SETS[name].seconds)
        for system in systems
    ]
    left = [run for run in runs if not lines.has(**(ready(run) or run).key)]
    return _run_all(options, lines, [*(left_of(deciding, lines) if left else []), *left], ready)


def _run_all(
    options: argparse.Namespace, lines: Lines, waiting: list[Run], ready: Callable[[Run], Run | None] = lambda run: run
) -> int:
    """As many at a time as there are workers; a line as soon as one is done. How many failed.

    `ready` says a run as it is to be started, or None if it has to wait for another.
    """
    took = {
        (line["task"], line["system"]): line["whole_seconds"] for line in (*lines.of("choose"), *lines.of("finetune"))
    }
    print(f"{len(waiting)} runs are left, {options.workers} at a time", flush=True)
    began, failures = time.perf_counter(), 0
    going: dict[Future[dict[str, Any]], Run] = {}
    # spawned, since a process that was forked cannot use the GPU
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        while True:
            left = options.deadline - (time.perf_counter() - began)
            # where the longest no longer fits, a shorter one may
            fits = [(run, now) for run in waiting if (now := ready(run)) and _needs(run, took) < left]
            for run, now in fits[: max(0, options.workers - len(going))]:
                waiting.remove(run)
                going[pool.submit(fine_tuned, now)] = now
            if not going:
                break
            wait(list(going), return_when=FIRST_COMPLETED)
            for future in [future for future in going if future.done()]:
                run, found = going.pop(future), future.result()
                lines.add(found)
                if "error" in found:
                    failures += 1
                else:  # how soon a run fails says nothing of how long it takes
                    took[run.task, run.system] = found["whole_seconds"]
                print(f"{time.perf_counter() - began:5.0f} s  {run}: {_told(found)}", flush=True)
    if waiting:
        print(f"not started, too little time was left or nothing was chosen: {len(waiting)} runs", flush=True)
    return failures


def _needs(run: Run, took: dict[tuple[str, str], float]) -> float:
    """Seconds, about."""
    guess = SETS[run.task].seconds * SLOWER.get(run.system, 1.0) if run.scored is None else 20.0
    return took.get((run.task, run.system), guess)


def _told(found: dict[str, Any]) -> str:
    if "error" in found:
        return str(found["error"])
    figure = SETS[found["task"]].figures[0]
    return (
        f"{found.get('scored', 'held out')} {figure} {100 * found['scores'][figure]:.2f}; {found['steps']:,} steps in "
        f"{found['seconds']} of {found['whole_seconds']} s"
    )


def table(options: argparse.Namespace, lines: Lines) -> int:
    summary = summed_up(lines.found)
    print(markdown(summary))
    if options.json:
        write_whole(options.json, json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
        subprocess.run([sys.executable, str(ROOT / "docs" / "lineage_figure.py"), str(options.json)], check=True)
    return 0


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


def _steps(text: str) -> tuple[str, int]:
    name, _, steps = text.partition("=")
    if name not in SYSTEMS or not steps.isdigit():
        raise argparse.ArgumentTypeError(f"{text}: give one of {', '.join(SYSTEMS)} and a number, as in elmo=1000")
    return name, int(steps)


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--from", dest="source", type=Path, help="the data folder, for prepare")
    parser.add_argument("--data", type=Path, help="shards that `qkv prepare` wrote")
    parser.add_argument("--held-out", nargs="+", type=_named, default=[], metavar="NAME=SHARDS", help="for sides")
    parser.add_argument("--sets", type=Path, default=ROOT / ".device-data" / "tasks", help="what prepare wrote")
    parser.add_argument("--work", type=Path, help="trained systems and lines.jsonl; runs/lineage, or -quick of it")
    parser.add_argument("--lines", type=Path, help="instead of WORK/lines.jsonl")
    parser.add_argument("--before", nargs="+", type=Path, default=[], metavar="FILE", help="lines of earlier sessions")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--tasks", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--minutes", type=float, help="of each training; 3")
    parser.add_argument("--steps", nargs="+", type=_steps, default=[], metavar="SYSTEM=N", help="that fill the minutes")
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
    options.work = options.work or Path("runs") / ("lineage-quick" if options.quick else "lineage")
    options.held_out, options.steps = dict(options.held_out), dict(options.steps)
    return options


PROGRAM: dict[str, Callable[[argparse.Namespace, Lines], int]] = {
    "pretrain": pretrain,
    "sides": sides,
    "latency": measure_latency,
    "choose": choose,
    "finetune": finetune,
    "table": table,
}


def main(words: Sequence[str] | None = None) -> None:
    options = parsed(words)
    if options.part == "prepare":
        prepare(options)
        return
    parts = [name for name in PROGRAM if name != "choose"] if options.part == "all" else [options.part]
    if options.data is None and {"pretrain", "sides"} & set(parts):
        sys.exit("Which corpus? Give --data SHARDS.")
    if "sides" in parts and not options.held_out:
        sys.exit("Which text was not learned from? Give --held-out en=SHARDS zh=SHARDS, of the same tokenizer.")
    if options.device == "cpu" and not options.quick and parts != ["table"]:
        sys.exit("No GPU here: --quick is a look on a CPU; the whole takes it days.")
    # the processes read these: one thread each for torch, a few for tokenizers
    if {"choose", "finetune"} & set(parts):
        threads = max(1, 2 * (os.cpu_count() or 1) // options.workers)
        os.environ |= {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": str(threads)}
    file = options.lines or options.work / "lines.jsonl"
    try:
        lines = Lines(file, options.before)
        for name in parts:
            if failures := PROGRAM[name](options, lines):
                print(f"{name}: {failures} failed", file=sys.stderr)
                sys.exit(1)
    except InputError as error:
        sys.exit(str(error))
    except BrokenProcessPool:
        sys.exit(f"A process was killed, perhaps for its memory. What was done before is in {file}.")


if __name__ == "__main__":
    main()
