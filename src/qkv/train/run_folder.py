"""The folder of a run, whatever the job: settings, checkpoints, sessions, and the finished model."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from qkv.config import read_toml
from qkv.errors import InputError, reading
from qkv.files import locked, read_object, replaced_folder, sha256_of, to_json, write_text
from qkv.train.device import peak_memory

# --- Checkpoints: written atomically, verified before use, the previous one kept; and the mean of the last ones.
#
#     RUN/checkpoints/step-00001200/
#         model.safetensors  optimizer.safetensors
#         state.json          the step, the state of the loop, and the SHA-256 of the files above
#
# If a checkpoint is damaged, a warning names it and the previous one is used.
#
# The mean of a run's last checkpoints (Vaswani et al. 2017, §6.1) is often better than each of them. Checkpoints that
# were written because of Ctrl-C are excluded, and removed before they could displace a regular one: a run that was
# stopped and resumed, however often, ends with the same mean as an uninterrupted one.


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    step: int
    tensors: Mapping[str, dict[str, Tensor]]  # by file: "model", "optimizer"
    state: Mapping[str, Any]


def save_checkpoint(
    folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], keep: int = 2
) -> Path:
    """Write a checkpoint, then remove all but the newest `keep`. On an error the existing ones are unchanged.

    Later checkpoints are removed too: a run repeats their steps only because they were damaged.
    """
    target = folder / f"step-{step:08d}"
    with replaced_folder(target, lambda before: None) as fresh:
        hashes = {}
        for name, group in tensors.items():
            file = fresh / f"{name}.safetensors"
            # one group on the host at a time, contiguous as the file format requires
            try:
                save_file({key: value.detach().cpu().contiguous() for key, value in group.items()}, file)
            except SafetensorError as error:  # among others, a full disk
                raise OSError(str(error)) from error
            hashes[file.name] = sha256_of(file)
        content = to_json({"step": step, "state": state, "sha256": hashes})
        (fresh / "state.json").write_text(content, encoding="utf-8")
    found = checkpoint_steps(folder)
    here = found.index(target) + 1
    for old in (*found[: max(0, here - keep)], *found[here:]):
        shutil.rmtree(old, ignore_errors=True)
    return target


def checkpoint_steps(folder: Path) -> list[Path]:
    """Return the folders of all checkpoints, oldest first."""
    return sorted(folder.glob("step-*"))


def latest_checkpoint(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """Load the newest intact checkpoint, calling `warn` for each damaged one; None if there are no checkpoints."""
    for leftover in (*folder.glob(".step-*.part"), *folder.glob(".step-*.old")):
        shutil.rmtree(leftover, ignore_errors=True)  # of a run that was killed while saving
    found = checkpoint_steps(folder)
    for path in reversed(found):
        try:
            return load_checkpoint(path)
        except InputError as error:
            warn(f"{error} The previous checkpoint is used." if path != found[0] else str(error))
    if found:
        raise InputError(
            f"{folder}: all {len(found)} checkpoints are damaged. Remove {folder.parent} and start the run again."
        )
    return None


def load_checkpoint(path: Path) -> Checkpoint:
    """Load and verify one."""
    try:
        content = read_object(path / "state.json")
        for name, expected in content["sha256"].items():
            if sha256_of(path / name) != expected:
                raise InputError(f"the SHA-256 of {name} differs from the recorded one.")
        tensors = {name.removesuffix(".safetensors"): load_file(path / name) for name in content["sha256"]}
        return Checkpoint(path, content["step"], tensors, content["state"])
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise InputError(f"{path} is damaged: {str(error).rstrip('.')}.") from error


NEWEST = 2
"""Checkpoints to resume from: the last, and the previous one in case it is damaged."""
STOPS = NEWEST + 1
"""Checkpoints kept in addition to those of the mean: the newest, and one for the next stop."""


@dataclass(frozen=True)
class Mean:
    weights: dict[str, Tensor]
    count: int  # checkpoints averaged


def checkpoints_to_keep(average: int) -> int:
    """Return how many checkpoints a run has to keep."""
    return average + STOPS if average > 1 else 1


def forget_stops(folder: Path, every: int) -> None:
    """Remove checkpoints of earlier stops, which are no longer needed; called when a run is resumed."""
    for path in checkpoint_steps(folder)[:-NEWEST]:
        if _step(path) % every:
            shutil.rmtree(path, ignore_errors=True)


def average_checkpoints(folder: Path, count: int, every: int, last: int, tell: Callable[[str], None]) -> Mean | None:
    """Return the mean weights of the last `count` regular checkpoints (every `every` steps, and step `last`).

    None if there are fewer than two.
    """
    regular = [path for path in checkpoint_steps(folder) if (step := _step(path)) % every == 0 or step == last]
    chosen = regular[-count:]
    if count < 2 or len(chosen) < 2:
        if count > 1:
            tell(f"note: only {len(regular)} checkpoints to average; save more often (train.save_every)")
        return None
    if len(chosen) < count:
        tell(f"note: averaged {len(chosen)} checkpoints instead of {count}: no more were kept")
    sums: dict[str, Tensor] = {}
    for path in chosen:
        for name, tensor in load_file(path / "model.safetensors").items():
            if name in sums:
                sums[name] += tensor.double()
            else:
                sums[name] = tensor.double()  # so that rounding of the sum does not show in float32
    return Mean({name: (total / len(chosen)).float() for name, total in sums.items()}, len(chosen))


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


@dataclass(frozen=True)
class Outcome:
    started: int  # the step it started or resumed from
    step: int
    finished: bool  # False: interrupted and saved, can be resumed
    signal: int | None = None


CONFIG = "config.toml"
TRAINING_TEXTS = "training_texts.bin"
"""Hashes of the training texts of a fine-tuning run (`KnownTexts`), by which `evaluate` recognises them."""
_OURS = (
    *(CONFIG, "log.jsonl", "timing.jsonl", "sessions.jsonl", "faults.jsonl", "predictions.jsonl", "points.jsonl"),
    "samples.jsonl",
    *("report.html", "result.json", "model", "translations.tsv", "tokenizer", TRAINING_TEXTS),
)
"""Files that runs write atomically; a process that was killed may leave drafts of them."""
_FOLDERS = ("checkpoints", "vectors", "points", "pairs", "tensorboard")
"""Other folders of runs; and seed-0, seed-1, …"""


class JobKind(NamedTuple):
    words: str
    verb: str  # the verb that starts and resumes such a run
    sign: str  # a setting that no job further down in the table has


JOBS = {
    "finetune": JobKind("a fine-tuning run", "finetune", "task"),
    "curve": JobKind("a learning curve", "curve", "finetune"),
    "translate": JobKind("a translation run", "train translate", "bitext"),
    "embed": JobKind("a run of sentence vectors", "train embed", "widths"),
    "pretrain": JobKind("a run of {model_type}", "pretrain", "model_type"),
}
_JOB_MARK = "# job: "
"""First line of config.toml: a comment, so that the file is still a recipe and older versions of qkv read it."""


def write_settings(run: Path, job: str, toml: str) -> None:
    write_text(run / CONFIG, f"{_JOB_MARK}{job}\n{toml}")


def job_of(run: Path) -> str | None:
    """The kind of a run, a key of JOBS: as recorded, or guessed from the settings of a run of an older qkv."""
    settings = _settings_of(run)
    with reading(run / CONFIG), (run / CONFIG).open(encoding="utf-8-sig") as lines:
        said = next(lines, "").removeprefix(_JOB_MARK).strip()
    return said if said in JOBS else next((job for job, kind in JOBS.items() if kind.sign in settings), None)


def _settings_of(run: Path) -> dict[str, Any]:
    settings = read_toml(run / CONFIG)
    # old runs of BERT have no model_type; they are recognised by their table `masking`
    return ({"model_type": "bert"} if "masking" in settings else {}) | settings


def _described(run: Path, job: str) -> str:
    words = JOBS[job].words.format_map({"model_type": None} | _settings_of(run))
    return f"{run} is {words}: qkv {JOBS[job].verb} --resume {run}"


def begin(out: Path, job: str, finished: bool = False, overwrite: bool = False) -> None:
    """Refuse a folder that cannot become a new run, before any data is read.

    `finished`: the run in the folder cannot be resumed. With `overwrite` a run of the same kind is accepted, if the
    folder holds nothing else; `remove_run` removes it.
    """
    if (out / CONFIG).exists():
        if (found := job_of(out)) not in (None, job):
            raise InputError(f"{_described(out, found)}, or give another --out.")
        if overwrite:
            _check_removable(out)
            return
        how = "" if finished else f" Go on with it: qkv {JOBS[job].verb} --resume {out}."
        held = "a finished run" if finished else "a run already"
        raise InputError(f"{out} holds {held}.{how} Give another folder, or replace the run with --overwrite.")
    if overwrite and out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out} is not a run (it has no {CONFIG}): --overwrite does not replace it.")
    remove_drafts(out)
    if out.exists() and (not out.is_dir() or any(one.name != LOCK for one in out.iterdir())):
        raise InputError(f"{out} is not an empty folder. Give a new name for the run.")
    there = next((parent for parent in (out, *out.absolute().parents) if parent.exists()), Path("/"))
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise InputError(f"{out} cannot be written: {there} is not a folder that files can be put in.")


def _check_removable(run: Path) -> None:
    for one in sorted(run.iterdir()):
        if not (one.name in (*_OURS, *_FOLDERS) or one.name.startswith(("seed-", "."))):
            raise InputError(f"{run} also holds {one.name}, which no run writes: move it before --overwrite.")


def remove_run(run: Path) -> None:
    """Remove a run, its settings last, so that an interrupted removal leaves a folder that is known as a run."""
    if (run / CONFIG).exists():
        _check_removable(run)
        for one in sorted(run.iterdir(), key=lambda one: one.name == CONFIG):
            if one.name == LOCK:
                continue
            shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()


def settings_of(run: Path, job: str) -> dict[str, Any]:
    """The settings of a run that this job resumes."""
    if not (run / CONFIG).is_file():
        raise InputError(f"{run} is not a run: it has no {CONFIG}. A run is the folder that was given to --out.")
    if (found := job_of(run)) not in (None, job):
        raise InputError(f"{_described(run, found)}.")
    return _settings_of(run)


# --- One process works on a run.

LOCK = ".lock"


@contextmanager
def lock_run(run: Path) -> Iterator[None]:
    """Keep others from working on this run at the same time. The lock ends with the process, however that ends."""

    def busy(owner: str) -> InputError:
        return InputError(
            f"Another process works on {run} ({owner or 'just started'}). Wait for it, or stop it; to train another "
            "model, give another folder."
        )

    with locked(run / LOCK, busy):
        yield


def remove_drafts(run: Path) -> None:
    """Remove the drafts of a process that was killed; other files are not touched."""
    for name in _OURS:
        for draft in (*run.glob(f".{name}.*.part"), *run.glob(f".{name}.*.old")):
            if draft.is_dir():
                shutil.rmtree(draft, ignore_errors=True)
            else:
                draft.unlink(missing_ok=True)


def read_lines(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def add_line(file: Path, line: Mapping[str, Any]) -> None:
    """Append a line, atomically: the file is rewritten, and has one short line per session or point."""
    write_text(file, "".join(json.dumps(one) + "\n" for one in (*read_lines(file), line)))


def folder_sha256(folder: Path) -> str:
    """The hash of all files of a pretrained folder that a run reads."""
    known = sorted(file for file in folder.iterdir() if file.suffix in (".safetensors", ".bin", ".json", ".txt"))
    return hashlib.sha256("".join(f"{file.name} {sha256_of(file)}\n" for file in known).encode()).hexdigest()


def check_folder_sha256(folder: Path, expected: str | None) -> None:
    if expected is not None and folder_sha256(folder) != expected:
        raise InputError(
            f"{folder} has changed since the run began: a resumed run would go on from other weights. "
            "Put the folder back, or begin another run."
        )


# --- RUN/sessions.jsonl: one line each time a run was started or resumed, and their totals.

FILE = "sessions.jsonl"


@dataclass(frozen=True)
class Sessions:
    lines: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, run: Path) -> Self:
        return cls(tuple(read_lines(run / FILE)))

    def ended(self, outcome: Outcome, began: float, device: torch.device) -> Self:
        """These sessions and the one that ends now; `began` is a time.perf_counter()."""
        line = {"from": outcome.started, "to": outcome.step, "seconds": round(time.perf_counter() - began, 1)}
        return type(self)((*self.lines, line | {"peak_memory": peak_memory(device)}))

    def write(self, run: Path) -> None:
        """Called last: a session that reached the last step means that all other files were written."""
        write_text(run / FILE, "".join(json.dumps(line) + "\n" for line in self.lines))

    @property
    def reached(self) -> int:
        return max((line["to"] for line in self.lines), default=0)

    @property
    def seconds(self) -> float:
        return sum(line["seconds"] for line in self.lines)

    @property
    def peak_memory(self) -> int | None:
        return max((line["peak_memory"] or 0 for line in self.lines), default=0) or None

    @property
    def resumed_from(self) -> tuple[int, ...]:
        return tuple(line["from"] for line in self.lines if line["from"])
