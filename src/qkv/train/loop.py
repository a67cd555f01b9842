"""The training loop: one for every model, from an embedding table to BERT.

It takes a `Job` (a module, an objective, batches as a function of the step) and a `TrainConfig`, and knows neither text
nor networks. It guarantees:

- Every random draw, and every batch, is a function of (seed, step). A run that was killed and resumed ends with the
  same weights, optimizer state and log, byte for byte, on the same machine, torch version and number of threads. (On a
  GPU, torch's attention over rows of more than 128 tokens adds gradients in no fixed order: there, up to rounding.)
- `log.jsonl` holds only reproducible values (step, loss, learning rate, …); times go to `timing.jsonl`. On resume,
  lines after the checkpoint are removed and written again.
- Ctrl-C and SIGTERM finish the step, save and return. A second signal ends the process.
- A NaN loss stops the run before anything more is saved; the message names the step.
"""

import math
import platform
import signal
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from qkv.errors import InputError
from qkv.train import run_folder
from qkv.train.device import Sizes, count_cores, memory_for, savings, seed_draws, too_large
from qkv.train.log import Built, Clock, Log, Progress, Window, measure_peak
from qkv.train.optim import PRECISIONS, TrainConfig, adamw, muon, optimizer_tensors, restore_optimizer
from qkv.train.run_folder import Outcome


@dataclass
class Best:
    """The best evaluation so far and its weights."""

    step: int = 0
    value: float = -math.inf
    waited: int = 0  # evaluations since then without a new lowest loss
    lowest: float = math.inf  # lowest loss
    weights: dict[str, Tensor] = field(default_factory=dict)

    def offer(self, step: int, value: float, loss: float, weights: Mapping[str, Tensor]) -> None:
        falls, self.lowest = loss < self.lowest, min(loss, self.lowest)
        if value > self.value:
            self.step, self.value, self.waited = step, value, 0
            # a copy on the host, which later steps do not change
            self.weights = {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()}
        else:
            # on few examples the metric may not change although the model still learns
            self.waited = 0 if falls else self.waited + 1

    def state(self) -> dict[str, Any]:
        value, lowest = self.value if self.weights else None, self.lowest if math.isfinite(self.lowest) else None
        return {"step": self.step, "value": value, "waited": self.waited, "lowest": lowest}


__all__ = ["PRECISIONS", "Job", "Objective", "Term", "TrainConfig", "Trainable", "Trainer", "step_seed"]

CPU = torch.device("cpu")


class Trainable(Protocol):
    """What the loop needs of a batch."""

    @property
    def n_tokens(self) -> int: ...
    def to(self, device: torch.device, non_blocking: bool = False) -> Self: ...
    def pinned(self) -> Self: ...


_B = TypeVar("_B", bound=Trainable)
_T = TypeVar("_T")
B_contra = TypeVar("B_contra", bound=Trainable, contravariant=True)


class Term(NamedTuple):
    """One prediction target: its summed loss and the number of correct predictions."""

    loss: Tensor
    correct: Tensor


class Objective(Protocol[B_contra]):
    """Returns sums and counts rather than means, so that several batches per step equal one large batch."""

    @property
    def weights(self) -> Mapping[str, float]: ...
    def counts(self, batch: B_contra) -> dict[str, int]: ...
    def terms(self, model: nn.Module, batch: B_contra) -> dict[str, Term]: ...


@dataclass(frozen=True)
class Job(Generic[_B]):
    model: nn.Module
    objective: Objective[_B]
    batches: Callable[[int], Sequence[_B]]  # the batches of a step: a pure function
    out: Path
    evaluate: Callable[[nn.Module], dict[str, Any]] | None = None  # its result is logged
    flops: Callable[[_B], float] | None = None  # of forward and backward
    compiled: Sequence[nn.Module] = ()  # modules for torch.compile
    recomputed: Sequence[nn.Module] = ()  # modules for activation checkpointing
    best_by: str | None = None  # metric of the evaluation to maximise; the best weights are kept
    scale: Callable[[str], float] | None = None  # factor of the learning rate, by parameter name
    matrices: Mapping[str, int] = field(default_factory=dict)  # weights for Muon → number of matrices in each
    sizes: Sizes[_B] | None = None  # smaller batch sizes to suggest when memory runs out
    around: Callable[[], AbstractContextManager[object]] = nullcontext  # context for the computation of every step
    renew: Callable[[], None] | None = None  # puts the initial weights back, for a second attempt


