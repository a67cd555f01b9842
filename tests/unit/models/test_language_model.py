import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from qkv.config import merge, read_toml
from qkv.errors import InputError
from qkv.jobs.lifecycle import Finished
from qkv.jobs.pretrain import read_model_name, resume, start
from qkv.models.family import RECURS, SHOWS_LAYERS
from qkv.models.folders.own import read_folder
from qkv.models.nnlm import pretrain
from qkv.models.nnlm.network import NNLM
from qkv.models.nnlm.pretrain import Carrying, CarryingTrainer, LanguageModelConfig
from qkv.models.rnnlm.network import RNNLM
from qkv.models.table import open_model
from qkv.train import run_folder
from qkv.train.log import Silent
from tests.support.small_run import Recorder, configured, contents, make_shards

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = (
    "rows=4",
    "text.length=8",
    "evaluation_tokens=200",
    "train.steps=8",
    "train.threads=1",
    "train.log_every=2",
    "train.evaluate_every=4",
    "train.save_every=3",
)
SMALL = {
    "nnlm": ("nnlm.width=8", "nnlm.hidden_width=12"),
    "rnnlm": ("rnnlm.width=8", "rnnlm.cell_width=12", "rnnlm.projection=8", "rnnlm.dropout=0.2"),
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("language_model"))


def settings(model_type: str, shards: Path, *changes: str) -> LanguageModelConfig:
    return configured(model_type, str(shards), None, {}, [*SETTINGS, *SMALL[model_type], *changes])


@pytest.fixture(scope="module", params=["nnlm", "rnnlm"])
def finished(request: pytest.FixtureRequest, shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    out = tmp_path_factory.mktemp("run") / request.param
    return start(settings(request.param, shards), out, Silent())


def test_what_a_run_leaves(finished: Finished) -> None:
    run = finished.run
    assert finished.outcome.finished and read_model_name(run) == run.name
    assert {"config.toml", "log.jsonl", "timing.jsonl", "report.html", "sessions.jsonl"} <= {
        p.name for p in run.iterdir()
    }
    evaluation = finished.evaluation
    assert evaluation is not None and 1 < evaluation["next_perplexity"] < 1000 and evaluation["next_count"] > 50
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "next_loss" in line] == [2, 4, 6, 8]
    already = resume(run, Silent())
    assert already.already and already.outcome.step == 8


def test_the_folder_is_the_model(finished: Finished) -> None:
    model_type = finished.run.name
    folder = read_folder(finished.run / "model")
    assert folder.model_type == model_type and folder.record["steps"] == 8
    opened = open_model(finished.run / "model")
    network = opened.ability(SHOWS_LAYERS if model_type == "nnlm" else RECURS)
    assert isinstance(network, NNLM | RNNLM) and not network.training
    assert network.config.vocabulary_size == opened.tokenizer.size
    assert opened.record["config"]["model_type"] == model_type
    assert not any("carried" in name for name in folder.tensors)
    trained = run_folder.latest_checkpoint(finished.run / "checkpoints", print)
    assert trained is not None
    name = "embedding.weight" if model_type == "nnlm" else "network.embedding.weight"
    assert trained.tensors["model"][name].equal(network.embedding.weight)


def test_a_run_that_was_killed_ends_as_one_that_was_not(finished: Finished, tmp_path: Path) -> None:
    """In the middle of streams, with the state they were in: every byte of the model and of the log."""
    run = tmp_path / finished.run.name
    killed_at = 6
    config = merge(LanguageModelConfig(), read_toml(finished.run / "config.toml"), "")
    with pytest.raises(KeyboardInterrupt):
        start(config, run, _Interrupted(killed_at + 1))
    assert run_folder.checkpoint_steps(run / "checkpoints")[-1].name == f"step-{killed_at:08d}"
    assert resume(run, Silent()).outcome.started == killed_at
    assert (run / "log.jsonl").read_bytes() == (finished.run / "log.jsonl").read_bytes()
    ours, theirs = (contents(folder / "checkpoints" / "step-00000008") for folder in (run, finished.run))
    assert ours == theirs
    assert (run / "model" / "model.safetensors").read_bytes() == (
        finished.run / "model" / "model.safetensors"
    ).read_bytes()


