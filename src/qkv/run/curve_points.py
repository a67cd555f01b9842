"""The points of a learning curve: which examples each gets, and one short fine-tuning on them.

Examples are made ready once for the whole curve, with every label known. Where the encoder stays as it is and is run
once (transfer "features"), its vectors are computed once too, and a point costs no more than training a head.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qkv.data.batching import Integers
from qkv.data.examples import ChoiceExample
from qkv.data.ranges import ranges
from qkv.errors import InputError
from qkv.report.run_log import read_run
from qkv.run.curve_draws import drawn_order, sizes
from qkv.run.finetune import Finished
from qkv.run.finetune_config import FinetuneConfig, epochs_for
from qkv.run.finetune_data import label_counts
from qkv.run.finetune_job import Prepared, settled, trainer_for, with_vectors
from qkv.run.finetune_model import is_scratch
from qkv.tasks.regression import Regression
from qkv.tasks.task import Features
from qkv.tasks.vectors import Vectors
from qkv.train.progress import Progress, Silent

SHARES = (0.1, 0.2, 0.4, 0.7, 1.0)


@dataclass(frozen=True)
class CurveConfig:
    shares: tuple[float, ...] = SHARES  # of the training examples
    draws: int = 3  # of every share
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)

    def __post_init__(self) -> None:
        if not self.shares or not all(0 < share <= 1 for share in self.shares):
            raise InputError(f"shares are above 0 and at most 1, such as 0.1,0.3,1, unlike {list(self.shares)}.")
        if self.draws < 1:
            raise InputError(f"draws must be at least 1, not {self.draws}.")
        if self.finetune.seeds != 1:
            raise InputError("Every draw of a curve has a seed of its own: give --draws instead of seeds.")


@dataclass(frozen=True)
class Point:
    n: int
    draw: int


@dataclass(frozen=True)
class Plan:
    """What the points of a curve share, and which they are."""

    config: CurveConfig
    prepared: Prepared
    points: tuple[Point, ...]
    orders: tuple[Integers, ...]  # of the examples, one a draw
    vectors: Vectors | None  # of all training examples, where the encoder is run once

    @property
    def task(self) -> Any:
        return self.prepared.task


def plan_of(config: CurveConfig, prepared: Prepared, out: Path, device: torch.device) -> Plan:
    examples = prepared.data.train.examples
    labels = _labels(prepared)
    distinct = len({label for found in labels for label in found})
    # a draw after the other, so that a curve that is looked at early has all its sizes
    numbers = sizes(config.shares, len(examples), distinct)
    points = tuple(Point(n, draw) for draw in range(config.draws) for n in numbers)
    seed = config.finetune.train.seed
    orders = tuple(drawn_order(labels, seed, draw) for draw in range(config.draws))
    vectors = None
    if prepared.transfer.cached:
        # once for all points; a point then finds its features made, and runs no encoder
        whole = with_vectors(prepared, out, device)
        assert isinstance(whole.train, Vectors)
        vectors = whole.train
        prepared = replace(prepared, dev=whole.dev, transfer=replace(prepared.transfer, cached=False))
    return Plan(config, prepared, points, orders, vectors)


def _labels(prepared: Prepared) -> list[list[str]]:
    """Of every training example; a number is no label."""
    examples = prepared.data.train.examples
    if isinstance(prepared.task, Regression):
        return [[] for _ in examples]
    return [list(label_counts((example,))) for example in examples]


def measured(
    plan: Plan, point: Point, folder: Path, device: torch.device, progress: Progress
) -> dict[str, Any] | Finished:
    """Train one point and say how good it became; `Finished`, which it is not, where somebody stopped it."""
    began = time.perf_counter()
    prepared = plan.prepared
    chosen = np.sort(plan.orders[point.draw][: point.n])
    examples = tuple(prepared.data.train.examples[number] for number in chosen.tolist())
    features: Features = plan.task.features(prepared.folder.tokenizer, examples, prepared.max_length, training=True)
    if plan.vectors is not None:
        features = ChosenVectors(features, plan.vectors, _rows_of(plan, chosen))
    train = replace(prepared.data.train, examples=examples)
    part = replace(prepared, data=replace(prepared.data, train=train), train=features)
    config = settled(part, Silent().message)
    seed = config.train.seed + point.draw
    part = replace(part, config=replace(config, train=replace(config.train, seed=seed)))
    trainer = trainer_for(part, 0, folder, device, progress)
    outcome = trainer.run()
    if not outcome.finished:
        return Finished(folder, finished=False, signal=outcome.signal)
    best = dict(read_run(folder).evaluations)[trainer.best.step]
    return {
        "n": point.n,
        "draw": point.draw,
        "score": best[plan.task.main],
        "loss": best["loss"],
        "best_step": trainer.best.step,
        "steps": outcome.step,
        "seconds": round(time.perf_counter() - began, 2),
    }


class ChosenVectors(Vectors):
    """Vectors of some examples, read where those of all of them lie."""

    def __init__(self, features: Features, whole: Vectors, rows: Integers) -> None:
        super().__init__(features, whole.vectors, whole.reads_rows)
        self.whole, self.whole_rows = whole, rows

    def of(self, rows: Integers) -> torch.Tensor:
        return self.whole.of(self.whole_rows[rows])


def _rows_of(plan: Plan, chosen: Integers) -> Integers:
    """Where the rows of these examples lie among those of all; each choice of a question is a text of its own."""
    examples, rows = plan.prepared.data.train.examples, plan.prepared.train.rows
    texts = np.array([len(one.choices) if isinstance(one, ChoiceExample) else 1 for one in examples])
    which = ranges((np.cumsum(texts) - texts)[chosen], texts[chosen])
    return ranges(rows.first_row[which], rows.n_windows[which])


def steps_of(plan: Plan, n: int) -> int:
    """About how many steps a point of this size takes: the rule of `settled`, for examples of middling length."""
    config, tokens = plan.config.finetune, plan.prepared.train.unit_tokens
    units = max(1, round(n / len(plan.prepared.data.train.examples) * len(tokens)))
    per_step = config.tokens_per_step or max(8, round(float(tokens.mean()) * config.texts_per_step))
    per_epoch = max(1, min(units, round(units * float(tokens.mean()) / per_step)))
    return max(
        1, round((config.epochs or epochs_for(config.task, units, per_epoch, is_scratch(config.model))) * per_epoch)
    )


@dataclass
class Within:
    """The progress of one point as part of the whole curve's."""

    whole: Progress
    before: int
    planned: int
    steps: int = 1

    def start(self, step: int, steps: int) -> None:
        self.steps = steps

    def step(self, step: int, figures: Mapping[str, Any]) -> None:
        self.whole.step(self.before + round(self.planned * step / self.steps), figures)

    def message(self, text: str) -> None:
        if text.startswith("warning"):  # every evaluation of every point would be too much
            self.whole.message(text)