FAIR = 0.5
"""Share of the steps after which a run that has learned nothing starts again."""


class Trainer(Generic[_B]):
    """A running job: weights, optimizer and the sums of the current window.

    If `config.retry` is set and no evaluation was better than the trivial answer after a fair share of the steps, the
    run starts again once: initial weights, a new schedule of as many steps, a lower learning rate. Steps count on, so
    that logs, batches and random draws stay functions of the step.
    """

    def __init__(self, job: Job[_B], config: TrainConfig, progress: Progress) -> None:
        self.job, self.config, self.progress = job, config, progress
        self.device = next(job.model.parameters()).device
        self._begin()
        # in this order, so that recomputed modules are compiled with their recomputation
        if config.recompute:
            for module in job.recomputed:
                recompute(module)
        if config.compile:
            for module in job.compiled:
                module.compile(dynamic=True)

    def _begin(self) -> None:
        self.step = 0
        self.origin = 0  # the step at which the current attempt began
        self.window = Window()
        self.best = Best()
        self._attempt()

    def _attempt(self) -> None:
        self.parameters = list(self.job.model.parameters())  # collecting them takes longer than a small step
        self.around = self.job.around()
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.config.precision == "fp16")
        self.optimizer = self._optimizer()

    def _optimizer(self) -> torch.optim.Optimizer:
        job, config = self.job, self.config
        if config.muon_lr is not None and config.optimizer != "muon":
            raise InputError(
                f"train.muon_lr is for the optimizer muon, but train.optimizer is {config.optimizer}. Set it to muon, "
                "or set train.muon_lr to none."
            )
        settings: dict[str, Any] = {
            "lr": config.lr,
            "betas": config.betas,
            "epsilon": config.epsilon,
            "weight_decay": config.weight_decay,
            "scale": job.scale,
        }
        if config.optimizer == "muon":
            return muon(job.model, job.matrices, muon_lr=config.muon_lr, **settings)
        return adamw(job.model, **settings)

    def steps_in(self, minutes: float, seconds: float = 3.0) -> int:
        """Estimate how many steps fit into the time, from a few trial steps at learning rate 0."""
        seconds = min(seconds, 6 * minutes)  # a tenth of a short budget
        return max(1, int(minutes * 60 / self.seconds_per_step(seconds)))

    def seconds_per_step(self, seconds: float, least: int = 5) -> float:
        """Measure a step in about this time, by at least so many trial steps at learning rate 0."""
        # a GPU runs asynchronously, so several steps are timed together
        together = 1 if self.device.type == "cpu" else 4
        tried: list[float] = []
        with closing(build_ahead(self.batches, 0, sys.maxsize, batches_ahead(self.device))) as built:
            for _ in range(2):  # the first steps also allocate and compile
                self._advance_or_advise(next(built).value, 0.0)
            self.window.settle()  # waits for the device
            while together * sum(tried) < seconds or len(tried) < least:
                begin = time.perf_counter()
                for _ in range(together):
                    self._advance_or_advise(next(built).value, 0.0)
                self.window.settle()
                tried.append((time.perf_counter() - begin) / together)
        self._begin()
        return statistics.median(tried)  # robust to outliers

    def batches(self, step: int) -> Sequence[_B]:
        """Return the job's batches, in pinned memory for a GPU."""
        built = self.job.batches(step)
        return [batch.pinned() for batch in built] if self.device.type == "cuda" else built

    def run(self) -> Outcome:
        """Train up to `config.steps`, from the newest checkpoint in `job.out` if there is one."""
        if self.config.compile and self.job.compiled and self.device.type == "cuda":
            self.progress.message(
                "note: train.compile=true replaces qkv's own GPU kernels for the blocks, which are usually faster."
            )
        with memory_for(self.device, "between training steps"):
            return self._run()

    def _advance_or_advise(self, batches: Sequence[_B], lr: float) -> None:
        """Take a step; if memory runs out, raise an error that suggests what would fit."""
        try:
            return self.advance(batches, lr)
        except torch.OutOfMemoryError:
            pass  # leave the except block: the exception keeps the failed step's tensors alive
        failed = self.step

        def attempt(batches: Sequence[_B]) -> None:
            self._begin()
            self.optimizer.zero_grad(set_to_none=True)
            for _ in range(2):  # only the second step runs with the optimizer's state allocated
                self.advance(batches, 0.0)
            self.window.settle()

        less = savings(self.config, recomputes=bool(self.job.recomputed))
        raise InputError(too_large(self.device, self.job.sizes, failed, attempt, less))

    def _run(self) -> Outcome:
        job, config, progress = self.job, self.config, self.progress
        self.restore()
        started = self.step
        if started >= self.last_step or self.gives_up:
            return Outcome(started, started, finished=True)
        peak = measure_peak(self.device, PRECISIONS[config.precision]) if job.flops else None
        log = Log(job.out, self.step, progress.log)
        progress.start(self.step, self.last_step)
        clock = Clock()
        try:
            with interruptible() as interruption:
                for built in self._batches_to_come():
                    lr = self.lr_at(self.step)
                    self._advance_or_advise(built.value, lr)
                    clock.add(built, job.flops)
                    last, stop = self.step == self.last_step, bool(interruption)
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
                            progress.message(f"step {self.step:,}: {summary(result, job.best_by)}")
                            if job.best_by:
                                self.best.offer(
                                    self.step, result[job.best_by], result.get("loss", math.inf), self.trained()
                                )
                            if self.has_failed:
                                self._start_again(log)
                                last = False
                        last = last or self.gives_up
                        if self.step % config.save_every == 0 or last or stop:
                            log.flush()  # the log must be as durable as the checkpoint
                            self.save()
                    if last:
                        break
                    if stop:
                        return Outcome(started, self.step, finished=False, signal=interruption.signal)
        finally:
            log.close()
        return Outcome(started, self.step, finished=True)

    def _batches_to_come(self) -> Iterator[Built[Sequence[_B]]]:
        """Yield the batches up to the last step, also of a second attempt."""
        while self.step < (end := self.last_step):
            with closing(build_ahead(self.batches, self.step, end, batches_ahead(self.device))) as built:
                yield from built

    @property
    def last_step(self) -> int:
        return self.origin + self.config.steps

    def lr_at(self, step: int) -> float:
        """The learning rate of a step of the current attempt."""
        factor = self.config.retry if self.origin and self.config.retry is not None else 1.0
        return factor * self.config.lr_at(step - self.origin)

    @property
    def has_learned(self) -> bool:
        """Whether an evaluation was better than the trivial answer; True if that is not known."""
        return self.config.least is None or self.best.value > self.config.least

    @property
    def gives_up(self) -> bool:
        """Whether to stop early: something was learned, then `patience` evaluations without improvement."""
        return self.config.patience is not None and self.best.waited >= self.config.patience and self.has_learned

    @property
    def has_failed(self) -> bool:
        """Whether to start again: a first attempt without success after a fair share of its steps."""
        possible = self.config.retry is not None and self.job.renew is not None and not self.origin
        return possible and self.step >= FAIR * self.config.steps and not self.has_learned

    def _start_again(self, log: Log) -> None:
        assert self.job.renew is not None
        self.job.renew()
        self.origin = self.step
        self.window = Window()
        # the best weights stay: both attempts may be worth no more than the trivial answer
        self.best.waited, self.best.lowest = 0, math.inf
        self._attempt()
        lr = self.config.lr * (self.config.retry or 1.0)
        log.write("log.jsonl", {"step": self.step, "restart": {"lr": lr}})
        self.progress.message(
            f"step {self.step:,}: nothing was learned yet. Starting again from the initial weights with learning rate "
            f"{lr:.3g}, for at most {self.config.steps:,} more steps."
        )
        self.progress.start(self.step, self.last_step)

    def trained(self) -> dict[str, Tensor]:
        """Return the trainable weights."""
        return {name: parameter for name, parameter in self.job.model.named_parameters() if parameter.requires_grad}

    def take_best(self) -> None:
        """Restore the weights of the best evaluation, if there was one."""
        with torch.no_grad():
            for name, parameter in self.trained().items():
                if self.best.weights:
                    parameter.copy_(self.best.weights[name])

    def restore(self) -> None:
        found = run_folder.latest_checkpoint(self.job.out / "checkpoints", self.progress.message)
        if found is None:
            return
        try:
            weights = self.trained()
            if set(weights) != set(found.tensors["model"]):
                raise KeyError
            self.job.model.load_state_dict(found.tensors["model"], strict=False)
            if found.step != found.state.get("origin"):  # a new attempt begins with a new optimizer
                restore_optimizer(self.job.model, self.optimizer, found.tensors["optimizer"])
        except (RuntimeError, KeyError):
            raise InputError(
                f"{found.path} holds another model than the settings describe. Restore the settings that the run was "
                "started with, or start another run."
            ) from None
        self.scaler.load_state_dict(dict(found.state["scaler"]))
        self.window = Window(found.state["window"])
        self.step, self.origin = found.step, found.state.get("origin", 0)
        if best := found.state.get("best"):
            value = -math.inf if best["value"] is None else best["value"]
            lowest = math.inf if best["lowest"] is None else best["lowest"]
            self.best = Best(best["step"], value, best["waited"], lowest, found.tensors.get("best", {}))
        for name, value in environment(self.device).items():
            before = found.state["environment"].get(name)
            if before != value:
                self.progress.message(
                    f"warning: the run was started with {name} {before} and resumes with {value}: "
                    "its results may differ from an uninterrupted run in the last digits."
                )

    def advance(self, batches: Sequence[_B], lr: float) -> None:
        """Take one optimizer step over all `batches`, as if they were one."""
        seed_draws(self.device, step_seed(self.config.seed, self.step))  # for dropout
        job, config = self.job, self.config
        if not job.model.training:  # setting the mode of every module takes longer than a small step
            job.model.train()
        counts = [job.objective.counts(batch) for batch in batches]
        totals = {name: sum(count[name] for count in counts) for name in counts[0]}
        with self.around:
            for batch, count in zip(batches, counts, strict=True):
                with torch.autocast(self.device.type, PRECISIONS[config.precision], enabled=config.precision != "fp32"):
                    terms = job.objective.terms(job.model, batch.to(self.device, non_blocking=True))
                shares = {name: weight / max(1, totals[name]) for name, weight in job.objective.weights.items()}
                loss = torch.stack([term.loss * shares[name] for name, term in terms.items()]).sum()
                self.scaler.scale(loss).backward()
                for name, term in terms.items():
                    self.window.add(name, term.loss, term.correct, count[name])
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.parameters, config.clip, foreach=True)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["scale"]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        # in fp16 a step whose gradient overflows is skipped, and the loss scale is reduced
        overflows = self.scaler.is_enabled()
        self.window.step(self.step, norm, sum(batch.n_tokens for batch in batches), overflows=overflows)

    def figures(self) -> dict[str, Any]:
        """Return the means of the window and start a new one."""
        self.stop_if_lost()
        line = self.window.record(self.job.objective.weights)
        self.window = Window()
        return line

    def evaluate(self) -> dict[str, Any]:
        assert self.job.evaluate is not None
        self.job.model.eval()
        with torch.inference_mode(), memory_for(self.device, f"in the evaluation after step {self.step:,}"):
            result = self.job.evaluate(self.job.model)
        self.job.model.train()
        self.stop_if_lost()
        if any(isinstance(value, float) and math.isnan(value) for value in result.values()):
            self.window.lost_at = self.step  # the training loss was still finite
            self.stop_if_lost()
        return result

    def save(self) -> None:
        self.stop_if_lost()
        described = environment(self.device)
        state: dict[str, Any] = {
            "window": self.window.state(),
            "scaler": self.scaler.state_dict(),
            "environment": described,
        }
        tensors = {"model": self.trained(), "optimizer": optimizer_tensors(self.job.model, self.optimizer)}
        if self.origin:
            state["origin"] = self.origin
        if self.job.best_by:
            state["best"] = self.best.state()
            if self.best.weights:
                tensors["best"] = self.best.weights
        run_folder.save_checkpoint(self.job.out / "checkpoints", self.step, tensors, state, self.config.keep)

    def stop_if_lost(self) -> None:
        self.window.settle()
        if self.window.lost_at is None:
            return
        step = self.window.lost_at
        lr = self.lr_at(step - 1)
        kept = run_folder.checkpoint_steps(self.job.out / "checkpoints")
        where = f"The last good checkpoint is {kept[-1]}." if kept else "There is no checkpoint yet."
        raise InputError(
            f"The loss or its gradient is NaN or infinite at step {step} (learning rate {lr:.3g}). {where} "
            f"Set a lower train.lr or train.clip, or a longer train.warmup, in {self.job.out / 'config.toml'} "
            "and resume, or start a new run with them (--set train.lr=…)."
        )


