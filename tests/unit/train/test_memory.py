"""A batch too large for a GPU: told with the size that fits and the settings for it. The error is made here."""

import gc
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.jobs import pretrain
from qkv.jobs.finetune import run
from qkv.jobs.finetune.settings import resolve_finetune_settings
from qkv.models.bert.objective import MaskedAndNextSentence
from qkv.train.device import Sizes, savings, too_large
from qkv.train.log import Silent
from qkv.train.loop import TrainConfig, Trainer
from tests.support.folders import make_folder
from tests.support.labelled_sets import write_texts
from tests.support.small_run import make_config, make_shards
from tests.unit.train.test_loop import CONFIG, job

pytestmark = pytest.mark.usefixtures("one_thread")
DEVICE = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> None:
    """Before each attempt garbage is collected: not among all that thousands of tests have left in this process."""
    gc.freeze()


class Small(MaskedAndNextSentence):
    """A device that holds so many rows."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows

    def terms(self, model: nn.Module, batch: Batch) -> Any:
        if batch.n_rows > self.rows:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().terms(model, batch)


def sizes(smaller: Sequence[int]) -> Sizes[Batch]:
    def batches(rows: int, step: int) -> Sequence[Batch]:
        return job(Path(), rows=rows, accumulate=3).batches(step)

    settings = "Set rows to {}.".format
    return Sizes(8, "rows", smaller, batches, settings)


def test_the_largest_that_fits_is_found(tmp_path: Path) -> None:
    the_job = replace(job(tmp_path), objective=Small(3), sizes=sizes([4, 2, 1]))
    before = {name: weight.clone() for name, weight in the_job.model.state_dict().items()}
    expected = r"a batch of 8 rows is too large\. 2 rows fit .* at learning rate 0\)\. Set rows to 2\. Or: "
    with pytest.raises(InputError, match=expected):
        Trainer(the_job, CONFIG, Silent()).run()
    assert all(torch.equal(weight, before[name]) for name, weight in the_job.model.state_dict().items())
    assert not (tmp_path / "checkpoints").exists()


def test_a_time_budget_says_it_too(tmp_path: Path) -> None:
    the_job = replace(job(tmp_path), objective=Small(3), sizes=sizes([4, 2, 1]))
    with pytest.raises(InputError, match="2 rows fit"):
        Trainer(the_job, CONFIG, Silent()).steps_in(0.01)


def test_nothing_fits() -> None:
    def attempt(batches: Sequence[Batch]) -> None:
        raise torch.OutOfMemoryError

    assert too_large(DEVICE, sizes([4, 1]), 0, attempt, "").endswith(
        "Not even 1 rows fit: use a smaller model or shorter rows."
    )
    assert too_large(DEVICE, sizes([]), 0, attempt, "Less.").endswith(
        "Not even 8 rows fit: use a smaller model or shorter rows. Or: Less."
    )
    assert too_large(DEVICE, None, 0, attempt, "Less.").endswith(": the batches are too large. Less.")


def test_what_was_tried_is_the_step_that_failed(tmp_path: Path) -> None:
    """Two batches of it, so that there are gradients of the one before, and the largest."""
    tried: list[list[int]] = []

    def attempt(batches: Sequence[Batch]) -> None:
        tried.append([batch.n_tokens for batch in batches])

    assert "4 rows fit (just tried with this step" in too_large(DEVICE, sizes([4]), 5, attempt, "")
    found = sorted((batch.n_tokens for batch in job(tmp_path, rows=4, accumulate=3).batches(5)), reverse=True)
    assert tried == [found[:2]] and found[1] > found[2]


def test_the_step_that_failed_is_handed_on(tmp_path: Path) -> None:
    asked: list[int] = []

    def batches(rows: int, step: int) -> Sequence[Batch]:
        asked.append(step)
        return job(tmp_path, rows=rows).batches(step)

    class AtStepTwo(Small):
        def terms(self, model: nn.Module, batch: Batch) -> Any:
            if batch.n_rows == 8 and trainer.step < 2:
                return MaskedAndNextSentence.terms(self, model, batch)
            return super().terms(model, batch)

    the_job = replace(job(tmp_path), objective=AtStepTwo(3), sizes=replace(sizes([4, 2]), batches=batches))
    trainer = Trainer(the_job, CONFIG, Silent())
    with pytest.raises(InputError, match="2 rows fit"):
        trainer.run()
    assert asked == [2, 2]


def test_only_what_is_left_is_advised(tmp_path: Path) -> None:
    both = savings(TrainConfig(), recomputes=True)
    assert "train.recompute=true" in both and "train.precision=bf16" in both
    assert savings(TrainConfig(precision="fp16", recompute=True), recomputes=True) == ""
    config = replace(CONFIG, precision="bf16", recompute=True)
    with pytest.raises(InputError, match=r"Set rows to 2\.$"):
        Trainer(replace(job(tmp_path), objective=Small(3), sizes=sizes([4, 2])), config, Silent()).run()


def no_room(*_: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory.")


def test_an_evaluation_is_not_a_batch_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    the_job = replace(job(tmp_path, evaluate=no_room), sizes=sizes([4, 2]))
    with pytest.raises(InputError, match=r"Out of memory on cpu in the evaluation after step 4, not in a training"):
        Trainer(the_job, CONFIG, Silent()).run()
    monkeypatch.setattr("qkv.train.loop.measure_peak", no_room)
    with pytest.raises(InputError, match=r"Out of memory on cpu between training steps, not in a training"):
        Trainer(the_job, CONFIG, Silent()).run()


def limit(monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    """No step whose batches have more rows or tokens than that."""
    plain = Trainer.advance

    def advance(trainer: Trainer[Batch], batches: Sequence[Batch], lr: float) -> None:
        if max(getattr(batch, name) for batch in batches) > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        plain(trainer, batches, lr)

    monkeypatch.setattr(Trainer, "advance", advance)


def test_pretraining_names_rows_and_accumulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = make_shards(tmp_path)
    limit(monkeypatch, "n_rows", 3)
    with pytest.raises(InputError, match="a batch of 8 rows is too large") as told:
        pretrain.start(make_config(shards, "train.steps=2"), tmp_path / "run", Silent())
    wanted = ["rows=2", "train.accumulate=4"]
    assert f"start a new run with --set {' --set '.join(wanted)}." in str(told.value)
    file = tmp_path / "run" / "config.toml"
    assert pretrain.start(make_config(shards, "train.steps=2", *wanted), tmp_path / "new", Silent()).outcome.finished
    do_as_told(str(told.value), file)
    assert pretrain.resume(tmp_path / "run", Silent()).outcome.finished
    files = [
        folder / "checkpoints" / "step-00000002" / "model.safetensors" for folder in (file.parent, tmp_path / "new")
    ]
    assert files[0].read_bytes() == files[1].read_bytes()


def do_as_told(message: str, file: Path) -> None:
    """Set what the message says, in the part of the file that it names."""
    advice = re.search(
        rf"set (rows) = (\d+), and (accumulate) = (\d+) under \[train\], in {re.escape(str(file))}", message
    )
    assert advice is not None, message
    before, table, after = file.read_text(encoding="utf-8").partition("[train]\n")
    before = re.sub(rf"^{advice[1]} = .*$", f"{advice[1]} = {advice[2]}", before, flags=re.MULTILINE)
    after = re.sub(rf"^{advice[3]} = .*$", f"{advice[3]} = {advice[4]}", after, flags=re.MULTILINE)
    file.write_text(before + table + after, encoding="utf-8")


def test_finetuning_names_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_folder(tmp_path / "bert", "BertModel")
    given = {"data.train": str(write_texts(tmp_path / "texts.csv")), "epochs": 1.0}
    settings = ["train.threads=1", "tokens_per_step=400"]
    limit(monkeypatch, "n_tokens", 120)
    with pytest.raises(InputError, match=r"a batch of 400 tokens .* 100 tokens fit.* --set tokens_at_once=100\."):
        run.FINETUNING.start(
            resolve_finetune_settings("classify", str(model), None, None, given, settings), tmp_path / "run", Silent()
        )
    settings.append("tokens_at_once=100")
    config = resolve_finetune_settings("classify", str(model), None, None, given, settings)
    assert run.FINETUNING.start(config, tmp_path / "new", Silent()).finished
