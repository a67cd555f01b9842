"""qkv pretrain elmo, as a person and as a program calls it."""

import json
from pathlib import Path

import pytest

from qkv.cli.main import main
from qkv.cli.pretrain_elmo import begin_elmo, is_elmo
from qkv.errors import InputError
from tests.small_run import make_shards

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = ("rows=4", "text.length=8", "model.filters=[4, 4]", "model.width=6", "model.cell_width=10")
WORDS = [word for setting in (*FEW, "train.steps=3", "train.threads=1") for word in ("--set", setting)]


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards, run = make_shards(tmp_path / "data"), tmp_path / "run"
    assert main(["pretrain", "elmo", "--data", str(shards), "--out", str(run), "--size", "mini", *WORDS]) == 0
    out, err = capsys.readouterr()
    assert out == "" and "perplexity " in err and " backward, on " in err and f"{run / 'model'}: the model" in err
    assert is_elmo(run) and 'size = "mini"' in (run / "config.toml").read_text()
    assert main(["pretrain", "--resume", str(run)]) == 0
    assert "is finished: 3 steps" in capsys.readouterr().err
    assert main(["pretrain", "--resume", str(run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["run", "finished", "step", "steps", "model", "report", "evaluation"]
    assert document["finished"] and document["evaluation"]["previous_perplexity"] > 1


def test_what_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="--init is for bert; elmo begins from nothing"):
        begin_elmo("shards", tmp_path / "run", flags={"init": "qkv-mini"})
    assert main(["pretrain", "elmo", "--data", "shards", "--out", str(tmp_path / "run"), "--size", "base"]) == 2
    assert "Unknown size 'base'. Known: mini, small, paper." in capsys.readouterr().err
    (tmp_path / "config.toml").write_text("rows = 8\n")
    assert not is_elmo(tmp_path)
