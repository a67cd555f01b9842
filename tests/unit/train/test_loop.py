"""The loop: exact resume, exact accumulation, clean stops. The run that is killed from outside is in
tests/stories/test_resume.py."""

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from qkv.data.batch import Batch
from qkv.data.corpus.rows import PairConfig
from qkv.errors import InputError
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.bert.objective import MaskedAndNextSentence, MaskingConfig, PretrainingBatches, pretraining_flops
from qkv.train import run_folder
from qkv.train.device import software
from qkv.train.log import Silent, measure_peak
from qkv.train.loop import Job, TrainConfig, Trainer
from qkv.train.run_folder import Outcome
from tests.support.corpus import Ids, MemoryCorpus

pytestmark = pytest.mark.usefixtures("one_thread")

MODEL = BertConfig(vocabulary_size=50, layers=2, width=32, heads=4, inner_width=64, max_length=32)
CONFIG = TrainConfig(steps=12, lr=3e-3, log_every=5, evaluate_every=4, save_every=3)


class Recorder(Silent):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def job(out: Path, *, rows: int = 8, accumulate: int = 1, dropout: float = 0.1, **options: Any) -> Job[Batch]:
    torch.manual_seed(0)
    model = BertWithHeads(replace(MODEL, dropout=dropout, attention_dropout=dropout), ["masked", "next_sentence"])
    batches = PretrainingBatches(
        MemoryCorpus(), Ids(), PairConfig("document", 32), MaskingConfig(), rows=rows, accumulate=accumulate
    )
    defaults: dict[str, Any] = {
        "evaluate": lambda network: {"sum": float(sum(p.double().sum() for p in network.parameters()))},
        "flops": lambda batch: pretraining_flops(model, batch),
        "recomputed": list(model.encoder.blocks),
        "compiled": [block.feed_forward for block in model.encoder.blocks],
    }
    return Job(model, MaskedAndNextSentence(), batches, out, **(defaults | options))


def run(out: Path, config: TrainConfig = CONFIG, **options: Any) -> tuple[Job[Batch], Outcome]:
    the_job = job(out, **options)
    return the_job, Trainer(the_job, config, Silent()).run()


def contents(out: Path) -> dict[str, bytes]:
    last = run_folder.checkpoint_steps(out / "checkpoints")[-1]
    files = [out / "log.jsonl", last / "model.safetensors", last / "optimizer.safetensors", last / "state.json"]
    return {file.name: file.read_bytes() for file in files}


class StopAt:
    """Batches that fail at a step, as a killed process would."""

    def __init__(self, batches: Any, step: int) -> None:
        self.batches, self.step = batches, step

    def __call__(self, step: int) -> Sequence[Batch]:
        if step == self.step:
            raise KeyboardInterrupt
        return self.batches(step)


@pytest.mark.parametrize("stop", [1, 4, 5, 7, 11])
def test_a_broken_run_ends_like_a_whole_one(tmp_path: Path, stop: int) -> None:
    run(tmp_path / "whole")
    broken = job(tmp_path / "broken")
    with pytest.raises(KeyboardInterrupt):
        Trainer(replace(broken, batches=StopAt(broken.batches, stop)), CONFIG, Silent()).run()
    run(tmp_path / "broken")
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


