"""What a checkpoint is worth: fine-tuned by qkv on eight sets, beside other weights and beside none, several at once.

    python bench/checkpoint_scores.py --prepare ../shared/data .device-data/tasks
    PYTHONPATH=src python3 bench/checkpoint_scores.py --models qkv-mini=FOLDER minilm=FOLDER --random --deadline 500
    python bench/checkpoint_scores.py --models FOLDER --limit 32 --epochs 1 --seeds 0    # a look, on a CPU
    python bench/checkpoint_scores.py --table scores.jsonl                               # of earlier runs
    python bench/checkpoint_scores.py --models FOLDER --held-out --lr 1e-4 3e-4 1e-3 --out rates.jsonl
    python bench/checkpoint_scores.py --models FOLDER --rates rates.jsonl                # with the best of those

A run learns as `qkv finetune` does, by the settings of checkpoint_tasks.py: the verb's own reading, rows and loop. The
scores are those of the last step: nothing is evaluated on the way, no stopping early and no choice among weights, since
what is scored is also what would be chosen by. --random learns from fresh weights in the shape of the first model,
drawn anew by the seed. --held-out scores a tenth of the training examples instead, kept out of training: what a rate
may be chosen by.

Small models wait for launches, so several processes share one GPU: seconds are of a run beside others. A set is read
once for all runs with the same tokenizer. All sets of one seed go before the next seed, the longest first. A line of
JSON is written when a run is done; the table is the mean ± deviation over the seeds.
"""

import argparse
import json
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from checkpoint_table import HELD_OUT, RANDOM, best_rates, show
from checkpoint_tasks import TASKS, pack
from end_with_parent import end_with_parent

from qkv.data.corpus.shards import hash_of
from qkv.errors import InputError
from qkv.jobs.finetune.data import LabelledData, read_data
from qkv.jobs.finetune.settings import FinetuneConfig, resolve_finetune_settings
from qkv.jobs.finetune.training import DevEvaluation, Prepared, build_trainer, prepare_examples, resolve_data_defaults
from qkv.models.bert import folder as hf
from qkv.models.bert.folder import read_config
from qkv.models.bert.network import BertWithHeads
from qkv.models.folders.hub import locate
from qkv.models.table import open_model
from qkv.report.run_log import read_run
from qkv.tasks.baselines import score_constant
from qkv.tasks.predictor import Solver
from qkv.tasks.table import AnyTask
from qkv.tasks.task import Features, Scored
from qkv.tasks.transfer import Transfer
from qkv.text.tokenizer import Tokenizer
from qkv.train.device import device_named
from qkv.train.log import Silent
from qkv.train.run_folder import model_folder

ROOT = Path(__file__).parents[1]
NARROW = 256


@dataclass(frozen=True)
class Run:
    """One fine-tuning, as it is handed to a process."""

    task: str
    model: str  # its name in the table
    folder: str
    seed: int
    lr: float
    epochs: float
    device: str
    ready: str  # the file that `make_ready` writes; runs that read alike share it

    @property
    def name(self) -> str:
        return f"{self.task} {self.model} {self.seed}"


class Ready(NamedTuple):
    """What all runs of a set share whose models have one tokenizer: examples read, and made into rows."""

    config: FinetuneConfig
    data: LabelledData
    task: AnyTask
    max_length: int
    train: Features
    scored: dict[str, tuple[tuple[Any, ...], Features]]  # by part
    transfer: Transfer


def make_ready(run: Run, data: Path, limit: int | None, held_out: bool) -> None:
    """Read the set with the tokenizer of a run's model, once for all seeds. What goes wrong is left for the runs."""
    try:
        found: Ready | Exception = _ready(run, data, limit, held_out)
    except Exception as error:
        found = error
    Path(run.ready).write_bytes(pickle.dumps(found))


def _ready(run: Run, data: Path, limit: int | None, held_out: bool) -> Ready:
    task = TASKS[run.task]
    files = [str(task.file(data, run.task, part)) for part in ("train", *task.scored)]
    flags: dict[str, Any] = {
        **dict(zip(("data.train", "data.dev", "data.test"), files, strict=False)),
        "device": run.device,
        "epochs": run.epochs,
        "evaluations": 1,  # and so one checkpoint
        "texts_per_step": task.batch,
        "max_length": task.max_length,
        "train.patience": "none",
        "train.threads": 1,
    }
    config = resolve_finetune_settings(task.kind, run.folder, flags=flags)
    read = read_data(config)
    parts = tuple(task.scored)
    if held_out:
        examples = Random(0).sample(read.train.examples, len(read.train.examples))
        tenth = len(examples) // 10
        train, dev = (replace(read.train, examples=tuple(some)) for some in (examples[tenth:], examples[:tenth]))
        read, parts = replace(read, train=train, dev=dev, test=None), (HELD_OUT,)
    if limit is not None:
        whole = [read.train, read.dev, read.test or read.dev]
        train, dev, test = (replace(one, examples=_some(one.examples, limit)) for one in whole)
        read = replace(read, train=train, dev=dev, test=None if read.test is None else test)
    opened = open_model(run.folder)
    found = prepare_examples(config, opened, read, Silent().message)
    scored = [(read.dev.examples, found.dev)]
    if read.test is not None:
        rows = found.task.features(opened.tokenizer, read.test.examples, found.max_length, training=False)
        scored.append((read.test.examples, rows))
    by_part = dict(zip(parts, scored, strict=True))
    return Ready(config, found.data, found.task, found.max_length, found.train, by_part, found.transfer)


