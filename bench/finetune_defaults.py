"""Which defaults of fine-tuning work: a grid over sets, models, sizes, seeds and settings, as one JSON line a run.

    PYTHONPATH=src python3 bench/finetune_defaults.py --sets sets.json --models qkv-mini other=FOLDER \\
        --sizes 100 300 1000 --seeds 0 1 2 --vary train.lr=default,1e-4,3e-4 --vary train.warmup=0.1,0.3 \\
        --device cuda --workers 8 --out grid.jsonl
    PYTHONPATH=src python3 bench/finetune_defaults.py --sets sets.json --models tf-idf 'tf-idf*' 'vectors*=FOLDER' \\
        --out peers.jsonl
    PYTHONPATH=src python3 bench/finetune_defaults.py --table grid.jsonl peers.jsonl

sets.json is a list of {"name", "task", "train", "dev"} and, where needed, "columns", "format", "separator" and
"settings" (a list of KEY=VALUE for this set alone). Files are found relative to sets.json.

A run is what a user with `size` labelled examples would start: a sample of the training file (drawn by the seed), a
tenth of it held out to select the weights, everything else by default except what --vary and --set say. The score is
that of the set's dev file, at most --most examples of it, which took no part in training. `default` as a value of
--vary leaves the setting to qkv.

As a model, `constant`, `tf-idf` and `dictionary` are qkv's own baselines, `tf-idf*` and `vectors*=FOLDER` those of
first_result.py (scikit-learn), fitted to all examples of the same draws and scored on the same dev examples.

Lines of grid.jsonl that exist are not run again: a stopped grid continues with the same command. A run that fails is a
line with "failure"; delete it to try again. What this file does NOT do: choose. It prints the median over seeds, and
the worst.
"""

import argparse
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from qkv.jobs.finetune.settings import FinetuneConfig

DEFAULT = "default"
PEERS = ("constant", "tf-idf", "dictionary", "tf-idf*", "vectors*")
_KEY = ("set", "model", "size", "seed", "settings")


@dataclass(frozen=True)
class LabelledSet:
    name: str
    task: str
    train: str
    dev: str
    columns: Mapping[str, str]
    format: str | None
    separator: str | None
    settings: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    source: LabelledSet
    model: str  # its name in the table
    folder: str
    size: int
    seed: int
    settings: tuple[str, ...]  # KEY=VALUE of the varied settings
    fixed: tuple[str, ...]  # KEY=VALUE of all runs
    device: str
    most: int
    threads: int | None

    @property
    def key(self) -> dict[str, Any]:
        return {
            "set": self.source.name,
            "model": self.model,
            "size": self.size,
            "seed": self.seed,
            "settings": dict(one.split("=", 1) for one in self.settings),
        }


def read_sets(file: Path, names: Sequence[str] | None) -> list[LabelledSet]:
    found = []
    for one in json.loads(file.read_text(encoding="utf-8")):
        place = {part: str(file.parent / one[part]) for part in ("train", "dev")}
        found.append(
            LabelledSet(
                one["name"],
                one["task"],
                place["train"],
                place["dev"],
                one.get("columns", {}),
                one.get("format"),
                one.get("separator"),
                tuple(one.get("settings", ())),
            )
        )
    if names:
        if unknown := sorted(set(names) - {one.name for one in found}):
            raise SystemExit(f"{file} has no set {', '.join(unknown)}.")
        found = [one for one in found if one.name in names]
    return found


def varied(axes: Iterable[str]) -> list[tuple[str, ...]]:
    """
    >>> varied(["train.lr=default,1e-4", "epochs=5"])
    [('train.lr=default', 'epochs=5'), ('train.lr=1e-4', 'epochs=5')]
    """
    values = []
    for axis in axes:
        key, _, words = axis.partition("=")
        values.append([f"{key}={word}" for word in words.split(",")])
    return list(itertools.product(*values))


def run_cell(cell: Cell) -> dict[str, Any]:
    """Train and evaluate one cell; a failure is a result too."""
    folder = tempfile.mkdtemp(prefix="qkv-grid-")
    begin = time.perf_counter()
    try:
        found = _run(cell, Path(folder) / "run")
    except Exception as error:  # of one cell: the others go on
        found = {"failure": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-2000:]}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {**cell.key, **found, "seconds": round(time.perf_counter() - begin, 1)}


