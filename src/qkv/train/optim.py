"""AdamW or Muon with the usual decay groups, and how the learning rate moves.

A schedule is a pure function of the step: nothing about it has to be saved or can be lost.

>>> factor = SCHEDULES["linear"]
>>> [factor(step, 10, 2) for step in (0, 1, 2, 6, 10)]   # up in two steps, then down to nothing
[0.5, 1.0, 1.0, 0.5, 0.0]
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from qkv.errors import InputError, did_you_mean
from qkv.train.muon import Muon

OPTIMIZERS = ("adamw", "muon")


class Schedule(Protocol):
    """Step, steps of the run and of the warm-up, share of the steps that decay → a factor of the learning rate."""

    def __call__(self, step: int, steps: int, warmup: int, decay: float = 0.2, /) -> float: ...


def _warm(step: int, warmup: int) -> float:
    return (step + 1) / warmup if step < warmup else 1.0


def linear(step: int, steps: int, warmup: int, decay: float = 0.2) -> float:
    """Up, then straight down to zero (Devlin et al. 2019, appendix A.2)."""
    return _warm(step, warmup) if step < warmup else (steps - step) / max(1, steps - warmup)


def cosine(step: int, steps: int, warmup: int, decay: float = 0.2) -> float:
    """Up, then down along half a cosine (Loshchilov and Hutter 2017)."""
    return _warm(step, warmup) if step < warmup else 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def constant(step: int, steps: int, warmup: int, decay: float = 0.2) -> float:
    return _warm(step, warmup)


def warmup_stable_decay(step: int, steps: int, warmup: int, decay: float = 0.2) -> float:
    """Up, level, then straight down over the last part (Hu et al. 2024, §4): the level part may be prolonged."""
    return min(_warm(step, warmup), (steps - step) / max(1, int(decay * steps)))


def inverse_sqrt(step: int, steps: int, warmup: int, decay: float = 0.2) -> float:
    """Up, then down with the square root of the step (Vaswani et al. 2017, §5.3), as a share of the highest rate: the
    paper's own factor is that of warm-up and width. However long it goes on, it never comes to nothing."""
    return _warm(step, warmup) if step < warmup else math.sqrt(max(1, warmup) / max(1, step + 1))


SCHEDULES: dict[str, Schedule] = {
    "linear": linear,
    "cosine": cosine,
    "constant": constant,
    "wsd": warmup_stable_decay,
    "inverse_sqrt": inverse_sqrt,
}


def schedule(name: str) -> Schedule:
    if name not in SCHEDULES:
        raise InputError(f"Unknown schedule '{name}'.{did_you_mean(name, SCHEDULES)} Known: {', '.join(SCHEDULES)}.")
    return SCHEDULES[name]


def optimizer_named(name: str) -> str:
    if name not in OPTIMIZERS:
        raise InputError(f"Unknown optimizer '{name}'.{did_you_mean(name, OPTIMIZERS)} Known: {', '.join(OPTIMIZERS)}.")
    return name


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
    settings = _groups(model, weight_decay, scale, {}, 1.0)
    return torch.optim.AdamW(settings, lr=lr, betas=betas, eps=epsilon, fused=True)


def muon(
    model: nn.Module,
    matrices: Mapping[str, int],
    *,
    lr: float,
    muon_lr: float | None = None,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float,
    scale: Callable[[str], float] | None = None,
) -> Muon:
    """Muon for `matrices`, the names of weights and how many matrices lie in each, with a rate of their own where one
    is given; AdamW as above for the rest."""
    settings = _groups(model, weight_decay, scale, matrices, 1.0 if muon_lr is None else muon_lr / lr)
    if not any(group["matrices"] for group in settings):
        raise InputError(
            "train.optimizer is muon, which is for matrices between hidden layers, and none is trained here. "
            "Set it to adamw."
        )
    return Muon(settings, lr=lr, betas=betas, epsilon=epsilon)


def _groups(
    model: nn.Module,
    weight_decay: float,
    scale: Callable[[str], float] | None,
    matrices: Mapping[str, int],
    matrix_scale: float,
) -> list[dict[str, Any]]:
    groups: dict[tuple[int, bool, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            number = matrices.get(name, 0)
            factor = (scale(name) if scale else 1.0) * (matrix_scale if number else 1.0)
            groups.setdefault((number, parameter.dim() >= 2, factor), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": weight_decay if decays else 0.0, "scale": factor, "matrices": number}
        for (number, decays, factor), parameters in groups.items()
    ]


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state under the names of the parameters it belongs to."""
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    keys = {
        parameter: ("momentum",) if group["matrices"] else ("step", "exp_avg", "exp_avg_sq")
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            optimizer.state[parameter] = {key: tensors[f"{name}.{key}"].to(parameter.device) for key in keys[parameter]}
