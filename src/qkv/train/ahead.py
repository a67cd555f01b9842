"""Batches are built ahead of the training, in threads."""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from qkv.train.device import count_cores
from qkv.train.log import Built

_T = TypeVar("_T")

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
