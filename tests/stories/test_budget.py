"""Time, device and folder of a run: what is chosen is reported, written to config.toml, and read from there alone."""

import itertools
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from qkv.cli.main import main
from qkv.cli.options import locate_recipe
from qkv.config import Requested
from qkv.errors import InputError
from qkv.jobs.finetune.run import FINETUNING
from qkv.jobs.finetune.settings import resolve_finetune_settings
from qkv.jobs.lifecycle import Finished
from qkv.jobs.pretrain import resolve_pretraining_settings
from qkv.train.loop import Trainer
from tests.support import labelled_sets as sets
from tests.support.folders import make_folder
from tests.support.small_run import Recorder

pytestmark = pytest.mark.usefixtures("one_thread")
STEP = "qkv.train.loop.Trainer.seconds_per_step"


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("pretrained") / "bert", "BertModel", initial_std=0.05)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return sets.write_texts(tmp_path / "data.csv")


def start(out: Path, pretrained: Path, file: Path, told: Recorder, **flags: Any) -> Finished:
    given = {"data.train": str(file), **flags}
    config = resolve_finetune_settings("classify", str(pretrained), None, None, given, ["texts_per_step=16"])
    return FINETUNING.start(config, out, told)


def settings(run: Path) -> dict[str, Any]:
    return tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))


