"""Parts of a work on several threads: in order, each alone, errors told."""

import threading
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from qkv.nn.cpu.parallel import run_parts


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_results_are_in_order_and_threads_compute_alone() -> None:
    def part(number: int) -> tuple[int, int, str, bool]:
        name = threading.current_thread().name
        return number, torch.get_num_threads(), name, torch.is_grad_enabled() or torch.is_inference_mode_enabled()

    found = run_parts([partial(part, number) for number in range(20)])
    assert [one[0] for one in found] == list(range(20))
    assert {one[1] for one in found} == {1} and not any(one[3] for one in found)
    assert all(one[2].startswith("qkv-part-") for one in found)
    assert torch.get_num_threads() == 3
    with torch.inference_mode():
        assert run_parts([torch.is_inference_mode_enabled] * 2) == [True, True]


def test_one_part_or_one_thread_needs_no_other() -> None:
    assert run_parts([threading.current_thread]) == [threading.current_thread()]
    assert run_parts([]) == []
    torch.set_num_threads(1)
    assert set(run_parts([threading.current_thread] * 3)) == {threading.current_thread()}


def test_an_error_is_raised_and_ends_the_work() -> None:
    done: list[int] = []

    def fail() -> None:
        raise ValueError("part 0")

    with pytest.raises(ValueError, match="part 0"):
        run_parts([fail, *([lambda: done.append(1)] * 50)])
    assert torch.get_num_threads() == 3
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("qkv-part-")]


def test_threads_that_cannot_start_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "qkv-part-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        run_parts([lambda: None] * 5)
    assert torch.get_num_threads() == 3
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("qkv-part-")]
