"""`qkv export`, as a person and as a program calls it."""

import builtins
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from qkv.api.export import folder as exporting
from qkv.cli.main import main
from tests.support.below_readers import make_elmo
from tests.support.folders import make_folder
from tests.support.gpt_folders import make_gpt
from tests.support.task_folders import task_folder

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(task_folder(tmp_path_factory.mktemp("sources") / "run", "classify"))


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_export_and_info(classifier: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "graph")
    assert (
        main(["export", classifier, "--to", "onnx", "--out", out, "--packed", "--int8", "--least-cosine", "0.9"]) == 0
    )
    said = capsys.readouterr().out
    assert "model_packed_quantized.onnx" in said and "cosine at least 0.9" in said
    assert main(["info", out]) == 0
    said = capsys.readouterr().out
    assert "ONNX graphs of BERT" in said and "animal, place" in said and "least cosine with float32" in said
    assert main(["info", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["holds"] == "onnx"
    assert main(["--lang", "zh", "info", out]) == 0
    assert "任务头：sequence" in capsys.readouterr().out
    assert "is an exported model" in refused(capsys, "predict", out, "cat")
    assert "exported model already" in refused(capsys, "export", out, "--out", str(tmp_path / "again"))
    assert "already exists" in refused(capsys, "export", classifier, "--out", out)
    assert main(["export", classifier, "--out", out, "--overwrite", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["graphs"]) == ["model.onnx"]
    assert not (tmp_path / "graph" / "model_packed.onnx").exists(), "an export is replaced whole"


def test_without_a_name(
    classifier: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", classifier]) == 0
    assert (tmp_path / "run-onnx" / "model.onnx").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "onx"], "Unknown format 'onx'. Did you mean 'onnx'?"),
        (["--head", "token"], "has no head 'token'. It can be exported with: sequence, none."),
        (["--least-cosine", "2"], "between -1 and 1"),
        (["--check", "x.csv"], "add --int8, or leave --check out"),
        (["--int8", "--check", "x.csv"], "There is no file x.csv"),
        (["--int8", "--least-cosine", "1"], "int8 is refused and nothing was written"),
    ],
)
def test_bad_options(
    words: list[str], message: str, classifier: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, "export", classifier, "--out", str(tmp_path / "out"), *words)
    assert list(tmp_path.iterdir()) == []


def test_bad_folders(classifier: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "There is no folder" in refused(capsys, "export", str(tmp_path / "none"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work", encoding="utf-8")
    said = refused(capsys, "export", classifier, "--out", str(tmp_path / "mine"), "--overwrite")
    assert "it holds thesis.txt, which is not part of an exported model" in said
    model = make_folder(tmp_path / "model")
    said = refused(capsys, "export", classifier, "--out", str(model), "--overwrite")
    assert "is not replaced" in said and (model / "model.safetensors").is_file()
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "already exists" in refused(capsys, "export", classifier, "--out", str(tmp_path / "file"))


def test_what_cannot_be_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (make_gpt(tmp_path / "gpt"), make_elmo(tmp_path / "elmo")):
        said = refused(capsys, "export", str(folder), "--out", str(tmp_path / "out"))
        assert "cannot be exported: it holds" in said and "RoBERTa" in said and "qkv serve" in said
    assert "不能导出" in refused(capsys, "--lang", "zh", "export", "qkv-words", "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("library", "words"), [("onnx", []), ("onnxruntime", ["--int8"])])
def test_a_missing_library(
    library: str,
    words: list[str],
    classifier: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == library:
            raise ImportError(name)
        return given(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert "pip install 'qkv[onnx]'" in refused(capsys, "export", classifier, "--out", str(tmp_path / "out"), *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("event", [KeyboardInterrupt(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_nothing_is_left_behind(
    event: BaseException,
    classifier: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def half(file: Path, *rest: Any, **options: Any) -> Any:
        file.write_bytes(b"half a graph")
        raise event

    monkeypatch.setattr(exporting, "write_graph", half)
    words = ["export", classifier, "--out", str(tmp_path / "out")]
    if isinstance(event, OSError):
        assert "No space left on device" in refused(capsys, *words)
    else:
        assert main(words) == 130
    assert list(tmp_path.iterdir()) == []
