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
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from qkv.config import read_toml
from qkv.errors import InputError, reading
from qkv.files import flush_entry, locked, read_object, replaced_folder, sha256_of, to_json, write_text
from qkv.train.device import peak_memory
from qkv.train.distributed import World

# --- Checkpoints: written atomically, verified before use, the previous one kept; and the mean of the last ones.
#
#     RUN/checkpoints/step-00001200/
#         model.safetensors  optimizer.safetensors
#         state.json          the step, the state of the loop, and the SHA-256 of the files above; written last
#
# A run whose weights are divided among processes (train/sharded.py) writes one file for each of them,
# model-00001-of-00002.safetensors and so on, which hold rows of the tensors; the header says which. Whoever reads asks
# for the rows that he needs, so that any number of processes can resume what any other number has written.
#
# If a checkpoint is damaged, a warning names it and the previous one is used.
#
# The mean of a run's last checkpoints (Vaswani et al. 2017, §6.1) is often better than each of them. Checkpoints that
# were written because of Ctrl-C are excluded, and removed before they could displace a regular one: a run that was
# stopped and resumed, however often, ends with the same mean as an uninterrupted one.

_ROWS = "qkv.rows"
"""Key in the header of a file with parts of tensors: JSON, name → the first row, and how many the whole has."""
_Tensors = Mapping[str, Mapping[str, Tensor]]  # by file: "model", "optimizer", "best"