def step_seed(seed: int, step: int) -> int:
    return int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0] >> 1)


def recompute(module: nn.Module) -> None:
    """Store no activations of this module: its forward runs again in the backward pass."""
    from torch.utils.checkpoint import checkpoint as recomputed

    plain = module.forward
    object.__setattr__(module, "forward", partial(recomputed, plain, use_reentrant=False))


def environment(device: torch.device = CPU) -> dict[str, Any]:
    """Describe the software and hardware on which rounding depends."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    }


def summary(result: Mapping[str, Any], left_out: str | None) -> str:
    """The figures in one line; of a set, whose name is before a colon, the first, which is its main one.

    >>> summary({"loss": 2.5, "a.csv: mrr": 0.75, "a.csv: mrr_back": 0.5, "mean": 0.75}, "mean")
    'loss 2.5, a.csv mrr 0.75'
    """
    shown: dict[str, str] = {}
    for name, value in result.items():
        if isinstance(value, float) and name != left_out:
            of_set, colon, _ = name.rpartition(": ")
            shown.setdefault(of_set if colon else name, f"{name.replace(': ', ' ')} {value:.4g}")
    return ", ".join(shown.values())


# --- Batches are built ahead in threads.

_TURN = 1e-5
"""Thread switch interval in seconds while batches are built: a loop that feeds a GPU waits for the interpreter lock
hundreds of times a step, and Python's default of 5 ms is longer than a short step."""