def test_the_log_has_what_is_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.train.loop.measure_peak", measure_peak)  # elsewhere it is only said
    run(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [5, 10, 12]
    assert [line["step"] for line in lines if "evaluation" in line] == [4, 8, 12]
    first = lines[1]
    assert first["loss"] == pytest.approx(first["masked_loss"] + first["next_sentence_loss"])
    assert {"lr", "gradient_norm", "tokens", "masked_accuracy"} <= set(first)
    timing = [json.loads(line) for line in (tmp_path / "timing.jsonl").read_text().splitlines()]
    assert [line["step"] for line in timing] == [5, 10, 12]
    assert all(line["tokens_per_second"] > 0 and line["share_of_peak"] > 0 for line in timing)


def test_training_learns(tmp_path: Path) -> None:
    run(tmp_path, replace(CONFIG, steps=150, lr=5e-3, log_every=10, evaluate_every=150, save_every=150), rows=16)
    losses = [json.loads(line).get("masked_loss") for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = [loss for loss in losses if loss is not None]
    assert losses[-1] < 0.75 * losses[0]


def test_a_finished_run_stays_finished(tmp_path: Path) -> None:
    run(tmp_path)
    before = contents(tmp_path)
    _, outcome = run(tmp_path)
    assert outcome == Outcome(12, 12, finished=True)
    assert contents(tmp_path) == before


def joined(one: Batch, other: Batch) -> Batch:
    """Two batches as one."""
    labels = {name: torch.cat([one.labels[name], other.labels[name]]) for name in one.labels}
    labels["masked_at"] = torch.cat([one.labels["masked_at"], other.labels["masked_at"] + one.n_tokens])
    return Batch.packed(
        torch.cat([one.ids, other.ids]),
        one.lengths + other.lengths,
        segments=torch.cat([one.segments, other.segments]),
        labels=labels,
    )


def test_accumulation_is_one_large_batch(tmp_path: Path) -> None:
    config = replace(CONFIG, steps=3)
    parts = job(tmp_path / "parts", rows=4, accumulate=2, dropout=0.0)
    whole = job(tmp_path / "whole", dropout=0.0)
    Trainer(parts, config, Silent()).run()
    Trainer(replace(whole, batches=lambda step: [joined(*parts.batches(step))]), config, Silent()).run()
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_returns(tmp_path: Path, number: signal.Signals) -> None:
    whole = contents(run(tmp_path / "whole")[0].out)
    stopped = job(tmp_path / "stopped")

    def batches(step: int) -> Sequence[Batch]:
        if step == 6:
            os.kill(os.getpid(), number)
        return stopped.batches(step)

    outcome = Trainer(replace(stopped, batches=batches), CONFIG, Silent()).run()
    assert not outcome.finished
    assert outcome.signal == number
    assert run_folder.checkpoint_steps(stopped.out / "checkpoints")[-1].name == f"step-{outcome.step:08d}"
    run(tmp_path / "stopped")
    assert contents(tmp_path / "stopped") == whole


def test_a_lost_loss_stops_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    class Explodes(MaskedAndNextSentence):
        calls = 0

        def terms(self, model: nn.Module, batch: Batch) -> Any:
            self.calls += 1
            terms = super().terms(model, batch)
            factor = float("nan") if self.calls == 8 else 1.0
            return {name: term._replace(loss=term.loss * factor) for name, term in terms.items()}

    broken = replace(job(tmp_path), objective=Explodes())
    with pytest.raises(InputError, match=r"is NaN or infinite at step 8 \(learning rate .*step-00000006"):
        Trainer(broken, CONFIG, Silent()).run()
    assert [path.name for path in run_folder.checkpoint_steps(tmp_path / "checkpoints")] == [
        "step-00000003",
        "step-00000006",
    ]


def test_a_lost_gradient_stops_too(tmp_path: Path) -> None:
    """The loss may still be a number when its gradient is none: the weights would not survive the step."""
    broken = job(tmp_path)
    parameter = next(broken.model.parameters())
    trainer = Trainer(broken, replace(CONFIG, log_every=6), Silent())
    parameter.register_hook(lambda gradient: gradient * float("inf") if trainer.step == 4 else gradient)
    with pytest.raises(InputError, match=r"gradient is NaN or infinite at step 5 \(learning rate 0.00218\)"):
        trainer.run()
    assert [path.name for path in run_folder.checkpoint_steps(tmp_path / "checkpoints")] == ["step-00000003"]


def test_a_lost_evaluation_stops_before_it_is_logged(tmp_path: Path) -> None:
    broken = job(tmp_path, evaluate=lambda model: {"masked_loss": float("nan")})
    with pytest.raises(InputError, match="is NaN or infinite at step 4"):
        Trainer(broken, CONFIG, Silent()).run()
    assert "NaN" not in (tmp_path / "log.jsonl").read_text()


def test_recomputing_activations_changes_nothing(tmp_path: Path) -> None:
    run(tmp_path / "plain")
    run(tmp_path / "again", replace(CONFIG, recompute=True))
    assert contents(tmp_path / "plain")["model.safetensors"] == contents(tmp_path / "again")["model.safetensors"]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precision_trains(tmp_path: Path, precision: str) -> None:
    _, outcome = run(tmp_path, replace(CONFIG, precision=precision))
    assert outcome.finished


def test_another_environment_is_said(tmp_path: Path) -> None:
    run(tmp_path, replace(CONFIG, steps=3))
    state = tmp_path / "checkpoints" / "step-00000003" / "state.json"
    state.write_text(state.read_text().replace(torch.__version__, "2.11.0"))
    recorder = Recorder()
    Trainer(job(tmp_path), CONFIG, recorder).run()
    assert any("started with torch 2.11.0 and resumes with" in message for message in recorder.messages)


def test_the_device_of_the_run_is_what_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: f"GPU {getattr(device, 'index', device)}")
    assert software(torch.device("cuda:1"))["gpu"] == "GPU 1"
    assert software(torch.device("cpu"))["gpu"] is None, "one that the run does not use"


def test_compiling_on_a_gpu_is_said_to_be_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Module, "compile", lambda *_, **options: None)
    monkeypatch.setattr(Trainer, "_run", lambda trainer: Outcome(0, 0, finished=True))
    for device, compiles, notes in (("cuda", True, 1), ("cpu", True, 0), ("cuda", False, 0)):
        recorder = Recorder()
        trainer = Trainer(job(tmp_path), replace(CONFIG, compile=compiles), recorder)
        trainer.device = torch.device(device)
        trainer.run()
        assert ["train.compile=true replaces" in one for one in recorder.messages] == [True] * notes


