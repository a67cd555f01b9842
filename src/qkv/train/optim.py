"""Optimizers (AdamW; Muon, Jordan et al. 2024), learning rate schedules, and the settings of the training loop.

The momentum of a gradient is a matrix in which a few large singular values dominate. Muon keeps its singular vectors
and sets all singular values to about 1, by a few iterations of a matrix polynomial (Newton–Schulz), which needs only
products:

    momentum ← μ momentum + (1 − μ) gradient
    weight   ← weight − lr · 0.2 √max(rows, columns) · orthogonal((1 − μ) gradient + μ momentum)

The factor makes steps as large as those of AdamW (Liu et al. 2025, §2.2), so the same learning rate and weight decay
work. Muon is for the matrices of hidden layers; the same optimizer object applies AdamW to all other weights.

Matrices of equal shape (after transposing tall ones) are stacked and multiplied together: launching hundreds of small
products takes a GPU longer than computing them.

Kept although torch has `torch.optim.Muon`, which takes the same steps (tested): torch loops over the matrices one by
one, does not split fused ones (query, key and value in one weight), needs a second optimizer for AdamW, and rounds to
bf16 on a CPU too.

A schedule is a pure function of the step, so checkpoints need not store it:

>>> factor = SCHEDULES["linear"]
>>> [factor(step, 10, 2) for step in (0, 1, 2, 6, 10)]   # up in two steps, then down to zero
[0.5, 1.0, 1.0, 0.5, 0.0]

What this file does NOT do: decide which weights are matrices for Muon. The caller does (nn/block.py).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, overload

import torch
from torch import Tensor, nn

from qkv.config import check_known, check_least
from qkv.errors import InputError, did_you_mean

MOMENTUM = 0.95
ROUNDS = 5
# the steepest slope at 0 for which all singular values still converge to between about 0.7 and 1.2
POLYNOMIAL = (3.4445, -4.7750, 2.0315)

_Pair = tuple[Tensor, Tensor]  # a weight and its direction


class Muon(torch.optim.Optimizer):
    """Muon for groups with "matrices" > 0 (how many are stacked in each weight), AdamW for groups with 0.

    One optimizer and not two, so that a step with a gradient overflow (fp16) is skipped in both.
    """

    def __init__(self, groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float], epsilon: float) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        rest = [group for group in self.param_groups if not group["matrices"]]
        # shares groups and state with this optimizer; torch rejects an optimizer without parameters
        self.rest = torch.optim.AdamW(rest, lr=lr, betas=betas, eps=epsilon, fused=True) if rest else None
        if self.rest is not None:
            self.rest.state = self.state

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        assert closure is None, "closures are not supported"
        if self.rest is not None:
            self.rest.step()
        for group in self.param_groups:
            if group["matrices"]:
                self._turn(group)
        return None

    def _turn(self, group: dict[str, Any]) -> None:
        """Update the group's matrices."""
        weights: list[Tensor] = [weight for weight in group["params"] if weight.grad is not None]
        if not weights:
            return
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for weight in weights:
            if "momentum" not in self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        directions = self._blend([self.state[weight]["momentum"] for weight in weights], gradients)
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
            # same memory layout as the weights, so that one kernel adds them all
            changes = [*turned[: len(lying)].unbind(), *turned[len(lying) :].mT.contiguous().unbind()]
            rate = group["lr"] * 0.2 * longer**0.5
            torch._foreach_add_([weight for weight, _ in lying + standing], changes, alpha=-rate)

    @staticmethod
    def _blend(momenta: list[Tensor], gradients: list[Tensor]) -> tuple[Tensor, ...] | list[Tensor]:
        """Update the momenta; return the directions (Nesterov momentum)."""
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        return torch._foreach_lerp(gradients, momenta, MOMENTUM)


def orthogonal(matrices: Tensor) -> Tensor:
    """(G, A, B) with A ≤ B → matrices with the same singular vectors and singular values of about 1.

    In bf16 on a GPU: each iteration corrects the rounding errors of the one before.
    """
    a, b, c = POLYNOMIAL
    dtype = torch.bfloat16 if matrices.is_cuda else matrices.dtype
    sizes = torch.linalg.matrix_norm(matrices, keepdim=True)  # Frobenius: no singular value is larger
    x = (matrices / sizes.clamp(min=1e-7)).to(dtype)
    for _ in range(ROUNDS):
        square = x @ x.mT  # (G, A, A)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)


OPTIMIZERS = ("adamw", "muon")


class Schedule(Protocol):
    """(step, total steps, warm-up steps, share of decay steps) → a factor of the learning rate."""

    def __call__(self, step: int, steps: int, warmup: int, decay: float = 0.2, /) -> float: ...


def _warm(step: int, warmup: int) -> float:
    return (step + 1) / warmup if step < warmup else 1.0


def linear(step: int, steps: int, warmup: int, decay: float = 0.2) -> float:
    """Warm-up, then linear decay to zero (Devlin et al. 2019, appendix A.2)."""
    return _warm(step, warmup) if step < warmup else (steps - step) / max(1, steps - warmup)