class RowRange(NamedTuple):
    """The rows of a tensor that a process has."""

    begin: int
    end: int
    total: int


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    step: int
    state: Mapping[str, Any]
    files: tuple[str, ...]

    @property
    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Everything, whole."""
        return {group: self.read(group) for group in self.groups}

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(file.split("-")[0].removesuffix(".safetensors") for file in self.files))

    def read(self, group: str, rows: Mapping[str, RowRange] | None = None) -> dict[str, Tensor]:
        """The tensors of a group; of those in `rows` these rows only."""
        found: dict[str, Tensor] = {}
        missing: dict[str, int] = {}  # rows that were not found yet
        for file in self.files:
            if file != f"{group}.safetensors" and not file.startswith(f"{group}-"):
                continue
            with safe_open(self.path / file, "pt") as stored:
                begins = json.loads((stored.metadata() or {}).get(_ROWS, "{}"))
                names: list[str] = stored.keys()
                for name in names:
                    wanted = None if rows is None else rows.get(name)
                    if wanted is None and name not in begins:
                        found[name] = stored.get_tensor(name)
                        continue
                    part = stored.get_slice(name)
                    length, *shape = part.get_shape()
                    begin, total = begins.get(name, (0, length))
                    if wanted is None:
                        wanted = RowRange(0, total, total)
                    if wanted.total != total:
                        raise KeyError(f"{name} has {total} rows, not {wanted.total}")
                    low, high = max(begin, wanted.begin), min(begin + length, wanted.end)
                    if name not in found:
                        found[name] = part[:1].new_empty((wanted.end - wanted.begin, *shape))
                        missing[name] = len(found[name])
                    if low < high:
                        found[name][low - wanted.begin : high - wanted.begin] = part[low - begin : high - begin]
                        missing[name] -= high - low
        if lacking := [name for name, number in missing.items() if number]:
            raise InputError(f"{self.path} is damaged: rows of {lacking[0]} are missing.")
        return found


def save_checkpoint(folder: Path, step: int, tensors: _Tensors, state: Mapping[str, Any], keep: int = 2) -> Path:
    """Write a checkpoint, then remove all but the newest `keep`. On an error the existing ones are unchanged.

    Later checkpoints are removed too: a run repeats their steps only because they were damaged.
    """
    target = folder / f"step-{step:08d}"
    with replaced_folder(target, lambda before: None) as fresh:
        try:
            _write_state(fresh, step, state, _write_tensors(fresh, tensors))
        except SafetensorError as error:  # among others, a full disk
            raise OSError(str(error)) from error
    _forget_others(folder, target, keep)
    return target


def save_together(
    world: World,
    folder: Path,
    step: int,
    tensors: _Tensors,
    state: Mapping[str, Any],
    rows: Mapping[str, RowRange],
    keep: int = 2,
) -> Path:
    """`save_checkpoint` by all processes of a world, each of which has these `rows` of its tensors, and writes them.

    They write into one draft; the first process moves it to its place when all have finished. What one of them cannot
    write is an error of all. Tensors that are not in `rows` are equal everywhere: the first process writes them.
    """
    target, draft = folder / f"step-{step:08d}", folder / f".step-{step:08d}.{world.size}.part"
    hashes: dict[str, str] = {}
    problem: str | None = None
    try:
        draft.mkdir(parents=True, exist_ok=True)
        hashes = _write_tensors(draft, tensors, rows, world)
    except (OSError, SafetensorError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        problem = f"{target} cannot be written by process {world.rank}: {reason}. The folder is unchanged."
    try:
        problem = next((one for one in world.from_all(problem) if one is not None), None)
        hashes = {name: value for one in world.from_all(hashes) for name, value in one.items()}
        if world.is_main and problem is None:
            try:
                with replaced_folder(target, lambda before: None) as fresh:
                    for name in hashes:
                        if not (draft / name).is_file():
                            raise OSError(f"{name} is not there: all processes need the same file system")
                        (draft / name).rename(fresh / name)
                    _write_state(fresh, step, state, hashes)
                _forget_others(folder, target, keep)
            except InputError as error:
                problem = str(error)
        problem = world.from_main(problem)
    finally:
        if world.is_main:
            shutil.rmtree(draft, ignore_errors=True)
    if problem is not None:
        raise InputError(problem)
    return target


def _write_tensors(
    folder: Path, tensors: _Tensors, rows: Mapping[str, RowRange] | None = None, world: World | None = None
) -> dict[str, str]:
    """Write a file for each group, on the host one group at a time → their hashes."""
    found: dict[str, str] = {}
    for group, named in tensors.items():
        file, notes = folder / f"{group}.safetensors", None
        if rows is not None and world is not None:
            file = folder / f"{group}-{world.rank + 1:05d}-of-{world.size:05d}.safetensors"
            named = {name: part for name, part in named.items() if (len(part) if name in rows else world.is_main)}
            begins = {name: (rows[name].begin, rows[name].total) for name in named if name in rows}
            notes = {_ROWS: json.dumps(begins, sort_keys=True)}  # a resumed run has another order
        # contiguous as the file format requires
        save_file({name: part.detach().cpu().contiguous() for name, part in named.items()}, file, notes)
        flush_entry(file)
        found[file.name] = sha256_of(file)
    return found


def _write_state(folder: Path, step: int, state: Mapping[str, Any], hashes: Mapping[str, str]) -> None:
    content = to_json({"step": step, "state": state, "sha256": dict(hashes)})
    (folder / "state.json").write_text(content, encoding="utf-8")


def _forget_others(folder: Path, newest: Path, keep: int) -> None:
    found = checkpoint_steps(folder)
    here = found.index(newest) + 1
    for old in (*found[: max(0, here - keep)], *found[here:]):
        shutil.rmtree(old, ignore_errors=True)


def checkpoint_steps(folder: Path) -> list[Path]:
    """Return the folders of all checkpoints, oldest first."""
    return sorted(folder.glob("step-*"))


def steps_kept(run: Path) -> int:
    """How far the checkpoints of a run reach: the newest step, of several seeds added up."""
    found = map(checkpoint_steps, (run / "checkpoints", *run.glob("seed-*/checkpoints")))
    return sum(_step(kept[-1]) for kept in found if kept)


def latest_checkpoint(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """Open the newest intact checkpoint, calling `warn` for each damaged one; None if there are no checkpoints."""
    for leftover in (*folder.glob(".step-*.part"), *folder.glob(".step-*.old")):
        shutil.rmtree(leftover, ignore_errors=True)  # of a run that was killed while saving
    found = checkpoint_steps(folder)
    for path in reversed(found):
        try:
            return open_checkpoint(path)
        except InputError as error:
            warn(f"{error} The previous checkpoint is used." if path != found[0] else str(error))
    if found:
        raise InputError(
            f"{folder}: all {len(found)} checkpoints are damaged. Remove {folder.parent} and start the run again."
        )
    return None


def open_checkpoint(path: Path, verify: bool = True) -> Checkpoint:
    """Open one; its hashes need to be verified by one process only."""
    try:
        content = read_object(path / "state.json")
        for name, expected in content["sha256"].items() if verify else ():
            if sha256_of(path / name) != expected:
                raise InputError(f"the SHA-256 of {name} differs from the recorded one.")
        return Checkpoint(path, content["step"], content["state"], tuple(content["sha256"]))
    except (OSError, ValueError, KeyError) as error:
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
