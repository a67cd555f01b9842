"""The loop: one for every model, from a look-up table to BERT.

It is handed a `Job` (a module, an objective, batches as a function of the step) and a `TrainConfig`, and knows neither
text nor networks. What it promises:

- Every random draw is a function of (seed, step), and so is the batch. A run that was killed and resumed ends with
  the same weights, optimizer state and log, byte for byte, on the same machine, torch and number of threads.
- `log.jsonl` holds only what is reproducible (step, loss, learning rate, …); clock times go to `timing.jsonl`. On a
  resume, lines later than the checkpoint are cut off, and written again.
- Ctrl-C and SIGTERM end the step, save and return. A second one ends the process.
- A loss that is no number stops the run before anything more is saved, and says at which step.
"""

import math
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from qkv.errors import InputError, did_you_mean
from qkv.train import checkpoint
from qkv.train.ahead import built_ahead, interruptible
from qkv.train.best import Best
from qkv.train.log import Clock, Log, Window
from qkv.train.optim import adamw, optimizer_tensors, restore_optimizer, schedule
from qkv.train.progress import Progress
from qkv.train.speed import measured_peak

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class TrainConfig:
    steps: int = 10_000
    minutes: float | None = None  # a time budget; turned into `steps` once, before the first step
    lr: float = 1e-3
    warmup: float = 0.06  # share of the steps
    schedule: str = "linear"
    betas: tuple[float, ...] = (0.9, 0.98)
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    clip: float = 1.0  # largest norm of the gradient
    accumulate: int = 1  # batches a step
    precision: str = "fp32"
    compile: bool = False
    recompute: bool = False  # activation checkpointing: less memory, a third more work
    seed: int = 0
    threads: int | None = None
    log_every: int = 10
    evaluate_every: int = 500
    save_every: int = 500
    keep: int = 2  # checkpoints
    patience: int | None = None  # evaluations without a better one after which a run ends; None: never

    def __post_init__(self) -> None:
        schedule(self.schedule)
        if self.precision not in PRECISIONS:
            hint = did_you_mean(self.precision, PRECISIONS)
            raise InputError(f"Unknown precision '{self.precision}'.{hint} Known: {', '.join(PRECISIONS)}.")
        if len(self.betas) != 2:
            raise InputError(f"betas are two numbers, not {len(self.betas)}.")
        for name in ("steps", "accumulate", "log_every", "evaluate_every", "save_every", "keep"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("lr", "epsilon", "clip"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} must be a number above 0, not {value}.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas lie between 0 and 1, unlike {self.betas}.")
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
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise InputError(f"minutes must be more than 0, not {self.minutes}.")

    def lr_at(self, step: int) -> float:
        return self.lr * schedule(self.schedule)(step, self.steps, round(self.warmup * self.steps))


class Trainable(Protocol):
    """What the loop asks of a batch."""

    @property
    def n_tokens(self) -> int: ...
    def to(self, device: torch.device, non_blocking: bool = False) -> Self: ...


B = TypeVar("B", bound=Trainable)
B_contra = TypeVar("B_contra", bound=Trainable, contravariant=True)


class Term(NamedTuple):
    """One thing that is predicted: its loss summed over the targets, and how many were right."""

    loss: Tensor
    correct: Tensor


class Objective(Protocol[B_contra]):
    """Sums and counts rather than means, so that a step of several batches is exactly one large batch."""

    @property
    def weights(self) -> Mapping[str, float]: ...
    def counts(self, batch: B_contra) -> dict[str, int]: ...
    def terms(self, model: nn.Module, batch: B_contra) -> dict[str, Term]: ...


@dataclass(frozen=True)
class Job(Generic[B]):
    model: nn.Module
    objective: Objective[B]
    batches: Callable[[int], Sequence[B]]  # the batches of a step: a pure function
    out: Path
    evaluate: Callable[[nn.Module], dict[str, Any]] | None = None  # what it returns goes into the log
    flops: Callable[[B], float] | None = None  # of forward and backward
    compiled: Sequence[nn.Module] = ()  # parts that torch.compile may take
    recomputed: Sequence[nn.Module] = ()  # parts whose activations may be computed twice
    best_by: str | None = None  # which value of an evaluation is the better the larger; the best weights are kept
    scale: Callable[[str], float] | None = None  # of the learning rate, by a parameter's name


@dataclass(frozen=True)
class Outcome:
    started: int  # the step it began or went on from
    step: int
    finished: bool  # False: interrupted, saved, ready to be resumed
    signal: int | None = None


class Trainer(Generic[B]):
    """A job in motion: weights, optimizer and the sums of the current window."""

    def __init__(self, job: Job[B], config: TrainConfig, progress: Progress) -> None:
        self.job, self.config, self.progress = job, config, progress
        self.device = next(job.model.parameters()).device
        self._begin()
        # from outside and in this order: recomputed parts are compiled with their recomputation
        if config.recompute:
            for module in job.recomputed:
                recompute(module)
        if config.compile:
            for module in job.compiled:
                module.compile(dynamic=True)

    def _begin(self) -> None:
        self.step = 0
        self.window = Window(self.device)
        self.best = Best()
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.config.precision == "fp16")
        self.optimizer = adamw(
            self.job.model,
            lr=self.config.lr,
            betas=(self.config.betas[0], self.config.betas[1]),
            epsilon=self.config.epsilon,
            weight_decay=self.config.weight_decay,
            scale=self.job.scale,
        )

    def steps_in(self, minutes: float, seconds: float = 3.0) -> int:
        """How many steps fit into the time, from a few that are tried at learning rate 0, which moves nothing."""
        seconds = min(seconds, 6 * minutes)  # a tenth of a short budget
        for step in range(2):  # the first ones also allocate and compile
            self.advance(self.job.batches(step), 0.0)
        tried: list[float] = []
        while sum(tried) < seconds or len(tried) < 5:
            batches, begin = self.job.batches(len(tried)), time.perf_counter()
            self.advance(batches, 0.0)
            int(self.window.lost_at)  # a GPU answers when it is done
            tried.append(time.perf_counter() - begin)
        self._begin()
        return max(1, int(minutes * 60 / statistics.median(tried)))  # the middle one: a machine may hiccup

    def run(self) -> Outcome:
        """To `config.steps`, from the newest checkpoint in `job.out` if there is one."""
        job, config, progress = self.job, self.config, self.progress
        self.restore()
        started = self.step
        if started >= config.steps or self.gives_up:
            return Outcome(started, started, finished=True)
        peak = measured_peak(self.device, PRECISIONS[config.precision]) if job.flops else None
        log = Log(job.out, self.step)
        progress.start(self.step, config.steps)
        clock = Clock()
        try:
            with interruptible() as interruption:
                for built in built_ahead(job.batches, self.step, config.steps):
                    lr = config.lr_at(self.step)
                    self.advance(built.value, lr)
                    clock.add(built, job.flops)
                    last, stop = self.step == config.steps, bool(interruption)
                    if self.step % config.log_every == 0 or last:
                        figures = self.figures()
                        log.write("log.jsonl", {"step": self.step, **figures, "lr": lr})
                        timing = clock.lap(peak)
                        log.write("timing.jsonl", {"step": self.step, **timing})
                        progress.step(self.step, figures | timing)
                    with clock.stopped():
                        if job.evaluate and (self.step % config.evaluate_every == 0 or last):
                            result = self.evaluate()
                            log.write("log.jsonl", {"step": self.step, "evaluation": result})
                            progress.message(f"step {self.step:,}: {_summary(result, job.best_by)}")
                            if job.best_by:
                                self.best.offer(
                                    self.step, result[job.best_by], result.get("loss", math.inf), self.trained()
                                )
                        last = last or self.gives_up
                        if self.step % config.save_every == 0 or last or stop:
                            log.flush()  # what the log says up to here must be as lasting as the checkpoint
                            self.save()
                    if last:
                        break
                    if stop:
                        return Outcome(started, self.step, finished=False, signal=interruption.signal)
        finally:
            log.close()
        return Outcome(started, self.step, finished=True)

    @property
    def gives_up(self) -> bool:
        """Whether it has not become better for as long as the settings allow."""
        return self.config.patience is not None and self.best.waited >= self.config.patience

    def trained(self) -> dict[str, Tensor]:
        """The weights that training moves; the others are as they came."""
        return {name: parameter for name, parameter in self.job.model.named_parameters() if parameter.requires_grad}

    def take_best(self) -> None:
        """Go back to the weights of the best evaluation, if there was one."""
        with torch.no_grad():
            for name, parameter in self.trained().items():
                if self.best.weights:
                    parameter.copy_(self.best.weights[name])

    def restore(self) -> None:
        found = checkpoint.latest(self.job.out / "checkpoints", self.progress.message)
        if found is None:
            return
        try:
            weights = self.trained()
            if set(weights) != set(found.tensors["model"]):
                raise KeyError
            self.job.model.load_state_dict(found.tensors["model"], strict=False)
            restore_optimizer(self.job.model, self.optimizer, found.tensors["optimizer"])
        except (RuntimeError, KeyError):
            raise InputError(
                f"{found.path} holds another model than the settings describe. Set them back to what the run was "
                "begun with, or begin another run."
            ) from None
        self.scaler.load_state_dict(dict(found.state["scaler"]))
        self.window = Window(self.device, found.state["window"])
        self.step = found.step
        if best := found.state.get("best"):
            value = -math.inf if best["value"] is None else best["value"]
            lowest = math.inf if best["lowest"] is None else best["lowest"]
            self.best = Best(best["step"], value, best["waited"], lowest, found.tensors.get("best", {}))
        for name, value in environment().items():
            before = found.state["environment"].get(name)
            if before != value:
                self.progress.message(
                    f"warning: the run was begun with {name} {before} and goes on with {value}: "
                    "it will not be equal to an uninterrupted one in the last digits."
                )

    def advance(self, batches: Sequence[B], lr: float) -> None:
        """One step of the optimizer over all `batches`, as if they were one."""
        torch.manual_seed(step_seed(self.config.seed, self.step))  # dropout's draws
        job, config = self.job, self.config
        job.model.train()
        counts = [job.objective.counts(batch) for batch in batches]
        totals = {name: sum(count[name] for count in counts) for name in counts[0]}
        step_loss = torch.zeros((), device=self.device)
        for batch, count in zip(batches, counts, strict=True):
            with torch.autocast(self.device.type, PRECISIONS[config.precision], enabled=config.precision != "fp32"):
                terms = job.objective.terms(job.model, batch.to(self.device, non_blocking=True))
            loss = torch.stack(
                [job.objective.weights[name] * term.loss / max(1, totals[name]) for name, term in terms.items()]
            ).sum()
            self.scaler.scale(loss).backward()
            step_loss += loss.detach()
            for name, term in terms.items():
                self.window.add(name, term.loss, term.correct, count[name])
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(job.model.parameters(), config.clip, foreach=True)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["scale"]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        lost = ~torch.isfinite(step_loss)
        if not self.scaler.is_enabled():  # else a gradient that overflows is left out, and a smaller scale is tried
            lost = lost | ~torch.isfinite(norm)
        self.window.step(self.step, lost, norm, sum(batch.n_tokens for batch in batches))

    def figures(self) -> dict[str, Any]:
        """The window's means; a new window begins."""
        self.stop_if_lost()
        line = self.window.record(self.job.objective.weights)
        self.window = Window(self.device)
        return line

    def evaluate(self) -> dict[str, Any]:
        assert self.job.evaluate is not None
        self.job.model.eval()
        with torch.inference_mode():
            result = self.job.evaluate(self.job.model)
        self.job.model.train()
        if any(isinstance(value, float) and math.isnan(value) for value in result.values()):
            self.window.lost_at.fill_(self.step)  # the step's own loss was the last good one
        self.stop_if_lost()
        return result

    def save(self) -> None:
        self.stop_if_lost()
        state = {"window": self.window.state(), "scaler": self.scaler.state_dict(), "environment": environment()}
        tensors = {"model": self.trained(), "optimizer": optimizer_tensors(self.job.model, self.optimizer)}
        if self.job.best_by:
            state["best"] = self.best.state()
            if self.best.weights:
                tensors["best"] = self.best.weights
        checkpoint.save(self.job.out / "checkpoints", self.step, tensors, state, self.config.keep)

    def stop_if_lost(self) -> None:
        step = int(self.window.lost_at)
        if step < 0:
            return
        lr = self.config.lr_at(step - 1)
        kept = checkpoint.steps(self.job.out / "checkpoints")
        where = f"The last good checkpoint is {kept[-1]}." if kept else "There is no checkpoint yet."
        raise InputError(
            f"The loss, or its gradient, is not a number any more at step {step} (learning rate {lr:.3g}). {where} "
            f"Set a lower train.lr or train.clip, or a longer train.warmup, in {self.job.out / 'config.toml'} "
            "and resume, or begin anew with them (--set train.lr=…)."
        )


def step_seed(seed: int, step: int) -> int:
    return int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0] >> 1)


def recompute(module: nn.Module) -> None:
    """Keep no activations of this module: its forward runs again when the gradient comes by."""
    from torch.utils.checkpoint import checkpoint as recomputed

    plain = module.forward
    object.__setattr__(module, "forward", partial(recomputed, plain, use_reentrant=False))


def environment() -> dict[str, Any]:
    """What the last digits of a sum depend on."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _summary(result: Mapping[str, Any], left_out: str | None) -> str:
    shown = {name: value for name, value in result.items() if isinstance(value, float) and name != left_out}
    return ", ".join(f"{name} {value:.4g}" for name, value in shown.items())
