"""What every training from shards shares: the corpus it was begun with, a time budget in steps, how it ended."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qkv.data.shard_file import sha256_of
from qkv.data.shards import MANIFEST, Shards
from qkv.errors import InputError
from qkv.run.folder import read_lines
from qkv.train.loop import Outcome, Trainer
from qkv.train.progress import Progress
from qkv.train.train_config import TrainConfig


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
    reached = max((session["to"] for session in read_lines(run / "sessions.jsonl")), default=0)
    if reached >= steps and (run / "model" / "config.json").exists() and (run / "report.html").exists():
        return Finished(run, Outcome(reached, reached, finished=True), steps, already=True)
    return None
