"""A whole run of `qkv pretrain gpt`, small: what it leaves, that it goes on exactly, where it may begin from."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.config import merge, read_toml
from qkv.errors import InputError
from qkv.jobs.lifecycle import Finished
from qkv.jobs.pretrain import read_model_name, resume, start
from qkv.models.family import TAKES_HEAD, Head, Saving
from qkv.models.gpt.folder import save
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.models.gpt.pretrain import GPTTrainConfig
from qkv.models.table import open_model
from qkv.text.tokenizer import Tokenizer
from qkv.train import run_folder
from qkv.train.log import Silent
from tests.support.byte_pairs import gpt2_backend, gpt_backend
from tests.support.gpt_folders import load_gpt
from tests.support.small_run import Recorder, configured, contents, make_shards, make_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = (
    "rows=4",
    "length=16",
    "evaluation_tokens=200",
    "model.layers=2",
    "model.width=16",
    "model.heads=2",
    "model.inner_width=64",
    "train.steps=8",
    "train.threads=1",
    "train.log_every=2",
    "train.evaluate_every=4",
    "train.save_every=3",
)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("gpt"))


def settings(shards: Path, *changes: str, init: Path | None = None) -> GPTTrainConfig:
    # a model to go on from brings its own shape
    given = [one for one in SETTINGS if init is None or not one.startswith("model.")]
    return configured("gpt", str(shards), None, {} if init is None else {"init": str(init)}, [*given, *changes])


@pytest.fixture(scope="module", params=["pre", "post"])
def finished(request: pytest.FixtureRequest, shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    out = tmp_path_factory.mktemp("run") / request.param
    return start(settings(shards, f"model.order={request.param}"), out, Silent())


def test_what_a_run_leaves(finished: Finished) -> None:
    run = finished.run
    assert finished.outcome.finished and read_model_name(run) == "gpt"
    evaluation = finished.evaluation
    assert evaluation is not None and 1 < evaluation["next_perplexity"] < 1000 and evaluation["next_count"] > 50
    assert 0 < evaluation["bits_per_character"] < 8
    assert [sample["prompt"] == "" for sample in evaluation["samples"]] == [True, False, False]
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines if "next_loss" in line] == [2, 4, 6, 8]
    report = (run / "report.html").read_text(encoding="utf-8")
    assert "What it writes" in report and "Bits per character" in report
    already = resume(run, Silent())
    assert already.already and already.outcome.step == 8


def test_the_folder_is_the_model(finished: Finished) -> None:
    folder = load_gpt(finished.run / "model")
    assert folder.config.order == finished.run.name and folder.config.max_length == 16
    assert folder.record["steps"] == 8 and folder.record["config"]["model_type"] == "gpt"
    assert folder.end_id == folder.tokenizer.sep_id
    trained = run_folder.latest_checkpoint(finished.run / "checkpoints", print)
    assert trained is not None
    assert all(value.equal(folder.model.state_dict()[name]) for name, value in trained.tensors["model"].items())


class _Interrupted(Silent):
    """Ends the run at its first logged line after a step."""

    def __init__(self, step: int) -> None:
        self.at = step

    def step(self, step: int, figures: Any) -> None:
        if step >= self.at:
            raise KeyboardInterrupt


def test_a_run_that_was_killed_ends_as_one_that_was_not(finished: Finished, tmp_path: Path) -> None:
    """Every byte of the model, the optimizer and the log, texts that were written among it."""
    run = tmp_path / finished.run.name
    killed_at = 6
    config = merge(GPTTrainConfig(), read_toml(finished.run / "config.toml"), "")
    with pytest.raises(KeyboardInterrupt):
        start(config, run, _Interrupted(killed_at + 1))
    assert run_folder.checkpoint_steps(run / "checkpoints")[-1].name == f"step-{killed_at:08d}"
    assert resume(run, Silent()).outcome.started == killed_at
    assert (run / "log.jsonl").read_bytes() == (finished.run / "log.jsonl").read_bytes()
    ours, theirs = (contents(folder / "checkpoints" / "step-00000008") for folder in (run, finished.run))
    assert ours == theirs
    ours, theirs = (contents(folder / "model") for folder in (run, finished.run))
    assert ours["model.safetensors"] == theirs["model.safetensors"] and set(ours) == set(theirs)


def test_it_goes_on_from_a_folder(finished: Finished, shards: Path, tmp_path: Path) -> None:
    init = tmp_path / "begun"
    shutil.copytree(finished.run / "model", init)
    before = load_gpt(init).model.state_dict()
    fields = json.loads((init / "config.json").read_text(encoding="utf-8")) | {"attn_pdrop": 0.0}
    (init / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    (init / "LICENSE").write_bytes("谁的\n".encode("gbk"))
    config = settings(shards, "train.steps=1", "train.lr=1e-9", "model.dropout=0.2", init=init)
    run = start(config, tmp_path / "run", Silent()).run
    after = load_gpt(run / "model")
    assert after.config.dropout == 0.2 and after.config.order == finished.run.name
    assert after.config.attention_dropout == 0.0  # which nobody said anything about
    assert (run / "model" / "LICENSE").read_bytes() == "谁的\n".encode("gbk")
    assert all(torch.allclose(value, before[name], atol=1e-6) for name, value in after.model.state_dict().items())


def test_it_goes_on_from_a_run(finished: Finished, shards: Path, tmp_path: Path) -> None:
    begun = start(settings(shards, "train.steps=1", init=finished.run), tmp_path / "run", Silent())
    assert load_gpt(begun.run / "model").config == load_gpt(finished.run / "model").config


def test_folders_that_cannot_be_gone_on_from(finished: Finished, shards: Path, tmp_path: Path) -> None:
    init = finished.run / "model"
    for changes, message in (
        (("model.layers=3",), "has its own shape: leave out model.layers"),
        (("length=64",), "reads 16 tokens at most, and length is 64"),
    ):
        with pytest.raises(InputError, match=message):
            start(settings(shards, *changes, init=init), tmp_path / "run", Silent())
    takes = open_model(init).ability(TAKES_HEAD)
    takes.save(tmp_path / "task", takes.with_head(Head("sequence", 2, seed=0)).network, Saving(("a", "b")))
    with pytest.raises(InputError, match=r"made for a task \(sequence\), .* Go on from the one"):
        start(settings(shards, init=tmp_path / "task"), tmp_path / "run", Silent())
    other = make_shards(tmp_path / "other", tokenizer=make_tokenizer(seed=1, size=120))
    with pytest.raises(InputError, match="prepared with another tokenizer"):
        start(settings(other, init=init), tmp_path / "run", Silent())


def test_muon_accumulation_and_a_time_budget(shards: Path, tmp_path: Path) -> None:
    changes = ("rows=2", "train.accumulate=2", "train.optimizer=muon", "train.steps=2", "train.lr=0.01")
    start(settings(shards, *changes), tmp_path / "run", Silent())
    saved = run_folder.latest_checkpoint(tmp_path / "run" / "checkpoints", print)
    assert saved is not None
    momenta = {name.removesuffix(".momentum") for name in saved.tensors["optimizer"] if name.endswith(".momentum")}
    parts = ("attention.qkv", "attention.out", "feed_forward.up", "feed_forward.down")
    assert momenta == {f"blocks.{number}.{part}.weight" for number in (0, 1) for part in parts}
    told = Recorder()
    finished = start(settings(shards, "train.minutes=0.001"), tmp_path / "timed", told)
    assert any("0.001 minutes are" in message for message in told.messages) and finished.steps >= 1


def test_without_held_out_text(tmp_path: Path) -> None:
    shards, told = make_shards(tmp_path / "data", count=40, hold_out=0.0), Recorder()
    finished = start(settings(shards, "train.steps=1"), tmp_path / "run", told)
    assert finished.evaluation is None
    assert any("prepare the corpus with --hold-out" in message for message in told.messages)


def test_a_pattern_is_learned(shards: Path, tmp_path: Path) -> None:
    """Below what knowing the frequencies alone would give."""
    changes = ("train.steps=60", "rows=16", "train.lr=1e-2", "train.evaluate_every=60", "train.save_every=60")
    finished = start(settings(shards, *changes), tmp_path / "run", Silent())
    manifest = json.loads((shards / "manifest.json").read_text(encoding="utf-8"))
    assert finished.evaluation is not None
    assert finished.evaluation["next_loss"] < manifest["unigram_entropy"] - 0.5


def test_every_parameter_gets_a_gradient(shards: Path, tmp_path: Path) -> None:
    from qkv.models.gpt import pretrain

    trainer = pretrain._trainer(settings(shards, "model.dropout=0.0"), tmp_path, Silent(), begins=True)
    model = trainer.job.model
    assert isinstance(model, GPT)
    trainer.job.objective.terms(model, next(iter(trainer.job.batches(0))))["next"].loss.backward()
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in model.parameters())


def test_it_goes_on_from_a_gpt2_with_its_own_vocabulary(tmp_path: Path) -> None:
    """Pairs of bytes: the corpus is prepared with the folder, and what is written is a folder like it."""
    tokenizer = Tokenizer(gpt2_backend(), "byte-pair")
    network = GPT(GPTConfig(tokenizer.size, layers=1, width=16, heads=2, inner_width=64, max_length=32))
    published = save(tmp_path / "published", network.eval(), tokenizer)
    shards = make_shards(tmp_path / "data", count=30, tokenizer=Tokenizer.load(published))
    finished = start(settings(shards, "train.steps=2", init=published), tmp_path / "run", Silent())
    folder = load_gpt(finished.run / "model")
    assert folder.tokenizer.kind == "byte-pair" and folder.end_id == tokenizer.id("<|endoftext|>")
    assert finished.evaluation is not None and finished.evaluation["samples"]


def test_a_vocabulary_without_an_end(tmp_path: Path) -> None:
    endless = Tokenizer(gpt_backend(), "byte-pair")
    shards = make_shards(tmp_path / "data", count=10, tokenizer=endless)
    with pytest.raises(InputError, match="has no mark that ends a text"):
        start(settings(shards), tmp_path / "run", Silent())
