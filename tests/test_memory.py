"""A batch too large for a GPU: told with the size that fits and the settings for it. The error is made here."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from qkv.batch import Batch
from qkv.errors import InputError
from qkv.objectives.pretraining import Pretraining
from qkv.run import finetune, pretrain
from qkv.run.finetune_start import configured_for
from qkv.train.loop import Trainer
from qkv.train.memory import Sizes, too_large
from qkv.train.progress import Silent
from tests.folders import make_folder
from tests.labelled_sets import write_texts
from tests.small_run import make_config, make_shards
from tests.test_loop import CONFIG, job

pytestmark = pytest.mark.usefixtures("one_thread")
DEVICE = torch.device("cpu")


class Small(Pretraining):
    """A device that holds so many rows."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows

    def terms(self, model: nn.Module, batch: Batch) -> Any:
        if batch.n_rows > self.rows:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().terms(model, batch)


def sizes(smaller: Sequence[int]) -> Sizes[Batch]:
    def batches(rows: int) -> Sequence[Batch]:
        return job(Path(), rows=rows, accumulate=3).batches(0)

    return Sizes(8, "rows", smaller, batches, lambda rows: f"Set rows to {rows}.")


def test_the_largest_that_fits_is_found(tmp_path: Path) -> None:
    the_job = replace(job(tmp_path), objective=Small(3), sizes=sizes([4, 2, 1]))
    before = {name: weight.clone() for name, weight in the_job.model.state_dict().items()}
    expected = r"a batch of 8 rows is too large\. 2 rows fit, .* tried at learning rate 0\. Set rows to 2\. Or: "
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

    with pytest.raises(torch.OutOfMemoryError):
        attempt([])
    assert "Not even 1 rows fit: take a smaller model" in too_large(DEVICE, sizes([4, 1]), attempt)
    assert "Not even 8 rows fit" in too_large(DEVICE, sizes([]), attempt)
    assert "the batches are too large. train.recompute=true" in too_large(DEVICE, None, attempt)


def test_gradients_of_the_batch_before_are_there_when_it_is_tried() -> None:
    tried: list[int] = []

    def attempt(batches: Sequence[Batch]) -> None:
        tried.append(len(batches))

    too_large(DEVICE, sizes([4]), attempt)
    assert tried == [2], "two batches of a step, not all"


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
    assert f"begin anew with --set {' --set '.join(wanted)}." in str(told.value)
    file = tmp_path / "run" / "config.toml"
    assert f"set rows = 2 and train.accumulate = 4 in {file} and resume" in str(told.value)
    assert pretrain.start(make_config(shards, "train.steps=2", *wanted), tmp_path / "new", Silent()).outcome.finished
    text = file.read_text(encoding="utf-8").replace("rows = 8", "rows = 2").replace("accumulate = 1", "accumulate = 4")
    file.write_text(text, encoding="utf-8")
    assert pretrain.resume(tmp_path / "run", Silent()).outcome.finished
    files = [
        folder / "checkpoints" / "step-00000002" / "model.safetensors" for folder in (file.parent, tmp_path / "new")
    ]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_finetuning_names_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_folder(tmp_path / "bert", "BertModel")
    given = {"data.train": str(write_texts(tmp_path / "texts.csv")), "epochs": 1.0}
    settings = ["train.threads=1", "tokens_per_step=400"]
    limit(monkeypatch, "n_tokens", 120)
    with pytest.raises(InputError, match=r"a batch of 400 tokens .* 100 tokens fit.* --set tokens_at_once=100\."):
        finetune.start(configured_for("classify", str(model), None, None, given, settings), tmp_path / "run", Silent())
    settings.append("tokens_at_once=100")
    config = configured_for("classify", str(model), None, None, given, settings)
    assert finetune.start(config, tmp_path / "new", Silent()).finished
