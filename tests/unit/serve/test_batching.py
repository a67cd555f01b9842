"""The queue and the batches of a model, with runners that only write down what they were given."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from qkv.errors import InputError
from qkv.serve.batching import (
    Batcher,
    BatchFacts,
    ComputeGate,
    OverloadedError,
    Part,
    Runner,
    Submission,
    UnavailableError,
    Work,
)


class Echo(Runner):
    """Gives back what it was given, and keeps the batches. While `gate` is shut it computes nothing."""

    def __init__(self, key: str = "echo", seen: list[list[Any]] | None = None) -> None:
        self.key, self.seen = key, [] if seen is None else seen
        self.may_run = threading.Event()
        self.may_run.set()
        self.runs = threading.Event()

    def join(self, parts: Sequence[Part]) -> list[Any]:
        found = [part.source[unit] for part in parts for unit in part.units.tolist()]
        if "unjoinable" in found:
            raise ValueError("cannot be joined")
        return found

    def run(self, joined: list[Any], gate: ComputeGate) -> Sequence[Any]:
        self.runs.set()
        assert self.may_run.wait(20)
        with gate.turn():
            self.seen.append(joined)
            if "bad" in joined:
                raise InputError("This one is bad.")
            if "fatal" in joined:
                raise SystemExit(3)
            return [f"{one}!" for one in joined]


class Notes:
    def __init__(self) -> None:
        self.batches: list[BatchFacts] = []

    def batch(self, model: str, facts: BatchFacts) -> None:
        self.batches.append(facts)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def make(notes: Notes) -> Iterator[Callable[..., Batcher]]:
    made: list[Batcher] = []
    pool = ThreadPoolExecutor(1)

    def build(max_batch_tokens: int = 10, max_queue_tokens: int = 100) -> Batcher:
        made.append(Batcher("tiny", ComputeGate(), pool, max_batch_tokens, max_queue_tokens, notes))
        return made[-1]

    yield build
    assert all(batcher.close(20) for batcher in made)
    pool.shutdown()


def submission(runner: Runner, items: Sequence[str], tokens: Sequence[int]) -> Submission:
    work = Work(runner, items, np.arange(len(items)), np.array(tokens))
    return Submission([work], asyncio.get_running_loop())


async def ask(batcher: Batcher, runner: Runner, items: Sequence[str], tokens: Sequence[int]) -> list[Any]:
    one = submission(runner, items, tokens)
    batcher.submit(one)
    await asyncio.wait_for(one.future, 20)
    return [one.results[number] for number in range(len(items))]


def hold(batcher: Batcher, runner: Echo) -> "asyncio.Task[list[Any]]":
    """Keep the model busy with a batch of its own, so that the queue fills."""
    runner.may_run.clear()
    runner.runs.clear()
    return asyncio.ensure_future(ask(batcher, runner, ["held"], [1]))


async def begun(runner: Echo) -> None:
    assert await asyncio.to_thread(runner.runs.wait, 20)


def test_rows_of_several_requests_run_together_in_their_order(make: Callable[..., Batcher], notes: Notes) -> None:
    async def story() -> None:
        batcher, runner = make(), Echo()
        held = hold(batcher, runner)
        await begun(runner)
        asked = [asyncio.ensure_future(ask(batcher, runner, items, [2] * len(items))) for items in ("ab", "cde", "f")]
        await asyncio.sleep(0)
        assert batcher.queued_tokens <= 12
        runner.may_run.set()
        assert await asyncio.gather(*asked) == [["a!", "b!"], ["c!", "d!", "e!"], ["f!"]]
        await held
        assert runner.seen == [["held"], ["a", "b", "c", "d", "e"], ["f"]]
        assert [one.units for one in notes.batches] == [1, 5, 1] and [one.tokens for one in notes.batches] == [1, 10, 2]
        assert batcher.queued_tokens == 0

    asyncio.run(story())


def test_a_request_is_split_over_batches_and_put_together(make: Callable[..., Batcher]) -> None:
    async def story() -> None:
        runner = Echo()
        found = await ask(make(max_batch_tokens=5), runner, "abcdefg", [2] * 7)
        assert found == [f"{one}!" for one in "abcdefg"]
        assert runner.seen == [["a", "b"], ["c", "d"], ["e", "f"], ["g"]]

    asyncio.run(story())


def test_a_row_above_the_budget_goes_alone(make: Callable[..., Batcher]) -> None:
    async def story() -> None:
        runner = Echo()
        assert await ask(make(), runner, "abc", [3, 50, 4]) == ["a!", "b!", "c!"]
        assert runner.seen == [["a"], ["b"], ["c"]]

    asyncio.run(story())


def test_kinds_do_not_mix_and_the_oldest_is_next(make: Callable[..., Batcher]) -> None:
    async def story() -> None:
        batcher, seen = make(), list[list[Any]]()
        first, second = Echo("first", seen), Echo("second", seen)
        held = hold(batcher, first)
        await begun(first)
        asked = [
            asyncio.ensure_future(ask(batcher, runner, items, [1] * len(items)))
            for runner, items in ((second, "a"), (first, "b"), (second, "c"), (first, "d"))
        ]
        await asyncio.sleep(0)
        first.may_run.set()
        assert await asyncio.gather(*asked) == [["a!"], ["b!"], ["c!"], ["d!"]]
        await held
        assert seen == [["held"], ["a", "c"], ["b", "d"]]

    asyncio.run(story())


def test_rows_of_clients_that_left_are_dropped(make: Callable[..., Batcher], notes: Notes) -> None:
    async def story() -> None:
        batcher, runner = make(), Echo()
        held = hold(batcher, runner)
        await begun(runner)
        gone = submission(runner, "xyz", [2, 2, 2])
        batcher.submit(gone)
        stays = asyncio.ensure_future(ask(batcher, runner, "a", [2]))
        await asyncio.sleep(0)
        assert batcher.queued_tokens == 8
        batcher.cancel(gone)
        batcher.cancel(gone)
        assert batcher.queued_tokens == 2
        runner.may_run.set()
        assert await stays == ["a!"] and await held == ["held!"]
        assert runner.seen == [["held"], ["a"]] and not gone.future.done()

    asyncio.run(story())


def test_a_client_that_leaves_during_its_batch_harms_nobody(make: Callable[..., Batcher]) -> None:
    async def story() -> None:
        batcher, runner = make(), Echo()
        held = hold(batcher, runner)
        await begun(runner)
        gone = submission(runner, "xyz", [5, 5, 5])
        batcher.submit(gone)  # more than a batch: the first two are taken ahead
        batcher.cancel(gone)
        runner.may_run.set()
        await held
        assert await ask(batcher, runner, "a", [2]) == ["a!"]
        assert batcher.queued_tokens == 0 and not gone.future.done()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("item", "error"), [("bad", InputError), ("unjoinable", ValueError), ("fatal", RuntimeError)], ids=str
)
def test_a_failure_is_that_of_its_batch(make: Callable[..., Batcher], item: str, error: type[BaseException]) -> None:
    async def story() -> None:
        batcher, runner = make(), Echo()
        held = hold(batcher, runner)
        await begun(runner)
        wrong = asyncio.ensure_future(ask(batcher, runner, [item, "more", "and more"], [9, 9, 9]))
        right = asyncio.ensure_future(ask(batcher, runner, ["good"], [3]))
        await asyncio.sleep(0)
        runner.may_run.set()
        with pytest.raises(error):
            await wrong
        assert await right == ["good!"] and await held == ["held!"]
        assert ["more"] not in runner.seen, "what is left of a failed request is not computed"
        assert await ask(batcher, runner, ["next"], [1]) == ["next!"]

    asyncio.run(story())


def test_admission_is_by_tokens(make: Callable[..., Batcher]) -> None:
    async def story() -> None:
        batcher, runner = make(max_batch_tokens=10, max_queue_tokens=40), Echo()
        held = hold(batcher, runner)
        await begun(runner)
        asked = [asyncio.ensure_future(ask(batcher, runner, "a", [9])) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError, match="tokens are queued for tiny") as raised:
            batcher.submit(submission(runner, "bcde", [9, 9, 9, 9]))
        assert raised.value.retry_after >= 1
        before = batcher.queued_tokens
        with pytest.raises(InputError, match="The request has 41 tokens, and the queue of this server holds 40"):
            batcher.submit(submission(runner, "bc", [1, 40]))
        assert batcher.queued_tokens == before, "what is refused leaves nothing behind"
        runner.may_run.set()
        await asyncio.gather(held, *asked)
        assert await ask(batcher, runner, "fg", [1, 39]) == ["f!", "g!"], "as large as the queue, and it is empty"
        assert batcher.tokens_per_second > 0

    asyncio.run(story())


def test_the_time_to_wait_follows_the_measured_speed(make: Callable[..., Batcher]) -> None:
    async def story() -> None:
        batcher, runner = make(max_batch_tokens=10, max_queue_tokens=40), Echo()
        held = hold(batcher, runner)
        await begun(runner)
        asked = [asyncio.ensure_future(ask(batcher, runner, "a", [10])) for _ in range(3)]
        await asyncio.sleep(0)
        batcher._speed = (10.0, 2.0)  # five tokens a second
        with pytest.raises(OverloadedError) as raised:
            for _ in range(5):
                batcher.submit(submission(runner, "b", [10]))
        assert raised.value.retry_after > 5
        runner.may_run.set()
        await asyncio.gather(held, *asked)

    asyncio.run(story())


def test_what_was_not_computed_says_nothing_about_the_speed(make: Callable[..., Batcher]) -> None:
    async def story() -> None:
        batcher, runner = make(max_batch_tokens=10, max_queue_tokens=40), Echo()
        held = hold(batcher, runner)
        await begun(runner)
        left = submission(runner, "a", [10])  # a whole batch: it is taken while the one before is computed
        batcher.submit(left)
        batcher.cancel(left)
        runner.may_run.set()
        await held
        with pytest.raises(InputError):
            await ask(batcher, runner, ["bad"], [10])
        before = batcher._speed
        with pytest.raises(ValueError, match="joined"):
            await ask(batcher, runner, ["unjoinable"], [10])
        assert batcher._speed == before and before[0] < 10

    asyncio.run(story())


def test_a_drain_finishes_what_is_queued(make: Callable[..., Batcher]) -> None:
    async def story() -> None:
        batcher, runner = make(), Echo()
        held = hold(batcher, runner)
        await begun(runner)
        asked = [asyncio.ensure_future(ask(batcher, runner, [str(one)], [4])) for one in range(12)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(asyncio.to_thread(batcher.close))
        while not batcher._is_closed:
            await asyncio.sleep(0.001)
        with pytest.raises(UnavailableError):
            batcher.submit(submission(runner, "x", [1]))
        runner.may_run.set()
        assert await asyncio.gather(*asked) == [[f"{one}!"] for one in range(12)]
        assert await closing and await held == ["held!"]

    asyncio.run(story())


def test_a_loop_that_has_ended_does_not_stop_the_thread(make: Callable[..., Batcher]) -> None:
    batcher, runner = make(), Echo()

    async def leave() -> None:
        runner.may_run.clear()
        batcher.submit(submission(runner, "a", [1]))
        await begun(runner)

    asyncio.run(leave())
    runner.may_run.set()
    assert asyncio.run(ask(batcher, Echo(), "b", [1])) == ["b!"]


def test_the_gate_is_fair() -> None:
    gate, order, inside = ComputeGate(), list[str](), 0
    first = threading.Event()

    def enter(name: str) -> None:
        nonlocal inside
        with gate.turn():
            inside += 1
            assert inside == 1
            order.append(name)
            if name == "a":
                first.set()
                while len(gate._waiting) < 3:
                    threading.Event().wait(0.001)
            inside -= 1

    threads = [threading.Thread(target=enter, args=(name,)) for name in "abcd"]
    threads[0].start()
    assert first.wait(20)
    for number, thread in enumerate(threads[1:], 1):
        thread.start()
        while len(gate._waiting) < number:
            threading.Event().wait(0.001)
            if not threads[0].is_alive():
                break
    for thread in threads:
        thread.join()
    assert order == list("abcd") and not gate._taken
