"""Epochs that are drawn once each, whoever asks, and the next one before anybody needs it.

Drawing all rows of an epoch takes seconds on a large corpus. Several threads build batches at a time, and those that
come to a new epoch together must wait for one drawing, not each make their own; better still, nobody waits.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

KEPT = 2  # around the turn of an epoch both are asked for


class Epochs(Generic[T]):
    """The drawings by number; `draw` is a pure function, so one that was dropped is drawn again, and equal.

    >>> epochs = Epochs(lambda number: [number] * 3)
    >>> epochs(1), epochs(1) is epochs(1)
    ([1, 1, 1], True)
    """

    def __init__(self, draw: Callable[[int], T]) -> None:
        self.draw = draw
        self._lock = Lock()
        self._drawn: dict[int, Future[T]] = {}  # the one last asked for comes last

    def __call__(self, number: int) -> T:
        with self._lock:
            drawn = self._drawn.pop(number, None)
            found = drawn if drawn is not None else Future()
            self._drawn[number] = found
            for old in list(self._drawn)[:-KEPT]:
                del self._drawn[old]
        if drawn is None:
            try:
                found.set_result(self.draw(number))
            except BaseException as error:
                found.set_exception(error)
                with self._lock:
                    self._drawn.pop(number, None)
        return found.result()

    def begin(self, number: int) -> None:
        """Draw it in the background, unless it is there or under way."""
        with self._lock:
            wanted = number not in self._drawn
        if wanted:
            # it is not waited for at the end of the process: nothing but time is lost
            Thread(target=self, args=(number,), name="qkv-epoch", daemon=True).start()
