"""Predictions for files: labels that are not looked at, tables with the same columns throughout, texts left out."""

import csv
import io
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from qkv.api.model import load
from qkv.api.predict import ResultWriter, open_inputs
from qkv.cli.main import main
from qkv.data.labelled.examples import AnswerExample, Fault, Place, TextExample
from qkv.errors import InputError
from qkv.tasks.table import TASKS
from tests.support.folders import make_tokenizer
from tests.support.task_folders import task_folder

pytestmark = pytest.mark.usefixtures("one_thread")
TOKENIZER = make_tokenizer()
UNSEEN = "\u200b\u200b"  # no blank to a reader, nothing to a tokenizer


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def json_lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


LABELLED: dict[str, tuple[str, dict[str, Any], str, str]] = {
    # task, how the model is made: a file whose labels the model does not know, or that make no sense to it
    "classify": ("classify", {}, "a.csv", "text,label\nthe cat,fruit\nthe dog,\n"),
    "numbers": ("classify", {"kind": "regression"}, "a.csv", "text,label\nthe cat,good\nthe dog,bad\n"),
    "several": ("classify", {"kind": "multi"}, "a.jsonl", json_lines({"text": "the cat", "label": ["fruit"]}) * 2),
    "tag": ("tag", {}, "a.jsonl", json_lines({"text": "the cat", "label": [[0, 3, "A"], [2, 7, "B"]]}) * 2),
    "columns": ("tag", {}, "a.conll", "the B-X\ncat I-X\n\nthe O\ndog B-Y\n"),
    "answer": (
        "answer",
        {},
        "a.jsonl",
        json_lines({"question": "who", "context": "the cat", "answers": {"text": ["cat"], "answer_start": [4]}}) * 2,
    ),
    "choice": (
        "choice",
        {},
        "a.jsonl",
        json_lines({"context": "the cat", "question": "who", "choices": ["cat", "dog"], "answer": 1}) * 2,
    ),
}
CLASSIFY = TASKS["classify"].load().restored(["no", "yes"], {})


