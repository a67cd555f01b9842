"""From requests to batches: a first-in-first-out queue of rows per model, packed up to a budget of tokens.

    submit ──▶ queue of rows ──batch──▶ inference thread ──▶ results of a submission, in its event loop
                                             │
                                       compute gate: models take turns, each with all threads

A unit is what is computed at once: a row (a window of a text) for an encoder, a text for what writes or translates.
Units that have an equal `Runner.key` run together, whoever sent them: the oldest unit decides which key is next, and
units of that key follow it, in their order, while `tokens + next ≤ max_batch_tokens`; a single larger one goes alone.
There is no delay: while a batch is computed the queue fills by itself. If a whole batch is queued by then, it is
collated during the computation of the one before it; a smaller one is taken when the model is free, since it may grow.

Admission is by tokens. A submission that does not fit beside the queued ones is refused with `OverloadedError`, which
knows from the measured speed when to try again. One that is larger than the whole queue (`max_queue_tokens`) could only
be admitted while nothing is queued, that is never on a busy server: it is refused with an `InputError` that names the
limit, busy or not, so that the same request always has the same answer.

A batch that fails fails the submissions that have units in it, and no other. Units of cancelled submissions are
dropped. `Batcher.close` finishes what is queued.
"""

import asyncio
import math
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from qkv.data.batch import Integers
from qkv.errors import InputError

SPEED_SECONDS = 20.0
"""Computing time over which the speed of a model is averaged."""
LEAST_RETRY_SECONDS, MOST_RETRY_SECONDS = 1.0, 60.0
"""The second: some clients ignore more."""


class OverloadedError(Exception):
    """The queue is full. `retry_after`: seconds until it should have room, 1 to 60."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnavailableError(Exception):
    """The server is starting or stopping."""


class ComputeGate:
    """Lets one thread compute at a time, in the order in which they came; a plain lock would let a busy model starve
    the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._taken = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        with self._lock:
            mine = None if not self._taken else threading.Event()
            self._taken = True
            if mine is not None:
                self._waiting.append(mine)
        if mine is not None:
            mine.wait()
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    self._waiting.popleft().set()  # still taken: by that one
                else:
                    self._taken = False


class Runner(ABC):
    """Computes units that have an equal key together."""

    key: Hashable

    @abstractmethod
    def join(self, parts: "Sequence[Part]") -> Any:
        """The batch of these units, perhaps while another batch is computed."""

    @abstractmethod
    def run(self, joined: Any, gate: ComputeGate) -> Sequence[Any]:
        """One result per unit, in the order of the parts; computes in turns of the gate."""


class Work:
    """Units of one submission with one runner. `source` is what the runner knows them by."""

    def __init__(self, runner: Runner, source: Any, units: Integers, tokens: Integers) -> None:
        """`units` in the order in which they are queued, and the tokens of each."""
        self.runner, self.source, self.units = runner, source, units
        self.reach: Integers = np.cumsum(tokens)  # tokens up to and including each unit
        self.taken = 0
        self.submission: Submission
        self.number = 0  # in the order of arrival

    @property
    def tokens_left(self) -> int:
        return int(self.reach[-1]) - self._before

    @property
    def _before(self) -> int:
        return int(self.reach[self.taken - 1]) if self.taken else 0

    def take(self, budget: int, at_least: int) -> "Part | None":
        """The next units that fit the budget, `at_least` so many; None if there are none."""
        before = self._before
        end = max(int(np.searchsorted(self.reach, before + budget, side="right")), self.taken + at_least)
        if end == self.taken:
            return None
        part = Part(self, self.units[self.taken : end], int(self.reach[end - 1]) - before)
        self.taken = end
        return part


class Part(NamedTuple):
    """Units of one submission in a batch."""

    work: Work
    units: Integers
    tokens: int

    @property
    def source(self) -> Any:
        return self.work.source