class _Interrupted(Silent):
    """Ends the run at its first logged line after a step."""

    def __init__(self, step: int) -> None:
        self.at = step

    def step(self, step: int, figures: Any) -> None:
        if step >= self.at:
            raise KeyboardInterrupt


def test_the_carried_state_is_in_the_checkpoint_and_matters(shards: Path, tmp_path: Path) -> None:
    config = settings("rnnlm", shards, "train.steps=4", "train.save_every=2")
    start(config, tmp_path / "run", Silent())
    saved = run_folder.latest_checkpoint(tmp_path / "run" / "checkpoints", print)
    assert saved is not None
    carried = {name: value for name, value in saved.tensors["model"].items() if name.startswith("carried")}
    assert [tuple(value.shape) for value in carried.values()] == [(4, 8), (4, 12)] * 2
    assert all(bool(value.any()) for value in carried.values())


def test_a_budget_leaves_no_state_behind(shards: Path, tmp_path: Path) -> None:
    config = settings("rnnlm", shards, "train.minutes=0.001")
    trainer = pretrain._trainer(config, tmp_path, Silent(), begins=True)
    assert isinstance(trainer, CarryingTrainer) and isinstance(trainer.job.model, Carrying)
    before = {name: value.clone() for name, value in trainer.trained().items()}
    assert trainer.steps_in(0.001) >= 1
    assert all(value.equal(before[name]) for name, value in trainer.trained().items())


@pytest.mark.parametrize("model_type", ["nnlm", "rnnlm"])
def test_muon_and_accumulation(shards: Path, tmp_path: Path, model_type: str) -> None:
    changes = ("rows=2", "train.accumulate=2", "train.optimizer=muon", "train.steps=2", "train.lr=0.01")
    finished = start(settings(model_type, shards, *changes), tmp_path / "run", Silent())
    saved = run_folder.latest_checkpoint(tmp_path / "run" / "checkpoints", print)
    assert finished.outcome.finished and saved is not None
    momenta = {name.removesuffix(".momentum") for name in saved.tensors["optimizer"] if name.endswith(".momentum")}
    layers = {
        f"network.stack.cells.{n}.{part}.weight" for n in (0, 1) for part in ("from_input", "from_state", "project")
    }
    assert momenta == ({"hidden.weight"} if model_type == "nnlm" else layers)


def test_without_held_out_text(tmp_path: Path) -> None:
    shards, told = make_shards(tmp_path / "data", count=40, hold_out=0.0), Recorder()
    finished = start(settings("rnnlm", shards, "train.steps=1", "rows=2"), tmp_path / "run", told)
    assert finished.evaluation is None
    assert any("prepare the corpus with --hold-out" in message for message in told.messages)


def test_bad_input(shards: Path, tmp_path: Path, finished: Finished) -> None:
    with pytest.raises(InputError, match="Give more text, fewer rows per step"):
        start(settings("rnnlm", shards, "rows=9999"), tmp_path / "large", Silent())
    with pytest.raises(InputError, match="Cannot use device 'cuda:77'"):
        start(settings("rnnlm", shards, "device=cuda:77"), tmp_path / "device", Silent())
    with pytest.raises(InputError, match="there is no folder"):
        start(settings("rnnlm", shards.with_name("shard")), tmp_path / "none", Silent())
    with pytest.raises(InputError, match="holds a finished run"):
        start(settings("rnnlm", shards), finished.run, Silent())
    broken = tmp_path / "broken"
    shutil.copytree(finished.run / "model", broken)
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"width": config["width"] + 8, "tied": False}))
    with pytest.raises(InputError, match="unknown key 'tied'|config.json says"):
        open_model(broken).ability(SHOWS_LAYERS)


def test_other_shards_than_those_of_the_beginning(shards: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(shards, data)
    start(settings("nnlm", data, "train.steps=1"), tmp_path / "run", Silent())
    (tmp_path / "run" / "report.html").unlink()
    os.utime(data)
    manifest = data / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    with pytest.raises(InputError, match="is not what the run was begun with"):
        resume(tmp_path / "run", Silent())
