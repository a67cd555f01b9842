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
- A run of several processes (train/distributed.py) takes the same steps. Every process builds all batches of a step and
  computes its share. So all know the counts and the lengths of the step without an exchange, and need not agree on
  anything before the first forward pass; what it costs is host time, in threads beside the training, which is little
  as long as a process builds batches faster than all devices together use them. The first process alone evaluates,
  logs, saves and writes.
"""

import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from qkv.errors import InputError
from qkv.train import run_folder
from qkv.train.ahead import batches_ahead, build_ahead
from qkv.train.device import Sizes, memory_for, out_of_memory, savings, seed_draws, software, too_large
from qkv.train.distributed import GradientSum, NamingLostPeers, World, current_world, divide
from qkv.train.launch import Interruption, interruptible
from qkv.train.log import LOG_SAMPLES, SAMPLES, Built, Clock, Log, Progress, Window, fingerprint, measure_peak, summary
from qkv.train.optim import PRECISIONS, Muon, TrainConfig, adamw, muon, optimizer_tensors, restore_optimizer
from qkv.train.run_folder import Outcome

if TYPE_CHECKING:
    from qkv.train.sharded import Sharded


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


class Trainable(Protocol):
    """What the loop needs of a batch."""

    @property
    def n_tokens(self) -> int: ...
    def to(self, device: torch.device, non_blocking: bool = False) -> Self: ...
    def pinned(self) -> Self: ...


_B = TypeVar("_B", bound=Trainable)
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
    recomputed: Sequence[nn.Module] = ()  # blocks, for activation checkpointing and to divide the weights by
    best_by: str | None = None  # metric of the evaluation to maximise; the best weights are kept
    scale: Callable[[str], float] | None = None  # factor of the learning rate, by parameter name
    matrices: Mapping[str, int] = field(default_factory=dict)  # weights for Muon → number of matrices in each
    sizes: Sizes[_B] | None = None  # smaller batch sizes to suggest when memory runs out
    around: Callable[[], AbstractContextManager[object]] = nullcontext  # context for the computation of every step
    renew: Callable[[], None] | None = None  # puts the initial weights back, for a second attempt
    together: bool = False  # all processes compute every batch together: the objective divides the work itself


FAIR = 0.5
"""Share of the steps after which a run that has learned nothing starts again."""


class Unwritten:
    """In place of the log in all processes but the first."""

    def write(self, name: str, content: Mapping[str, Any]) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class Trainer(Generic[_B]):
    """A running job: weights, optimizer and the sums of the current window.

    If `config.retry` is set and no evaluation was better than the trivial answer after a fair share of the steps, the
    run starts again once: initial weights, a new schedule of as many steps, a lower learning rate. Steps count on, so
    that logs, batches and random draws stay functions of the step.
    """

    def __init__(self, job: Job[_B], config: TrainConfig, progress: Progress) -> None:
        self.job, self.config, self.progress = job, config, progress
        self.device = next(job.model.parameters()).device
        self.interruption = Interruption()
        self.stopping: int | None = None  # the signal that stops all processes
        self.samples: list[int] | None = [] if os.environ.get(LOG_SAMPLES) else None
        self.gradients: GradientSum | None = None
        self.sharded = self._divide_weights()
        self._begin()
        inside = list if self.sharded is None else self.sharded.inside
        # in this order, so that recomputed modules are compiled with their recomputation
        if config.recompute:
            for module in inside(job.recomputed):
                recompute(module)
        if config.compile:
            for module in inside(job.compiled):
                module.compile(dynamic=True)

    def _divide_weights(self) -> "Sharded | None":
        job, config, world = self.job, self.config, self.world
        if config.shard and not job.recomputed:
            raise InputError("train.shard divides BERT and GPT by their blocks; this training has none. Leave it out.")
        if not config.shard or world.size == 1:
            return None
        from qkv.train.sharded import Sharded  # imports more of torch than other runs need

        return Sharded(job.model, job.recomputed, job.objective.terms, world, PRECISIONS[config.precision])

    @property
    def network(self) -> nn.Module:
        """What is trained: the model, or a copy of it whose weights are divided among the processes."""
        return self.job.model if self.sharded is None else self.sharded.network

    def _begin(self) -> None:
        self.step = 0
        self.origin = 0  # the step at which the current attempt began
        self.window = self._new_window()
        self.best = Best()
        self._attempt()

    @property
    def world(self) -> World:
        return current_world()

    def _new_window(self, state: Mapping[str, Any] | None = None) -> Window:
        return Window(state, self.world.sum if self.world.size > 1 else None)

    def _attempt(self) -> None:
        self.parameters = list(self.network.parameters())  # collecting them takes longer than a small step
        self.around = self.job.around() if self.sharded is None else NamingLostPeers()
        if self.gradients is not None:
            self.gradients.close()
        alike = self.world.size > 1 and self.sharded is None
        self.gradients = GradientSum(self.parameters, self.world) if alike else None
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
            make = Muon if self.sharded is None else self.sharded.make_muon
            return muon(self.network, job.matrices, muon_lr=config.muon_lr, make=make, **settings)
        return adamw(self.network, **settings)

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
            while self.world.agree(together * sum(tried) < seconds or len(tried) < least):
                begin = time.perf_counter()
                for _ in range(together):
                    self._advance_or_advise(next(built).value, 0.0)
                self.window.settle()
                tried.append((time.perf_counter() - begin) / together)
        self._begin()
        return self.world.from_main(statistics.median(tried))  # robust to outliers

    def batches(self, step: int) -> Sequence[_B]:
        """Return the job's batches, in pinned memory for a GPU."""
        built = self.job.batches(step)
        if self.device.type != "cuda":
            return built
        own = self._own(built)
        return [batch.pinned() if number in own else batch for number, batch in enumerate(built)]

    def _own(self, batches: Sequence[_B]) -> range:
        """The batches of a step that this process computes."""
        if self.world.size == 1 or self.job.together:
            return range(len(batches))
        return divide([batch.n_tokens for batch in batches], self.world.size)[self.world.rank]

    def run(self) -> Outcome:
        """Train up to `config.steps`, from the newest checkpoint in `job.out` if there is one."""
        if self.config.compile and self.job.compiled and self.device.type == "cuda":
            self.progress.message(
                "note: train.compile=true replaces qkv's own GPU kernels for the blocks, which are usually faster."
            )
        if self.config.shard and self.world.size == 1:
            self.progress.message("note: train.shard has no effect on one process, which holds all weights.")
        with memory_for(self.device, "between training steps"):
            outcome = self._run()
            if outcome.finished:
                self._join_weights()
            return outcome

    def _join_weights(self) -> None:
        """After the training: the first process has the whole model, and the whole of the best weights."""
        if self.sharded is not None:
            self.optimizer.state.clear()
            self.best.weights = self.sharded.gather(self.best.weights)
            self.sharded.give_back()
            self.sharded, self.parameters = None, []

    def _advance_or_advise(self, batches: Sequence[_B], lr: float) -> None:
        """Take a step; if memory runs out, raise an error that suggests what would fit."""
        try:
            return self.advance(batches, lr)
        except torch.OutOfMemoryError:
            pass  # leave the except block: the exception keeps the failed step's tensors alive
        failed = self.step
        if self.world.size > 1:  # the others are in the middle of the step, and cannot try with this one
            raise InputError(self._advise_smaller())

        def attempt(batches: Sequence[_B]) -> None:
            self._begin()
            self.optimizer.zero_grad(set_to_none=True)
            for _ in range(2):  # only the second step runs with the optimizer's state allocated
                self.advance(batches, 0.0)
            self.window.settle()

        less = savings(self.config, recomputes=bool(self.job.recomputed))
        raise InputError(too_large(self.device, self.job.sizes, failed, attempt, less))

    def _advise_smaller(self) -> str:
        sizes, where = self.job.sizes, f"{out_of_memory(self.device)} in process {self.world.rank}"
        if sizes is None or not sizes.smaller:
            return f"{where}: the batches are too large."
        return f"{where}: a batch of {sizes.size:,} {sizes.unit} is too large. {sizes.settings(sizes.smaller[0])}"

    def _run(self) -> Outcome:
        job, config, progress, world = self.job, self.config, self.progress, self.world
        self.restore()
        self._check_equal()
        started = self.step
        if started >= self.last_step or self.gives_up:
            return Outcome(started, started, finished=True)
        peak = measure_peak(self.device, PRECISIONS[config.precision]) if job.flops else None
        peak = None if peak is None else peak * world.size
        log = self._open_log()
        progress.start(self.step, self.last_step)
        clock = Clock()
        try:
            with interruptible() as self.interruption:
                for built in self._batches_to_come():
                    lr = self.lr_at(self.step)
                    self._advance_or_advise(built.value, lr)
                    clock.add(built, job.flops)
                    if self.step == started + 1 and len(built.value) < world.size and not job.together:
                        progress.message(
                            f"note: a step of this run has {len(built.value)} batches, fewer than the {world.size} "
                            "processes, of which some have nothing to do."
                        )
                    self._log_samples(log, len(built.value))
                    if world.size == 1:
                        self.stopping = self.interruption.signal
                    last, stop = self.step == self.last_step, self.stopping is not None
                    if self.step % config.log_every == 0 or last:
                        figures = self.figures()
                        log.write("log.jsonl", {"step": self.step, **figures, "lr": lr})
                        timing = clock.lap(peak)
                        log.write("timing.jsonl", {"step": self.step, **timing})
                        progress.step(self.step, figures | timing)
                    with clock.stopped():
                        if job.evaluate and (self.step % config.evaluate_every == 0 or last):
                            self.stop_if_lost()
                            with nullcontext() if self.sharded is None else self.sharded.whole():
                                result = world.from_main(self._evaluate() if world.is_main else {})
                            self._check(result)
                            log.write("log.jsonl", {"step": self.step, "evaluation": result})
                            progress.message(f"step {self.step:,}: {summary(result, job.best_by)}")
                            if job.best_by:
                                weights = self.trained() if world.is_main or self.sharded else {}
                                self.best.offer(self.step, result[job.best_by], result.get("loss", math.inf), weights)
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
                        return Outcome(started, self.step, finished=False, signal=self.stopping)
        finally:
            log.close()
        return Outcome(started, self.step, finished=True)

    def _open_log(self) -> Log | Unwritten:
        if not self.world.is_main:
            return Unwritten()
        more = () if self.samples is None else (SAMPLES,)
        return Log(self.job.out, self.step, self.progress.log, *more)

    def _log_samples(self, log: Log | Unwritten, batches: int) -> None:
        """Write a hash of every batch of the step, made by the process that computed it."""
        if self.samples is None:
            return
        found = self.samples if self.job.together else [int(one) for one in self.world.sum(self.samples)]
        log.write(SAMPLES, {"step": self.step, "samples": [f"{one:013x}" for one in found]})
        assert len(found) == batches

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

    def _start_again(self, log: Log | Unwritten) -> None:
        assert self.job.renew is not None
        if self.sharded is None:
            self.job.renew()
        else:
            self.sharded.renew(self.job.renew)
        self.origin = self.step
        self.window = self._new_window()
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
        """Return the trainable weights; if they are divided, the own rows of them."""
        if self.sharded is not None:
            return self.sharded.trained()
        return {name: parameter for name, parameter in self.job.model.named_parameters() if parameter.requires_grad}

    def take_best(self) -> None:
        """Restore the weights of the best evaluation, if there was one."""
        with torch.no_grad():
            for name, parameter in self.trained().items():
                if self.best.weights:
                    parameter.copy_(self.best.weights[name])

    def restore(self) -> None:
        found = self._latest_checkpoint()
        if found is None:
            return
        try:
            rows = {} if self.sharded is None else self.sharded.rows
            weights, stored = self.trained(), found.read("model", rows)
            if {name: part.shape for name, part in weights.items()} != {n: part.shape for n, part in stored.items()}:
                raise KeyError
            with torch.no_grad():
                for name, part in weights.items():
                    part.copy_(stored[name])
            if found.step != found.state.get("origin"):  # a new attempt begins with a new optimizer
                as_state = {} if self.sharded is None else {"as_state": self.sharded.as_state}
                restore_optimizer(self.network, self.optimizer, found.read("optimizer", rows), **as_state)
        except (RuntimeError, KeyError):
            raise InputError(
                f"{found.path} holds another model than the settings describe. Restore the settings that the run was "
                "started with, or start another run."
            ) from None
        self.scaler.load_state_dict(dict(found.state["scaler"]))
        self.window = self._new_window(found.state["window"])
        self.step, self.origin = found.step, found.state.get("origin", 0)
        if best := found.state.get("best"):
            value = -math.inf if best["value"] is None else best["value"]
            lowest = math.inf if best["lowest"] is None else best["lowest"]
            self.best = Best(best["step"], value, best["waited"], lowest, found.read("best", rows))
        solo = {"processes": 1, "shard": False}
        before = solo | found.state["environment"]
        for name, value in (solo | self._environment()).items():
            if before.get(name) == value:
                continue
            if name == "processes":
                self.progress.message(
                    f"note: the run was saved by {before[name]} process{'' if before[name] == 1 else 'es'} and resumes "
                    f"with {value}: the same samples, masks and order, equal up to rounding. With the same number it "
                    "would end with the same bytes."
                )
            elif name == "shard":
                if before["processes"] == self.world.size:
                    self.progress.message(
                        "note: train.shard has changed since the run was saved: the same samples, masks and order, "
                        "equal up to rounding. Unchanged, it would end with the same bytes."
                    )
            elif name != "threads" or before["processes"] == self.world.size:
                self.progress.message(
                    f"warning: the run was started with {name} {before.get(name)} and resumes with {value}: "
                    "its results may differ from an uninterrupted run in the last digits."
                )

    def _latest_checkpoint(self) -> run_folder.Checkpoint | None:
        """The newest intact checkpoint; which one that is, the first process decides."""
        folder, world = self.job.out / "checkpoints", self.world
        if world.size == 1:
            return run_folder.latest_checkpoint(folder, self.progress.message)
        found = run_folder.latest_checkpoint(folder, self.progress.message) if world.is_main else None
        name = world.from_main(None if found is None else found.path.name)
        return found if world.is_main or name is None else run_folder.open_checkpoint(folder / name, verify=False)

    def advance(self, batches: Sequence[_B], lr: float) -> None:
        """Take one optimizer step over all `batches`, as if they were one; this process computes its share of them."""
        job, own = self.job, self._own(batches)
        if not self.network.training:  # setting the mode of every module takes longer than a small step
            self.network.train()
        counts = [job.objective.counts(batch) for batch in batches]
        totals = {name: sum(count[name] for count in counts) for name in counts[0]}
        shares = {name: weight / max(1, totals[name]) for name, weight in job.objective.weights.items()}
        if self.gradients is not None:
            self.gradients.begin()
        with self.around:
            for number, (batch, count) in enumerate(zip(batches, counts, strict=True)):
                if number not in own:
                    for name in count:
                        self.window.add(name, None, None, count[name])
                    continue
                terms = self._terms(number, batch)
                loss = torch.stack([term.loss * shares[name] for name, term in terms.items()]).sum()
                if self.gradients is not None and number == own[-1]:
                    self.gradients.arm()
                if loss.requires_grad or not job.together:  # together, a process may have no part in it
                    self.scaler.scale(loss).backward()
                for name, term in terms.items():
                    if job.together and not self.world.is_main:  # all have the same figures
                        self.window.add(name, None, None, count[name])
                    else:
                        self.window.add(name, term.loss, term.correct, count[name])
            if self.sharded is not None:  # as many passes as in the other processes
                smallest = min(range(len(batches)), key=lambda number: batches[number].n_tokens)
                for _ in range(len(own), self.sharded.passes([batch.n_tokens for batch in batches])):
                    terms = self._terms(smallest, batches[smallest])
                    self.scaler.scale(0.0 * torch.stack([term.loss for term in terms.values()]).sum()).backward()
        if not own:
            self.scaler.scale(torch.zeros((), device=self.device))  # what it would be without a batch is not defined
        self._exchange(batches, own)
        with NamingLostPeers():  # of divided gradients, all learn whether one overflows
            self.scaler.unscale_(self.optimizer)
        norm = self._clip()
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["scale"]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        # in fp16 a step whose gradient overflows is skipped, and the loss scale is reduced
        overflows = self.scaler.is_enabled()
        self.window.step(self.step, norm, sum(batch.n_tokens for batch in batches), overflows=overflows)

    def _terms(self, number: int, batch: _B) -> Mapping[str, Term]:
        """The forward pass of a batch of the step."""
        config = self.config
        # for dropout: by the batch, so that it does not matter which process computes it
        seed_draws(self.device, step_seed(config.seed, self.step, number))
        batch = batch.to(self.device, non_blocking=True)
        with torch.autocast(self.device.type, PRECISIONS[config.precision], enabled=config.precision != "fp32"):
            if self.sharded is not None:
                return self.sharded.forward(batch)
            return self.job.objective.terms(self.job.model, batch)

    def _clip(self) -> Tensor:
        """Limit the norm of the gradient of the step; returns the norm."""
        if self.sharded is not None:
            return self.sharded.clip(self.config.clip)
        return nn.utils.clip_grad_norm_(self.parameters, self.config.clip, foreach=True)

    def _exchange(self, batches: Sequence[_B], own: range) -> None:
        """Sum the gradients over all processes, and agree on signals."""
        if self.samples is not None:
            self.samples = [fingerprint(batch) if number in own else 0 for number, batch in enumerate(batches)]
        if self.gradients is not None:
            self.stopping = self.gradients.finish(self.interruption.signal or 0) or None
            self.exchange_states(own, len(batches))
        elif self.sharded is not None:  # whose gradients are summed in the backward passes
            self.stopping = self.world.agree(self.interruption.signal or 0) or None

    def exchange_states(self, own: range, number: int) -> None:
        """Exchange what a model carries from step to step, of which each process has changed the part of its batches
        `own` among `number`; most models carry nothing."""

    def figures(self) -> dict[str, Any]:
        """Return the means of the window and start a new one."""
        self.stop_if_lost()
        line = self.window.record(self.job.objective.weights)
        self.window = self._new_window()
        return line

    def evaluate(self) -> dict[str, Any]:
        """Evaluate the model, in this process."""
        self.stop_if_lost()
        result = self._evaluate()
        self._check(result)
        return result

    def _evaluate(self) -> dict[str, Any]:
        assert self.job.evaluate is not None
        self.job.model.eval()
        with torch.inference_mode(), memory_for(self.device, f"in the evaluation after step {self.step:,}"):
            result = self.job.evaluate(self.job.model)
        self.job.model.train()
        return result

    def _check(self, result: Mapping[str, Any]) -> None:
        if any(isinstance(value, float) and math.isnan(value) for value in result.values()):
            self.window.lost_at = self.step  # the training loss was still finite
            self.stop_if_lost()

    def save(self) -> None:
        self.stop_if_lost()
        self._check_equal()
        if not self.world.is_main and self.sharded is None:
            return
        state: dict[str, Any] = {
            "window": self.window.state(),
            "scaler": self.scaler.state_dict(),
            "environment": self._environment(),
        }
        tensors = {"model": self.trained(), "optimizer": optimizer_tensors(self.network, self.optimizer)}
        if self.origin:
            state["origin"] = self.origin
        if self.job.best_by:
            state["best"] = self.best.state()
            if self.best.weights:
                tensors["best"] = self.best.weights
        folder, keep = self.job.out / "checkpoints", self.config.keep
        if self.sharded is None:
            run_folder.save_checkpoint(folder, self.step, tensors, state, keep)
        else:
            self.sharded.save(folder, self.step, tensors, state, keep)

    def _check_equal(self) -> None:
        if self.sharded is None:
            self.world.check_equal(self.trained(), self.step)

    def _environment(self) -> dict[str, Any]:
        """That on which rounding depends; one process is not mentioned."""
        several = {"processes": self.world.size} if self.world.size > 1 else {}
        divided = {} if self.sharded is None else {"shard": True}
        return several | divided | software(self.device)

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


def step_seed(seed: int, step: int, number: int = 0) -> int:
    """The seed of a step, and of its batches after the first."""
    entropy = (seed, step, number) if number else (seed, step)
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)


def recompute(module: nn.Module) -> None:
    """Store no activations of this module: its forward runs again in the backward pass."""
    from torch.utils.checkpoint import checkpoint as recomputed

    plain = module.forward
    object.__setattr__(module, "forward", partial(recomputed, plain, use_reentrant=False))
