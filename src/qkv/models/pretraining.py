"""What every training from shards shares: how it starts, resumes and ends, its corpus, a time budget in
steps. What is a model's own is in its folder, as a `Training`."""

import time
from collections.abc import Callable
from dataclasses import Field, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from qkv.config import merge, read_toml, to_toml
from qkv.data.corpus.shards import MANIFEST, Shards
from qkv.errors import InputError
from qkv.files import sha256_of, write_text
from qkv.models.table import MODELS, unknown_model
from qkv.report.page import RunPage, write_report
from qkv.train.loop import Outcome, Trainable, Trainer
from qkv.train.progress import Progress
from qkv.train.run_folder import OTHER_RUNS, Sessions, begin, config_of, read_lines, remove_drafts
from qkv.train.settings import TrainConfig


@dataclass(frozen=True)
class Finished:
    run: Path
    outcome: Outcome
    steps: int  # what the run is to reach
    already: bool = False  # the run had ended before

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """The last one in the log."""
        found = [line["evaluation"] for line in read_lines(self.run / "log.jsonl") if "evaluation" in line]
        return found[-1] if found else None


class Configuration(Protocol):
    """What the settings of such a training have in common."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def data(self) -> str: ...
    @property
    def data_sha256(self) -> str | None: ...
    @property
    def train(self) -> TrainConfig: ...


C = TypeVar("C", bound=Configuration)
_B = TypeVar("_B", bound=Trainable)


@dataclass(frozen=True)
class Training(Generic[C, _B]):
    defaults: C
    trainer: Callable[[C, Path, Progress, bool], Trainer[_B]]  # for the run in this folder; whether it begins
    save: Callable[[C, Path, Trainer[_B], Shards], None]  # the trained model, into RUN/model
    page: Callable[[C, Path, Trainer[_B], Shards, Sessions], RunPage]

    def start(self, config: C, out: Path, progress: Progress) -> Finished:
        """Begin a run in a new folder."""
        begin(out, "pretrain")
        data, data_sha256 = recognised(config.data)
        config = merge(config, {"data": data, "data_sha256": data_sha256 or "none"}, "command line")
        trainer = self.trainer(config, out, progress, True)
        config = merge(config, {"train": {"steps": in_time(trainer, progress).steps}}, "command line")
        write_text(out / "config.toml", to_toml(config))
        return self._finish(config, out, trainer)

    def resume(self, run: Path, progress: Progress) -> Finished:
        """Go on with a run where its newest checkpoint left off; a finished one stays as it is."""
        file = config_of(run)
        config = merge(self.defaults, read_toml(file), str(file))
        if before := ended(run, config.train.steps):
            return before
        remove_drafts(run)
        return self._finish(config, run, self.trainer(config, run, progress, False))

    def _finish(self, config: C, out: Path, trainer: Trainer[_B]) -> Finished:
        """Train, then write the model and the report."""
        began = time.perf_counter()
        outcome = trainer.run()
        corpus = Shards.open(config.data)
        if outcome.finished:
            self.save(config, out, trainer, corpus)
        sessions = Sessions.of(out).ended(outcome, began, trainer.device)
        write_report(out, self.page(config, out, trainer, corpus, sessions))
        sessions.write(out)
        return Finished(out, outcome, config.train.steps)


def model_of(run: Path) -> str:
    """Which model the run in this folder trains: one of those that `qkv pretrain` goes on with."""
    file = config_of(run)
    settings = read_toml(file)
    for key, kind, verb in OTHER_RUNS:
        if key in settings:
            raise InputError(f"{run} is {kind}: qkv {verb} --resume {run}.")
    # the runs of a BERT did not say it once, and are known by what they mask
    model = settings.get("model_type", "bert" if "masking" in settings else None)
    if model is None:
        raise InputError(f"{file} does not say which model is trained. Known as model_type: {', '.join(MODELS)}.")
    if model not in MODELS:
        raise InputError(f"{file}: {unknown_model(model)} Did a newer qkv begin the run?")
    return str(model)


def recognised(data: str) -> tuple[str, str | None]:
    """Where a resumed run finds its corpus, from wherever it is called, and by which hash it knows it again."""
    folder = Path(data).expanduser().resolve()
    manifest = folder / MANIFEST
    return str(folder), sha256_of(manifest) if manifest.is_file() else None


def opened(data: str, data_sha256: str | None, *, begins: bool) -> tuple[Shards, Shards]:
    """What is trained on and what is held out; read whole once, when a run begins."""
    corpus, held_out = (Shards.open(data, part) for part in ("train", "valid"))
    if begins:
        corpus.verify()
        held_out.verify()
    if data_sha256 not in (None, sha256_of(corpus.folder / MANIFEST)):
        raise InputError(
            f"{data} is not what the run was begun with: it was prepared anew, from something else. Begin "
            "another run, or prepare the corpus as it was."
        )
    return corpus, held_out


def in_time(trainer: Trainer[Any], progress: Progress) -> TrainConfig:
    """The settings with a time budget turned into steps: once, since a resumed run must not measure again."""
    config = trainer.config
    if config.minutes is not None:
        steps = trainer.steps_in(config.minutes)
        progress.message(f"{config.minutes:g} minutes are {steps:,} steps on this machine.")
        trainer.config = replace(config, steps=steps)
    return trainer.config


def ended(run: Path, steps: int) -> Finished | None:
    """A run that had reached its last step, and written what comes of it, before."""
    reached = Sessions.of(run).reached
    if reached >= steps and (run / "model" / "config.json").exists() and (run / "report.html").exists():
        return Finished(run, Outcome(reached, reached, finished=True), steps, already=True)
    return None
