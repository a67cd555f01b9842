"""Runs that are killed at any moment and gone on with: in the end every byte is that of a run that was never stopped.

No hooks: a process is watched through the files that it writes, and killed from outside.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from qkv.train import run_folder
from tests.support.corpora import write_corpus
from tests.support.forks import Forks, run_python
from tests.support.small_run import contents, make_tokenizer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and forks are those of Unix")

SETTINGS = (
    "rows=8",
    "evaluation_rows=16",
    "model.layers=1",
    "model.width=64",
    "model.heads=2",
    "model.inner_width=256",
    "pairs.max_length=48",
    "train.threads=1",
    "train.log_every=3",
    "train.evaluate_every=10",
    "train.save_every=8",
)
STEPS, MANY = 48, 240  # few for three kills, many for twenty

Command = Callable[..., int]
"""`Forks.run`, or the same with a Python that is started anew."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """corpus.txt and tokenizer/, for all."""
    folder = tmp_path_factory.mktemp("resume")
    write_corpus(folder / "corpus.txt", 1000)
    make_tokenizer().save(folder / "tokenizer")
    return folder


@pytest.fixture(scope="module")
def forks(folder: Path) -> Iterator[Forks]:
    forks = Forks(folder)
    yield forks
    forks.close()


@pytest.fixture(scope="module")
def whole(folder: Path, forks: Forks) -> Path:
    """shards/ and run/ that nobody stopped."""
    return never_stopped(folder, folder / "whole", forks, STEPS)


@pytest.fixture(scope="module")
def long(folder: Path, forks: Forks) -> Path:
    return never_stopped(folder, folder / "long", forks, MANY)


def never_stopped(folder: Path, into: Path, forks: Forks, steps: int) -> Path:
    assert forks.run(*preparation(folder, into)) == 0
    assert forks.run(*training(into, steps)) == 0
    return into


def preparation(folder: Path, into: Path) -> list[object]:
    words = ["--tokenizer", folder / "tokenizer", "--out", into / "shards", "--segmenter", "none", "--hold-out", 0.05]
    return ["prepare", folder / "corpus.txt", *words]


def training(into: Path, steps: int = STEPS) -> list[object]:
    """Begin or go on, as a person would who does not know how far it got."""
    run = into / "run"
    if (run / "config.toml").exists():
        return ["pretrain", "--resume", run]
    words = [word for setting in (*SETTINGS, f"train.steps={steps}") for word in ("--set", setting)]
    return ["pretrain", "bert", "--data", into / "shards", "--out", run, *words]


def results(into: Path) -> dict[str, bytes]:
    """All that must come out the same; what the clock says, and where the folder lies, may differ."""
    run = into / "run"
    last = run_folder.checkpoint_steps(run / "checkpoints")[-1]
    files = [run / "log.jsonl", run / "model" / "model.safetensors", *sorted(last.iterdir())]
    found = {str(file.relative_to(into)): file.read_bytes() for file in files}
    return found | {f"shards/{name}": data for name, data in contents(into / "shards").items()}


def test_a_run_that_nobody_stops(whole: Path) -> None:
    found = results(whole)
    assert {"run/checkpoints/step-00000048/optimizer.safetensors", "shards/manifest.json"} <= found.keys()
    assert found["run/log.jsonl"].count(b'"lr"') == 16


def moment(what: str, into: Path, draw: random.Random) -> Callable[[], bool]:
    """True from some time on while a process prepares, trains or saves, or at any time at all."""
    run, end = into / "run", time.monotonic() + draw.random()
    if what == "preparing":
        return lambda: (into / "shards" / "unfinished.json").exists() and later(draw, 0.01)  # it takes little more
    if what == "training":
        lines = lines_in(run / "log.jsonl") + draw.randint(0, 4)
        return lambda: lines_in(run / "log.jsonl") > lines and later(draw, 0.03)
    if what == "saving":
        known = drafts(run)  # of a save that was killed before
        return lambda: bool(drafts(run) - known) and later(draw, 0.01)
    return lambda: time.monotonic() > end


def lines_in(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def drafts(run: Path) -> set[Path]:
    return set((run / "checkpoints").glob(".step-*"))


def later(draw: random.Random, longest: float) -> bool:
    time.sleep(draw.random() * longest)
    return True


def survives(
    moments: list[str], folder: Path, into: Path, command: Command, seed: int, steps: int = STEPS
) -> list[str]:
    """Kill it at each of these moments and go on in between; at which of them a process was there to be killed."""
    draw, hit = random.Random(seed), []
    for what in moments:
        if what != "preparing" and not (into / "shards" / "manifest.json").exists():
            assert command(*preparation(folder, into)) == 0
        words = preparation(folder, into) if what == "preparing" else training(into, steps)
        if command(*words, signal_at=moment(what, into, draw)) == -signal.SIGKILL:
            hit.append(what)
    assert command(*training(into, steps)) == 0
    return hit


def test_kill_9(folder: Path, forks: Forks, whole: Path, tmp_path: Path) -> None:
    hit = survives(["preparing", "training", "saving"], folder, tmp_path, forks.run, seed=1)
    assert hit == ["preparing", "training", "saving"]
    assert results(tmp_path) == results(whole)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_kill_9_at_twenty_moments(folder: Path, forks: Forks, long: Path, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    moments = ["preparing"] * 5 + draw.choices(["training", "saving", "anywhen"], k=15)
    hit = survives(moments, folder, tmp_path, forks.run, seed, MANY)
    assert {"preparing", "training", "saving"} <= set(hit) and len(hit) >= 15, "a fast machine may finish before some"
    assert results(tmp_path) == results(long)


@pytest.mark.slow
def test_kill_9_of_a_whole_python(folder: Path, whole: Path, tmp_path: Path) -> None:
    """The same without forks, as people start it."""
    command = partial(run_python, tmp_path / "said.txt")
    hit = survives(["preparing", "training", "saving", "training"], folder, tmp_path, command, seed=3)
    assert {"preparing", "training", "saving"} <= set(hit)
    assert results(tmp_path) == results(whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_says_how_to_go_on(
    folder: Path, forks: Forks, whole: Path, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "shards").symlink_to(whole / "shards")
    logged = partial(lines_in, tmp_path / "run" / "log.jsonl")
    assert forks.run(*training(tmp_path), signal_at=lambda: logged() > 3, number=number) == 128 + number
    said, step = forks.said.read_text(), run_folder.checkpoint_steps(tmp_path / "run" / "checkpoints")[-1].name
    assert f"Stopped and saved at step {int(step.removeprefix('step-'))}. Resume with: qkv pretrain --resume" in said
    assert "Traceback" not in said
    assert (tmp_path / "run" / "report.html").exists() and not (tmp_path / "run" / "model").exists()
    assert forks.run(*training(tmp_path)) == 0
    assert results(tmp_path) == results(whole)
    assert forks.run(*training(tmp_path)) == 0
    assert "is finished: 48 steps" in forks.said.read_text()


@pytest.mark.parametrize("whole_python", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_ctrl_c_before_there_is_anything_to_save(
    folder: Path, forks: Forks, whole: Path, tmp_path: Path, whole_python: bool
) -> None:
    """Interrupted as soon as the run has settings: no traceback, and it can be gone on with."""
    (tmp_path / "shards").symlink_to(whole / "shards")
    begun, said = (tmp_path / "run" / "config.toml").exists, tmp_path / "said.txt" if whole_python else forks.said
    command: Command = partial(run_python, said) if whole_python else forks.run
    assert command(*training(tmp_path), signal_at=begun, number=signal.SIGINT) == 130
    assert "Traceback" not in said.read_text()
    assert forks.run(*training(tmp_path)) == 0
    assert results(tmp_path) == results(whole)
