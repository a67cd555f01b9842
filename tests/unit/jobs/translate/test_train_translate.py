"""A whole run: what it leaves, that it can be stopped anywhere, what it refuses."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.config import merge, read_toml
from qkv.errors import InputError
from qkv.files import read_object
from qkv.jobs.lifecycle import Finished
from qkv.jobs.translate.settings import TokenizerChoice, TranslateConfig
from qkv.jobs.translate.training import TRANSLATING
from qkv.models.family import TRANSLATES
from qkv.models.seq2seq.network import Seq2Seq
from qkv.models.table import open_model
from qkv.models.transformer.network import Transformer
from qkv.text.tokenizer import Tokenizer
from qkv.train.log import Silent
from tests.support.small_run import Recorder
from tests.support.translation_runs import digit_files, settings

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return digit_files(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module", params=["transformer", "seq2seq"])
def finished(
    request: pytest.FixtureRequest, files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Finished:
    out = tmp_path_factory.mktemp("run") / request.param
    separate = ("tokenizer.joint=false",) if request.param == "seq2seq" else ()
    return TRANSLATING.start(settings(request.param, files, "average=3", *separate), out, Silent())


def test_what_a_run_leaves(finished: Finished) -> None:
    run = finished.run
    assert finished.finished and not (run / "checkpoints").exists()
    left = {"config.toml", "log.jsonl", "timing.jsonl", "sessions.jsonl", "report.html", "result.json"}
    assert left | {"model", "tokenizer", "translations.tsv"} <= {path.name for path in run.iterdir()}
    result = finished.result
    assert result["steps"] == 8 and result["scores"]["test"]["pairs"] == 12 and result["parameters"] > 1000
    assert len((run / "translations.tsv").read_text().splitlines()) == 13
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    evaluations = [line["evaluation"] for line in lines if "evaluation" in line]
    assert len(evaluations) == 2 and evaluations[0]["translated"] == 8 and evaluations[0]["next_count"] > 100
    assert TRANSLATING.resume(run, Silent()).already


def test_the_folder_is_the_model(finished: Finished) -> None:
    opened = open_model(finished.run / "model")
    found = opened.ability(TRANSLATES)
    joint = finished.run.name == "transformer"
    assert isinstance(found.network, Transformer if joint else Seq2Seq) and not found.network.training
    assert (found.languages.source is found.languages.target) == joint and found.max_length == 32
    assert opened.record["scores"] == finished.result["scores"]


def test_no_folder_of_this_machine_is_in_the_model(finished: Finished, tmp_path: Path) -> None:
    config = merge(TranslateConfig(), read_toml(finished.run / "config.toml"), "")
    given = finished.run / "tokenizer"
    tokenizer = TokenizerChoice(source=str(given))
    if not config.tokenizer.joint:
        tokenizer = TokenizerChoice(joint=False, source=str(given / "source"), target=str(given / "target"))
    config = replace(
        config,
        bitext=replace(config.bitext, more=config.bitext.dev),
        tokenizer=tokenizer,
        train=replace(config.train, steps=1),
    )
    run = TRANSLATING.start(config, tmp_path / "run", Silent()).run
    text = (run / "model" / "qkv.json").read_text()
    for folder in (tmp_path, finished.run, Path(config.bitext.train[0]).parent):
        assert str(folder) not in text
    bitext = json.loads(text)["record"]["config"]["bitext"]
    assert bitext["train"] == ["train.tsv"] and bitext["more"] == ["dev.tsv"]


class _Stopped(Silent):
    """Presses Ctrl-C, or dies, at a logged step."""

    def __init__(self, step: int, dies: bool) -> None:
        self.at, self.dies = step, dies

    def step(self, step: int, figures: Any) -> None:
        if step == self.at:
            if self.dies:
                raise RuntimeError("the machine was switched off")
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("dies", [False, True])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(finished: Finished, tmp_path: Path, dies: bool) -> None:
    """Every byte of log, model and figures, the mean of checkpoints among them."""
    run = tmp_path / finished.run.name
    config = merge(TranslateConfig(), read_toml(finished.run / "config.toml"), "")
    if dies:
        with pytest.raises(RuntimeError):
            TRANSLATING.start(config, run, _Stopped(6, dies=True))
    else:
        stopped = TRANSLATING.start(config, run, _Stopped(6, dies=False))
        assert not stopped.finished and stopped.signal == signal.SIGINT and (run / "report.html").exists()
    assert TRANSLATING.resume(run, Silent()).finished
    for name in ("log.jsonl", "translations.tsv", "model/model.safetensors", "model/config.json", "config.toml"):
        assert (run / name).read_bytes() == (finished.run / name).read_bytes(), name
    ours, theirs = (
        {key: value for key, value in one.items() if key != "seconds"}
        for one in (read_object(run / "result.json"), finished.result)
    )
    assert ours == theirs


def test_a_run_that_is_stopped_again_and_again_has_the_same_mean(files: dict[str, Path], tmp_path: Path) -> None:
    """Every second step of the window, which is more often than there is room for."""
    changes = ("bitext.dev_share=0", "average=2", "train.steps=20", "train.save_every=10", "train.log_every=1")
    config = settings("transformer", {"train": files["train"]}, *changes)
    whole = TRANSLATING.start(config, tmp_path / "whole", Silent())
    run = tmp_path / "run"
    TRANSLATING.start(config, run, _Stopped(11, dies=False))
    for step in (13, 15, 17):
        assert not TRANSLATING.resume(run, _Stopped(step, dies=False)).finished
    assert TRANSLATING.resume(run, Silent()).result["weights"] == whole.result["weights"] == "the mean of 2 checkpoints"
    assert (run / "model/model.safetensors").read_bytes() == (whole.run / "model/model.safetensors").read_bytes()


@pytest.mark.parametrize("at", ["save_tokenizers", "write_held_out", "second tokenizer"])
def test_a_run_that_was_killed_as_it_began(
    finished: Finished, files: dict[str, Path], tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on, and what it had not come to write is written."""
    lines = files["train"].read_text() + f"{'1 ' * 40}\t1\n"
    (tmp_path / "train.tsv").write_text(lines)
    joint = () if finished.run.name == "transformer" else ("tokenizer.joint=false",)
    config = settings(finished.run.name, {"train": tmp_path / "train.tsv"}, "bitext.dev_share=0.1", *joint)
    config = replace(config, train=replace(config.train, steps=1))

    def killed(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        if at == "second tokenizer":
            save = Tokenizer.save

            def first_only(self: Tokenizer, folder: Path) -> None:
                if folder.name != "source":
                    raise RuntimeError("killed")
                save(self, folder)

            patch.setattr(Tokenizer, "save", first_only)
        else:
            patch.setattr(f"qkv.jobs.translate.training.{at}", killed)
        with pytest.raises(RuntimeError, match="killed"):
            TRANSLATING.start(config, tmp_path / "run", Silent())
    run = TRANSLATING.resume(tmp_path / "run", Silent()).run
    whole = TRANSLATING.start(config, tmp_path / "whole", Silent()).run
    for name in ("held-out/dev.tsv", "faults.jsonl", "model/model.safetensors"):
        assert (run / name).read_bytes() == (whole / name).read_bytes(), name
    assert sorted(path.name for path in run.rglob("*")) == sorted(path.name for path in whole.rglob("*"))


def test_what_is_too_long_to_be_measured_by_is_told(files: dict[str, Path], tmp_path: Path) -> None:
    long = " ".join("1234567890" * 4)
    measured = {"train": files["train"]}
    for name in ("dev", "test"):
        measured[name] = tmp_path / f"{name}.tsv"
        measured[name].write_text(f"1 2\t2 1\n{long}\t1\n3 4\t4 3\n5\t{long}\n")
    said = Recorder()
    run = TRANSLATING.start(settings("transformer", measured, "train.steps=1"), tmp_path / "run", said).run
    faults = [json.loads(line) for line in (run / "faults.jsonl").read_text().splitlines()]
    assert [(Path(fault["file"]).name, fault["line"], fault["action"]) for fault in faults] == [
        ("dev.tsv", 2, "dropped"),
        ("dev.tsv", 4, "dropped"),
        ("test.tsv", 2, "noted"),
    ]
    assert any("2 of 4 pairs of dev have more than 31 tokens" in one for one in said.messages)
    assert any("1 of 4 sources of test have more than 31 tokens" in one for one in said.messages)
    # all four count, and the long one with nothing, as qkv translate would refuse it
    assert read_object(run / "result.json")["scores"]["test"]["pairs"] == 4
    assert (run / "translations.tsv").read_text().splitlines()[2] == f"{long}\t1\t"


def test_the_mean_is_said_to_be_of_as_many_as_there_were(files: dict[str, Path], tmp_path: Path) -> None:
    said = Recorder()
    only = {"train": files["train"]}
    changes = ("average=9", "bitext.dev_share=0")
    done = TRANSLATING.start(settings("transformer", only, *changes), tmp_path / "run", said)
    assert done.result["weights"] == "the mean of 4 checkpoints"
    TRANSLATING.start(settings("transformer", files, "average=9"), tmp_path / "other", said)
    assert any("the mean of the last 4 checkpoints has" in one for one in said.messages)
    assert "mean of 9" not in (tmp_path / "run" / "report.html").read_text()


def test_no_memory_to_translate_is_told_and_can_be_gone_on_from(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr("qkv.jobs.translate.training.translate_pairs", full)
        with pytest.raises(InputError, match="Out of memory on cpu translating test"):
            TRANSLATING.start(settings("transformer", files, "train.steps=1"), tmp_path / "run", Silent())
    assert TRANSLATING.resume(tmp_path / "run", Silent()).result["scores"]["test"]["pairs"] == 12


def test_nothing_given_is_held_out_by_the_source(files: dict[str, Path], tmp_path: Path) -> None:
    said = Recorder()
    only = {"train": files["train"]}
    config = settings("transformer", only, "bitext.dev_share=0.1", "bitext.test_share=0.05", "train.steps=2")
    run = TRANSLATING.start(config, tmp_path / "run", said).run
    dev, test = ((run / "held-out" / f"{name}.tsv").read_text().splitlines() for name in ("dev", "test"))
    assert 10 < len(dev) < 60 and 2 < len(test) < 40
    everything = files["train"].read_text().splitlines()
    assert set(dev) | set(test) <= set(everything) and not set(dev) & set(test)
    assert any(f"{len(everything) - len(dev) - len(test):,} pairs to train on" in message for message in said.messages)


def test_pairs_that_are_left_out_are_told(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("1 2\n\n3 4\n" + "5 6 7\n" * 20 + " ".join("1234567890" * 5) + "\n")
    (tmp_path / "t.txt").write_text("2 1\n9\n4 3\n" + "7 6 5\n" * 20 + "1\n")
    said = Recorder()
    flags = {"train": (str(tmp_path / "s.txt"), str(tmp_path / "t.txt"))}
    config = merge(settings("transformer", {}, "train.steps=1", "bitext.dev_share=0"), {"bitext": flags}, "")
    run = TRANSLATING.start(config, tmp_path / "run", said).run
    faults = [json.loads(line) for line in (run / "faults.jsonl").read_text().splitlines()]
    assert [(fault["line"], fault["kind"]) for fault in faults] == [(2, "empty text"), (24, "too long")]
    assert any("line 2: the source is empty" in message for message in said.messages)
    assert any("1 of 23 pairs have more than 31 tokens" in message for message in said.messages)


def test_more_pairs_epochs_and_a_given_tokenizer(files: dict[str, Path], finished: Finished, tmp_path: Path) -> None:
    given = finished.run / "tokenizer"
    choice: tuple[str, ...]
    if finished.run.name == "seq2seq":
        choice = (
            "tokenizer.joint=false",
            f"tokenizer.source={given / 'source'}",
            f"tokenizer.target={given / 'target'}",
        )
    else:
        choice = (f"tokenizer.source={given}",)
    config = settings(finished.run.name, files, *choice, f'bitext.more=["{files["dev"]}"]')
    config = replace(config, epochs=0.2)
    said = Recorder()
    done = TRANSLATING.start(config, tmp_path / "run", said)
    assert 1 < done.result["steps"] < 8
    assert any("320 pairs to train on" in one for one in said.messages)
    assert any("texts of dev that are trained on as well: 20 of 20" in one for one in said.messages)


def test_changed_pairs_are_not_gone_on_with(finished: Finished, tmp_path: Path) -> None:
    files = digit_files(tmp_path / "digits")
    with pytest.raises(RuntimeError):
        TRANSLATING.start(settings(finished.run.name, files), tmp_path / "run", _Stopped(2, dies=True))
    files["dev"].write_text("1\t1\n")
    with pytest.raises(InputError, match="have changed since the run began"):
        TRANSLATING.resume(tmp_path / "run", Silent())


def test_what_is_refused(files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(message: str, config: TranslateConfig) -> None:
        with pytest.raises(InputError, match=message):
            TRANSLATING.start(config, tmp_path / "run", Silent())
        assert not (tmp_path / "run").exists()

    refused("no pairs to train on", settings("transformer", {}))
    refused("every pair is longer than max_length = 2", settings("transformer", files, "max_length=2"))
    refused("both sides, or for none", settings("transformer", files, "tokenizer.joint=false", "tokenizer.source=x"))
    refused("set joint = false", replace(settings("transformer", files), tokenizer=TokenizerChoice(target="x")))
    monkeypatch.setattr("qkv.metrics.translation.is_available", lambda: False)
    refused(r"pip install 'qkv\[translate\]'. Or choose by the loss", settings("transformer", files, "select=bleu"))


def test_without_sacrebleu_the_rest_is_known(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qkv.metrics.translation.is_available", lambda: False)
    said = Recorder()
    done = TRANSLATING.start(settings("transformer", files, "train.steps=2"), tmp_path / "run", said)
    assert "pip install 'qkv[translate]'" in said.messages[0]  # before anything else
    assert "bleu" not in done.result["scores"]["test"] and done.result["scores"]["test"]["exact"] < 1
    assert "sacrebleu is not installed" in (tmp_path / "run" / "report.html").read_text()


def test_a_run_that_chooses_by_bleu_does_not_go_on_without_sacrebleu(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr("qkv.jobs.translate.training.translate_pairs", stopped)
        with pytest.raises(InputError, match="Out of memory"):
            TRANSLATING.start(
                settings("transformer", files, "train.steps=1", "select=bleu"), tmp_path / "run", Silent()
            )
        patch.setattr("qkv.metrics.translation.is_available", lambda: False)
        with pytest.raises(InputError, match=r"select = bleu.* not installed: pip install"):
            TRANSLATING.resume(tmp_path / "run", Silent())
    assert TRANSLATING.resume(tmp_path / "run", Silent()).finished


def test_muon_takes_the_matrices(files: dict[str, Path], tmp_path: Path) -> None:
    for model in ("transformer", "seq2seq"):
        config = settings(model, files, "train.optimizer=muon", "train.steps=2", "train.accumulate=2")
        assert TRANSLATING.start(config, tmp_path / model, Silent()).finished
