"""The folder of a run, whatever the job: a new one is begun, a stopped one is taken up, lines are read and added."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from qkv.config import read_toml
from qkv.errors import InputError
from qkv.files import sha256_of, write_text
from qkv.train.device import peak_memory
from qkv.train.loop import Outcome

CONFIG = "config.toml"
_OURS = (
    *(CONFIG, "log.jsonl", "timing.jsonl", "sessions.jsonl", "faults.jsonl", "predictions.jsonl", "points.jsonl"),
    *("report.html", "result.json", "model", "translations.tsv", "tokenizer"),
)
"""What runs write whole or not at all: their drafts may be left by a process that was killed."""
OTHER_RUNS = (
    ("task", "a fine-tuning run", "finetune"),
    ("finetune", "a learning curve", "curve"),
    ("bitext", "a translation run", "train translate"),
)
"""By a setting that they alone have: runs that did not begin from shards, and what goes on with them."""


def begin(out: Path, verb: str) -> None:
    """Refuse a folder that cannot become a new run, before anything is read for it."""
    if (out / CONFIG).exists():
        kind, its_verb = _kind_of(out / CONFIG)
        if its_verb not in (None, verb):
            raise InputError(f"{out} is {kind}: qkv {its_verb} --resume {out}, or give another --out.")
        raise InputError(
            f"{out} holds a run already. Go on with it: qkv {verb} --resume {out}. Or give another folder."
        )
    remove_drafts(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is not an empty folder. Give a new name for the run.")
    there = next((parent for parent in (out, *out.absolute().parents) if parent.exists()), Path("/"))
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise InputError(f"{out} cannot be written: {there} is not a folder that files can be put in.")


def config_of(run: Path) -> Path:
    """The settings of a run that is to go on."""
    if not (run / CONFIG).is_file():
        raise InputError(f"{run} is not a run: it has no {CONFIG}. A run is the folder that was given to --out.")
    return run / CONFIG


def _kind_of(config: Path) -> tuple[str, str | None]:
    """What the run with these settings is, in words, and the verb that goes on with it, where they say so."""
    settings = read_toml(config)
    for key, kind, verb in OTHER_RUNS:
        if key in settings:
            return kind, verb
    model = settings.get("model_type", "bert" if "masking" in settings else None)
    return f"a run of {model}", None if model is None else "pretrain"


def remove_drafts(run: Path) -> None:
    """What a process that was killed has left half written; nothing but our own."""
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
    """Whole or not at all, like everything else here; such files have a line a session or a point."""
    write_text(file, "".join(json.dumps(one) + "\n" for one in (*read_lines(file), line)))


def folder_sha256(folder: Path) -> str:
    """Of everything that a pretrained folder gives to a run."""
    known = sorted(file for file in folder.iterdir() if file.suffix in (".safetensors", ".bin", ".json", ".txt"))
    return hashlib.sha256("".join(f"{file.name} {sha256_of(file)}\n" for file in known).encode()).hexdigest()


def check_folder_sha256(folder: Path, expected: str | None) -> None:
    if expected is not None and folder_sha256(folder) != expected:
        raise InputError(
            f"{folder} has changed since the run began: a resumed run would go on from other weights. "
            "Put the folder back, or begin another run."
        )


# --- RUN/sessions.jsonl: each time somebody began a run or went on with it, and what that adds up to.

FILE = "sessions.jsonl"


@dataclass(frozen=True)
class Sessions:
    lines: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, run: Path) -> Self:
        return cls(tuple(read_lines(run / FILE)))

    def ended(self, outcome: Outcome, began: float, device: torch.device) -> Self:
        """These and the one that is ending now; `began` is by time.perf_counter()."""
        line = {"from": outcome.started, "to": outcome.step, "seconds": round(time.perf_counter() - began, 1)}
        return type(self)((*self.lines, line | {"peak_memory": peak_memory(device)}))

    def write(self, run: Path) -> None:
        """The last thing a session does: a session to the last step means that all the rest was written."""
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


# --- Where a job finds what it is told by name: the model of a run, and a device.


def model_folder(path: Path) -> Path:
    """The model of a run, where the folder of a run is given."""
    if (path / "config.json").exists() or not (path / "config.toml").is_file():
        return path
    if not (path / "model" / "config.json").is_file():
        settings = (path / "config.toml").read_text(encoding="utf-8", errors="replace")
        if "[finetune]" in settings:
            raise InputError(f"{path} is a learning curve, which has no model. Fine-tune one: qkv finetune.")
        verb = "finetune" if "[classify]" in settings else "train translate" if "[bitext]" in settings else "pretrain"
        raise InputError(f"{path} is a run that is not finished. Go on with it: qkv {verb} --resume {path}.")
    return path / "model"