class Submission:
    """What one request waits for. `results` by unit, complete when `future` is done."""

    def __init__(self, works: Sequence[Work], loop: asyncio.AbstractEventLoop) -> None:
        self.works, self.loop = works, loop
        self.n_tokens = sum(int(work.reach[-1]) for work in works)
        self.n_units = sum(len(work.units) for work in works)
        self.results: dict[int, Any] = {}
        self.future: asyncio.Future[None] = loop.create_future()
        self.error: Exception | None = None
        self.is_cancelled = False
        self.queued_at = time.perf_counter()
        self.started_at = math.nan
        self.inference_s = 0.0

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is worth computing."""
        return self.is_cancelled or self.error is not None

    @property
    def queue_s(self) -> float:
        return 0.0 if math.isnan(self.started_at) else self.started_at - self.queued_at


class BatchFacts(NamedTuple):
    """For metrics."""

    units: int
    tokens: int
    seconds: float


class Observer(Protocol):
    def batch(self, model: str, facts: BatchFacts) -> None: ...


class _Batch(NamedTuple):
    runner: Runner
    parts: list[Part]
    joined: Any
    error: Exception | None  # of joining

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in self.parts)


class Batcher:
    """The queue and the inference thread of one model."""

    def __init__(
        self,
        name: str,
        gate: ComputeGate,
        pool: Executor,
        max_batch_tokens: int,
        max_queue_tokens: int,
        observer: Observer | None = None,
        start: Callable[[], None] = lambda: None,
    ) -> None:
        """`pool` collates batches ahead; `start` is called in the inference thread before anything else."""
        self.name, self.gate, self.pool, self.observer = name, gate, pool, observer
        self.max_batch_tokens, self.max_queue_tokens = max_batch_tokens, max_queue_tokens
        self._start = start
        self._changed = threading.Condition()
        self._queues: dict[Hashable, deque[Work]] = {}
        self._queued_tokens = 0
        self._running_tokens = 0
        self._ahead: Future[_Batch | None] | None = None
        self._number = 0
        self._is_closed = False
        # tokens and seconds of late, weighted by tokens: what a full queue is computed with is large batches
        self._speed = (0.0, 0.0)
        self._thread = threading.Thread(target=self._work, name=f"inference-{name}", daemon=True)
        self._thread.start()

    # From any thread

    @property
    def queued_tokens(self) -> int:
        return self._queued_tokens

    @property
    def tokens_per_second(self) -> float:
        tokens, seconds = self._speed
        return tokens / seconds if seconds else 0.0

    @property
    def is_computing(self) -> bool:
        return self._running_tokens > 0

    def submit(self, submission: Submission) -> None:
        """Queue all units; nothing is queued if one of the errors is raised."""
        tokens = submission.n_tokens
        if tokens > self.max_queue_tokens:
            raise InputError(
                f"The request has {tokens:,} tokens, and the queue of this server holds {self.max_queue_tokens:,} "
                "(--max-queue-tokens). Send fewer or shorter texts in one request."
            )
        with self._changed:
            if self._is_closed:
                raise UnavailableError("The server is stopping. Try another one, or again in a moment.")
            if self._queued_tokens + tokens > self.max_queue_tokens:
                raise OverloadedError(
                    f"The server is overloaded: {self._queued_tokens:,} tokens are queued for {self.name}, and "
                    f"{self.max_queue_tokens:,} are the limit. Try again later.",
                    self._retry_after(),
                )
            for work in submission.works:
                self._number += 1
                work.submission, work.number = submission, self._number
                self._queues.setdefault(work.runner.key, deque()).append(work)
            self._queued_tokens += tokens
            if self._running_tokens:
                self._collate_ahead()
            self._changed.notify()

    def cancel(self, submission: Submission) -> None:
        """Drop the units that are not in a batch yet."""
        with self._changed:
            if submission.is_over:
                return
            submission.is_cancelled = True
            self._drop(submission)

    def close(self, wait: float | None = None) -> bool:
        """Accept no more, finish what is queued; wait so many seconds for it (None: as long as it takes). Return
        whether the thread has ended."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(wait)
        return not self._thread.is_alive()

    # With the lock held

    def _retry_after(self) -> float:
        tokens, speed = self._queued_tokens + self._running_tokens, self.tokens_per_second
        return min(max(LEAST_RETRY_SECONDS, tokens / speed if speed else 0.0), MOST_RETRY_SECONDS)

    def _drop(self, submission: Submission) -> None:
        for work in submission.works:
            queue = self._queues.get(work.runner.key)
            if queue is not None and work in queue:
                queue.remove(work)
                self._queued_tokens -= work.tokens_left
                if not queue:
                    del self._queues[work.runner.key]

    def _take(self) -> tuple[Runner, list[Part]] | None:
        """The units of the next batch; None if nothing is queued."""
        if not self._queues:
            return None
        key = min(self._queues, key=lambda one: self._queues[one][0].number)
        queue, parts, left = self._queues[key], list[Part](), self.max_batch_tokens
        while queue and (part := queue[0].take(left, at_least=0 if parts else 1)) is not None:
            parts.append(part)
            left -= part.tokens
            if queue[0].taken == len(queue[0].units):
                queue.popleft()
        if not queue:
            del self._queues[key]
        self._queued_tokens -= sum(part.tokens for part in parts)
        return parts[0].work.runner, parts

    def _collate_ahead(self) -> None:
        """Begin with the next batch, if it is a whole one."""
        # closed, the pool may end before this queue does
        if self._ahead is None and not self._is_closed and self._queued_tokens >= self.max_batch_tokens:
            taken = self._take()
            assert taken is not None, "tokens are queued"
            self._running_tokens += sum(part.tokens for part in taken[1])
            self._ahead = self.pool.submit(self._collate, *taken)

    # In the inference thread

    def _collate(self, runner: Runner, parts: list[Part]) -> _Batch:
        try:
            return _Batch(runner, parts, runner.join(parts), None)
        except BaseException as error:
            return _Batch(runner, parts, None, _as_error(error))

    def _next(self) -> _Batch | None:
        """The next batch; None at the end."""
        with self._changed:
            ahead, self._ahead, taken = self._ahead, None, None
            if ahead is None:
                while not self._queues and not self._is_closed:
                    self._changed.wait()
                taken = self._take()
                if taken is None:
                    return None
                self._running_tokens += sum(part.tokens for part in taken[1])
            self._collate_ahead()
        if ahead is not None:
            return ahead.result()
        assert taken is not None, "one of both"
        return self._collate(*taken)

    def _work(self) -> None:
        self._start()
        while (batch := self._next()) is not None:
            self._compute(batch)

    def _compute(self, batch: _Batch) -> None:
        begin = time.perf_counter()
        for part in batch.parts:
            if math.isnan(part.work.submission.started_at):
                part.work.submission.started_at = begin
        error, results = batch.error, list[Any]()
        try:
            if error is None and not all(part.work.submission.is_over for part in batch.parts):
                results = list(batch.runner.run(batch.joined, self.gate))
                assert len(results) == sum(len(part.units) for part in batch.parts), "a result per unit"
        except BaseException as raised:
            error = _as_error(raised)
        seconds = time.perf_counter() - begin
        done = self._settle(batch, results, error, seconds)
        if self.observer is not None:
            units = sum(len(part.units) for part in batch.parts)
            self.observer.batch(self.name, BatchFacts(units, batch.tokens, seconds))
        _deliver(done)

    def _settle(
        self, batch: _Batch, results: Sequence[Any], error: Exception | None, seconds: float
    ) -> list[Submission]:
        """Give the results to their submissions; return those that are complete, or failed."""
        done, at = list[Submission](), 0
        with self._changed:
            self._running_tokens -= batch.tokens
            if results:  # else nothing was computed: it failed, or nobody waits for it any more
                kept = math.exp(-seconds / SPEED_SECONDS)
                weight = batch.tokens / self.max_batch_tokens
                self._speed = self._speed[0] * kept + weight * batch.tokens, self._speed[1] * kept + weight * seconds
            for part in batch.parts:
                submission = part.work.submission
                submission.inference_s += seconds
                if error is not None and not submission.is_over:
                    submission.error = error
                    self._drop(submission)
                    done.append(submission)
                elif error is None and not submission.is_over:
                    submission.results.update(zip(part.units.tolist(), results[at : at + len(part.units)], strict=True))
                    if len(submission.results) == submission.n_units:
                        done.append(submission)
                at += len(part.units)
        return done


def _as_error(raised: BaseException) -> Exception:
    """What a future can hold: an event loop would end with a SystemExit."""
    return raised if isinstance(raised, Exception) and not isinstance(raised, StopIteration) else RuntimeError(raised)


def _deliver(done: Sequence[Submission]) -> None:
    """Wake the requests: one call for all of an event loop."""
    for loop in {submission.loop for submission in done}:
        try:
            loop.call_soon_threadsafe(_wake, [one for one in done if one.loop is loop])
        except RuntimeError:  # the loop is closed: nobody waits any more
            continue


def _wake(done: Sequence[Submission]) -> None:
    for submission in done:
        if submission.future.done():
            continue
        if submission.error is None:
            submission.future.set_result(None)
        else:
            submission.future.set_exception(submission.error)
