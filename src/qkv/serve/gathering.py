"""Texts of several requests, tokenized and windowed in one call: those that arrive in one turn of the event loop.

A text alone costs as much in calls of Python and numpy as a hundred texts together; with many clients that send single
texts it is the largest part of a request beside the model.

    gathering = Gathering(embedder.prepare)
    rows, at = await gathering.prepare(text)          # the text is number `at` of the rows
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from qkv.data.batch import Integers
from qkv.data.windows import Rows

CHARACTERS_AT_ONCE = 16_000
"""Characters of texts that are prepared in one turn of the event loop; others wait for the next."""


class SharedRows(NamedTuple):
    """A text among rows that it shares with texts of other requests."""

    rows: Rows
    at: int

    @property
    def units(self) -> Integers:
        """Its rows, longest first: windows of a text are equally long."""
        first = int(self.rows.first_row[self.at])
        return np.arange(first, first + int(self.rows.n_windows[self.at]))


_Waiting = list[tuple[str, "asyncio.Future[SharedRows]"]]


class Gathering:
    def __init__(self, prepare: Callable[[Sequence[str]], Rows]) -> None:
        self._prepare = prepare
        self._waiting: dict[asyncio.AbstractEventLoop, _Waiting] = {}

    async def prepare(self, text: str) -> SharedRows:
        """Raises what is wrong with this text, whatever the others are."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[SharedRows] = loop.create_future()
        waiting = self._waiting.setdefault(loop, [])
        if not waiting:
            loop.call_soon(self._flush, loop)
        waiting.append((text, future))
        return await future

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, size, end = self._waiting.pop(loop), 0, 0
        while end < len(waiting) and (not end or size + len(waiting[end][0]) <= CHARACTERS_AT_ONCE):
            size += len(waiting[end][0])
            end += 1
        if end < len(waiting):
            self._waiting[loop] = waiting[end:]
            loop.call_soon(self._flush, loop)
        self._finish([one for one in waiting[:end] if not one[1].done()])  # done: its client has left

    def _finish(self, some: _Waiting) -> None:
        if not some:
            return
        try:
            rows = self._prepare([text for text, _ in some])
        except Exception as error:
            if len(some) == 1:
                some[0][1].set_exception(error)
            else:  # of one of them; its message counts texts
                for one in some:
                    self._finish([one])
            return
        for at, (_, future) in enumerate(some):
            future.set_result(SharedRows(rows, at))
