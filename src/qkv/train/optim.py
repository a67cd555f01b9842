"""AdamW with the usual decay groups, and how the learning rate moves.

A schedule is a pure function of the step: nothing about it has to be saved or can be lost.

>>> factor = SCHEDULES["linear"]
>>> [factor(step, 10, 2) for step in (0, 1, 2, 6, 10)]   # up in two steps, then down to nothing
[0.5, 1.0, 1.0, 0.5, 0.0]
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from qkv.errors import InputError, did_you_mean

Schedule = Callable[[int, int, int], float]


def _warm(step: int, warmup: int) -> float:
    return (step + 1) / warmup if step < warmup else 1.0


def linear(step: int, steps: int, warmup: int) -> float:
    """Up, then straight down to zero (Devlin et al. 2019, appendix A.2)."""
    return _warm(step, warmup) if step < warmup else (steps - step) / max(1, steps - warmup)


def cosine(step: int, steps: int, warmup: int) -> float:
    """Up, then down along half a cosine (Loshchilov and Hutter 2017)."""
    return _warm(step, warmup) if step < warmup else 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def constant(step: int, steps: int, warmup: int) -> float:
    return _warm(step, warmup)


def warmup_stable_decay(step: int, steps: int, warmup: int) -> float:
    """Up, level, then straight down over the last fifth (Hu et al. 2024, §4): the level part may be prolonged."""
    decay = max(1, steps // 5)
    return min(_warm(step, warmup), (steps - step) / decay)


SCHEDULES: dict[str, Schedule] = {
    "linear": linear,
    "cosine": cosine,
    "constant": constant,
    "wsd": warmup_stable_decay,
}


def schedule(name: str) -> Schedule:
    if name not in SCHEDULES:
        raise InputError(f"Unknown schedule '{name}'.{did_you_mean(name, SCHEDULES)} Known: {', '.join(SCHEDULES)}.")
    return SCHEDULES[name]


def adamw(
    model: nn.Module,
    *,
    lr: float,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float,
    scale: Callable[[str], float] | None = None,
) -> torch.optim.AdamW:
    """Matrices and embeddings decay; biases and norms, which have one dimension, do not.

    `scale` multiplies the learning rate of a parameter, by its name: lower layers may move less than upper ones.
    """
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups.setdefault((parameter.dim() >= 2, scale(name) if scale else 1.0), []).append(parameter)
    settings = [
        {"params": parameters, "weight_decay": weight_decay if decays else 0.0, "scale": factor}
        for (decays, factor), parameters in groups.items()
    ]
    return torch.optim.AdamW(settings, lr=lr, betas=betas, eps=epsilon, fused=True)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state under the names of the parameters it belongs to."""
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            optimizer.state[parameter] = {
                key: tensors[f"{name}.{key}"].to(parameter.device) for key in ("step", "exp_avg", "exp_avg_sq")
            }
