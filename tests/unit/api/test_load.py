"""`qkv.load` and the front door."""

import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

import qkv
from qkv.api.model import DTYPES, load
from qkv.errors import InputError
from qkv.models.table import describe_model
from tests.support.below_readers import make_elmo
from tests.support.folders import make_folder
from tests.support.near import assert_near


def test_public_names_are_there_and_lazy() -> None:
    assert qkv.load is load
    for name in qkv.__all__:
        assert getattr(qkv, name) is not None
        assert name in dir(qkv)
    wrong = "laod"
    with pytest.raises(AttributeError, match="no 'laod'. Did you mean 'load'"):
        getattr(qkv, wrong)


def test_import_is_cheap() -> None:
    code = "import qkv, sys; print(any(name in sys.modules for name in ('torch', 'numpy', 'typer', 'tokenizers')))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_loaded_model_says_what_it_is(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "tiny", "BertForSequenceClassification", labels=("好", "坏"))
    model = qkv.load(str(folder))
    assert (model.name, model.architecture, model.labels) == ("tiny", "BertForSequenceClassification", ("好", "坏"))
    assert model.config.layers == 2
    assert model.tokenizer.mask_id == model.tokenizer.id("[MASK]")


def test_a_hub_snapshot_is_called_by_its_name(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "models--owner--some-name" / "snapshots" / "0123abc")
    assert qkv.load(folder).name == "owner/some-name"
    for other in (("models--x", "0123abc"), ("mine", "snapshots", "best"), ("snapshots", "best")):
        assert qkv.load(make_folder(tmp_path.joinpath(*other))).name == other[-1]


def test_save_and_load_again(tmp_path: Path) -> None:
    model = qkv.load(make_folder(tmp_path / "one"))
    model.save(tmp_path / "two")
    again = qkv.load(tmp_path / "two")
    text = "他 欠 我 [MASK]"
    assert_near([asdict(blank) for blank in again.fill(text)], [asdict(blank) for blank in model.fill(text)])
    np.testing.assert_allclose(again.embed([text]).vectors, model.embed([text]).vectors, atol=1e-6)


def test_threads_are_set_and_checked(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "tiny")
    before = torch.get_num_threads()
    try:
        qkv.load(folder, threads=1).embed("猫")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    with pytest.raises(InputError, match="threads must be 1 or more"):
        qkv.load(folder, threads=0)


def test_the_home_folder_may_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    make_folder(tmp_path / "one")
    assert qkv.load("~/one").save("~/two") == tmp_path / "two"
    assert qkv.load("~/two").name == "two"


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_what_a_model_computes_in(tmp_path: Path, dtype: str) -> None:
    model = qkv.load(make_folder(tmp_path / "tiny"), dtype=dtype)
    model.save(tmp_path / "again")
    assert describe_model(tmp_path / "again").document["dtype"] == dtype


def test_a_dtype_that_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Unknown dtype 'bfloat61'\. Did you mean 'bfloat16'\? Known: float32, "):
        qkv.load(make_folder(tmp_path / "tiny"), dtype="bfloat61")


def test_a_device_is_checked_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Unknown device 'gpu'"):
        qkv.load(make_folder(tmp_path / "tiny"), device="gpu")


def test_what_no_task_was_put_on_is_a_model_too(tmp_path: Path) -> None:
    shutil.copytree(make_elmo(tmp_path / "elmo"), tmp_path / "run" / "model")
    (tmp_path / "run" / "config.toml").write_text("")
    model = qkv.load(tmp_path / "run")
    assert (model.name, model.architecture) == ("run", "model of type elmo")
    found = qkv.load(tmp_path / "elmo", dtype="bfloat16").embed("the cat")
    assert found.vectors.dtype == "float32"
    assert abs(found.vectors - model.embed("the cat").vectors).max() < 0.05
