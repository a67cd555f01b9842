"""Logs and progress of a run: `log.jsonl`, reproducible for the same config, `timing.jsonl`, and a progress bar."""

import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, Self, TextIO, TypeVar

import torch
from torch import Tensor

from qkv.errors import InputError
from qkv.files import write_text
from qkv.text.messages import translate
from qkv.train.distributed import current_world

ASIDE = 1000  # maximum number of steps whose figures stay on the device


class Window:
    """Sums since the last logged step; part of every checkpoint.

    The figures of a step stay on the device until they are needed, so that no step waits for the transfer.

    In a run of several processes each has the figures of its own batches, and `exchange` sums vectors over all of them.
    Figures are exchanged batch by batch and then added in the order of the batches, as one process does: a log does not
    depend on when they were exchanged, nor on who computed what.
    """

    def __init__(
        self,
        state: Mapping[str, Any] | None = None,
        exchange: Callable[[Sequence[float]], list[float]] | None = None,
    ) -> None:
        self.exchange = exchange
        state = state or {"sums": {}, "counts": {}, "tokens": 0, "steepest": 0.0}
        self.sums: dict[str, float] = dict(state["sums"])
        self.counts: dict[str, int] = dict(state["counts"])
        self.tokens: int = state["tokens"]
        self.steepest: float = state["steepest"]  # largest gradient norm
        self.lost_at: int | None = None  # first step with a NaN or infinity
        self._aside: list[_Step] = []
        self._parts: list[_Part] = []  # of the current step

    def add(self, name: str, loss: Tensor | None, correct: Tensor | None, count: int) -> None:
        """Add one term of one batch. None: another process computes it, if the batch has this term at all."""
        assert loss is not None or self.exchange is not None
        figures = None if loss is None or correct is None else (loss.detach(), correct.detach())
        self._parts.append(_Part(name, count, figures))

    def step(self, step: int, gradient_norm: Tensor, tokens: int, *, overflows: bool = False) -> None:
        """End a step. `overflows`: an infinite gradient norm is expected (fp16) and no error."""
        self._aside.append(_Step(step, self._parts, gradient_norm.detach(), overflows))
        self._parts = []
        self.tokens += tokens
        if len(self._aside) >= ASIDE:
            self.settle()

    def settle(self) -> None:
        """Fetch the figures from the device and add them up. This waits for the device."""
        aside, self._aside = self._aside, []
        if not aside:
            return
        parts = [part for one in aside for part in one.parts]
        computed = [part.figures for part in parts if part.figures is not None]
        losses, hits = (iter(_fetch([pair[which] for pair in computed])) for which in (0, 1))
        figures = [(1.0, next(losses), next(hits)) if part.figures else (0.0, 0.0, 0.0) for part in parts]
        if self.exchange is not None:
            summed = iter(self.exchange([value for triple in figures for value in triple]))
            figures = list(zip(summed, summed, summed, strict=True))
        norms = _fetch([one.norm for one in aside])
        triples = iter(figures)
        for one, norm in zip(aside, norms, strict=True):
            finite = one.overflows or math.isfinite(norm)
            for part in one.parts:
                there, loss, correct = next(triples)
                if not there:
                    continue
                for key, value in ((f"{part.name}_loss", loss), (f"{part.name}_accuracy", correct)):
                    self.sums[key] = self.sums.get(key, 0.0) + value
                    self.counts[key] = self.counts.get(key, 0) + part.targets
                    finite = finite and math.isfinite(value)
            self.steepest = math.nan if math.isnan(norm) else max(self.steepest, norm)
            if not finite and self.lost_at is None:
                self.lost_at = one.step

    def record(self, weights: Mapping[str, float]) -> dict[str, float | int | None]:
        """Return the means per target; `loss` is the minimised value."""
        self.settle()
        means = {key: value / max(1, self.counts[key]) for key, value in self.sums.items()}
        loss = sum(weight * means[f"{name}_loss"] for name, weight in weights.items() if f"{name}_loss" in means)
        # JSON has no infinity, which fp16 produces when its loss scale overflows
        return {
            "loss": loss,
            **means,
            "gradient_norm": self.steepest if math.isfinite(self.steepest) else None,
            "tokens": self.tokens,
        }

    def state(self) -> dict[str, Any]:
        self.settle()
        return {"sums": self.sums, "counts": self.counts, "tokens": self.tokens, "steepest": self.steepest}


class _Part(NamedTuple):
    """One term of one batch."""

    name: str
    targets: int
    figures: tuple[Tensor, Tensor] | None  # loss and number of correct predictions; None: not computed here


class _Step(NamedTuple):
    step: int
    parts: list[_Part]
    norm: Tensor
    overflows: bool


def _fetch(scalars: Sequence[Tensor]) -> list[float]:
    """Copy scalars from the device in one transfer."""
    found: list[float] = torch.stack(list(scalars)).cpu().double().tolist() if scalars else []
    return found