def fine_tuned(run: Run) -> dict[str, Any]:
    """In a process of its own; a failure is a result too, so that it takes no other run with it."""
    told = {key: value for key, value in asdict(run).items() if key not in ("folder", "device", "ready")}
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="qkv-checkpoint-scores-") as folder:
        try:
            told |= _fine_tuned(run, Path(folder))
        except Exception as error:
            told["error"] = f"{type(error).__name__}: {error}"
    if run.device.startswith("cuda"):
        torch.cuda.empty_cache()  # what this process does not need now, another does
    return told | {"whole_seconds": round(time.perf_counter() - begin, 1)}


def _fine_tuned(run: Run, out: Path) -> dict[str, Any]:
    """What the verb does between reading and calibrating."""
    ready = pickle.loads(Path(run.ready).read_bytes())
    if isinstance(ready, Exception):
        raise ready
    assert isinstance(ready, Ready)
    config = replace(ready.config, train=replace(ready.config.train, lr=run.lr, seed=run.seed))
    _, dev = next(iter(ready.scored.values()))
    prepared = Prepared(
        config, open_model(run.folder), ready.data, ready.task, ready.max_length, ready.train, dev, ready.transfer
    )
    prepared = replace(prepared, config=resolve_data_defaults(prepared, Silent().message))
    trainer = build_trainer(prepared, 0, out, device_named(run.device), Silent())
    assert isinstance(trainer.job.evaluate, DevEvaluation)
    solver = trainer.job.evaluate.solver
    trainer.job = replace(trainer.job, evaluate=None, best_by=None)  # what is scored chooses nothing
    outcome = trainer.run()
    solver.model.eval()
    scored = {part: _scored(solver, *asked) for part, asked in ready.scored.items()}
    always = score_constant(prepared.task, prepared.data.train.examples, prepared.data.dev.examples)
    return {
        "scores": {
            part: found.values | {f"f1 of {one.label}": one.f1 for one in found.per_label}
            for part, found in scored.items()
        },
        "always": always and {next(iter(scored)): always.value},
        "examples": {"train": len(ready.data.train.examples)} | {part: found.n for part, found in scored.items()},
        "steps": outcome.step,
        "seconds": round(sum(line["seconds"] for line in read_run(out).timing), 1),  # of training
        "settings": {"batch": config.texts_per_step, "max_length": ready.max_length},
        "notes": [note.en for note in ready.data.notes],
    }


def _scored(solver: Solver, examples: tuple[Any, ...], features: Features) -> Scored:
    scores = solver.scores(features)
    scorer = solver.task.scorer()
    scorer.add(examples, solver.task.decode(features, scores, solver.model.extra_arrays(), solver.calibration))
    return scorer.result(intervals=False)


def _some(examples: tuple[Any, ...], limit: int) -> tuple[Any, ...]:
    """Drawn: the beginning of a file may be all of one label."""
    return tuple(Random(0).sample(examples, min(limit, len(examples))))


def random_folder(like: Path, seed: int, out: Path) -> Path:
    """Fresh weights in the shape, and with the tokenizer, of another folder."""
    folder = hf.load(like)
    torch.manual_seed(seed)
    return hf.save(out / f"{RANDOM}-{seed}", BertWithHeads(folder.config, pooler=True), folder.tokenizer)


def planned(options: argparse.Namespace, models: dict[str, Path], random: dict[int, Path], work: Path) -> list[Run]:
    """In the order in which they are started."""
    chosen = best_rates(json.loads(line) for file in options.rates for line in file.read_text("utf-8").splitlines())
    readers = {folder: hash_of(Tokenizer.load(folder))[:16] for folder in (*models.values(), *random.values())}
    runs = []
    for seed in options.seeds:
        for name in sorted(options.tasks, key=lambda name: -TASKS[name].seconds):
            task = TASKS[name]
            for model, folder in [
                *({} if options.only_random else models).items(),
                *([(RANDOM, random[seed])] if random else []),
            ]:
                width = read_config(folder / "config.json").config.width
                epochs = options.epochs or task.epochs
                ready = str(work / f"{name}-{readers[folder]}")
                rates = options.lr or [chosen.get(name) or (task.lr if width <= NARROW else task.lr_wider)]
                for lr in rates:
                    shown = model if len(rates) == 1 else f"{model} {lr:g}"
                    runs.append(Run(name, shown, str(folder.resolve()), seed, lr, epochs, options.device, ready))
    return runs


