"""The mean of a run's last checkpoints (Vaswani et al. 2017, §6.1): often better than any one of them.

Checkpoints that were written because somebody pressed Ctrl-C do not count, and are removed before they could push out
one that does: a run that was stopped, however often, ends with the same mean as one that was not.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from qkv.train import checkpoint

NEWEST = 2
"""Checkpoints that a run is gone on from: the last, and the one before it, should that be damaged."""
STOPS = NEWEST + 1
"""Beside those of the mean, room for the newest and for the one that is written when the run is stopped again."""


@dataclass(frozen=True)
class Mean:
    weights: dict[str, Tensor]
    count: int  # of the checkpoints that it is the mean of


def kept_for(average: int) -> int:
    """How many checkpoints a run has to keep."""
    return average + STOPS if average > 1 else 1


def forget_stops(folder: Path, every: int) -> None:
    """Remove the checkpoints of earlier stops, which nothing is made of any more; to be called when a run goes on."""
    for path in checkpoint.steps(folder)[:-NEWEST]:
        if _step(path) % every:
            shutil.rmtree(path, ignore_errors=True)


def averaged(folder: Path, count: int, every: int, last: int, tell: Callable[[str], None]) -> Mean | None:
    """The mean weights of the last `count` checkpoints, of those written every so many steps and of the last step;
    None where that would be a single one."""
    regular = [path for path in checkpoint.steps(folder) if (step := _step(path)) % every == 0 or step == last]
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