def build_ahead(build: Callable[[int], _T], start: int, stop: int, ahead: int = 1) -> Generator[Built[_T]]:
    """Yield build(start), …, build(stop − 1) in order, building up to `ahead` values in advance.

    `ahead` threads build, so at most `ahead` values are in progress or waiting. Threads suffice, since numpy releases
    the interpreter lock while it works on large arrays.
    """

    def timed(number: int) -> tuple[_T, float]:
        begin = time.perf_counter()
        return build(number), time.perf_counter() - begin

    if start >= stop:
        return
    with _ShortTurns(), ThreadPoolExecutor(ahead, thread_name_prefix="qkv-batches") as pool:
        upcoming = deque(pool.submit(timed, number) for number in range(start, min(stop, start + ahead)))
        try:
            for number in range(start, stop):
                begin = time.perf_counter()
                value, building = upcoming.popleft().result()
                waited = time.perf_counter() - begin
                if number + ahead < stop:
                    upcoming.append(pool.submit(timed, number + ahead))
                yield Built(value, waited, building)
        finally:
            for left in upcoming:
                left.cancel()


class _ShortTurns:
    """Context with a short thread switch interval, counted because the interval is one setting for the process."""

    lock, inside, before = threading.Lock(), 0, 0.0

    def __enter__(self) -> None:
        kind = type(self)
        with kind.lock:
            if not kind.inside:
                kind.before = sys.getswitchinterval()
                sys.setswitchinterval(min(kind.before, _TURN))
            kind.inside += 1

    def __exit__(self, *_: object) -> None:
        kind = type(self)
        with kind.lock:
            kind.inside -= 1
            if not kind.inside:
                sys.setswitchinterval(kind.before)


def batches_ahead(device: torch.device) -> int:
    """Return how many batches to build in advance: one on a CPU, where training needs the cores."""
    return 1 if device.type == "cpu" else max(1, min(8, count_cores() // 2))


# --- Ctrl-C.


@dataclass
class Interruption:
    signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Record the first SIGINT or SIGTERM and continue; the second has its default effect."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption  # only the main thread may set handlers
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        interruption.signal = number
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, note)
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
