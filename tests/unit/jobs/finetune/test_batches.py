"""Training batches: a pure function of the step, every unit once an epoch, even in tokens."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data.batch import Batch, Integers
from qkv.data.labelled.examples import Fault
from qkv.data.windows import Windowed
from qkv.jobs.finetune.training import TrainingBatches, even_cuts
from qkv.text.tokenizer import Marks


class Units:
    """Units that are rows of their own."""

    def __init__(self, sizes: list[int]) -> None:
        self.rows = Windowed([[7] * n for n in sizes], None, Marks(1, (2,), 2), max_length=512, overlap=8)
        self.unit_tokens = self.rows.lengths
        self.n_tokens, self.n_windows, self.row_counts = self.rows.n_tokens, self.rows.n_windows, self.rows.n_rows

    def faults(self) -> list[Fault]:
        return []

    def count_token(self, number: int | None) -> Integers:
        return self.rows.count_token(number)

    def batch(self, units: np.ndarray, draw: np.random.Generator) -> Batch:
        return self.rows.collate(units)


def examples(batches: TrainingBatches, step: int) -> list[int]:
    return [int(number) for batch in batches(step) for number in batch.examples]


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=80), st.integers(4, 400))
def test_every_unit_once_an_epoch(sizes: list[int], tokens: int) -> None:
    batches = TrainingBatches(Units(sizes), tokens, 100, seed=3)
    steps = batches.steps_per_epoch
    for epoch in (0, 1):
        seen = [number for step in range(steps) for number in examples(batches, epoch * steps + step)]
        assert sorted(seen) == list(range(len(sizes)))


def test_it_seeks_and_shuffles() -> None:
    sizes = list(range(1, 60))
    one, other = (TrainingBatches(Units(sizes), 200, 100, seed=3) for _ in range(2))
    assert examples(one, 11) == examples(other, 11)
    assert examples(one, 0) != examples(one, one.steps_per_epoch)
    assert examples(one, 0) != examples(TrainingBatches(Units(sizes), 200, 100, seed=4), 0)


def test_a_step_is_made_of_parts_that_fit() -> None:
    batches = TrainingBatches(Units([20] * 40), 400, 100, seed=0)
    parts = batches(0)
    assert len(parts) > 1 and all(part.n_tokens <= 100 for part in parts)


def test_threads_that_come_to_an_epoch_together_draw_it_once() -> None:
    drawn: list[int] = []
    others = Event()

    class Slow(TrainingBatches):
        def _draw_epoch(self, epoch: int) -> tuple[Integers, Integers]:
            drawn.append(epoch)
            others.wait(0.2)  # for whoever would draw it as well
            return super()._draw_epoch(epoch)

    batches = Slow(Units([20] * 40), 100, 100, seed=0)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(batches, range(4)))
    assert drawn == [0] and len(found) == 4


@pytest.mark.parametrize("steps", [1, 2, 3, 6])
def test_cuts_leave_nobody_out(steps: int) -> None:
    cuts = even_cuts(np.array([100, 1, 1, 1, 1, 1]), steps)
    assert cuts[0] == 0 and cuts[-1] == 6 and (np.diff(cuts) > 0).all()
