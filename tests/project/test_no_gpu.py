"""A GPU that is asked for and not there: every verb says so before it reads or writes anything."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.cli.main import main
from qkv.config import to_toml
from qkv.errors import InputError
from qkv.jobs import curve, pretrain
from qkv.jobs.curve import CurveConfig
from qkv.jobs.finetune import run
from qkv.jobs.finetune.settings import FinetuneConfig
from qkv.models.bert.pretrain import PretrainConfig
from qkv.train.log import Silent

TOLD = "Cannot use device 'cuda': torch finds no CUDA device here. Use device 'cpu'."

# a model and data that do not exist: whoever looked for them first would say that
VERBS = (
    "embed --model nowhere --device cuda text",
    "predict nowhere --device cuda text",
    "evaluate nowhere nowhere.csv --device cuda",
)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("line", VERBS)
def test_verbs_that_answer(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert TOLD in " ".join(capsys.readouterr().err.split())


TUNING = FinetuneConfig(model="nowhere", device="cuda")
JOBS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any]] = {
    "pretrain": (pretrain.start, pretrain.resume, PretrainConfig(data="nowhere", device="cuda")),
    "finetune": (run.FINETUNING.start, run.FINETUNING.resume, TUNING),
    "curve": (curve.CURVES.start, curve.CURVES.resume, CurveConfig(finetune=TUNING)),
}


@pytest.mark.parametrize("job", JOBS)
def test_verbs_that_train(tmp_path: Path, job: str) -> None:
    start, resume, config = JOBS[job]
    with pytest.raises(InputError, match="torch finds no CUDA device here"):
        start(config, tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(to_toml(config), encoding="utf-8")
    with pytest.raises(InputError, match="torch finds no CUDA device here"):
        resume(tmp_path / "run", Silent())
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["config.toml"]
