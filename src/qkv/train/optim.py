"""Muon (Jordan et al. 2024) for the matrices between hidden layers, AdamW for everything else, as one optimizer.

A gradient's momentum is a matrix whose few large singular values drown the many small ones. Muon keeps its singular
vectors and sets all singular values to about 1, by a few rounds of a polynomial in the matrix (Newton–Schulz), which
is nothing but products:

    momentum ← μ momentum + (1 − μ) gradient
    weight   ← weight − rate · 0.2 √max(rows, columns) · orthogonal((1 − μ) gradient + μ momentum)

The factor makes a step as large as one of AdamW (Liu et al. 2025, §2.2), so that rate and decay carry over.

Matrices of equal shape are stacked, one on its side with one that stands, and go through every product together: a
GPU would wait longer for hundreds of small products to be launched than it takes to compute them.

Kept although torch has `torch.optim.Muon`, which takes the same steps (tested): torch's loops over the matrices one by
one, does not split fused ones (query, key and value in one weight), leaves AdamW to a second optimizer, and rounds to
bf16 on a CPU too.

What this file does NOT do: say which weights are such matrices. The caller does (nn/block.py).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol, overload

import torch
from torch import Tensor, nn

from qkv.errors import InputError, did_you_mean

MOMENTUM = 0.95
ROUNDS = 5
# the slope at 0 is as steep as it can be while all singular values still end near 1, between about 0.7 and 1.2
POLYNOMIAL = (3.4445, -4.7750, 2.0315)

_Pair = tuple[Tensor, Tensor]  # a weight and where it should go


class Muon(torch.optim.Optimizer):
    """Groups of parameters with "matrices", how many lie on top of each other in each; 0 in a group leaves it to AdamW.

    One optimizer and not two, so that a gradient that overflows (fp16) is left out of both.
    """

    def __init__(self, groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float], epsilon: float) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        rest = [group for group in self.param_groups if not group["matrices"]]
        # the same groups and the same state, seen by another optimizer; one without parameters is refused by torch
        self.rest = torch.optim.AdamW(rest, lr=lr, betas=betas, eps=epsilon, fused=True) if rest else None
        if self.rest is not None:
            self.rest.state = self.state

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        assert closure is None, "no part of the loop asks for the loss again"
        if self.rest is not None:
            self.rest.step()
        for group in self.param_groups:
            if group["matrices"]:
                self._turn(group)
        return None

    def _turn(self, group: dict[str, Any]) -> None:
        """One step of the group's matrices."""
        weights: list[Tensor] = [weight for weight in group["params"] if weight.grad is not None]
        if not weights:
            return
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for weight in weights:
            if "momentum" not in self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        momenta = [self.state[weight]["momentum"] for weight in weights]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        directions = torch._foreach_lerp(gradients, momenta, MOMENTUM)  # Nesterov's: a look ahead
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])

        def parts(tensors: list[Tensor] | tuple[Tensor, ...]) -> list[Tensor]:
            return [part for tensor in tensors for part in tensor.chunk(group["matrices"])]

        by_shape: dict[tuple[int, int], tuple[list[_Pair], list[_Pair]]] = {}
        for weight, direction in zip(parts(weights), parts(directions), strict=True):
            rows, columns = weight.shape
            lying, standing = by_shape.setdefault((min(rows, columns), max(rows, columns)), ([], []))
            (lying if rows <= columns else standing).append((weight, direction))
        for (_, longer), (lying, standing) in by_shape.items():
            turned = orthogonal(torch.stack([one for _, one in lying] + [one.mT for _, one in standing]))  # (G, A, B)
            # laid out like their weights, so that one kernel adds them all
            changes = [*turned[: len(lying)].unbind(), *turned[len(lying) :].mT.contiguous().unbind()]
            rate = group["lr"] * 0.2 * longer**0.5
            torch._foreach_add_([weight for weight, _ in lying + standing], changes, alpha=-rate)


def orthogonal(matrices: Tensor) -> Tensor:
    """(G, A, B) with A ≤ B → the same, with the singular vectors of each and singular values of about 1.

    In bf16 on a GPU: the polynomial forgives its rounding, since the next round corrects it.
    """
    a, b, c = POLYNOMIAL
    dtype = torch.bfloat16 if matrices.is_cuda else matrices.dtype
    sizes = torch.linalg.matrix_norm(matrices, keepdim=True)  # of Frobenius: no singular value is larger
    x = (matrices / sizes.clamp(min=1e-7)).to(dtype)
    for _ in range(ROUNDS):
        square = x @ x.mT  # (G, A, A)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)


# --- AdamW or Muon with the usual decay groups, and how the learning rate moves.
#
# A schedule is a pure function of the step: nothing about it has to be saved or can be lost.
#
# >>> factor = SCHEDULES["linear"]
# >>> [factor(step, 10, 2) for step in (0, 1, 2, 6, 10)]   # up in two steps, then down to nothing
# [0.5, 1.0, 1.0, 0.5, 0.0]

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
