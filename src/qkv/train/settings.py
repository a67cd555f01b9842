"""Settings of the training loop: the table [train] of recipes and of RUN/config.toml."""

import math
from dataclasses import dataclass

import torch

from qkv.errors import InputError, did_you_mean
from qkv.train.optim import optimizer_named, schedule

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
    seed: int = 0
    threads: int | None = None
    log_every: int = 10
    evaluate_every: int = 500
    save_every: int = 500
    keep: int = 2  # checkpoints to keep
    patience: int | None = None  # stop after this many evaluations without improvement; None: never

    def __post_init__(self) -> None:
        schedule(self.schedule)
        optimizer_named(self.optimizer)
        if self.precision not in PRECISIONS:
            hint = did_you_mean(self.precision, PRECISIONS)
            raise InputError(f"Unknown precision '{self.precision}'.{hint} Known: {', '.join(PRECISIONS)}.")
        if len(self.betas) != 2:
            raise InputError(f"betas must be two numbers, not {len(self.betas)}.")
        for name in ("steps", "accumulate", "log_every", "evaluate_every", "save_every", "keep"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("lr", "muon_lr", "epsilon", "clip"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} must be a number above 0, not {value}.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas must be from 0 to less than 1, not {self.betas}.")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay must be 0 or more, not {self.weight_decay}.")
        if self.patience is not None and self.patience < 1:
            raise InputError(f"patience must be at least 1, not {self.patience}.")
        if self.seed < 0:
            raise InputError(f"seed must be 0 or more, not {self.seed}.")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads must be at least 1, not {self.threads}.")
        if not 0 <= self.warmup < 1:
            raise InputError(f"warmup is a share of the steps, from 0 to less than 1, not {self.warmup}.")
        if not 0 < self.decay <= 1:
            raise InputError(f"decay is a share of the steps, above 0 and up to 1, not {self.decay}.")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise InputError(f"minutes must be more than 0, not {self.minutes}.")

    def lr_at(self, step: int) -> float:
        return self.lr * schedule(self.schedule)(step, self.steps, round(self.warmup * self.steps), self.decay)
