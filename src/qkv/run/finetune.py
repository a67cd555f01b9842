"""A whole fine-tuning run: a model to begin from and a labelled file in, a calibrated model and a report out.

RUN/config.toml       the resolved settings; a resumed run reads nothing else
RUN/log.jsonl         step, loss, learning rate, evaluations; with several seeds each has RUN/seed-K/log.jsonl
RUN/faults.jsonl      every example that was dropped or mended, with file, line and reason
RUN/predictions.jsonl held-out examples with what was answered
RUN/model/            the finished model, with its labels, calibration and training record
RUN/report.html       the run as a page
RUN/result.json       the figures; written last, so its presence means: finished
"""

import json
import math
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from qkv.atomic import write_text
from qkv.batch import Batch
from qkv.config import merge, read_toml, to_toml
from qkv.json_file import read_object, to_json
from qkv.report.finetune_page import finetune_page
from qkv.report.run_page import write_report
from qkv.run.finetune_config import FinetuneConfig
from qkv.run.finetune_data import LabelledData, check_pinned, pinned, read_data
from qkv.run.finetune_job import Prepared, prepare, seed_folder, settled, trainer_for, with_vectors
from qkv.run.finetune_model import again, begun
from qkv.run.finish import finish
from qkv.run.folder import add_line, begin, config_of, read_lines, remove_drafts
from qkv.run.peak import peak_memory
from qkv.run.places import device_named
from qkv.tasks.table import task_named
from qkv.train.loop import Trainer
from qkv.train.progress import Progress


@dataclass(frozen=True)
class Finished:
    run: Path
    finished: bool  # False: interrupted, saved, ready to be resumed
    signal: int | None = None
    already: bool = False  # it had ended before

    @property
    def result(self) -> dict[str, Any]:
        return read_object(self.run / "result.json")


def start(config: FinetuneConfig, out: Path, progress: Progress, data: LabelledData | None = None) -> Finished:
    """Begin a run in a new folder. `data` are examples that were handed over rather than named as files."""
    begin(out, "finetune")
    task_named(config.task)
    device_named(config.device)
    config, folder = begun(config, progress.message)
    if data is None:
        config = replace(config, data=pinned(config.data))
        data = read_data(config, progress.message)
    prepared = prepare(config, folder, data, progress.message)
    config = settled(prepared, progress.message)
    prepared = replace(prepared, config=config)
    write_text(out / "config.toml", to_toml(config))
    return _go(prepared, out, progress)


def resume(run: Path, progress: Progress) -> Finished:
    """Go on with a run where it was stopped; a finished one stays as it is."""
    file = config_of(run)
    if (run / "result.json").is_file():
        return Finished(run, finished=True, already=True)
    config = merge(FinetuneConfig(), read_toml(file), str(file))
    device_named(config.device)
    check_pinned(config.data)
    folder = again(config, progress.message)
    remove_drafts(run)
    prepared = prepare(config, folder, read_data(config), progress.message)
    return _go(prepared, run, progress)


def _go(prepared: Prepared, out: Path, progress: Progress) -> Finished:
    """Train every seed, keep the best, write what is left behind."""
    config, used = prepared.config, prepared.data
    faults = [*used.train.faults, *used.dev.faults, *(used.test.faults if used.test is not None else ())]
    if faults:
        write_text(out / "faults.jsonl", "".join(json.dumps(_fault(one), ensure_ascii=False) + "\n" for one in faults))
    device = device_named(config.device)
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    if prepared.transfer.cached:
        began = time.perf_counter()
        prepared = with_vectors(prepared, out, device)
        add_line(out / "sessions.jsonl", {"vectors": round(time.perf_counter() - began, 2)})
    trainer: Trainer[Batch] | None = None
    for number in range(config.seeds):
        folder = out / seed_folder(config, number)
        if config.seeds > 1:
            progress.message(f"seed {number + 1} of {config.seeds}")
        began = time.perf_counter()
        trainer = None  # two models and their optimizers at a time would be one too many
        trainer = trainer_for(prepared, number, folder, device, progress)
        outcome = trainer.run()
        session = {
            "seed": number,
            "from": outcome.started,
            "to": outcome.step,
            "seconds": round(time.perf_counter() - began, 2),
            "peak_memory": peak_memory(device),
            "best_step": trainer.best.step,
            "best": trainer.best.value if trainer.best.weights else None,  # None: stopped before an evaluation
        }
        told = any(one.get("seed") == number for one in read_lines(out / "sessions.jsonl"))
        if outcome.step > outcome.started or not told:
            add_line(out / "sessions.jsonl", session)
        if not outcome.finished:
            return Finished(out, finished=False, signal=outcome.signal)
    best = max(range(config.seeds), key=lambda number: (_best(out, number), -number))
    if trainer is None or best != config.seeds - 1:
        trainer = None
        trainer = trainer_for(prepared, best, out / seed_folder(config, best), device, progress)
        trainer.restore()
    trainer.take_best()
    figures = finish(prepared, trainer, best, out, read_lines(out / "sessions.jsonl"), progress.message)
    write_report(out, finetune_page(out, figures.facts))
    write_text(out / "result.json", to_json(figures.result))
    for number in range(config.seeds):
        shutil.rmtree(out / seed_folder(config, number) / "checkpoints", ignore_errors=True)
    shutil.rmtree(out / "vectors", ignore_errors=True)
    return Finished(out, finished=True)


def _best(out: Path, number: int) -> float:
    """Each session tells the best of the run so far; one that was stopped before an evaluation tells none."""
    told = [session["best"] for session in read_lines(out / "sessions.jsonl") if session.get("seed") == number]
    return max((float(value) for value in told if value is not None), default=-math.inf)


def _fault(fault: Any) -> dict[str, Any]:
    return {
        "file": fault.place.file,
        "line": fault.place.line,
        "kind": fault.kind,
        "message": fault.message,
        "action": fault.action,
    }
