"""The mean of a run's last checkpoints (Vaswani et al. 2017, §6.1): often better than any one of them.

Checkpoints that were written because somebody pressed Ctrl-C do not count: a run that was stopped ends with the same
mean as one that was not.
"""

from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from qkv.train import checkpoint

STOPS = 3
"""Beside those of the mean, checkpoints that are kept for times somebody stops the run."""


def kept_for(average: int) -> int:
    """How many checkpoints a run has to keep."""
    return average + STOPS if average > 1 else 1


def averaged(folder: Path, count: int, every: int, last: int, tell: Callable[[str], None]) -> dict[str, Tensor]:
    """The mean weights of the last `count` checkpoints, of those written every so many steps and of the last step;
    nothing where that would be a single one."""
    regular = [path for path in checkpoint.steps(folder) if (step := _step(path)) % every == 0 or step == last]
    chosen = regular[-count:]
    if count < 2 or len(chosen) < 2:
        if count > 1:
            tell(f"note: there are {len(regular)} checkpoints to take the mean of; save more often (train.save_every)")
        return {}
    if len(chosen) < count:
        tell(f"note: the mean is that of {len(chosen)} checkpoints, not of {count}: no more were kept")
    sums: dict[str, Tensor] = {}
    for path in chosen:
        for name, tensor in load_file(path / "model.safetensors").items():
            if name in sums:
                sums[name] += tensor.double()
            else:
                sums[name] = tensor.double()  # so that the order of adding does not matter to the last digit
    return {name: (total / len(chosen)).float() for name, total in sums.items()}


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))
