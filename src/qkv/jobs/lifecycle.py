"""The life of a run, whatever the job: begun in a new folder, trained, stopped, gone on with, finished.

RUN/config.toml holds the settings with every default written out: a run that goes on reads nothing else. What is a
job's own is a `Session`, one sitting of it.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from qkv.config import merge, read_toml, to_toml
from qkv.data.labelled.examples import Fault
from qkv.files import read_object, write_text
from qkv.train.loop import Outcome
from qkv.train.progress import Progress
from qkv.train.run_folder import CONFIG, Sessions, begin, read_lines, remove_drafts, settings_of, write_settings


@dataclass(frozen=True)
class Finished:
    """What became of a run; not all of it has reached its end."""

    run: Path
    outcome: Outcome
    already: bool = False  # it had ended before

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
        """What the run is to reach."""
        return int(read_toml(self.run / CONFIG)["train"]["steps"])

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """The last one in the log."""
        found = [line["evaluation"] for line in read_lines(self.run / "log.jsonl") if "evaluation" in line]
        return found[-1] if found else None


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


_C = TypeVar("_C", bound=_Dataclass)
_C_co = TypeVar("_C_co", bound=_Dataclass, covariant=True)


class Session(Protocol[_C_co]):
    """One sitting of a run: data read, model built, ready to train."""

    @property
    def config(self) -> _C_co:
        """With all that follows from data, model and machine."""

    def train(self) -> Outcome: ...
    def stop(self, outcome: Outcome) -> None:
        """It was interrupted, and saved what a resume needs; what is to be told of it so far."""

    def finish(self, outcome: Outcome) -> None:
        """Write what comes of the run; last of all what `ended` knows a finished one by."""


def ended_by_result(run: Path, settings: Mapping[str, Any]) -> Finished | None:
    """A job that writes RUN/result.json last has ended when it is there."""
    return Finished(run, Outcome(0, 0, finished=True), already=True) if (run / "result.json").is_file() else None


def ended_by_sessions(run: Path, settings: Mapping[str, Any]) -> Finished | None:
    """A job that writes RUN/sessions.jsonl last has ended when a session reached the last step."""
    steps, reached = settings.get("train", {}).get("steps"), Sessions.of(run).reached
    written = (run / "model" / "config.json").exists() and (run / "report.html").exists()
    if steps is None or reached < steps or not written:
        return None
    return Finished(run, Outcome(reached, reached, finished=True), already=True)


@dataclass(frozen=True)
class Lifecycle(Generic[_C]):
    job: str  # a key of JOBS (train/run_folder.py)
    defaults: _C
    open: Callable[[_C, Path, Progress, bool], Session[_C]]  # whether it begins: sources are pinned, or checked
    ended: Callable[[Path, Mapping[str, Any]], Finished | None] = ended_by_result

    def start(self, config: _C, out: Path, progress: Progress) -> Finished:
        """Begin a run in a new folder."""
        begin(out, self.job)
        return self.begun(config, out, progress)

    def begun(self, config: _C, out: Path, progress: Progress) -> Finished:
        """The same, in a folder that was looked at already."""
        session = self.open(config, out, progress, True)
        write_settings(out, self.job, to_toml(session.config))
        return self._go(session, out)

    def resume(self, run: Path, progress: Progress) -> Finished:
        """Go on with a run where it was stopped; a finished one stays as it is."""
        settings = settings_of(run, self.job)
        if before := self.ended(run, settings):
            return before
        config = merge(self.defaults, settings, str(run / CONFIG))
        remove_drafts(run)
        return self._go(self.open(config, run, progress, False), run)

    def _go(self, session: Session[_C], out: Path) -> Finished:
        outcome = session.train()
        (session.finish if outcome.finished else session.stop)(outcome)
        return Finished(out, outcome)


def write_faults(out: Path, faults: Iterable[Fault]) -> None:
    """RUN/faults.jsonl: every example that was left out or mended, and where it stood; again on a resume, since a run
    may have been killed before it was there."""
    lines = [
        {"file": one.place.file, "line": one.place.line, "kind": one.kind, "message": one.message, "action": one.action}
        for one in faults
    ]
    if lines:
        write_text(out / "faults.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
