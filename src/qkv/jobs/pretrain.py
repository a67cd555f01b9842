"""`qkv pretrain`: pretrain a model on shards, exactly resumable, for every family that supports it.

RUN/config.toml       the resolved settings; a resumed run reads nothing else
RUN/log.jsonl         step, losses, learning rate; evaluations with samples. Reproducible
RUN/timing.jsonl      speed
RUN/checkpoints/      checkpoints to resume from
RUN/model/            the finished model
RUN/report.html       the report page
RUN/sessions.jsonl    one line per start or resume; written last, so a session that reached the end marks a finished run
"""

import time
from functools import partial
from pathlib import Path
from typing import Any, Generic

from qkv.config import COMMAND_LINE, Requested, merge
from qkv.data.corpus.shards import MANIFEST, Shards
from qkv.errors import InputError
from qkv.files import sha256_of
from qkv.jobs.lifecycle import Finished, Lifecycle, ended_by_sessions
from qkv.models.folders import hub
from qkv.models.pretraining import C, Pretraining, T, divide_step, evaluate_often
from qkv.models.table import PRETRAINED, load_pretraining, unknown_model
from qkv.report.page import write_report
from qkv.train.distributed import current_world
from qkv.train.log import Progress
from qkv.train.run_folder import CONFIG, Outcome, Sessions, settings_of


def start(config: Any, out: Path, progress: Progress, overwrite: bool = False) -> Finished:
    """Start a run in a new folder, for the model of these settings."""
    return make_lifecycle(load_pretraining(config.model_type)).start(config, out, progress, overwrite)


def resume(run: Path, progress: Progress) -> Finished:
    """Resume a run from its newest checkpoint; a finished one is unchanged."""
    return make_lifecycle(load_pretraining(read_model_name(run))).resume(run, progress)


def resolve_pretraining_settings(model: str, given: Requested) -> Any:
    """Return the settings of a model from recipe, flags and --set. A recipe may name its model as `model_type`, which
    must agree, since settings of different models share names."""
    file, named = given.recipe, given.tables.get("model_type", model)
    if named not in PRETRAINED:
        raise InputError(f"{file}: {unknown_model(named)}")
    if named != model:
        raise InputError(
            f"{file} is a recipe for {named}, not for {model}. Type: qkv pretrain {named} --recipe {file} …, or leave "
            "the recipe out."
        )
    config = load_pretraining(model).settings.resolve(given)
    every, length = "train.evaluate_every", "train.steps"
    as_recipe = every in given.written and length not in given.typed
    if every in given.typed or as_recipe or config.train.steps is None or config.train.evaluate_every is None:
        return config
    often = evaluate_often(config.train.evaluate_every, config.train.steps)
    return merge(config, {"train": {"evaluate_every": often}}, COMMAND_LINE)


def read_model_name(run: Path) -> str:
    """Return the model type that a run trains."""
    model = settings_of(run, "pretrain").get("model_type")
    if model is None:
        raise InputError(
            f"{run / CONFIG} does not say which model is trained. Known as model_type: {', '.join(PRETRAINED)}."
        )
    if model not in PRETRAINED:
        raise InputError(f"{run / CONFIG}: {unknown_model(model)} Did a newer qkv begin the run?")
    return str(model)


def make_lifecycle(pretraining: Pretraining[C, T]) -> Lifecycle[C]:
    return Lifecycle("pretrain", pretraining.settings.defaults, partial(ShardSession, pretraining), ended_by_sessions)


class ShardSession(Generic[C, T]):
    def __init__(self, pretraining: Pretraining[C, T], config: C, out: Path, progress: Progress, begins: bool) -> None:
        self.pretraining, self.out = pretraining, out
        if pretraining.alone and current_world().size > 1:
            raise InputError(
                f"{config.model_type} trains in one process, with a thread for each core (--set train.threads=N): "
                "leave out --processes."
            )
        if begins:
            config = divide_step(merge(config, _places(config), COMMAND_LINE), progress)
        self.trainer = pretraining.trainer(config, out, progress, begins)
        self.config = pretraining.settled(config, self.trainer, progress) if begins else config

    def train(self) -> Outcome:
        self.began = time.perf_counter()
        return self.trainer.run()

    def finish(self, outcome: Outcome) -> None:
        self.pretraining.save(self.config, self.out, self.trainer, Shards.open(self.config.data))
        self.stop(outcome)

    def stop(self, outcome: Outcome) -> None:
        sessions = Sessions.of(self.out).ended(outcome, self.began, self.trainer.device)
        corpus = Shards.open(self.config.data)
        write_report(self.out, self.pretraining.page(self.config, self.out, self.trainer, corpus, sessions))
        sessions.write(self.out)


def _places(config: Any) -> dict[str, Any]:
    """Return absolute paths of corpus and model and the hash of the corpus, for a resume."""
    folder = Path(config.data).expanduser().resolve()
    manifest = folder / MANIFEST
    found = {"data": str(folder), "data_sha256": sha256_of(manifest) if manifest.is_file() else "none"}
    init = getattr(config, "init", None)
    if init is not None and init not in hub.MODELS and Path(init).expanduser().is_dir():
        found["init"] = str(Path(init).expanduser().resolve())
    return found