def _run(cell: Cell, out: Path) -> dict[str, Any]:
    import torch

    from qkv.jobs.finetune.data import LabelledData, read_part, split_examples
    from qkv.jobs.finetune.run import make_finetuning
    from qkv.tasks.table import TASKS
    from qkv.train.log import Silent
    from qkv.train.run_folder import read_lines

    if cell.threads is not None:
        torch.set_num_threads(cell.threads)
    if cell.model in PEERS:
        return _peer(cell)
    source = cell.source
    config = _settings(cell, cell.folder)
    whole, test = read_part(source.train, config), read_part(source.dev, config)
    examples = _sample(whole.examples, cell.size, cell.seed)
    task = TASKS[source.task].load().chosen(examples, config.settings)
    kept, held = split_examples(examples, replace(config.data, split_seed=cell.seed), task.numbers)
    data = LabelledData(
        replace(whole, examples=kept, faults=()),
        replace(whole, source="held out", examples=held, faults=()),
        test=replace(test, examples=_sample(test.examples, cell.most, 0), faults=()),
    )
    finished = make_finetuning(data).start(config, out, Silent())
    result = finished.result
    main = result["main"]
    log = read_lines(out / "log.jsonl")
    sessions = read_lines(out / "sessions.jsonl")
    return {
        "task": source.task,
        "main": main,
        "score": result["test"][main],
        "dev": result["dev"][main],
        "baseline": None if result["baseline"] is None else result["baseline"][main],
        "baselines": {one["key"]: one["value"] for one in result["baselines"]["test"]},
        "verdict": result["verdict"],
        "nothing_learned": result["failure"],
        "curve": [(line["step"], round(line["evaluation"][main], 4)) for line in log if "evaluation" in line],
        "steps": finished.steps,
        "reached": max(session.get("to", 0) for session in sessions),
        "cost": result["cost"]["seconds"],
    }


def _settings(cell: Cell, folder: str) -> "FinetuneConfig":
    from qkv.jobs.finetune.settings import resolve_finetune_settings

    source = cell.source
    flags: dict[str, Any] = {"data.train": source.train, "device": cell.device, "train.seed": cell.seed}
    flags |= {f"data.columns.{name}": column for name, column in source.columns.items()}
    flags |= {"data.format": source.format, "data.separator": source.separator}
    assignments = [*source.settings, *cell.fixed, *(one for one in cell.settings if not one.endswith(f"={DEFAULT}"))]
    given = {key: value for key, value in flags.items() if value is not None}
    return resolve_finetune_settings(source.task, folder, None, None, given, assignments)


def _peer(cell: Cell) -> dict[str, Any]:
    """Fit and score a baseline on the draw of the cell."""
    import first_result

    from qkv import Tokenizer
    from qkv.jobs.finetune.data import read_part
    from qkv.tasks.baselines import BaselineScores, fit_baselines
    from qkv.tasks.table import TASKS

    source = cell.source
    config = _settings(cell, "qkv-mini")
    train = _sample(read_part(source.train, config).examples, cell.size, cell.seed)
    test = _sample(read_part(source.dev, config).examples, cell.most, 0)
    if cell.model.endswith("*"):
        side = first_result.peer_tf_idf if cell.model == "tf-idf*" else first_result.peer_vectors(cell.folder)
        answers = side(train, test)
        score = statistics.fmean(one == example.label for one, example in zip(answers, test, strict=True))
        return {"task": source.task, "main": "accuracy", "score": score}
    task = TASKS[source.task].load().learn(train, config.settings, Tokenizer.load(config.model))
    own = {one.key: one for one in fit_baselines(task, train)}
    if cell.model not in own:
        raise ValueError(f"{source.task} has no baseline {cell.model}")
    scores = BaselineScores(task, [own[cell.model]])
    scores.add(test)
    return {"task": source.task, "main": task.main, "score": scores.result()[0].value}


def _sample(examples: Sequence[Any], size: int, seed: int) -> tuple[Any, ...]:
    """Return `size` examples in the order of the file, or all."""
    if size >= len(examples):
        return tuple(examples)
    chosen = np.random.default_rng(np.random.SeedSequence((seed, 5))).choice(len(examples), size, replace=False)
    return tuple(examples[number] for number in sorted(chosen.tolist()))


def read_grid(file: Path) -> list[dict[str, Any]]:
    """Return the complete lines; the last one may be cut off."""
    if not file.is_file():
        return []
    lines = file.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