def test_the_time_of_the_encoder_is_told(
    tmp_path: Path, pretrained: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --transfer features it took minutes without a word."""
    clock = itertools.count(0.0, 12.0)
    monkeypatch.setattr("qkv.jobs.finetune.training.time.perf_counter", lambda: next(clock))
    monkeypatch.setattr("qkv.jobs.finetune.training.TOKENS_PER_BATCH", {"cpu": 60})
    told = Recorder()
    start(tmp_path / "run", pretrained, file, told, transfer="features")
    lines = [text for text in told.messages if "Vectors of the texts" in text]
    assert len(lines) > 1 and "Remaining time: about" in lines[0] and "%" in lines[0]


def test_a_long_run_is_limited_and_says_so(
    tmp_path: Path, pretrained: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qkv.jobs.finetune.training._WORTH_MEASURING", {"cpu": 0.0})
    monkeypatch.setattr(STEP, lambda *_, **__: 20.0)  # 3 steps an epoch: a minute, and evaluations
    told = Recorder()
    done = start(tmp_path / "run", pretrained, file, told)
    chosen = settings(tmp_path / "run")
    assert 7 <= chosen["epochs"] <= 9 and chosen["train"]["steps"] == 3 * chosen["epochs"] == done.steps
    (limited,) = [text for text in told.messages if "instead of" in text]
    (estimate,) = [text for text in told.messages if "Estimated time" in text]
    assert "default limit of 10 minutes" in limited
    assert "minutes on cpu. Cheaper: --transfer features, --transfer top:2, --epochs, --minutes." in estimate


@pytest.mark.parametrize(
    ("step", "flags", "epochs"),
    [
        (1000.0, {}, 2.0),  # two epochs are trained whatever they cost
        (1000.0, {"epochs": 3.0}, 3.0),  # as given
        (20.0, {"train.minutes": 2.5}, 2.1),
        (200.0, {"train.minutes": 2.5}, 0.218),
        (0.001, {"train.minutes": 60.0}, None),  # a budget is filled no further than by default
    ],
)
def test_epochs_that_fit(
    tmp_path: Path,
    pretrained: Path,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: float,
    flags: dict[str, Any],
    epochs: float | None,
) -> None:
    monkeypatch.setattr("qkv.jobs.finetune.training._WORTH_MEASURING", {"cpu": 0.0})
    monkeypatch.setattr("qkv.jobs.finetune.training.choose_epochs", lambda *_: 4.0)
    monkeypatch.setattr(STEP, lambda *_, **__: step)
    start(tmp_path / "run", pretrained, file, Recorder(), **flags)
    assert settings(tmp_path / "run")["epochs"] == (epochs or 4.0)
    assert "minutes" not in settings(tmp_path / "run")["train"]


def test_a_resumed_run_does_not_measure(
    tmp_path: Path, pretrained: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A really measured run is killed at once, and resumed with the number of steps that was written."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "run", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        start(tmp_path / "run", pretrained, file, Recorder(), **{"train.minutes": 0.02})
    steps = settings(tmp_path / "run")["train"]["steps"]
    monkeypatch.setattr(STEP, None)
    done = FINETUNING.resume(tmp_path / "run", Recorder())
    assert done.finished and done.outcome.step <= steps == done.steps


def test_both_lengths_are_refused(capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path) -> None:
    words = ["finetune", "classify", "--train", str(file), "--out", str(tmp_path / "run")]
    assert main([*words, "--minutes", "1", "--epochs", "2"]) == 2
    assert "--minutes and --epochs both say how long to train" in capsys.readouterr().err


def test_the_device_is_found_and_written(tmp_path: Path, pretrained: Path, file: Path) -> None:
    told = Recorder()
    start(tmp_path / "run", pretrained, file, told, epochs=1.0)
    import torch

    found = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert settings(tmp_path / "run")["device"] == found
    assert [text for text in told.messages if text.startswith(f"device: {found}")]


def test_overwrite(tmp_path: Path, pretrained: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, model = tmp_path / "run", ["--model", str(pretrained), "--set", "train.threads=1", "--epochs", "1"]
    words = ["finetune", "classify", "--train", str(file), "--out", str(out), *model]
    assert main(words) == 0
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "holds a finished run. Give another folder, or replace the run with --overwrite" in said
    assert "--resume" not in said.splitlines()[-1]
    (out / "faults.jsonl").write_text("left over\n")
    assert main([*words[:-1], "2", "--overwrite"]) == 0
    assert settings(out)["epochs"] == 2 and not (out / "faults.jsonl").exists()
    # what is not a run, or reads from it, is kept
    assert main([*words[:2], "--train", str(file), "--out", str(out), "--model", str(out), "--overwrite"]) == 2
    assert "which the new run reads" in capsys.readouterr().err and (out / "result.json").exists()
    (out / "thesis.txt").write_text("mine")
    assert main([*words, "--overwrite"]) == 2
    assert "also holds thesis.txt" in capsys.readouterr().err and (out / "result.json").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    assert main([*words[:5], str(tmp_path / "other"), *model, "--overwrite"]) == 2
    assert "is not a run" in capsys.readouterr().err and (tmp_path / "other" / "thesis.txt").exists()


def test_overwrite_with_bad_data_keeps_the_run(tmp_path: Path, pretrained: Path, file: Path) -> None:
    out = tmp_path / "run"
    start(out, pretrained, file, Recorder(), epochs=1.0)
    before = (out / "result.json").read_bytes()
    bad = sets.write_texts(tmp_path / "bad.csv", sets.texts(1))
    config = resolve_finetune_settings("classify", str(pretrained), None, None, {"data.train": str(bad)})
    with pytest.raises(InputError):
        FINETUNING.start(config, out, Recorder(), overwrite=True)
    assert (out / "result.json").read_bytes() == before


def test_recipes_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """They are part of the package: found from any folder, also by the path that a clone once had."""
    monkeypatch.chdir(tmp_path)
    asked: list[Any] = []

    def start(config: Any, *others: Any) -> None:
        asked.append(config)
        sys.exit(0)

    monkeypatch.setattr("qkv.jobs.pretrain.start", start)
    for name in ("adapt", "recipes/adapt.toml"):
        with pytest.raises(SystemExit):
            main(["pretrain", "bert", "--data", "shards", "--out", "run", "--init", "qkv-mini", "--recipe", name])
    assert asked[0] == asked[1] and asked[0].train.lr == 5e-5
    tuned = ["finetune", "classify", "--train", "a.csv", "--out", "run", "--recipe"]
    assert main([*tuned, "adapt"]) == 2
    assert "'adapt' is a recipe of qkv pretrain bert, not of qkv finetune." in capsys.readouterr().err
    assert main([*tuned, "mine"]) == 2
    said = capsys.readouterr().err
    assert "The package has no recipe of qkv finetune" in said and "adapt" not in said
    missing = "There is no recipe 'adpat' of qkv pretrain. Did you mean 'adapt'?"
    for name, said in (("adpat", missing), ("my.toml", "no such file")):
        assert main(["pretrain", "bert", "--data", "shards", "--out", "run", "--recipe", name]) == 2
        assert said in capsys.readouterr().err


def test_short_pretrainings_are_evaluated_five_times() -> None:
    def every(*said: str, recipe: str | None = None) -> int:
        given = Requested(locate_recipe(Path(recipe)) if recipe else None, {"data": "shards"}, said)
        found: int = resolve_pretraining_settings("bert", given).train.evaluate_every
        return found

    assert every("train.steps=400") == 80 and every("train.steps=10000") == 500 and every("train.steps=3") == 1
    assert every("train.steps=400", "train.evaluate_every=300") == 300  # as it was asked for
    assert every(recipe="base-gpu") == 5000 and every("train.steps=400", recipe="base-gpu") == 80
