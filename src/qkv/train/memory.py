"""When a batch is too large for a GPU's memory: find one that is not, and say how to get it.

What this file does NOT do: go on with it. How large a batch is stands in a run's settings, and a run does what they
say.
"""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

B = TypeVar("B")


@dataclass(frozen=True)
class Sizes(Generic[B]):
    """How large the batches of a job are, and how they could be smaller without a step becoming another one."""

    size: int
    unit: str  # rows, tokens
    smaller: Sequence[int]  # what to try, the largest first
    batches: Callable[[int], Sequence[B]]  # of a step, by their size
    settings: Callable[[int], str]  # how to ask for that size


def divisors(size: int) -> list[int]:
    """Sizes that a batch can be cut into equally, each at most half of the one before.

    >>> divisors(96), divisors(7)
    ([48, 24, 12, 6, 3, 1], [1])
    """
    found: list[int] = []
    for one in range(size // 2, 0, -1):
        if size % one == 0 and 2 * one <= (found[-1] if found else size):
            found.append(one)
    return found


def too_large(device: torch.device, sizes: Sizes[B] | None, attempt: Callable[[Sequence[B]], None]) -> str:
    """The message; `attempt` trains on the batches without moving anything."""
    total = ""
    if device.type == "cuda" and torch.cuda.is_available():
        total = f" ({torch.cuda.get_device_properties(device).total_memory / 2**30:.0f} GiB)"
    where = f"Out of memory on {device}{total}"
    less = "train.recompute=true keeps fewer activations, train.precision=bf16 smaller ones (--set …)."
    if sizes is None:
        return f"{where}: the batches are too large. {less}"
    begin = f"{where}: a batch of {sizes.size:,} {sizes.unit} is too large."
    for size in sizes.smaller:
        if _fits(sizes.batches(size)[:2], attempt):
            found = f"{size:,} {sizes.unit} fit, as was just tried at learning rate 0."
            return f"{begin} {found} {sizes.settings(size)} Or: {less}"
    least = sizes.smaller[-1] if sizes.smaller else sizes.size
    return f"{begin} Not even {least:,} {sizes.unit} fit: take a smaller model or shorter rows. Or: {less}"


def _fits(batches: Sequence[B], attempt: Callable[[Sequence[B]], None]) -> bool:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    try:
        attempt(batches)
    except torch.OutOfMemoryError:
        return False
    return True
