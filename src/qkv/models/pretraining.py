"""What a family provides so that `qkv pretrain` can train it from shards (jobs/pretrain.py)."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import Field, asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

import torch
from torch import nn

from qkv.config import COMMAND_LINE, Config, JobSettings, Requested, check_least, merge
from qkv.data.corpus.shards import MANIFEST, Shards
from qkv.errors import InputError
from qkv.files import sha256_of
from qkv.metrics.numbers import perplexity
from qkv.models.folders.hub import locate
from qkv.models.folders.own import read_licences, save_folder
from qkv.report.page import RunPage
from qkv.report.run_log import LanguageModelFacts
from qkv.train.device import Sizes, device_named, divisors, rows_and_accumulation
from qkv.train.distributed import current_world
from qkv.train.log import Progress
from qkv.train.loop import Trainable
from qkv.train.run_folder import Outcome, Sessions

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


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


class InitConfiguration(Configuration, Protocol):
    """With a folder to go on from."""

    @property
    def init(self) -> str | None: ...


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
    progress.message(
        f"{minutes:g} minute{'' if minutes == 1 else 's'} {'is' if minutes == 1 else 'are'} "
        f"{steps:,} step{'' if steps == 1 else 's'} on this machine."
    )
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
    alone: bool = False  # it trains in one process, with threads


def no_init(model: str) -> dict[str, str]:
    """Options that a model without --init refuses, with their messages."""
    return {"init": f"--init is for bert and gpt; {model} begins from nothing."}


def check_own(config: Configuration, model: str, *counts: str) -> None:
    """Refuse settings of another model, and counts below 1."""
    if config.model_type != model:
        raise InputError(f"These are the settings of model_type '{model}', not of '{config.model_type}'.")
    check_least(config, *counts)


def refuse_settings(config: Configuration, *names: str) -> None:
    """Refuse settings of `train` that this model has no use for."""
    for name in names:
        if getattr(config.train, name):
            raise InputError(f"train.{name} does nothing for {config.model_type}: leave it out.")


def check_shape(init: str | None, choice: "DataclassInstance", *names: str) -> None:
    """Refuse a choice of the shape for a model that goes on from a folder, which has its own."""
    if chosen := [name for name in names if getattr(choice, name) != getattr(type(choice)(), name)]:
        raise InputError(f"{init} has its own shape: leave out {', '.join(f'model.{name}' for name in chosen)}.")


def check_size(config: InitConfiguration, given: Requested) -> None:
    if {"init", "size"} <= given.typed.keys():
        raise InputError(f"{config.init} has its own shape: leave out --size.")


def other_tokenizer(config: InitConfiguration) -> InputError:
    return InputError(
        f"{config.data} was prepared with another tokenizer than that of {config.init}. "
        f"Prepare the corpus again with --tokenizer {config.init}."
    )


def init_licences(config: InitConfiguration) -> dict[str, bytes]:
    """The licences of the folder that was gone on from, which the new model keeps."""
    if config.init is not None:
        with suppress(InputError):  # where the folder has gone by now, the model is worth more than its terms
            return read_licences(locate(config.init))
    return {}


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


def save_network(config: Configuration, out: Path, network: Any, corpus: Shards) -> None:
    """Save a network of ours (models/folders/own.py) into RUN/model."""
    sizes, record = asdict(network.config), make_record(config)
    save_folder(out / "model", config.model_type, sizes, network.state_dict(), corpus.tokenizer(), record)


def evaluation_figures(name: str, loss: float, right: int, count: int) -> dict[str, Any]:
    """What the log holds of one evaluated prediction."""
    return {
        f"{name}_loss": loss,
        f"{name}_accuracy": right / max(1, count),
        f"{name}_correct": right,
        f"{name}_count": count,
        f"{name}_perplexity": perplexity(loss),
    }


def collect_page_facts(model_type: str, network: nn.Module, corpus: Shards, sessions: Sessions) -> LanguageModelFacts:
    """Facts for the report of a language model that are not in its log."""
    manifest = corpus.manifest
    return LanguageModelFacts(
        model_type=model_type,
        vocabulary_size=corpus.tokenizer().size,
        unigram_entropy=manifest["unigram_entropy"],
        documents=corpus.n_documents,
        held_out_documents=manifest["valid"]["documents"],
        sentences=corpus.n_sentences,
        tokens=corpus.n_tokens,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        seconds=sessions.seconds,
        peak_memory=sessions.peak_memory,
        resumed_from=sessions.resumed_from,
    )


def divide_step(config: Config, progress: Progress) -> Config:
    """The settings of a new run with at least as many batches a step as there are processes: the same rows per step, in
    smaller batches. They stay so when the run is resumed with another number of processes."""
    world, settings = current_world(), cast(Any, config)
    if world.size == 1:
        return config
    total = settings.rows * settings.train.accumulate
    number = choose_number(total, settings.train.accumulate, world.size)
    if number is None:
        raise InputError(
            f"A step has {total} row{'' if total == 1 else 's'}, fewer than the {world.size} processes. Give more rows "
            "(--set rows=…), or fewer processes."
        )
    if number != settings.train.accumulate:
        progress.message(
            f"{world.size} processes: the {total} rows of a step are {number} batches of {total // number} (rows = "
            f"{total // number}, train.accumulate = {number})"
        )
    return merge(config, {"rows": total // number, "train": {"accumulate": number}}, COMMAND_LINE)


_EVEN = 1.25
"""How much longer than the mean the longest share of a step may be, before it is cut into smaller batches."""


def choose_number(rows: int, batches: int, processes: int) -> int | None:
    """Into how many equal batches to cut the rows of a step: as few as can be, at least as many as asked for and as
    there are processes, and so that all processes have about as many. None: there are not enough rows.

    >>> choose_number(32, 1, 2), choose_number(32, 4, 2), choose_number(32, 1, 3), choose_number(7, 1, 2)
    (2, 4, 8, 7)
    """
    fitting = [one for one in range(max(batches, processes), rows + 1) if rows % one == 0]
    waste = {one: -(-one // processes) * processes / one for one in fitting}
    return min(fitting, key=lambda one: (max(waste[one], _EVEN), one), default=None)


class Resizable(Protocol):
    """Batches of rows; a step has `streams` of them."""

    rows: int

    @property
    def streams(self) -> int: ...
    def resized(self, rows: int, accumulate: int) -> Self: ...
    def __call__(self, step: int) -> list[Any]: ...


_S = TypeVar("_S", bound=Resizable)
_B = TypeVar("_B", bound=Trainable)


def _call(batches: Resizable, step: int) -> list[Any]:
    return batches(step)


def row_sizes(batches: _S, out: Path, at: Callable[[_S, int], list[_B]] = _call) -> Sizes[_B]:
    """Smaller batches with more accumulation for the same step; `at` builds the batches of a step."""

    def settings(rows: int) -> str:
        return rows_and_accumulation(rows, batches.streams // rows, out)

    def cut(rows: int, step: int) -> list[_B]:
        return at(batches.resized(rows, batches.streams // rows), step)

    return Sizes(batches.rows, "rows", divisors(batches.rows), cut, settings)