@pytest.mark.parametrize("name", LABELLED)
def test_labels_in_a_file_are_not_looked_at(tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    task, record, file, content = LABELLED[name]
    model = task_folder(tmp_path / "model", task, **record)
    path = write(tmp_path / file, content)
    assert main(["predict", str(model), str(path), "--json"]) == 0, capfd.readouterr().err
    out, err = capfd.readouterr()
    assert len(out.splitlines()) == 2 and "left out" not in err
    for example in open_inputs(load(model).solver.task, [str(path)], TOKENIZER):
        fields = ("label", "spans", "answers", "answer")
        assert [getattr(example, field, None) for field in fields] == [None] * 4


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        return [dict(row) for row in rows]


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_table_has_the_same_columns_throughout(tmp_path: Path, suffix: str) -> None:
    reader = load(task_folder(tmp_path / "reader", "answer"))
    asked = [
        AnswerExample("who", "the cat"),
        AnswerExample("who", "the dog", id="7", place=Place("a.json", 4)),
        AnswerExample("who", "the animal"),
    ]
    with ResultWriter(tmp_path / f"answers{suffix}", suffix) as written:
        written.add(asked, reader.predict(asked))
    rows = rows_of(tmp_path / f"answers{suffix}")
    assert [(row["line"], row["id"], row["question"]) for row in rows] == [
        ("", "", "who"),
        ("4", "7", "who"),
        ("", "", "who"),
    ]
    assert "n_best" not in rows[0] and None not in rows[0]


def test_columns_of_a_classifier(tmp_path: Path) -> None:
    said = ["line", "label", "probability", "p_no", "p_yes", "n_tokens", "n_windows", "abstained", "n_unknown"]
    texts = [TextExample("the cat"), TextExample("the dog", place=Place("a", 9))]
    single = load(task_folder(tmp_path / "single", "classify"))
    for pairs, columns in ((False, ["text"]), (True, ["text", "pair"])):
        with ResultWriter(tmp_path / "a.csv", ".csv", pairs, ("no", "yes")) as written:
            written.add(texts, single.predict(texts))
        rows = rows_of(tmp_path / "a.csv")
        assert [list(row) for row in rows] == [[*columns, *said]] * 2
        assert [row["line"] for row in rows] == ["", "9"]


def test_texts_without_tokens_are_left_out_and_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = task_folder(tmp_path / "model", "classify")
    path = write(tmp_path / "a.csv", f'text\nthe cat\n{UNSEEN}\n""\nthe dog\n')
    source = open_inputs(CLASSIFY, [str(path)], TOKENIZER)
    for _ in range(2):  # not listed twice
        assert [example.text for example in source] == ["the cat", "the dog"]
        assert source.faults == [
            Fault(
                Place(str(path), 3),
                "empty text",
                "the text is empty (nothing is left of it after tokenization)",
                "dropped",
            ),
            Fault(Place(str(path), 4), "empty text", "'text' is empty", "dropped"),
        ]
    assert main(["predict", str(model), str(path), "--out", str(tmp_path / "out.csv")]) == 0
    assert "note: inputs without a text, which have no result: 2 (line 3; line 4)" in capfd.readouterr().err
    rows = rows_of(tmp_path / "out.csv")
    assert [(row["row"], row["line"], row["text"], bool(row["label"])) for row in rows] == [
        ("1", "2", "the cat", True),
        ("2", "3", UNSEEN, False),
        ("3", "4", "", False),
        ("4", "5", "the dog", True),
    ], "rows keep their place"
    write(tmp_path / "a.txt", f"the cat\n{UNSEEN}\n\nthe dog\n")
    assert main(["predict", str(model), str(tmp_path / "a.txt"), "--out", str(tmp_path / "out.csv")]) == 0
    err = capfd.readouterr().err
    assert "which are left out: 2 (line 2; line 3)" in err
    assert [row["line"] for row in rows_of(tmp_path / "out.csv")] == ["1", "4"]


@pytest.mark.parametrize("keeps_rows", [False, True])
def test_memory_does_not_follow_the_file(tmp_path: Path, keeps_rows: bool) -> None:
    """Neither rows nor the faults of rows without a text are held."""
    path = write(tmp_path / "a.csv", "id,text\n" + f"1,{'the cat ' * 100}\n2,\n" * 20_000)
    source = open_inputs(CLASSIFY, [str(path)], TOKENIZER)
    source.keeps_rows = keeps_rows
    tracemalloc.start()
    for example in source:
        if keeps_rows:
            assert len(list(source.join([example.text]))) <= 2
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert source.n_left_out == 20_000 and len(source.faults) == 20
    assert peak < 4_000_000, "the file has 16 million bytes"


def test_what_is_read_is_not_written_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = task_folder(tmp_path / "model", "classify")
    path = write(tmp_path / "a.csv", "text\nthe cat\n")
    assert main(["predict", str(model), str(path), "--out", str(path)]) == 2
    assert "is also an input file" in capfd.readouterr().err and path.read_text() == "text\nthe cat\n"


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(f"\ufeffthe cat\n\n{UNSEEN}\nthe dog\n".encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    source = open_inputs(CLASSIFY, ["-"], TOKENIZER)
    assert [(example.place.line, example.text) for example in source] == [(1, "the cat"), (4, "the dog")]
    assert [str(fault.place) for fault in source.faults] == ["standard input, line 3"]


def test_a_typed_text_without_tokens_is_refused_where_no_other_stands_beside_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = task_folder(tmp_path / "model", "classify")
    for typed in (["", ""], [UNSEEN]):
        with pytest.raises(InputError, match="Input 1: the text is empty"):
            list(load(folder).predict_stream(open_inputs(CLASSIFY, typed, TOKENIZER)))
    with pytest.raises(InputError, match="Input 1: the pair is empty"):
        list(load(folder).predict_stream(open_inputs(CLASSIFY, ["the cat", "a dog"], TOKENIZER, pair=" ")))
    assert main(["predict", str(folder), "the cat", "", "the dog", UNSEEN, "--json"]) == 0
    out, err = capfd.readouterr()
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["the cat", "the dog"]
    assert "note: inputs without a text, which are left out: 2 (text 2; text 4)" in err
