"""Two things that happen beside the loop: the next batch is built, and somebody presses Ctrl-C."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Built(Generic[T]):
    value: T
    waited: float  # seconds the loop stood still for it
    building: float  # seconds it took, most of them beside the step before


def built_ahead(build: Callable[[int], T], start: int, stop: int) -> Iterator[Built[T]]:
    """build(start), …, build(stop − 1), each begun while the one before is in use."""

    def timed(number: int) -> tuple[T, float]:
        begin = time.perf_counter()
        return build(number), time.perf_counter() - begin

    if start >= stop:
        return
    with ThreadPoolExecutor(1, thread_name_prefix="qkv-batches") as pool:
        upcoming = pool.submit(timed, start)
        for number in range(start, stop):
            begin = time.perf_counter()
            value, building = upcoming.result()
            waited = time.perf_counter() - begin
            if number + 1 < stop:
                upcoming = pool.submit(timed, number + 1)
            yield Built(value, waited, building)


@dataclass
class Interruption:
    signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Note the first SIGINT or SIGTERM and go on; the second ends the process as it always would."""
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
