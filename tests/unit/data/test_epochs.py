"""Epochs: one drawing for many threads, the next one begun early, errors told to everybody who asks."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from qkv.data.batch import Epochs


def test_threads_share_one_drawing() -> None:
    drawn: list[int] = []
    go = Event()

    def draw(number: int) -> list[int]:
        drawn.append(number)
        go.wait(10)
        return [number]

    epochs = Epochs(draw)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(epochs, 3) for _ in range(4)]
        go.set()
        found = [one.result() for one in asked]
    assert drawn == [3] and all(one is found[0] for one in found)


def test_the_two_last_asked_for_are_kept() -> None:
    drawn: list[int] = []
    epochs = Epochs(drawn.append)
    for number in (0, 1, 0, 1, 2, 1, 2, 0):
        epochs(number)
    assert drawn == [0, 1, 2, 0]


def test_the_next_one_is_begun_once() -> None:
    drawn: list[int] = []
    begun = Event()

    def draw(number: int) -> int:
        drawn.append(number)
        begun.set()
        return number

    epochs = Epochs(draw)
    epochs.begin(1)
    assert begun.wait(10)
    assert epochs(1) == 1
    epochs.begin(1)
    assert drawn == [1]


def test_an_error_is_told_and_tried_again() -> None:
    def draw(number: int) -> int:
        raise OSError("the disk is gone")

    epochs = Epochs(draw)
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            epochs(0)
