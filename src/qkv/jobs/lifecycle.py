"""The lifecycle of a run, for every job: start in a new folder, train, stop, resume, finish.

RUN/config.toml holds all settings with their defaults; a resumed run reads nothing else. A job implements `Session`,
one process that works on a run.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch

from qkv.config import merge, read_toml, to_toml
from qkv.data.labelled.examples import Fault
from qkv.errors import InputError
from qkv.files import read_object, write_text
from qkv.text.messages import translate
from qkv.train.device import AUTO, describe_device, fastest_device
from qkv.train.distributed import alone, current_world
from qkv.train.log import Progress
from qkv.train.run_folder import (
    CONFIG,
    Outcome,
    Sessions,
    begin,
    job_of,
    lock_run,
    read_lines,
    remove_drafts,
    remove_run,
    settings_of,
    write_settings,
)


@dataclass(frozen=True)
class Finished:
    """The outcome of a run, finished or stopped."""

    run: Path
    outcome: Outcome
    already: bool = False  # it was finished before this call

    @property
    def finished(self) -> bool:
        return self.outcome.finished

    @property
    def signal(self) -> int | None:
        return self.outcome.signal

    @property
    def result(self) -> dict[str, Any]:
        return read_object(self.run / "result.json")

    @property
    def steps(self) -> int:
        """The total number of steps."""
        return int(read_toml(self.run / CONFIG)["train"]["steps"])

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """The last evaluation in the log."""
        found = [line["evaluation"] for line in read_lines(self.run / "log.jsonl") if "evaluation" in line]
        return found[-1] if found else None


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


_C = TypeVar("_C", bound=_Dataclass)
_C_co = TypeVar("_C_co", bound=_Dataclass, covariant=True)


class Session(Protocol[_C_co]):
    """One process of a run: data read, model built, ready to train."""

    @property
    def config(self) -> _C_co:
        """The settings with all defaults resolved from data, model and device."""

    def train(self) -> Outcome: ...
    def stop(self, outcome: Outcome) -> None:
        """Report on a run that was interrupted and has saved its checkpoint."""

    def finish(self, outcome: Outcome) -> None:
        """Write the results; last the file by which `ended` recognises a finished run."""


def ended_by_result(run: Path, settings: Mapping[str, Any]) -> Finished | None:
    """Return the finished run if RUN/result.json exists; for jobs that write it last."""
    return Finished(run, Outcome(0, 0, finished=True), already=True) if (run / "result.json").is_file() else None


def ended_by_sessions(run: Path, settings: Mapping[str, Any]) -> Finished | None:
    """Return the finished run if a session reached the last step; for jobs that write RUN/sessions.jsonl last."""
    steps, reached = settings.get("train", {}).get("steps"), Sessions.of(run).reached
    written = (run / "model" / "config.json").exists() and (run / "report.html").exists()
    if steps is None or reached < steps or not written:
        return None
    return Finished(run, Outcome(reached, reached, finished=True), already=True)


@dataclass(frozen=True)
class Lifecycle(Generic[_C]):
    job: str  # a key of JOBS (train/run_folder.py)
    defaults: _C
    open: Callable[[_C, Path, Progress, bool], Session[_C]]  # True for a new run: sources are pinned, else checked
    ended: Callable[[Path, Mapping[str, Any]], Finished | None] = ended_by_result

    def start(self, config: _C, out: Path, progress: Progress, overwrite: bool = False) -> Finished:
        """Start a run in a new folder, or in place of the run that it holds."""
        self.check_folder(out, overwrite)
        return self.start_in(config, out, progress, overwrite)

    def check_folder(self, out: Path, overwrite: bool = False) -> None:
        """Raise if the folder cannot take a new run; of several processes the first looks."""
        if not current_world().is_main:
            return
        mine = (out / CONFIG).exists() and job_of(out) in (None, self.job)
        begin(out, self.job, mine and self.ended(out, settings_of(out, self.job)) is not None, overwrite)

    def start_in(self, config: _C, out: Path, progress: Progress, overwrite: bool = False) -> Finished:
        """Start a run in a folder that is already prepared."""
        world, pinned = current_world(), pin_device(config)
        check_world(pinned, progress)
        session = self.open(pinned, out, progress, True)
        if pinned is not config:  # only now: an error about the sources comes first
            progress.message(f"device: {describe_device(AUTO)}")
        with lock_run(out) if world.is_main else nullcontext():
            if world.is_main:
                if overwrite:  # only now: the sources of the new run were read and found good
                    check_outside(session.config, out)
                    remove_run(out)
                elif (out / CONFIG).exists():  # of a run that was started in the meantime
                    self.check_folder(out)
                write_settings(out, self.job, to_toml(session.config))
            world.wait()
            return self._go(session, out, progress)

    def resume(self, run: Path, progress: Progress) -> Finished:
        """Resume a stopped run; a finished one is unchanged."""
        world, settings = current_world(), settings_of(run, self.job)
        before = self.ended(run, settings) if world.is_main else None
        if world.from_main(before is not None):
            return before or Finished(run, Outcome(0, 0, finished=True), already=True)
        config = merge(self.defaults, settings, str(run / CONFIG))
        check_world(config, progress)
        with lock_run(run) if world.is_main else nullcontext():
            if world.is_main:
                remove_drafts(run)
            return self._go(self.open(config, run, progress, False), run, progress)

    def _go(self, session: Session[_C], out: Path, progress: Progress) -> Finished:
        outcome = session.train()
        done = Finished(out, outcome)
        if not current_world().is_main:
            return done
        with alone():
            (session.finish if outcome.finished else session.stop)(outcome)
        if outcome.finished:
            progress.end(done.result if (out / "result.json").is_file() else {"evaluation": done.evaluation})
        return done


def check_world(config: _C, progress: Progress) -> None:
    """Raise if several processes cannot share the device of the settings; say how many there are."""
    world = current_world()
    if world.size > 1:
        world.check_device(getattr(config, "device", AUTO))
        threads = torch.get_num_threads()
        progress.message(
            f"{world.size} processes, {world.local_size} on this machine, each with {threads} "
            f"thread{'' if threads == 1 else 's'}"
        )


def check_outside(config: _C, out: Path) -> None:
    """Raise if a setting names a path in the folder, which --overwrite would remove."""
    for one in fields(config):
        value = getattr(config, one.name)
        if is_dataclass(value) and not isinstance(value, type):
            check_outside(value, out)
        for path in value if isinstance(value, tuple) else (value,):
            if isinstance(path, str) and Path(path).is_absolute() and Path(path).is_relative_to(out.resolve()):
                raise InputError(f"--overwrite would remove {path}, which the new run reads. Give another --out.")


def pin_device(config: _C) -> _C:
    """Replace the device "auto", in the settings or in one of their tables, by the one that is used."""
    changes: dict[str, Any] = {}
    for one in fields(config):
        value = getattr(config, one.name)
        if one.name == "device" and value == AUTO:
            changes[one.name] = fastest_device()
        elif is_dataclass(value) and not isinstance(value, type) and (pinned := pin_device(value)) is not value:
            changes[one.name] = pinned
    return replace(config, **changes) if changes else config


def write_faults(out: Path, faults: Iterable[Fault]) -> None:
    """Write RUN/faults.jsonl: every example that was dropped or repaired, with messages in the user's language. Also on
    a resume, since a run may have been killed before."""
    lines = [
        {
            "file": one.place.file,
            "line": one.place.line,
            "kind": one.kind,
            "message": translate(one.message),
            "action": one.action,
        }
        for one in faults
    ]
    if lines and current_world().is_main:
        write_text(out / "faults.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