def cosine(step: int, steps: int, warmup: int, decay: float = 0.2) -> float:
    """Warm-up, then half a cosine (Loshchilov and Hutter 2017)."""
    return _warm(step, warmup) if step < warmup else 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def constant(step: int, steps: int, warmup: int, decay: float = 0.2) -> float:
    return _warm(step, warmup)


def warmup_stable_decay(step: int, steps: int, warmup: int, decay: float = 0.2) -> float:
    """Warm-up, constant, then linear decay (Hu et al. 2024, §4): the constant part can be extended later."""
    return min(_warm(step, warmup), (steps - step) / max(1, int(decay * steps)))


def inverse_sqrt(step: int, steps: int, warmup: int, decay: float = 0.2) -> float:
    """Warm-up, then proportional to 1 / √step (Vaswani et al. 2017, §5.3), never reaching zero.

    Relative to the peak learning rate; the paper derives the peak from warm-up and width.
    """
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
    """AdamW with weight decay for matrices and embeddings, but not for biases and norms (one dimension).

    `scale` maps the name of a parameter to a factor of its learning rate, for example smaller for lower layers.
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
    make: Callable[..., Muon] = Muon,
) -> Muon:
    """Muon for `matrices` (name of a weight → number of matrices in it), with learning rate `muon_lr` if given; AdamW
    as above for the rest. `make`: another class, for weights that are divided among processes."""
    settings = _groups(model, weight_decay, scale, matrices, 1.0 if muon_lr is None else muon_lr / lr)
    if not any(group["matrices"] for group in settings):
        raise InputError(
            "train.optimizer is muon, which is for matrices of hidden layers, but none is trained here. "
            "Set it to adamw."
        )
    return make(settings, lr=lr, betas=betas, epsilon=epsilon)


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
    """Return the optimizer's state by parameter name."""
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: dict[str, Tensor],
    as_state: Callable[[Tensor, Tensor], Tensor] = lambda parameter, stored: stored.to(parameter.device),
) -> None:
    """Take the state by parameter name; `as_state`: (parameter, stored tensor) → what the optimizer keeps."""
    keys = {
        parameter: ("momentum",) if group["matrices"] else ("step", "exp_avg", "exp_avg_sq")
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            stored = {key: tensors[f"{name}.{key}"] for key in keys[parameter]}
            optimizer.state[parameter] = {key: as_state(parameter, value) for key, value in stored.items()}


# --- Settings of the training loop: the table [train] of recipes and of RUN/config.toml.

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class TrainConfig:
    steps: int = 10_000
    minutes: float | None = None  # time budget; converted to `steps` once, before the first step
    lr: float = 1e-3
    warmup: float = 0.06  # share of the steps
    schedule: str = "linear"
    decay: float = 0.2  # share of the steps at the end in which the schedule wsd decays
    optimizer: str = "adamw"  # or "muon": Muon for the matrices inside the blocks, AdamW for the rest
    muon_lr: float | None = None  # learning rate of Muon's matrices; None: lr
    betas: tuple[float, ...] = (0.9, 0.98)
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    clip: float = 1.0  # maximum norm of the gradient
    accumulate: int = 1  # batches per step
    precision: str = "fp32"
    compile: bool = False  # torch.compile; on a GPU qkv's own kernels, which it replaces, are usually faster
    recompute: bool = False  # activation checkpointing: less memory, a third more computation
    shard: bool = False  # of several processes each holds a share of the weights: for models that do not fit one device
    seed: int = 0
    threads: int | None = None
    log_every: int = 10
    evaluate_every: int = 500
    save_every: int = 500
    keep: int = 2  # checkpoints to keep
    patience: int | None = None  # stop after this many evaluations without improvement; None: never
    least: float | None = None  # score of the trivial answer: patience counts evaluations after a better one
    # if no score was above `least` after half of the steps: start again once, with this factor of lr; None: never
    retry: float | None = None

    def __post_init__(self) -> None:
        schedule(self.schedule)
        optimizer_named(self.optimizer)
        check_known(self, precision=PRECISIONS)
        if len(self.betas) != 2:
            raise InputError(f"betas must be two numbers, not {len(self.betas)}.")
        check_least(self, "steps", "accumulate", "log_every", "evaluate_every", "save_every", "keep")
        check_least(self, "patience", "threads")
        for name in ("lr", "muon_lr", "epsilon", "clip"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} must be a number above 0, not {value}.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas must be from 0 to less than 1, not {self.betas}.")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay must be 0 or more, not {self.weight_decay}.")
        if self.retry is not None and not 0 < self.retry <= 1:
            raise InputError(f"retry is a factor of the learning rate, above 0 and at most 1, not {self.retry}.")
        if self.seed < 0:
            raise InputError(f"seed must be 0 or more, not {self.seed}.")
        if not 0 <= self.warmup < 1:
            raise InputError(f"warmup is a share of the steps, from 0 to less than 1, not {self.warmup}.")
        if not 0 < self.decay <= 1:
            raise InputError(f"decay is a share of the steps, above 0 and up to 1, not {self.decay}.")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise InputError(f"minutes must be more than 0, not {self.minutes}.")

    def lr_at(self, step: int) -> float:
        return self.lr * schedule(self.schedule)(step, self.steps, round(self.warmup * self.steps), self.decay)