LOG_SAMPLES = "QKV_LOG_SAMPLES"
"""If this variable of the environment is set, a run writes RUN/samples.jsonl: hashes of the batches of every step."""
SAMPLES = "samples.jsonl"


def fingerprint(batch: object) -> int:
    """A hash of all tensors of a batch, with 52 bits, so that a float64 holds it."""
    digest = hashlib.sha256()

    def read(value: object) -> None:
        if isinstance(value, Tensor):
            digest.update(f"{tuple(value.shape)}{value.dtype}".encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        elif is_dataclass(value) and not isinstance(value, type):
            for one in fields(value):
                read(getattr(value, one.name))
        elif isinstance(value, Mapping):
            for name in sorted(value):
                digest.update(str(name).encode())
                read(value[name])
        elif isinstance(value, tuple | list):
            for one in value:
                read(one)
        else:
            digest.update(repr(value).encode())

    read(batch)
    return int(digest.hexdigest()[:13], 16)


class Log:
    """Appends lines to the log files; on opening, lines after the resumed step are removed.

    If TensorBoard is installed, the same numbers are written for it too.
    """

    def __init__(
        self,
        folder: Path,
        step: int,
        follow: Callable[[Mapping[str, Any]], None] | None = None,
        *more: str,
    ) -> None:
        """`more`: names of further files of lines."""
        self.folder, self.follow = folder, follow
        self.files: dict[str, TextIO] = {}
        for name in ("log.jsonl", "timing.jsonl", *more):
            kept = "".join(line for line in _lines(folder / name) if _step_of(line) <= step)
            write_text(folder / name, kept)
            self.files[name] = (folder / name).open("a", encoding="utf-8", newline="\n")
        self.board = _board(folder / "tensorboard", step)

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        with self._writing(name):
            self.files[name].write(json.dumps(content, ensure_ascii=False) + "\n")
            self.files[name].flush()
        if self.board is not None and name in ("log.jsonl", "timing.jsonl"):
            for key, value in _numbers(content):
                self.board.add_scalar(key, value, content["step"])
        if self.follow is not None and name == "log.jsonl":
            self.follow(content)

    def flush(self) -> None:
        """Flush to disk."""
        for name, file in self.files.items():
            with self._writing(name):
                os.fsync(file.fileno())

    def close(self) -> None:
        for file in self.files.values():
            with suppress(OSError):  # every line was already flushed, or its error reported
                file.close()
        if self.board is not None:
            self.board.close()

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"{self.folder / name} cannot be written: {error.strerror or error}. The checkpoints are intact: "
                "the run can be resumed."
            ) from error


class Board(Protocol):
    def add_scalar(self, name: str, value: float, step: int) -> None: ...
    def close(self) -> None: ...


def _board(folder: Path, step: int) -> Board | None:
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    # hides what an earlier process wrote for later steps
    writer: Board = SummaryWriter(str(folder), purge_step=step + 1)
    return writer


def _numbers(content: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """
    >>> list(_numbers({"step": 3, "loss": 2.5, "evaluation": {"masked_loss": 2.75, "samples": []}}))
    [('loss', 2.5), ('evaluation/masked_loss', 2.75)]
    """
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}/{name}", number) for name, number in _numbers(value))
        elif isinstance(value, int | float) and key != "step":
            yield key, value


def _lines(file: Path) -> Iterator[str]:
    """Yield complete lines; a killed process may leave an incomplete last line."""
    if file.exists():
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.endswith("\n"):
                    yield line


