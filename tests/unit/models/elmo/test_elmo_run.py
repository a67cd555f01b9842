import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from qkv.config import merge, read_toml
from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.jobs.lifecycle import Finished
from qkv.jobs.pretrain import read_model_name, resume, start
from qkv.models.elmo import pretrain
from qkv.models.elmo.objective import CarryingBoth
from qkv.models.elmo.pretrain import ElmoTraining
from qkv.models.family import RECURS
from qkv.models.folders.own import read_folder
from qkv.models.table import open_model
from qkv.train import run_folder
from qkv.train.log import Silent
from tests.support.small_run import Recorder, configured, contents, make_shards

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = (
    "rows=4",
    "text.length=8",
    "negatives=40",
    "evaluation_tokens=200",
    "model.filters=[4, 4, 4]",
    "model.width=6",
    "model.cell_width=10",
    "train.steps=8",
    "train.threads=1",
    "train.log_every=2",
    "train.evaluate_every=4",
    "train.save_every=3",
)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("elmo"))


def settings(shards: Path, *changes: str) -> ElmoTraining:
    return configured("elmo", str(shards), None, {}, [*SETTINGS, *changes])


@pytest.fixture(scope="module")
def finished(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return start(settings(shards), tmp_path_factory.mktemp("run") / "elmo", Silent())


def test_what_a_run_leaves(finished: Finished) -> None:
    run, evaluation = finished.run, finished.evaluation
    assert finished.outcome.finished and read_model_name(run) == "elmo"
    assert evaluation is not None
    for name in ("next", "previous"):
        assert 1 < evaluation[f"{name}_perplexity"] < 1000 and evaluation[f"{name}_count"] > 50
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    logged = [line for line in lines if "evaluation" not in line]
    assert [line["step"] for line in logged] == [2, 4, 6, 8]
    for line in logged:
        assert line["loss"] == pytest.approx(line["next_loss"] + line["previous_loss"])
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "told from 40 that are drawn" in page and "Backward: the token before" in page
    assert resume(run, Silent()).already


@torch.inference_mode()
def read(network: nn.Module, batch: Batch) -> torch.Tensor:
    found: torch.Tensor = network(batch.ids, batch.lengths)
    return found


def test_the_same_text_has_the_same_vectors(finished: Finished) -> None:
    folder = read_folder(finished.run / "model")
    assert folder.model_type == "elmo" and folder.record["steps"] == 8
    assert not any("carried" in name or "spelled" in name for name in folder.tensors)
    opened = open_model(finished.run / "model")
    first, again = opened.ability(RECURS), open_model(finished.run / "model").ability(RECURS)
    assert not first.training and opened.record["config"]["model_type"] == "elmo"
    rows = [one.ids for one in folder.tokenizer.encode_batch(["the cat sat on a mat", "猫坐着 the", "a"])]
    batch = Batch.of(rows)
    vectors = read(first, batch)
    assert vectors.shape == (batch.n_tokens, 3, 12)
    assert vectors.equal(read(first, batch))
    torch.testing.assert_close(read(again, batch), vectors)
    for row, found in zip(rows, batch.rows(vectors), strict=True):
        torch.testing.assert_close(read(first, Batch.of([row])), found)
    trained = run_folder.latest_checkpoint(finished.run / "checkpoints", print)
    assert trained is not None
    assert trained.tensors["model"]["network.scores.table"].equal(folder.tensors["scores.table"])


def test_a_run_that_was_killed_ends_as_one_that_was_not(finished: Finished, tmp_path: Path) -> None:
    """In the middle of streams, with dropout and words drawn: every byte of the model, the states and the log."""
    run, killed_at = tmp_path / "elmo", 6
    config = merge(ElmoTraining(), read_toml(finished.run / "config.toml"), "")
    with pytest.raises(KeyboardInterrupt):
        start(config, run, _Interrupted(killed_at + 1))
    assert run_folder.checkpoint_steps(run / "checkpoints")[-1].name == f"step-{killed_at:08d}"
    assert resume(run, Silent()).outcome.started == killed_at
    assert (run / "log.jsonl").read_bytes() == (finished.run / "log.jsonl").read_bytes()
    ours, theirs = (contents(folder / "checkpoints" / "step-00000008") for folder in (run, finished.run))
    assert ours == theirs
    weights = Path("model") / "model.safetensors"
    assert (run / weights).read_bytes() == (finished.run / weights).read_bytes()


class _Interrupted(Silent):
    """Ends the run at its first logged line after a step."""

    def __init__(self, step: int) -> None:
        self.at = step

    def step(self, step: int, figures: Any) -> None:
        if step >= self.at:
            raise KeyboardInterrupt


def test_the_carried_states_are_in_the_checkpoint(finished: Finished) -> None:
    saved = run_folder.latest_checkpoint(finished.run / "checkpoints", print)
    assert saved is not None
    carried = {name: part for name, part in saved.tensors["model"].items() if name.startswith("carried")}
    assert [tuple(part.shape) for _, part in sorted(carried.items())] == [(4, 6), (4, 10)] * 4
    assert all(bool(part.any()) for part in carried.values())


def test_a_budget_leaves_no_state_behind(shards: Path, tmp_path: Path) -> None:
    trainer = pretrain._trainer(settings(shards, "train.minutes=0.001"), tmp_path, Silent(), begins=True)
    assert isinstance(trainer.job.model, CarryingBoth)
    before = {name: value.clone() for name, value in trainer.trained().items()}
    assert trainer.steps_in(0.001) >= 1
    assert all(value.equal(before[name]) for name, value in trainer.trained().items())


def test_muon_accumulation_and_no_held_out_text(tmp_path: Path) -> None:
    shards, told = make_shards(tmp_path / "data", count=40, hold_out=0.0), Recorder()
    changes = ("rows=2", "train.accumulate=2", "train.optimizer=muon", "train.steps=2", "negatives=8192")
    finished = start(settings(shards, *changes), tmp_path / "run", told)
    assert finished.outcome.finished and finished.evaluation is None
    assert any("prepare the corpus with --hold-out" in message for message in told.messages)
    saved = run_folder.latest_checkpoint(tmp_path / "run" / "checkpoints", print)
    assert saved is not None
    momenta = {name.removesuffix(".momentum") for name in saved.tensors["optimizer"] if name.endswith(".momentum")}
    assert len(momenta) == 2 * 2 * 3 + 2 + 1 and "network.characters.highways.0.gate.weight" in momenta
    assert "told from" not in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_bad_input(shards: Path, tmp_path: Path, finished: Finished) -> None:
    with pytest.raises(InputError, match="Give more text, fewer rows per step"):
        start(settings(shards, "rows=9999"), tmp_path / "large", Silent())
    with pytest.raises(InputError, match="Cannot use device 'cuda:77'"):
        start(settings(shards, "device=cuda:77"), tmp_path / "device", Silent())
    with pytest.raises(InputError, match="there is no folder"):
        start(settings(shards.with_name("shard")), tmp_path / "none", Silent())
    with pytest.raises(InputError, match="holds a finished run"):
        start(settings(shards), finished.run, Silent())
    broken = tmp_path / "broken"
    shutil.copytree(finished.run / "model", broken)
    config = json.loads((broken / "config.json").read_text())
    for changed in (config | {"width": 7}, {name: value for name, value in config.items() if name != "filters"}):
        (broken / "config.json").write_text(json.dumps(changed))
        with pytest.raises(InputError, match="lacks|config.json says"):
            open_model(broken)


def test_other_shards_than_those_of_the_beginning(shards: Path, finished: Finished, tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    shutil.copytree(shards, data)
    start(settings(data, "train.steps=1"), run, Silent())
    (run / "report.html").unlink()
    manifest = data / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    with pytest.raises(InputError, match="is not what the run was begun with"):
        resume(run, Silent())
