"""Progress of a training run: a bar on a terminal, plain lines in a log file; and the peak speed of the machine."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import torch


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


class Silent:
    """No output, for tests and for callers with their own display."""

    def start(self, step: int, steps: int) -> None: ...
    def step(self, step: int, figures: Mapping[str, Any]) -> None: ...
    def message(self, text: str) -> None: ...


class Lines:
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
        print(text, file=sys.stderr, flush=True)

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
            TextColumn("training"),
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
        self.shown.update(self.task, completed=step, figures=describe_step(figures))

    def message(self, text: str) -> None:
        self.shown.console.print(text, markup=False)

    def __enter__(self) -> Self:
        self.shown.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shown.stop()


def for_stderr() -> Lines:
    """Return a bar for a terminal, lines otherwise."""
    return _Bar() if sys.stderr.isatty() else Lines()


def describe_step(figures: Mapping[str, Any]) -> str:
    """
    >>> describe_step({"loss": 6.81234, "tokens_per_second": 12345.6, "share_of_peak": 0.4})
    'loss 6.812  12,346 tokens/s  40 % of peak'
    """
    parts = [f"loss {figures['loss']:.3f}"]
    if "tokens_per_second" in figures:
        parts.append(f"{figures['tokens_per_second']:,.0f} tokens/s")
    if "share_of_peak" in figures:
        parts.append(f"{figures['share_of_peak']:.0%} of peak".replace("%", " %"))
    return "  ".join(parts)


def clock(seconds: float) -> str:
    """
    >>> clock(3725)
    '1:02:05'
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