def test_minutes_become_steps_and_move_nothing(tmp_path: Path) -> None:
    the_job = job(tmp_path)
    before = {name: value.clone() for name, value in the_job.model.state_dict().items()}
    trainer = Trainer(the_job, CONFIG, Silent())
    few, many = (trainer.steps_in(minutes, seconds=0.2) for minutes in (0.05, 5))
    assert 1 <= few < many
    assert all(torch.equal(value, before[name]) for name, value in the_job.model.state_dict().items())
    assert trainer.step == 0
    assert not trainer.optimizer.state


class Around:
    """What says how often it was entered and left."""

    made: ClassVar[list["Around"]] = []

    def __init__(self) -> None:
        self.entered = self.left = 0
        self.made.append(self)

    def __enter__(self) -> None:
        self.entered += 1

    def __exit__(self, *problem: object) -> None:
        self.left += 1


def test_every_step_is_taken_inside_of_what_the_job_says(tmp_path: Path) -> None:
    """One for all steps of a run, and a new one where it begins anew, after steps that were only tried."""
    Around.made.clear()
    the_job = job(tmp_path, around=Around)
    trainer, inside = Trainer(the_job, CONFIG, Silent()), []
    (first,) = Around.made
    layer = the_job.model.get_submodule("encoder.blocks.0")
    layer.register_forward_pre_hook(lambda *_: inside.append(first.entered - first.left))
    for step in range(2):
        trainer.advance(the_job.batches(step), 0.0)
    assert (first.entered, first.left) == (2, 2) and inside == [1, 1]
    trainer.steps_in(minutes=1e-6)
    assert first.entered == first.left > 2
    assert [one.entered for one in Around.made[1:]] == [0]
