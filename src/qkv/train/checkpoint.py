"""Checkpoints: written atomically, verified before use, the previous one kept; and the mean of the last ones.

    RUN/checkpoints/step-00001200/
        model.safetensors  optimizer.safetensors
        state.json          the step, the state of the loop, and the SHA-256 of the files above

If a checkpoint is damaged, a warning names it and the previous one is used.

The mean of a run's last checkpoints (Vaswani et al. 2017, §6.1) is often better than each of them. Checkpoints that
were written because of Ctrl-C are excluded, and removed before they could displace a regular one: a run that was
stopped and resumed, however often, ends with the same mean as an uninterrupted one.
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
            hashes[file.name] = _sha256(file)
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
            return _load(path)
        except InputError as error:
            warn(f"{error} The previous checkpoint is used." if path != found[0] else str(error))
    if found:
        raise InputError(
            f"{folder}: all {len(found)} checkpoints are damaged. Remove {folder.parent} and start the run again."
        )
    return None


def _load(path: Path) -> Checkpoint:
    try:
        content = read_object(path / "state.json")
        for name, expected in content["sha256"].items():
            if _sha256(path / name) != expected:
                raise InputError(f"the SHA-256 of {name} differs from the recorded one.")
        tensors = {name.removesuffix(".safetensors"): load_file(path / name) for name in content["sha256"]}
        return Checkpoint(path, content["step"], tensors, content["state"])
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise InputError(f"{path} is damaged: {str(error).rstrip('.')}.") from error


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


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
