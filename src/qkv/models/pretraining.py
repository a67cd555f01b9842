"""What a family provides so that `qkv pretrain` can train it from shards (jobs/pretrain.py)."""

from collections.abc import Callable
from dataclasses import Field, asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import torch

from qkv.config import COMMAND_LINE, Config, JobSettings, merge
from qkv.data.corpus.shards import MANIFEST, Shards
from qkv.errors import InputError
from qkv.files import sha256_of
from qkv.report.page import RunPage
from qkv.train.device import Sizes, device_named, divisors, rows_and_accumulation
from qkv.train.log import Progress
from qkv.train.loop import Trainable
from qkv.train.run_folder import Outcome, Sessions


class Configuration(Protocol):
    """The settings that all pretrainings share; the table `train` has `steps` and `minutes`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def model_type(self) -> str: ...
    @property
    def data(self) -> str: ...
    @property
    def data_sha256(self) -> str | None: ...
    @property
    def device(self) -> str: ...
    @property
    def train(self) -> Any: ...


class Learning(Protocol):
    """A training, such as train/loop.py's `Trainer`."""

    device: torch.device

    def run(self) -> Outcome: ...


C = TypeVar("C", bound=Configuration)
T = TypeVar("T", bound=Learning)


EVALUATIONS = 5
"""The fewest evaluations of a training, unless fewer are asked for."""


def evaluate_often(every: int, steps: int) -> int:
    """Return how often to evaluate so that it happens at least `EVALUATIONS` times.

    >>> evaluate_often(500, 10_000), evaluate_often(500, 400), evaluate_often(500, 3)
    (500, 80, 1)
    """
    return min(every, max(1, steps // EVALUATIONS))


def resolve_minutes(config: Config, trainer: Any, progress: Progress) -> Config:
    """The settings with a time budget turned into steps; called once, since a resumed run must not measure again."""
    minutes = trainer.config.minutes
    if minutes is None:
        return config
    steps = trainer.steps_in(minutes)
    progress.message(f"{minutes:g} minutes are {steps:,} steps on this machine.")
    chosen = {"steps": steps, "evaluate_every": evaluate_often(trainer.config.evaluate_every, steps)}
    trainer.config = replace(trainer.config, **chosen)
    return merge(config, {"train": chosen}, COMMAND_LINE)


def resolve_steps(config: Config, trainer: Any, progress: Progress) -> Config:
    """`resolve_minutes`, and a message if a new run has no held-out text to evaluate on."""
    if trainer.job.evaluate is None:
        progress.message("No text is held out, so nothing is evaluated. For that, prepare the corpus with --hold-out.")
    return resolve_minutes(config, trainer, progress)


@dataclass(frozen=True)
class Pretraining(Generic[C, T]):
    settings: JobSettings[C]
    trainer: Callable[[C, Path, Progress, bool], T]  # for the run in this folder; whether it begins
    save: Callable[[C, Path, T, Shards], None]  # the trained model, into RUN/model
    page: Callable[[C, Path, T, Shards, Sessions], RunPage]
    settled: Callable[[C, T, Progress], C] = (
        resolve_steps  # with what follows from the corpus and this machine, as steps do
    )
    model: str = "the model"  # what RUN/model is, as the terminal says it; {model} is its folder
    report: str = "curves, remarks"  # what RUN/report.html shows


def no_init(model: str) -> dict[str, str]:
    """Options that a model without --init refuses, with their messages."""
    return {"init": f"--init is for bert and gpt; {model} begins from nothing."}


def check_own(config: Configuration, model: str, *counts: str) -> None:
    """Refuse settings of another model, and counts below 1."""
    if config.model_type != model:
        raise InputError(f"These are the settings of model_type '{model}', not of '{config.model_type}'.")
    for name in counts:
        if getattr(config, name) < 1:
            raise InputError(f"{name} must be at least 1, not {getattr(config, name)}.")


def open_corpus(config: Configuration, begins: bool) -> tuple[torch.device, Shards, Shards]:
    """The device, the training text and the held-out text of a run; a new run verifies the whole corpus once."""
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    device = device_named(config.device)
    corpus, held_out = (Shards.open(config.data, part) for part in ("train", "valid"))
    if begins:
        corpus.verify()
        held_out.verify()
    if config.data_sha256 not in (None, sha256_of(corpus.folder / MANIFEST)):
        raise InputError(
            f"{config.data} is not what the run was begun with: it was prepared anew, from something else. Begin "
            "another run, or prepare the corpus as it was."
        )
    return device, corpus, held_out


def make_record(config: Configuration) -> dict[str, Any]:
    """The record of the training that is saved with the model."""
    return {"job": "pretrain", "steps": config.train.steps, "config": asdict(config)}


class Resizable(Protocol):
    """Batches of rows; a step has `streams` of them."""

    rows: int

    @property
    def streams(self) -> int: ...
    def resized(self, rows: int, accumulate: int) -> Self: ...


_S = TypeVar("_S", bound=Resizable)
_B = TypeVar("_B", bound=Trainable)


def row_sizes(batches: _S, out: Path, at: Callable[[_S, int], list[_B]]) -> Sizes[_B]:
    """Smaller batches with more accumulation for the same step; `at` builds the batches of a step."""

    def settings(rows: int) -> str:
        return rows_and_accumulation(rows, batches.streams // rows, out)

    def cut(rows: int, step: int) -> list[_B]:
        return at(batches.resized(rows, batches.streams // rows), step)

    return Sizes(batches.rows, "rows", divisors(batches.rows), cut, settings)
