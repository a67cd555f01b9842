"""Prefetching of batches in threads, and handling of Ctrl-C during training."""

import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Generic, TypeVar

import torch

from qkv.train.device import count_cores

_T = TypeVar("_T")

_TURN = 1e-5
"""Thread switch interval in seconds while batches are built: a loop that feeds a GPU waits for the interpreter lock
hundreds of times a step, and Python's default of 5 ms is longer than a short step."""


@dataclass(frozen=True)
class Built(Generic[_T]):
    value: _T
    waited: float  # seconds the loop waited for it
    building: float  # seconds to build it, mostly during earlier steps


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
    with short_turns, ThreadPoolExecutor(ahead, thread_name_prefix="qkv-batches") as pool:
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


class ShortTurns:
    """Context with a short thread switch interval, counted because the interval is one setting for the process."""

    def __init__(self) -> None:
        self.lock, self.inside, self.before = threading.Lock(), 0, 0.0

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.before = sys.getswitchinterval()
                sys.setswitchinterval(min(self.before, _TURN))
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                sys.setswitchinterval(self.before)


short_turns = ShortTurns()


def batches_ahead(device: torch.device) -> int:
    """Return how many batches to build in advance: one on a CPU, where training needs the cores."""
    return 1 if device.type == "cpu" else max(1, min(8, count_cores() // 2))


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