def _step_of(line: str) -> float:
    """Return the step of a line; infinity for a damaged line, as a power failure may leave."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf


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


class Sized(Protocol):
    @property
    def n_tokens(self) -> int: ...


_S = TypeVar("_S", bound=Sized)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Built(Generic[_T]):
    value: _T
    waited: float  # seconds the loop waited for it
    building: float  # seconds to build it, mostly during earlier steps


@dataclass
class Clock:
    """Training time since the last lap."""

    began: float = field(default_factory=time.perf_counter)
    excluded: float = 0.0
    tokens: int = 0
    flops: float = 0.0
    waited: float = 0.0
    building: float = 0.0

    def add(self, built: Built[Sequence[_S]], flops: Callable[[_S], float] | None) -> None:
        self.tokens += sum(batch.n_tokens for batch in built.value)
        self.flops += sum(map(flops, built.value)) if flops else 0.0
        self.waited += built.waited
        self.building += built.building

    def lap(self, peak: float | None) -> dict[str, float]:
        seconds = max(1e-9, time.perf_counter() - self.began - self.excluded)
        line = {
            "seconds": round(seconds, 3),
            "tokens_per_second": round(self.tokens / seconds, 1),
            "waited_for_batches": round(self.waited / seconds, 4),  # shares of the time
            "building_batches": round(self.building / seconds, 4),
        }
        if peak and self.flops:
            line["share_of_peak"] = round(self.flops / seconds / peak, 4)
        self.began, self.excluded, self.tokens, self.flops = time.perf_counter(), 0.0, 0, 0.0
        self.waited = self.building = 0.0
        return line

    @contextmanager
    def stopped(self) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.excluded += time.perf_counter() - begin


# --- Progress of a training run: a bar on a terminal, plain lines in a log file; and the peak speed of the machine.


def measure_peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """Measure the FLOP/s of a large matrix product, with which the speed of steps is compared."""
    side = 4096 if device.type == "cuda" else 768
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))

    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for _ in range(3):
        a @ b
    finish()
    products, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        for _ in range(4):
            a @ b
        finish()
        products += 4
    return 2 * side**3 * products / elapsed


class Progress(Protocol):
    def start(self, step: int, steps: int) -> None: ...
    def step(self, step: int, figures: Mapping[str, Any]) -> None: ...
    def message(self, text: str) -> None: ...
    def log(self, line: Mapping[str, Any]) -> None:
        """A line was written to log.jsonl."""

    def end(self, result: Mapping[str, Any]) -> None:
        """The run is finished."""


class Silent:
    """No output, for tests and for callers with their own display."""

    def start(self, step: int, steps: int) -> None: ...
    def step(self, step: int, figures: Mapping[str, Any]) -> None: ...
    def message(self, text: str) -> None: ...
    def log(self, line: Mapping[str, Any]) -> None: ...
    def end(self, result: Mapping[str, Any]) -> None: ...


class Callback(Protocol):
    """What follows a run, for experiment trackers; both methods are called in the training process."""

    def on_log(self, line: Mapping[str, Any]) -> None:
        """A line of log.jsonl: step and loss, or step and evaluation."""

    def on_end(self, result: Mapping[str, Any]) -> None:
        """The contents of result.json; of a pretraining the last evaluation."""


class WithCallbacks:
    """A progress display that also calls callbacks."""

    def __init__(self, shown: Progress, callbacks: Sequence[Callback]) -> None:
        self.shown, self.callbacks = shown, callbacks
        self.start, self.step, self.message = shown.start, shown.step, shown.message

    def log(self, line: Mapping[str, Any]) -> None:
        for one in self.callbacks:
            one.on_log(line)

    def end(self, result: Mapping[str, Any]) -> None:
        for one in self.callbacks:
            one.on_end(result)


class Lines(Silent):
    """One line every few seconds on standard error."""

    def __init__(self, every: float = 5.0) -> None:
        self.every = every
        self.last = 0.0
        self.steps = 0
        self.from_step, self.began = 0, 0.0

    def start(self, step: int, steps: int) -> None:
        self.from_step, self.steps, self.began = step, steps, time.monotonic()

    def step(self, step: int, figures: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if now - self.last < self.every and step < self.steps:
            return
        self.last = now
        left = (now - self.began) / max(1, step - self.from_step) * (self.steps - step)
        self.message(f"step {step:,}/{self.steps:,}  {describe_step(figures)}  {clock(left)} left")

    def message(self, text: str) -> None:
        print(translate(text), file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class _Bar(Lines):
    """The same figures next to a progress bar."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.shown = RichProgress(
            TextColumn(translate("training")),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False),
        )

    def start(self, step: int, steps: int) -> None:
        for before in self.shown.task_ids:  # of the previous seed
            self.shown.remove_task(before)
        self.task = self.shown.add_task("training", total=steps, completed=step, figures="")

    def step(self, step: int, figures: Mapping[str, Any]) -> None:
        self.shown.update(self.task, completed=step, figures=translate(describe_step(figures)))

    def message(self, text: str) -> None:
        self.shown.console.print(translate(text), markup=False)

    def __enter__(self) -> Self:
        self.shown.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shown.stop()


class _Quiet(Lines):
    """Nothing, for a process whose messages another one prints too."""

    def message(self, text: str) -> None: ...


def for_stderr() -> Lines:
    """Return a bar for a terminal, lines otherwise; of several processes only the first says something."""
    if not current_world().is_main:
        return _Quiet()
    return _Bar() if sys.stderr.isatty() else Lines()


def describe_step(figures: Mapping[str, Any]) -> str:
    """
    >>> describe_step({"loss": 6.81234, "tokens_per_second": 12345.6, "share_of_peak": 0.4})
    'loss 6.812  12,346 tokens/s  40 % of peak'
    """
    speed = f"  {figures['tokens_per_second']:,.0f} tokens/s" if "tokens_per_second" in figures else ""
    peak = f"  {100 * figures['share_of_peak']:.0f} % of peak" if "share_of_peak" in figures else ""
    return f"loss {figures['loss']:.3f}{speed}{peak}"


def clock(seconds: float) -> str:
    """
    >>> clock(3725)
    '1:02:05'
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
