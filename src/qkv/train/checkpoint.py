"""Checkpoints that survive anything: written whole or not at all, verified before use, the one before kept.

    RUN/checkpoints/step-00001200/
        model.safetensors  optimizer.safetensors
        state.json          the step, what the loop has to remember, and the SHA-256 of the files above

A checkpoint is filled under a hidden name, flushed and renamed. A damaged one is named and the one before it is used.
"""

import hashlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from qkv.errors import InputError
from qkv.files import read_object, replaced_folder, to_json


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    step: int
    tensors: Mapping[str, dict[str, Tensor]]  # by file: "model", "optimizer"
    state: Mapping[str, Any]


def save_checkpoint(
    folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], keep: int = 2
) -> Path:
    """Write a checkpoint, then remove all but the newest `keep`. On an error what was there stays as it was.

    Later ones than this are removed too: a run comes by their step a second time only because they were damaged.
    """
    target = folder / f"step-{step:08d}"
    with replaced_folder(target, lambda before: None) as fresh:
        hashes = {}
        for name, group in tensors.items():
            file = fresh / f"{name}.safetensors"
            # one copy on the host at a time, in a layout that a file can have
            try:
                save_file({key: value.detach().cpu().contiguous() for key, value in group.items()}, file)
            except SafetensorError as error:  # among others, a full disk
                raise OSError(str(error)) from error
            hashes[file.name] = _sha256(file)
        content = to_json({"step": step, "state": state, "sha256": hashes})
        (fresh / "state.json").write_text(content, encoding="utf-8")
    found = checkpoint_steps(folder)
    here = found.index(target) + 1
    for old in (*found[: max(0, here - keep)], *found[here:]):
        shutil.rmtree(old, ignore_errors=True)
    return target


def checkpoint_steps(folder: Path) -> list[Path]:
    """The checkpoints that are there, oldest first."""
    return sorted(folder.glob("step-*"))


def latest_checkpoint(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole; each damaged one is named through `warn`. None when there is none."""
    for leftover in (*folder.glob(".step-*.part"), *folder.glob(".step-*.old")):
        shutil.rmtree(leftover, ignore_errors=True)  # of a run that was killed while it saved
    found = checkpoint_steps(folder)
    for path in reversed(found):
        try:
            return _load(path)
        except InputError as error:
            warn(f"{error} The checkpoint before it is used." if path != found[0] else str(error))
    if found:
        raise InputError(
            f"{folder}: none of its {len(found)} checkpoints is whole. Remove {folder.parent} and begin the run anew."
        )
    return None


def _load(path: Path) -> Checkpoint:
    try:
        content = read_object(path / "state.json")
        for name, expected in content["sha256"].items():
            if _sha256(path / name) != expected:
                raise InputError(f"the SHA-256 of {name} is not the recorded one.")
        tensors = {name.removesuffix(".safetensors"): load_file(path / name) for name in content["sha256"]}
        return Checkpoint(path, content["step"], tensors, content["state"])
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise InputError(f"{path} is damaged: {str(error).rstrip('.')}.") from error


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- The mean of a run's last checkpoints (Vaswani et al. 2017, §6.1): often better than any one of them.
#
# Checkpoints that were written because somebody pressed Ctrl-C do not count, and are removed before they could push
# out
# one that does: a run that was stopped, however often, ends with the same mean as one that was not.

NEWEST = 2
"""Checkpoints that a run is gone on from: the last, and the one before it, should that be damaged."""
STOPS = NEWEST + 1
"""Beside those of the mean, room for the newest and for the one that is written when the run is stopped again."""


@dataclass(frozen=True)
class Mean:
    weights: dict[str, Tensor]
    count: int  # of the checkpoints that it is the mean of


def steps_to_keep(average: int) -> int:
    """How many checkpoints a run has to keep."""
    return average + STOPS if average > 1 else 1


def forget_stops(folder: Path, every: int) -> None:
    """Remove the checkpoints of earlier stops, which nothing is made of any more; to be called when a run goes on."""
    for path in checkpoint_steps(folder)[:-NEWEST]:
        if _step(path) % every:
            shutil.rmtree(path, ignore_errors=True)


def average_checkpoints(folder: Path, count: int, every: int, last: int, tell: Callable[[str], None]) -> Mean | None:
    """The mean weights of the last `count` checkpoints, of those written every so many steps and of the last step;
    None where that would be a single one."""
    regular = [path for path in checkpoint_steps(folder) if (step := _step(path)) % every == 0 or step == last]
    chosen = regular[-count:]
    if count < 2 or len(chosen) < 2:
        if count > 1:
            tell(f"note: there are {len(regular)} checkpoints to take the mean of; save more often (train.save_every)")
        return None
    if len(chosen) < count:
        tell(f"note: the mean is that of {len(chosen)} checkpoints, not of {count}: no more were kept")
    sums: dict[str, Tensor] = {}
    for path in chosen:
        for name, tensor in load_file(path / "model.safetensors").items():
            if name in sums:
                sums[name] += tensor.double()
            else:
                sums[name] = tensor.double()  # so that the order of adding does not matter to the last digit
    return Mean({name: (total / len(chosen)).float() for name, total in sums.items()}, len(chosen))


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))