def _identity(line: Mapping[str, Any]) -> str:
    return json.dumps({key: line[key] for key in _KEY}, sort_keys=True)


def run_grid(cells: Sequence[Cell], out: Path, workers: int) -> None:
    known = read_grid(out)
    out.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in known), encoding="utf-8")
    done = {_identity(line) for line in known}
    left = [cell for cell in cells if _identity(cell.key) not in done]
    print(f"{len(cells)} runs, {len(left)} left", file=sys.stderr, flush=True)
    begin = time.perf_counter()
    with out.open("a", encoding="utf-8") as lines:

        def keep(found: Mapping[str, Any], number: int) -> None:
            lines.write(json.dumps(found, ensure_ascii=False) + "\n")
            lines.flush()
            steps = f" (step {found['reached']} of {found['steps']})" if "steps" in found else ""
            said = found.get("failure") or f"{found['score']:.3f}{steps}"
            per = (time.perf_counter() - begin) / number
            key = " ".join(map(str, (found["set"], found["model"], found["size"], found["seed"], found["settings"])))
            print(f"{number}/{len(left)} {key}: {said}; {per:.1f} s a run", file=sys.stderr, flush=True)

        if workers <= 1:
            for number, cell in enumerate(left, 1):
                keep(run_cell(cell), number)
            return
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            for number, future in enumerate(as_completed([pool.submit(run_cell, cell) for cell in left]), 1):
                keep(future.result(), number)


def summarise(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each set, model, size and settings: median, worst and number of seeds."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        key = json.dumps({name: line[name] for name in _KEY if name != "seed"}, sort_keys=True)
        groups.setdefault(key, []).append(line)
    rows = []
    for key, found in groups.items():
        scores = [line["score"] for line in found if "failure" not in line and line["score"] is not None]
        rows.append(
            {
                **json.loads(key),
                "median": statistics.median(scores) if scores else None,
                "worst": min(scores, default=None),
                "seeds": len(scores),
                "failed": len(found) - len(scores),
                "seconds": round(statistics.median(line["seconds"] for line in found), 1),
            }
        )
    return sorted(rows, key=lambda row: json.dumps([row[name] for name in ("set", "model")]) + f"{row['size']:9}")


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table("set", "model", "size", "settings", "median", "worst", "seeds", "s")
    for row in rows:
        shown = ["–" if row[name] is None else f"{row[name]:.3f}" for name in ("median", "worst")]
        seeds = f"{row['seeds']}" + (f" ({row['failed']} failed)" if row["failed"] else "")
        settings = " ".join(f"{key}={value}" for key, value in row["settings"].items())
        table.add_row(row["set"], row["model"], str(row["size"]), settings, *shown, seeds, str(row["seconds"]))
    Console(width=160).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=Path, help="JSON list of labelled sets")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these sets of the list")
    parser.add_argument("--models", nargs="+", default=["qkv-mini"], metavar="NAME[=FOLDER]")
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 300, 1000])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--vary", action="append", default=[], metavar="KEY=V1,V2", help="cross these; repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all runs; repeatable")
    parser.add_argument("--most", type=int, default=1000, help="examples of a dev file that are scored")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1, help="processes beside each other")
    parser.add_argument("--threads", type=int, help="CPU threads of a process")
    parser.add_argument("--out", type=Path, default=Path("grid.jsonl"))
    parser.add_argument("--table", type=Path, nargs="+", metavar="GRID", help="print what was found, run nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the table as JSON")
    asked = parser.parse_args()
    if asked.table:
        lines = [line for file in asked.table for line in read_grid(file)]
    else:
        if asked.sets is None:
            parser.error("give --sets FILE, or --table GRID")
        models = [name.partition("=") for name in asked.models]
        cells = [
            Cell(
                source,
                name,
                folder or name,
                size,
                seed,
                settings,
                tuple(asked.set),
                asked.device,
                asked.most,
                asked.threads,
            )
            # seeds outermost: a grid that is stopped early has whole tables of fewer seeds
            for seed in asked.seeds
            for source in read_sets(asked.sets, asked.only)
            for name, _, folder in models
            for size in asked.sizes
            for settings in varied(asked.vary)
        ]
        run_grid(cells, asked.out, asked.workers)
        lines = read_grid(asked.out)
    rows = summarise(lines)
    if asked.json is not None:
        asked.json.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print_table(rows)


if __name__ == "__main__":
    main()
