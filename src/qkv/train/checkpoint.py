"""Checkpoints that survive anything: written whole or not at all, verified before use, the one before kept.

    RUN/checkpoints/step-00001200/
        model.safetensors  optimizer.safetensors
        state.json          the step, what the loop has to remember, and the SHA-256 of the files above

A checkpoint is filled under a hidden name, flushed and renamed. A damaged one is named and the one before it is used.
"""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from qkv.errors import InputError


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    step: int
    tensors: Mapping[str, dict[str, Tensor]]  # by file: "model", "optimizer"
    state: Mapping[str, Any]


def save(
    folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], keep: int = 2
) -> Path:
    """Write a checkpoint, then remove all but the newest `keep`. On an error what was there stays as it was."""
    target = folder / f"step-{step:08d}"
    part = folder / f".{target.name}.{secrets.token_hex(4)}.part"
    try:
        part.mkdir(parents=True)
        hashes = {}
        for name, group in tensors.items():
            file = part / f"{name}.safetensors"
            # one copy on the host at a time, in a layout that a file can have
            save_file({key: value.detach().cpu().contiguous() for key, value in group.items()}, file)
            hashes[file.name] = _sha256(file)
        content = json.dumps({"step": step, "state": state, "sha256": hashes}, indent=2, ensure_ascii=False)
        (part / "state.json").write_text(content + "\n", encoding="utf-8")
        for file in part.iterdir():
            _flush(file)
        _flush(part)
        shutil.rmtree(target, ignore_errors=True)  # the same step, saved again after a resume
        part.rename(target)
        _flush(folder)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{target} cannot be written: {error}. The checkpoints before it are as they were; "
            "make room or give another folder, then resume."
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    for old in steps(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def steps(folder: Path) -> list[Path]:
    """The checkpoints that are there, oldest first."""
    return sorted(folder.glob("step-*"))


def latest(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole; each damaged one is named through `warn`. None when there is none."""
    for leftover in folder.glob(".step-*.part"):
        shutil.rmtree(leftover, ignore_errors=True)  # of a run that was killed while it saved
    found = steps(folder)
    for path in reversed(found):
        try:
            return _load(path)
        except InputError as error:
            warn(f"{error} The checkpoint before it is used.")
    if found:
        raise InputError(f"{folder}: none of its {len(found)} checkpoints is whole. Start the run anew.")
    return None


def _load(path: Path) -> Checkpoint:
    try:
        content = json.loads((path / "state.json").read_text(encoding="utf-8"))
        for name, expected in content["sha256"].items():
            if _sha256(path / name) != expected:
                raise InputError(f"{path / name} is damaged: its SHA-256 is not the recorded one.")
        tensors = {name.removesuffix(".safetensors"): load_file(path / name) for name in content["sha256"]}
        return Checkpoint(path, content["step"], tensors, content["state"])
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged: {type(error).__name__}: {error}.") from error


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Have the bytes on the disk before a rename makes them count."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
