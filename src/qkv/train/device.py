"""Devices and their memory: choose and validate a device, measure the peak, suggest a batch size when memory runs out.

What this file does NOT do: change the batch size. It is a setting of the run, which only the user changes.
"""

import gc
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import torch

from qkv.errors import InputError, did_you_mean
from qkv.train.optim import TrainConfig


def count_cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_memory(device: torch.device) -> int | None:
    """Return the peak memory in bytes: of the GPU if there is one, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def software(device: torch.device) -> dict[str, str | int | None]:
    """Describe the software and hardware on which rounding depends."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    }


class _Counted(Protocol):
    @property
    def n_tokens(self) -> int: ...


_B = TypeVar("_B", bound=_Counted)


@dataclass(frozen=True)
class Sizes(Generic[_B]):
    """The batch size of a job, and smaller ones with the same rows per step."""

    size: int
    unit: str  # rows, tokens
    smaller: Sequence[int]  # sizes to try, largest first
    batches: Callable[[int, int], Sequence[_B]]  # (size, step) → batches
    settings: Callable[[int], str]  # advice: how to set that size


def divisors(size: int) -> list[int]:
    """Return sizes that divide a batch evenly, each at most half of the previous one.

    >>> divisors(96), divisors(7)
    ([48, 24, 12, 6, 3, 1], [1])
    """
    found: list[int] = []
    for one in range(size // 2, 0, -1):
        if size % one == 0 and 2 * one <= (found[-1] if found else size):
            found.append(one)
    return found


def rows_and_accumulation(rows: int, accumulate: int, out: Path) -> str:
    """Return advice how to split the same rows of a step into other batches."""
    again = f"start a new run with --set rows={rows} --set train.accumulate={accumulate}"
    if (out / "config.toml").exists():
        written = f"set rows = {rows}, and accumulate = {accumulate} under [train], in {out / 'config.toml'}"
        again = f"{written} and resume, or {again}"
    return f"For the same rows per step, {again}."


def savings(config: TrainConfig, recomputes: bool) -> str:
    """Return advice on settings that would save memory; `recomputes`: the job supports recomputation.

    >>> savings(TrainConfig(precision="bf16"), recomputes=True)
    'train.recompute=true stores fewer activations (--set …).'
    >>> savings(TrainConfig(precision="bf16"), recomputes=False)
    ''
    """
    left = ["train.recompute=true stores fewer activations"] if recomputes and not config.recompute else []
    left += ["train.precision=bf16 halves most activations"] if config.precision == "fp32" else []
    return f"{', '.join(left)} (--set …)." if left else ""


def too_large(
    device: torch.device, sizes: Sizes[_B] | None, step: int, attempt: Callable[[Sequence[_B]], None], less: str
) -> str:
    """Return the message for a step that does not fit. `attempt` runs batches at learning rate 0, `less` is the advice
    of `savings`."""
    where = out_of_memory(device)
    if sizes is None:
        return f"{where}: the batches are too large. {less}".rstrip()
    begin = f"{where}: a batch of {sizes.size:,} {sizes.unit} is too large."
    less = f" Or: {less}" if less else ""
    for size in sizes.smaller:
        # the two largest: only for the second are gradients already allocated
        largest = sorted(sizes.batches(size, step), key=lambda batch: -batch.n_tokens)[:2]
        if _fits(largest, attempt):
            found = f"{size:,} {sizes.unit} fit (just tried with this step at learning rate 0)."
            return f"{begin} {found} {sizes.settings(size)}{less}"
    least = sizes.smaller[-1] if sizes.smaller else sizes.size
    return f"{begin} Not even {least:,} {sizes.unit} fit: use a smaller model or shorter rows.{less}"


@contextmanager
def memory_for(device: torch.device, what: str) -> Iterator[None]:
    """Context for work that is not a training step: an out-of-memory error there does not suggest smaller batches."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise InputError(
            f"{out_of_memory(device)} {what}, not in a training step. Free memory used by other processes, or "
            "use a smaller model or shorter rows."
        ) from None


def out_of_memory(device: torch.device) -> str:
    total = ""
    if device.type == "cuda" and torch.cuda.is_available():
        total = f" ({torch.cuda.get_device_properties(device).total_memory / 2**30:.0f} GiB)"
    return f"Out of memory on {device}{total}"


def _fits(batches: Sequence[_B], attempt: Callable[[Sequence[_B]], None]) -> bool:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    try:
        attempt(batches)
    except torch.OutOfMemoryError:
        return False
    return True


DEVICES = ("auto", "cpu", "cuda", "mps")
AUTO = DEVICES[0]
"""The device that this machine computes fastest on."""


def use_threads(threads: int | None) -> None:
    """How many CPU threads torch may use, in all of this process; None: as many as before."""
    if threads is not None:
        if threads < 1:
            raise InputError(f"threads must be 1 or more, not {threads}.")
        torch.set_num_threads(threads)


def fastest_device() -> str:
    """Return cuda or mps where torch finds such a device, else cpu."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def describe_device(name: str) -> str:
    """
    >>> describe_device("cpu").startswith("cpu (")
    True
    """
    device = device_named(name)
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        return f"{device} ({found.name}, {found.total_memory / 2**30:.0f} GiB)"
    threads = torch.get_num_threads()
    return f"cpu ({threads} thread{'' if threads == 1 else 's'})" if device.type == "cpu" else str(device)


def seed_draws(device: torch.device, seed: int) -> None:
    """Seed what is drawn on this device and on the CPU.

    `torch.manual_seed` also writes down the stack for each kind of device that is not in use, in case it is later:
    a good part of the time of a small step.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def device_named(name: str) -> torch.device:
    name = fastest_device() if name == AUTO else name
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in DEVICES:
        raise InputError(f"Unknown device '{name}'.{did_you_mean(name, DEVICES)} Use auto, cpu, cuda, cuda:0 or mps.")
    if device.type == "cuda":
        number = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= number:
            found = f"torch finds {number} CUDA devices here" if number else "torch finds no CUDA device here"
            raise InputError(f"Cannot use device '{name}': {found}. Use device 'cpu'.")
    elif device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError(f"Cannot use device '{name}' on this machine. Use device 'cpu'.")
    return device