def run_all(options: argparse.Namespace, runs: Sequence[Run], workers: int) -> list[dict[str, Any]]:
    """As many at a time as there are workers; the file gets a line as soon as one is done."""
    began = time.perf_counter()
    waiting, done = list(runs), list[dict[str, Any]]()
    took: dict[tuple[str, str], float] = {}
    # spawned, since a process that was forked cannot use the GPU
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        readers = {run.ready: run for run in runs}
        asked = options.data, options.limit, options.held_out
        files = {name: pool.submit(make_ready, run, *asked) for name, run in readers.items()}
        going: dict[Future[dict[str, Any]], Run] = {}
        while True:
            left = options.deadline - (time.perf_counter() - began)
            # where the longest no longer fits, a shorter one may
            fits = [run for run in waiting if took.get((run.task, run.model), TASKS[run.task].seconds) < left]
            unread = [file for file in files.values() if not file.done()]
            free = max(0, workers - len(unread) - len(going))
            for run in [run for run in fits if files[run.ready].done()][:free]:
                waiting.remove(run)
                going[pool.submit(fine_tuned, run)] = run
            if not going and not (unread and fits):
                break
            begun: list[Future[Any]] = [*going, *unread]
            wait(begun, return_when=FIRST_COMPLETED)
            for future in [future for future in going if future.done()]:
                run, found = going.pop(future), future.result()
                took[run.task, run.model] = found["whole_seconds"]
                done.append(found)
                with options.out.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(found) + "\n")
                print(f"{time.perf_counter() - began:5.0f} s  {run.name}: {_told(found)}", flush=True)
    if waiting:
        print(f"not started, too little time was left: {', '.join(run.name for run in waiting)}", flush=True)
    return done


def _told(found: dict[str, Any]) -> str:
    if "error" in found:
        return str(found["error"])
    figures = [
        f"{part} {figure} {100 * scores[figure]:.2f}"
        for part, scores in found["scores"].items()
        for figure in TASKS[found["task"]].figures
    ]
    return f"{', '.join(figures)}; {found['steps']:,} steps in {found['seconds']} of {found['whole_seconds']} s"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=[], metavar="[NAME=]FOLDER", help="pretrained folders")
    parser.add_argument("--random", action="store_true", help="also fresh weights in the shape of the first model")
    parser.add_argument("--only-random", action="store_true", help="those alone")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--data", type=Path, default=ROOT / ".device-data" / "tasks", help="what --prepare wrote")
    parser.add_argument("--prepare", nargs=2, type=Path, metavar=("DATA", "OUT"), help="only pack the sets' files")
    parser.add_argument("--workers", type=int, help="processes at once; 12 on a GPU, 1 without")
    parser.add_argument("--deadline", type=float, default=float("inf"), help="seconds after which no run should end")
    parser.add_argument("--lr", nargs="+", type=float, help="each of these, instead of each set's own")
    parser.add_argument("--held-out", action="store_true", help="score a tenth of train, to choose a rate by")
    parser.add_argument(
        "--rates", nargs="+", type=Path, default=[], metavar="FILE", help="of these held-out runs, the best lr"
    )
    parser.add_argument("--epochs", type=float, help="instead of each set's own")
    parser.add_argument("--limit", type=int, help="examples of each file, for a look")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "runs")) / "checkpoint-scores.jsonl")
    parser.add_argument("--table", nargs="+", type=Path, metavar="FILE", help="only show what earlier runs wrote")
    return parser.parse_args()


def main() -> None:
    options = parsed()
    if options.prepare:
        pack(*options.prepare)
        return
    if options.table:
        show([json.loads(line) for file in options.table for line in file.read_text(encoding="utf-8").splitlines()])
        return
    if options.device == "cpu" and options.limit is None:
        print("No GPU here: give --limit N for a look at N examples of each set; all of them take a CPU days.")
        return
    if not options.models:
        sys.exit("Which weights? Give --models FOLDER, or NAME=FOLDER.")
    models = {}
    for one in options.models:
        name, _, folder = one.rpartition("=")
        try:
            models[name or Path(folder).name] = model_folder(locate(folder))
        except InputError as error:
            sys.exit(str(error))
    if gone := [name for name in options.tasks if not TASKS[name].file(options.data, name, "train").is_file()]:
        sys.exit(f"{options.data} has no {', '.join(gone)}: --prepare DATA OUT makes the sets' files.")
    workers = options.workers or (12 if options.device.startswith("cuda") else 1)
    # the processes read these: one thread each for torch, a few for tokenizers
    os.environ |= {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": str(max(1, 2 * (os.cpu_count() or 1) // workers))}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="qkv-checkpoint-scores-") as name:
        work, first = Path(name), next(iter(models.values()))
        random = (
            {seed: random_folder(first, seed, work) for seed in options.seeds}
            if options.random or options.only_random
            else {}
        )
        runs = planned(options, models, random, work)
        whole = sum(TASKS[run.task].seconds for run in runs)
        print(f"{len(runs)} runs, {workers} at a time; about {whole / workers:.0f} s on an H200", flush=True)
        try:
            done = run_all(options, runs, workers)
        except BrokenProcessPool:
            sys.exit(f"A process was killed, perhaps for its memory. What was done before is in {options.out}.")
    show(done)


if __name__ == "__main__":
    main()
