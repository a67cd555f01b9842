import json
from pathlib import Path

import pytest

from qkv.cli.pretrain_lm import pretrain_language_model, resume_language_model
from qkv.errors import InputError
from tests.small_run import make_shards

pytestmark = pytest.mark.usefixtures("one_thread")


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards, run = make_shards(tmp_path / "data"), tmp_path / "run"
    few = ["rows=4", "text.length=8", "train.steps=3", "train.threads=1", "rnnlm.width=8"]
    pretrain_language_model("rnnlm", str(shards), run, size="small", settings=few)
    said = capsys.readouterr()
    assert "perplexity " in said.out + said.err and f"{run / 'model'}: the model" in said.out + said.err
    assert resume_language_model(run, as_json=True)
    result = json.loads(capsys.readouterr().out)
    assert result["finished"] and result["step"] == 3 and result["evaluation"]["next_perplexity"] > 1
    assert resume_language_model(run)
    said = capsys.readouterr()
    assert "is finished: 3 steps" in said.out + said.err


def test_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--data and a new folder for the run with --out"):
        pretrain_language_model("nnlm", None, tmp_path)
    with pytest.raises(InputError, match="is not a run"):
        resume_language_model(tmp_path)


def test_runs_of_other_models_are_left_to_others(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("rows = 8\n")
    assert not resume_language_model(tmp_path)
