"""Lines of sessions.jsonl of runs that were stopped and killed, and what the report makes of them."""

import signal
from pathlib import Path
from typing import Any

import pytest

from qkv.jobs.finetune import run as finetune
from qkv.jobs.finetune.settings import FinetuneConfig, resolve_finetune_settings
from qkv.train.log import Silent
from qkv.train.loop import Trainer
from qkv.train.run_folder import read_lines
from tests.support import labelled_sets as sets
from tests.support.folders import make_folder

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("pretrained") / "bert", "BertModel", dropout=0.1, initial_std=0.05)


def config(pretrained: Path, task: str, file: Path, transfer: str = "full", **flags: Any) -> FinetuneConfig:
    given = {"data.train": str(file), "epochs": 2.0, "train.lr": 3e-3, **flags}
    return resolve_finetune_settings(
        task, str(pretrained), transfer, None, given, ["train.threads=1", "texts_per_step=8", "evaluations=1"]
    )


def stop_after(patch: pytest.MonkeyPatch, step: int, kills: bool = False) -> None:
    """Ctrl-C after a step; or an end without any saving."""
    plain = Trainer.advance

    def advance(self: Trainer[Any], batches: Any, lr: float) -> None:
        plain(self, batches, lr)
        if self.step == step and lr:
            if kills:
                raise KeyboardInterrupt
            signal.raise_signal(signal.SIGINT)

    patch.setattr(Trainer, "advance", advance)


def test_killed_before_its_last_session_was_written(
    tmp_path: Path, pretrained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before the first evaluation, resumed to the last step, killed, resumed: the run is finished."""
    settings, out = config(pretrained, "classify", sets.write_texts(tmp_path / "data.csv")), tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        assert not finetune.FINETUNING.start(settings, out, Silent()).finished
    assert [line["best"] for line in read_lines(out / "sessions.jsonl")] == [None]

    def killed(file: Path, line: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(finetune, "add_line", killed)
        with pytest.raises(KeyboardInterrupt):
            finetune.FINETUNING.resume(out, Silent())
    finished = finetune.FINETUNING.resume(out, Silent())
    assert finished.finished and finished.result["seeds"]["values"][0] > 0
    first, last = read_lines(out / "sessions.jsonl")
    assert (first["to"], last["from"]) == (2, last["to"]) and last["best"] is not None


def test_the_report_adds_up_the_time_of_two_seeds(tmp_path: Path, pretrained: Path) -> None:
    file = sets.write_texts(tmp_path / "data.csv")
    for seeds in (1, 2):
        out = tmp_path / f"{seeds}"
        finetune.FINETUNING.start(config(pretrained, "classify", file, seeds=seeds), out, Silent())
        assert ("All seeds" in (out / "report.html").read_text(encoding="utf-8")) == (seeds > 1)


def test_vectors_are_counted_once(tmp_path: Path, pretrained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(pretrained, "tag", sets.write_tagged(tmp_path / "data.json"), "features")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(patch, 3, kills=True)
        finetune.FINETUNING.start(settings, tmp_path / "run", Silent())
    assert ["vectors" in line for line in read_lines(tmp_path / "run" / "sessions.jsonl")] == [True]
    assert finetune.FINETUNING.resume(tmp_path / "run", Silent()).finished
    assert ["vectors" in line for line in read_lines(tmp_path / "run" / "sessions.jsonl")] == [True, False]
