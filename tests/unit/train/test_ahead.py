"""What happens beside the loop: batches are built in order and not too many, whatever each of them takes."""

import os
import sys
import threading
import time
from itertools import islice

import pytest
import torch

from qkv.train.ahead import batches_ahead, build_ahead


@pytest.mark.parametrize("ahead", [1, 3, 20])
def test_the_order_is_that_of_the_steps(ahead: int) -> None:
    def build(step: int) -> int:
        time.sleep(0.002 * (step % 3))  # some are ready before those that come first
        return step * step

    assert [built.value for built in build_ahead(build, 2, 12, ahead)] == [step * step for step in range(2, 12)]
    assert list(build_ahead(build, 3, 3, ahead)) == []


def test_no_more_are_built_than_asked_for() -> None:
    begun: list[int] = []
    lock = threading.Lock()

    def build(step: int) -> int:
        with lock:
            begun.append(step)
        return step

    for built in islice(build_ahead(build, 0, 100, 4), 10):
        assert max(begun, default=0) <= built.value + 4
    assert len(begun) <= 14


def test_several_are_built_at_a_time() -> None:
    together = threading.Barrier(3, timeout=10)

    def build(step: int) -> int:
        return together.wait()

    assert {built.value for built in build_ahead(build, 0, 3, 3)} == {0, 1, 2}


def test_an_error_comes_when_its_step_does() -> None:
    def build(step: int) -> int:
        if step == 2:
            raise KeyboardInterrupt
        return step

    found = build_ahead(build, 0, 9, 4)
    assert [next(found).value, next(found).value] == [0, 1]
    with pytest.raises(KeyboardInterrupt):
        next(found)


def test_turns_are_short_while_batches_are_built_and_no_longer() -> None:
    before = sys.getswitchinterval()
    inside = [sys.getswitchinterval() for _ in build_ahead(lambda step: step, 0, 3)]
    assert max(inside) < 1e-4 < before
    assert sys.getswitchinterval() == before
    # two at once: the last one out
    first, second = (build_ahead(lambda step: step, 0, 3) for _ in range(2))
    assert next(first).value == next(second).value == 0
    first.close()
    assert sys.getswitchinterval() < 1e-4
    second.close()
    assert sys.getswitchinterval() == before


def test_a_cpu_keeps_its_cores_for_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(16), raising=False)
    assert (batches_ahead(torch.device("cpu")), batches_ahead(torch.device("cuda"))) == (1, 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(1), raising=False)
    assert batches_ahead(torch.device("cuda")) == 1
