"""finetune, evaluate and predict on the command line: good input, bad input, and nothing half-written."""

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from qkv.cli.main import main
from tests.support import labelled_sets as sets
from tests.support.folders import make_folder

pytestmark = pytest.mark.usefixtures("one_thread")
QUICK = ("--epochs", "1", "--lr", "3e-3", "--set", "train.threads=1", "--set", "texts_per_step=8")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("pretrained") / "bert", "BertModel")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, pretrained: Path) -> Path:
    folder = tmp_path_factory.mktemp("run")
    file = sets.write_texts(folder / "train.csv")
    arguments = ["finetune", "classify", "-m", str(pretrained), "--train", str(file), "--out", str(folder / "run")]
    assert main([*arguments, "--epochs", "8", *QUICK[2:]]) == 0
    return folder / "run"


def finetune(pretrained: Path, file: Path, out: Path, *more: str, task: str = "classify") -> int:
    return main(["finetune", task, "-m", str(pretrained), "--train", str(file), "--out", str(out), *QUICK, *more])


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_from_a_file_to_a_judged_model(tmp_path: Path, pretrained: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = sets.write_texts(tmp_path / "train.csv")
    assert finetune(pretrained, file, tmp_path / "run", "--seeds", "2", "--test", str(file), "--json") == 0
    (document,) = lines(capfd.readouterr().out)
    assert document["finished"] and document["result"]["test"]["examples"] == 60
    assert len(document["result"]["seeds"]["values"]) == 2
    assert main(["finetune", "--resume", str(tmp_path / "run")]) == 0
    out, err = capfd.readouterr()
    assert "is finished" in err and "accuracy" in out


def test_evaluate(tmp_path: Path, run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = sets.write_texts(tmp_path / "test.csv", sets.texts(20))
    assert main(["evaluate", str(run), str(file), "--out", str(tmp_path / "answers.jsonl"), "--json"]) == 0
    (found,) = lines(capfd.readouterr().out)
    answers = lines((tmp_path / "answers.jsonl").read_text(encoding="utf-8"))
    assert len(answers) == found["scores"]["examples"] == 20
    assert sum(one["right"] for one in answers) / 20 == found["scores"]["accuracy"]
    assert [one["line"] for one in answers] == list(range(2, 22))
    assert not found["is_training_file"]
    assert main(["evaluate", str(run), str(run.parent / "train.csv")]) == 0
    assert "the model was trained on this file" in capfd.readouterr().out
    assert main(["evaluate", str(run), str(file), "--against", str(run)]) == 0
    assert "difference +0.0000" in capfd.readouterr().out


def test_predict_texts_and_files(tmp_path: Path, run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(run), "the cat sat", "北京"]) == 0
    shown = capfd.readouterr().out
    assert "the cat sat" in shown and "%" in shown
    assert main(["predict", str(run), "the cat sat", "the 1 2 3 " * 100, "--json"]) == 0
    first, second = lines(capfd.readouterr().out)
    assert first["n_windows"] == 1 < second["n_windows"] and first["label"] in first["probabilities"]
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat\n\n他欠我 100 万\r\nthe mat\n", encoding="utf-8")
    for ending in ("jsonl", "csv", "tsv"):
        assert main(["predict", str(run), str(texts), "--out", str(tmp_path / f"out.{ending}")]) == 0
        assert "left out" in capfd.readouterr().err  # the empty line
    written = lines((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert [(one["line"], one["text"]) for one in written] == [(1, "the cat"), (3, "他欠我 100 万"), (4, "the mat")]
    with (tmp_path / "out.csv").open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["label"] for row in rows] == [one["label"] for one in written]


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


BAD: dict[str, tuple[str, str, bytes | str, str]] = {
    # name: task, file name, content, what the message holds
    "no label column": ("classify", "a.csv", "text,id,when\nthe cat,1,now\nthe dog,2,then\n", "--label"),
    "one class": ("classify", "a.csv", "text,label\n" + "".join(f"cat {n},a\n" for n in range(9)), "at least two"),
    "one example": ("classify", "a.csv", "text,label\nthe cat,a\n", "Every example|too few"),
    "own labels": ("classify", "a.csv", "text,label\n" + "".join(f"cat {n},l{n}\n" for n in range(9)), "of its own"),
    "no example": ("classify", "a.csv", "text,label\n", "no example"),
    "empty file": ("classify", "a.csv", "", "empty|no example|holds nothing"),
    "not UTF-8": ("classify", "a.csv", "text,label\n好,b\n".encode() + "差评很多,坏\n".encode("gbk"), "line 3.*UTF-8"),
    "NUL": ("classify", "a.csv", "text,label\nthe \0 cat,a\nthe dog,b\n", "line 2.*NUL"),
    "no label in a cell": ("classify", "a.csv", "text,label\nthe cat,a\nthe dog,\n", "line 3"),
    "how to skip it": ("classify", "a.csv", "text,label\nthe cat,a\nthe dog,\n", "add --skip-bad"),
    "a number too large": (
        "classify",
        "a.csv",
        "text,label\nthe cat,0.5\nthe dog,1e300\nthe mat,1.5\n",
        "line 3: 1e300",
    ),
    "nothing to see": ("tag", "a.conll", "\u200b O\n\u200b B-X\n\n\ufeff\tB-X\n", "invisible characters"),
    "span outside": ("tag", "a.jsonl", '{"text": "cat", "label": [[0, 30, "ANI"]]}\n', "dropped|outside"),
    "overlapping spans": (
        "tag",
        "a.jsonl",
        "".join(f'{{"text": "the cat sat {n}", "label": [[0, 7, "A"], [4, 11, "B"]]}}\n' for n in range(9)),
        r"line \d.*overlap",
    ),
    "not SQuAD": ("answer", "a.json", '{"data": [{"paragraphs": [{"qas": []}]}]}', "context"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(tmp_path: Path, pretrained: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    task, file, content, message = BAD[name]
    path = write(tmp_path / file, content)
    assert finetune(pretrained, path, tmp_path / "run", task=task) == 2
    error = capfd.readouterr().err
    assert re.search(message, error, re.DOTALL), error
    assert "Traceback" not in error and file in error
    assert not (tmp_path / "run").exists()


def test_rows_that_cannot_be_used_are_skipped(
    tmp_path: Path, pretrained: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = sets.write_texts(tmp_path / "train.csv", sets.texts(20))
    with file.open("a", encoding="utf-8") as stream:
        stream.write("a text without a label,\n")
    assert finetune(pretrained, file, tmp_path / "run") == 2
    capfd.readouterr()
    assert finetune(pretrained, file, tmp_path / "run", "--skip-bad", "--set", "data.dev_share=0.3") == 0
    out, err = capfd.readouterr()
    assert "1 rows that cannot be used were left out" in err and "examples dropped: 1" in out
    (fault,) = lines((tmp_path / "run" / "faults.jsonl").read_text(encoding="utf-8"))
    assert (fault["kind"], fault["action"], fault["line"]) == ("unusable", "dropped", 22)
    assert "skip_bad = true" in (tmp_path / "run" / "config.toml").read_text()


def test_a_very_long_text_is_read_to_its_end(tmp_path: Path, pretrained: Path) -> None:
    rows = sets.texts(20)
    file = sets.write_texts(tmp_path / "train.csv", rows)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"{'the cat ' * 12_500},animal\n")
    assert finetune(pretrained, file, tmp_path / "run", "--set", "data.dev_share=0.3") == 0


def test_bad_commands(
    tmp_path: Path, pretrained: Path, run: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QKV_MODEL", raising=False)
    file = sets.write_texts(tmp_path / "train.csv")
    bare = shutil.copytree(pretrained, tmp_path / "bare")
    for name in ("tokenizer.json", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json"):
        (bare / name).unlink()
    out = ["--train", str(file), "--out", str(tmp_path / "x")]
    model = ["-m", str(pretrained)]
    for arguments, message in (
        (["finetune"], "Name the task"),
        (["finetune", "clasify"], "Did you mean 'classify'"),
        (["finetune", "classify", "-m", "qkv-mni", *out], "Did you mean 'qkv-mini'"),
        (["finetune", "classify", "-m", "scrach:lstm", *out], "Did you mean 'scratch:lstm'"),
        (["finetune", "classify", "-m", str(bare), *out], "tokenizer"),
        (["finetune", "classify", *model, "--out", "x"], "--train"),
        (["finetune", "classify", *model, *out, "--transfer", "frezze"], "Did you mean 'freeze'"),
        (["finetune", "classify", *model, *out, "--set", "train.lrr=1"], "Did you mean 'lr'"),
        (["finetune", "classify", *model, *out, "--crf"], "--crf is for tag"),
        (["finetune", "classify", *model, "--train", "nowhere.csv", "--out", "x"], "nowhere.csv"),
        (["finetune", "classify", *model, *out[:2], "--out", str(run)], "holds a finished run"),
        (["finetune", "--resume", str(tmp_path)], "is not a run"),
        (["finetune", "--resume", str(run), "--lr", "1"], "leave out everything else"),
        (["evaluate", str(pretrained), str(file)], "cannot predict"),
        (["evaluate", str(run), str(tmp_path / "no.csv")], "no.csv"),
        (["predict", str(run)], "Give texts or a file"),
        (["predict", str(run), "   "], "empty"),
        (["predict", str(run), "a", "-q", "who?"], "mean nothing"),
        (["predict", str(run), "a", "--out", "x.doc"], "ends in"),
        (["predict", str(run), "nope.csv"], "There is no file nope.csv"),
        (["predict", str(run), str(tmp_path)], "has no .txt file"),
        (["predict", str(run), str(file), str(file)], "Give one file at a time"),
    ):
        assert main(arguments) == 2, arguments
        error = capfd.readouterr().err
        assert message in error and "Traceback" not in error, (arguments, error)
    assert not (tmp_path / "x").exists()
