"""Results next to the columns of the user's table: predict, embed, documents, DataFrames, notebooks."""

import csv
import gc
import json
import sys
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv
from qkv.api.model import Model, load
from qkv.api.predict import frame_inputs
from qkv.api.table_files import TABLES, rename_taken, table_file
from qkv.cli.main import main
from qkv.cli.options import quick_start
from qkv.errors import InputError
from qkv.models.folders.own import add_to_record
from tests.support.task_folders import task_folder

pytestmark = pytest.mark.usefixtures("one_thread")
YOURS = ["Ticket ID", "Customer message", "input_label"]
TODO = 'Ticket ID;Customer message;label\n17;"the\ncat";x\n18;;y\n19;the dog;z\n'


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that was trained with --text "Customer message"."""
    folder = task_folder(tmp_path_factory.mktemp("models") / "classify", "classify")
    columns = {"text": "Customer message", "label": "Category", "pair": None}
    add_to_record(folder, {"config": {"data": {"columns": columns}}})
    return folder


@pytest.fixture
def todo(tmp_path: Path) -> Path:
    (tmp_path / "todo.csv").write_text(TODO, encoding="utf-8")
    return tmp_path / "todo.csv"


def read_rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
        return rows
    if path.suffix == ".xlsx":
        sheet = pytest.importorskip("openpyxl").load_workbook(path).active
        names, *cells = sheet.iter_rows(values_only=True)
        return [dict(zip(names, row, strict=True)) for row in cells]
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return [dict(row) for row in csv.DictReader(stream, delimiter="\t" if path.suffix == ".tsv" else ",")]


def require(suffix: str) -> None:
    if suffix in (".parquet", ".xlsx"):
        pytest.importorskip("pyarrow" if suffix == ".parquet" else "openpyxl")


@pytest.mark.parametrize("suffix", TABLES)
def test_predict_keeps_columns_and_rows(
    classifier: Path, todo: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    require(suffix)
    out = todo.with_name(f"out{suffix}")
    assert main(["predict", str(classifier), str(todo), "--out", str(out)]) == 0
    err = capsys.readouterr().err
    assert "2 results; columns of the input: 'label' is now 'input_label'" in err
    assert "note: inputs without a text, which have no result: 1 (line 4)" in err
    rows = read_rows(out)
    assert list(rows[0])[:7] == [*YOURS, "row", "line", "label", "probability"], "the same order in every format"
    assert [(row["Ticket ID"], row["input_label"], int(row["row"])) for row in rows] == [
        ("17", "x", 1), ("18", "y", 2), ("19", "z", 3),
    ]  # fmt: skip
    assert rows[0]["Customer message"] == "the\ncat" and not rows[1]["label"] and not rows[1]["probability"]
    model = load(classifier)
    (expected,) = model.predict("the dog")
    assert rows[2]["label"] == expected.label
    assert ("probabilities" in rows[0]) == (suffix == ".jsonl"), "elsewhere each label has a column"
    if suffix != ".jsonl":
        assert list(rows[0])[7:9] == [f"p_{label}" for label in model.labels]
        for label in model.labels:
            assert float(rows[2][f"p_{label}"]) == pytest.approx(expected.probabilities[label], abs=1e-6)


def test_fields_of_json_lines_are_kept(classifier: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "a.jsonl", tmp_path / "out.jsonl"
    rows = [{"id": 7, "text": "the cat", "more": {"n": 0.5}}, {"id": 8, "text": "", "extra": True}, {"text": "the dog"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["predict", str(classifier), str(file), "--out", str(out)]) == 0
    found = read_rows(out)
    assert (found[0]["id"], found[0]["more"], found[1]["extra"]) == (7, {"n": 0.5}, True)
    assert [row["label"] is None for row in found] == [False, True, False]


def test_a_table_of_nothing_keeps_its_rows(classifier: Path, todo: Path) -> None:
    todo.write_text("Customer message,x\n,1\n,2\n", encoding="utf-8")
    out = todo.with_name("out.csv")
    assert main(["predict", str(classifier), str(todo), "--out", str(out)]) == 0
    assert [row["x"] for row in read_rows(out)] == ["1", "2"]


def test_flags_override_remembered_columns(classifier: Path, todo: Path) -> None:
    out = todo.with_name("out.jsonl")
    assert main(["predict", str(classifier), str(todo), "--text", "label", "--out", str(out)]) == 0
    assert all(row["label"] for row in read_rows(out)), "no row is empty in that column"


def test_documents(classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "texts"
    (folder / "inner").mkdir(parents=True)
    (folder / "b.txt").write_text("the cat\n\nthe dog\n")
    (folder / "inner" / "a.txt").write_bytes("这是我的猫，他的狗也在这里。\n".encode("gb18030"))
    (folder / "no.csv").write_text("text\n")
    (folder / "c.txt").write_text("\n")
    (folder / ".hidden").write_text("x")
    assert main(["predict", str(classifier), str(folder / "b.txt"), "--document", "--json"]) == 0
    (one,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert one["text"] == "the cat\n\nthe dog" and one["file"] == str(folder / "b.txt") and "line" not in one
    out = tmp_path / "out.csv"
    assert main(["predict", str(classifier), str(folder), "--out", str(out)]) == 0
    err = capsys.readouterr().err
    assert f"{folder}: files that do not end in .txt and are not read: 1 (no.csv)" in err
    assert f"inputs without a text, which have no result: 1 ({folder / 'c.txt'})" in err
    rows = read_rows(out)
    assert [row["file"] for row in rows] == [str(folder / name) for name in ("b.txt", "c.txt", "inner/a.txt")]
    assert [bool(row["label"]) for row in rows] == [True, False, True]
    assert list(rows[0])[:3] == ["file", "label", "probability"]
    (folder / "no.csv").unlink()
    assert main(["predict", str(classifier), str(folder)]) == 0
    err = capsys.readouterr().err
    assert f"which are left out: 1 ({folder / 'c.txt'})" in err and "not read" not in err
    assert main(["predict", str(classifier), str(tmp_path / "texts" / "inner"), "--text", "x"]) == 2
    (folder / "inner" / "a.txt").unlink()
    assert main(["predict", str(classifier), str(folder / "inner")]) == 2
    assert "has no .txt file" in capsys.readouterr().err


def test_a_question_about_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reader = task_folder(tmp_path / "reader", "answer")
    (tmp_path / "a.txt").write_text("the cat\nis here\n")
    assert main(["predict", str(reader), str(tmp_path / "a.txt"), "-q", "who"]) == 2
    assert "add --document" in capsys.readouterr().err
    assert main(["predict", str(reader), str(tmp_path / "a.txt"), "-q", "who", "--document", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(tmp_path / "a.txt")


@pytest.fixture(scope="module")
def encoder(classifier: Path) -> Model:
    return load(classifier)


@pytest.mark.parametrize("suffix", [".npy", *TABLES])
def test_embed_keeps_columns_and_rows(
    classifier: Path, encoder: Model, todo: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    require(suffix)
    out = todo.with_name(f"out{suffix}")
    words = ["embed", "--file", str(todo), "--text", "Customer message", "--out", str(out), "--model", str(classifier)]
    assert main(words) == 0
    assert "rows without a text, which have no vector: 1" in capsys.readouterr().err
    expected = encoder.embed(["the\ncat", "the dog"]).vectors
    if suffix == ".npy":
        found = np.load(out)
        np.testing.assert_allclose(found[[0, 2]], expected, atol=1e-6)
        assert np.isnan(found[1]).all()
        return
    rows = read_rows(out)
    assert [(row["Ticket ID"], int(row["row"])) for row in rows] == [("17", 1), ("18", 2), ("19", 3)]
    if suffix in (".jsonl", ".parquet"):
        assert rows[1]["vector"] is None
        np.testing.assert_allclose(rows[2]["vector"], expected[1], atol=1e-6)
    else:
        assert not rows[1]["v0"]
        np.testing.assert_allclose(float(rows[2]["v0"]), expected[1, 0], atol=1e-6)
    assert main([*words, "--skip-empty"]) == 0
    assert len(read_rows(out)) == 2


def test_embed_a_table_on_the_screen(classifier: Path, todo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["embed", "--file", str(todo), "--model", str(classifier), "--text", "Customer message"]
    assert main([*words, "--json"]) == 2
    assert f"{todo}, line 4 is empty" in capsys.readouterr().err
    assert main([*words, "--json", "--skip-empty"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_embeddings_are_an_array(encoder: Model) -> None:
    found = encoder.embed(["the cat", "the dog"])
    np.testing.assert_array_equal(np.asarray(found), found.vectors)
    assert np.asarray(found, dtype=np.float64).dtype == np.float64
    assert np.asarray(found, copy=True) is not found.vectors
    np.testing.assert_array_equal(found[1], found.vectors[1])
    assert len(found) == 2 and found.shape == found.vectors.shape and len(list(found)) == 2


def test_notebooks(encoder: Model, tmp_path: Path) -> None:
    assert "labels" in encoder._repr_html_() and "<table>" in encoder._repr_html_()
    assert "2 vectors of" in encoder.embed(["the cat", "the dog"])._repr_html_()
    shown = encoder.predict(["the cat", "<b>"])._repr_html_()
    assert "2 predictions" in shown and "<th>label</th>" in shown


def test_data_frames(classifier: Path) -> None:
    pd = pytest.importorskip("pandas")
    model = load(classifier)
    frame = pd.DataFrame({"n": [1, 2], "Customer message": ["the cat", "the dog"]})
    texts = ["the cat", "the dog"]
    expected = [one.label for one in model.predict(texts)]
    assert [one.label for one in model.predict(frame)] == expected
    assert [one.label for one in model.predict(frame["Customer message"])] == expected
    assert list(pd.DataFrame(model.predict(texts))["label"]) == expected
    with pytest.raises(InputError, match="DataFrame: no column has a usual name for the text; there are 'n'"):
        model.predict(frame[["n"]])
    estimator = qkv.Classifier.load(classifier)
    wide = pd.DataFrame({"n": [1, 2], "text": texts, "x": [3, 4]})
    assert list(estimator.predict(wide)) == list(estimator.predict(texts))
    with pytest.raises(InputError, match="X has no column 'lable', only 'n', 'text', 'label'. Did you mean 'label'"):
        estimator.fit(pd.DataFrame({"n": [1], "text": ["a"], "label": ["b"]}), "lable")


def test_a_row_without_a_text_stays_without_a_result(classifier: Path, encoder: Model) -> None:
    """One such row made all of `predict` and `embed` an error, where a file keeps it."""
    pd = pytest.importorskip("pandas")
    expected, estimator = encoder.predict(["the cat", "the dog"]), qkv.Classifier.load(classifier)
    for missing in (None, float("nan"), pd.NA, "", " \u200b"):
        texts = pd.Series(["the cat", missing, "the dog"], dtype=object, index=[7, 8, 9])
        frame = pd.DataFrame({"n": [1, 2, 3], "text": texts})
        for given in (frame, texts, texts.tolist()):
            found = encoder.predict(given)
            assert list(found) == [expected[0], None, expected[1]]
            assert [one is None for one in estimator.predict(given)] == [False, True, False]
            assert np.isnan(estimator.predict_proba(given)).all(1).tolist() == [False, True, False]
            vectors = encoder.embed(given)
            np.testing.assert_array_equal(np.isnan(vectors).all(1), [False, True, False])
            np.testing.assert_allclose(vectors[[0, 2]], encoder.embed(["the cat", "the dog"]), atol=1e-6)
            assert vectors.n_tokens[1] == vectors.n_windows[1] == 0 < vectors.n_tokens[2]
        joined = frame.join(encoder.predict(frame).to_pandas())
        assert list(joined.index) == [7, 8, 9] and joined["label"].isna().tolist() == [False, True, False]
        assert "3 predictions" in encoder.predict(frame)._repr_html_()
    assert list(encoder.predict([None, ""])) == [None, None] and np.isnan(encoder.embed([None, ""])).all()
    for single in ("", "\u200b"):
        with pytest.raises(InputError, match="the text is empty"):
            encoder.predict(single)
        with pytest.raises(InputError, match="is empty"):
            encoder.embed(single)


def test_a_row_of_a_question_with_choices() -> None:
    pd = pytest.importorskip("pandas")
    columns = {"question": ["who", None, "why"], "choice1": ["a", "b", "c"], "choice2": ["b", "c", None]}
    rows, found = frame_inputs(pd.DataFrame(columns | {"choice3": ["c", None, None]}), "choice", {})
    assert found["choices"] == "choice1,choice2,choice3"
    assert rows[0] == {"question": "who", "choices": ["a", "b", "c"]}
    assert rows[1] == {"question": "", "choices": ["b", "c"]}, "no text is needed, and the last choices may be missing"
    pairs = pd.DataFrame({"text": ["a", "b"], "text2": ["c", None]})
    assert frame_inputs(pairs, "classify", {"text": "text", "pair": "text2"})[0] == [{"text": "a", "pair": "c"}, None]


def test_which_column_was_taken(classifier: Path, encoder: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"n": [1, 2], "Customer message": ["the cat", "the dog"], "text": ["a", "b"]})
    assert encoder.predict(frame).columns == {"text": "Customer message"} and encoder.predict("a").columns == {}
    estimator = qkv.Classifier(verbose=True)
    said: list[str] = []
    monkeypatch.setattr("qkv.api.classifier.write", lambda message, err: said.append(message))
    with pytest.raises(InputError, match="at least two"):
        estimator.fit(frame[["n", "text"]], [1, 1])
    assert estimator.columns_ == {"text": "text"} and said == ["columns of X: text = 'text'"]
    loaded = qkv.Classifier.load(classifier)
    assert list(loaded.predict(frame)) == list(loaded.predict(frame["Customer message"])), "the column of the training"


def test_embeddings_say_what_they_are(encoder: Model) -> None:
    width = encoder.config.width
    assert repr(encoder.embed(["the cat"] * 3)) == f"Embeddings(3 texts × {width}, {encoder.name})"
    assert repr(encoder.embed([])) == f"Embeddings(0 texts × {width}, {encoder.name})"


def test_a_terminal_shows_the_ends_of_a_long_text(
    classifier: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "the cat " * 1_000 + "dog"
    assert main(["predict", str(classifier), text]) == 0
    assert text in capsys.readouterr().out, "a pipe has all of it"
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    assert main(["predict", str(classifier), text]) == 0
    out = capsys.readouterr().out
    assert len(out) < 1_500 and " … " in out and "cat dog" in out
    assert main(["predict", str(classifier), text, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == text


def test_nothing_is_collected_before_the_model_is_there(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    model = load(classifier)

    def loaded(*given: Any, **named: Any) -> Model:
        seen.append(gc.isenabled())
        return model

    monkeypatch.setattr("qkv.api.model.load_for", loaded)
    assert main(["predict", str(classifier), "the cat"]) == 0
    assert seen == [False] and gc.isenabled()


def test_what_torch_brings_is_never_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    with quick_start():
        assert not gc.isenabled()
    try:
        assert gc.isenabled() and gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_a_model_that_was_not_fine_tuned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "qkv-mini", "x"]) == 2
    assert capsys.readouterr().err == (
        "error: qkv-mini is not fine-tuned, so it cannot predict: "
        "qkv finetune classify --model qkv-mini --train FILE --out RUN.\n"
    )


def test_excel_has_limits(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    message = "a.xlsx, row 2, column 'text' has 40,000 characters"
    with pytest.raises(InputError, match=message), table_file(tmp_path / "a.xlsx", ".xlsx") as table:
        table.write({"text": "a" * 40_000})
    assert not any(tmp_path.iterdir())
    with table_file(tmp_path / "a.xlsx", ".xlsx") as table:
        table.write({"text": "=1+1"})
    assert read_rows(tmp_path / "a.xlsx") == [{"text": "=1+1"}], "no formula"


@pytest.mark.parametrize(
    ("first", "later", "expected"),
    [
        (1, "x", ["1", "x"]),
        (1, 1.5, [1.0, 1.5]),
        (None, 7, [None, 7]),
        (None, date(2026, 1, 2), [None, date(2026, 1, 2)]),
        (True, 2, ["true", "2"]),
        (1, 2**70, ["1", str(2**70)]),
        (1, None, [1, None]),
    ],
)
def test_parquet_columns_change_their_type(tmp_path: Path, first: Any, later: Any, expected: list[Any]) -> None:
    require(".parquet")
    with table_file(tmp_path / "a.parquet", ".parquet") as table:
        for number in range(1025):
            table.write({"n": number, "a": first if number < 1024 else later})
    rows = read_rows(tmp_path / "a.parquet")
    assert len(rows) == 1025 and [rows[0]["a"], rows[1024]["a"]] == expected
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


TYPED: dict[str, list[Any]] = {
    "text": ["the cat", None, "the dog"],
    "id": [2**60, 2, 3],
    "price": [0.1234567890123, None, 2.0],
    "day": [date(2026, 1, 2), date(2026, 1, 3), None],
    "at": [datetime(2026, 1, 2, 3, 4, 5), None, datetime(2026, 1, 2)],
    "new": [True, False, None],
}


@pytest.mark.parametrize("verb", ["predict", "embed"])
@pytest.mark.parametrize("suffix", [".parquet", ".xlsx", ".jsonl", ".csv"])
def test_values_of_parquet_keep_their_types(classifier: Path, tmp_path: Path, verb: str, suffix: str) -> None:
    require(".parquet")
    require(suffix)
    arrow = pytest.importorskip("pyarrow")
    file, out = tmp_path / "a.parquet", tmp_path / f"out{suffix}"
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table(TYPED), file)
    given = ["--file", str(file), "--model", str(classifier)] if verb == "embed" else [str(classifier), str(file)]
    assert main([verb, *given, "--text", "text", "--out", str(out)]) == 0
    rows = read_rows(out)
    if suffix == ".parquet":
        assert {name: [row[name] for row in rows] for name in TYPED} == TYPED
        schema = pytest.importorskip("pyarrow.parquet").read_schema(out)
        assert [schema.field(name).type for name in TYPED] == arrow.table(TYPED).schema.types
        return
    found = [tuple(row[name] for name in TYPED)[1:] for row in rows]
    if suffix == ".xlsx":
        assert found[0] == (str(2**60), 0.1234567890123, datetime(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5), True)
        assert found[1] == (2, None, datetime(2026, 1, 3), None, False)
    elif suffix == ".jsonl":
        assert found[0] == (2**60, 0.1234567890123, "2026-01-02", "2026-01-02T03:04:05", True)
    else:
        assert found[0] == (str(2**60), "0.1234567890123", "2026-01-02", "2026-01-02T03:04:05", "true")
        assert found[2][2:] == ("", "2026-01-02T00:00:00", "")


@pytest.mark.parametrize("suffix", [".parquet", ".xlsx"])
def test_values_of_a_sheet_keep_their_types(classifier: Path, tmp_path: Path, suffix: str) -> None:
    require(".xlsx")
    require(suffix)
    file, out = tmp_path / "a.xlsx", tmp_path / f"out{suffix}"
    with table_file(file, ".xlsx") as table:
        for number in range(3):
            table.write({name: values[number] for name, values in TYPED.items() if name != "id"} | {"n": number})
    assert main(["predict", str(classifier), str(file), "--text", "text", "--out", str(out)]) == 0
    first, second, third = read_rows(out)
    assert (first["price"], first["at"], first["new"], first["n"]) == (0.1234567890123, TYPED["at"][0], True, 0)
    assert (second["price"], second["n"], second["label"]) == (None, 1, None)
    assert third["day"] is None and third["at"] == datetime(2026, 1, 2)


def test_other_values_of_parquet(classifier: Path, tmp_path: Path) -> None:
    """Bytes, lists and NaN: no traceback, and JSON that other programs read."""
    require(".parquet")
    arrow = pytest.importorskip("pyarrow")
    values = {"text": ["the cat"], "raw": [b"\xff\xe4"], "tags": [["a", "b"]], "nan": [float("nan")], "s": [{"x": 1}]}
    file = tmp_path / "a.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table(values), file)
    for suffix in TABLES:
        require(suffix)
        out = tmp_path / f"out{suffix}"
        assert main(["predict", str(classifier), str(file), "--text", "text", "--out", str(out)]) == 0
        (row,) = read_rows(out)
        if suffix == ".jsonl":
            assert (row["tags"], row["nan"], row["s"]) == (["a", "b"], None, {"x": 1})
        elif suffix == ".csv":
            assert (row["raw"], row["tags"], row["nan"], row["s"]) == ("\\xff\\xe4", "a|b", "", '{"x": 1}')


def test_a_json_line_without_text_stays(classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.jsonl"
    lines: list[dict[str, Any]] = [{"id": 1}, {"id": 2, "text": "the cat"}, {"id": 3, "text": None}]
    lines += [{"id": number, "text": "the dog"} for number in range(4, 60)] + [{"id": 60, "late": 1, "text": "a"}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for suffix in TABLES:
        require(suffix)
        out = tmp_path / f"out{suffix}"
        assert main(["predict", str(classifier), str(file), "--out", str(out)]) == 0
        err = capsys.readouterr().err
        assert "which have no result: 2 (line 1; line 3)" in err
        rows = read_rows(out)
        assert [int(row["id"]) for row in rows] == list(range(1, 61))
        assert [bool(row["label"]) for row in rows] == [False, True, False, *[True] * 57]
        if suffix == ".jsonl":
            assert rows[59]["late"] == 1
        else:
            assert "fields that only later lines have, not written: 'late'" in err
        assert main(["embed", "--file", str(file), "--model", str(classifier), "--out", str(out)]) == 0
        assert len(read_rows(out)) == 60 and "n_unknown" in read_rows(out)[1], "the first row has no vector"
        capsys.readouterr()


def test_a_summary_for_programs(classifier: Path, todo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = todo.with_name("out.csv")
    assert main(["predict", str(classifier), str(todo), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "out": str(out), "n_results": 2, "n_empty": 1, "renamed": {"label": "input_label"}, "lost": [],
    }  # fmt: skip


def test_texts_that_are_no_names_of_files(classifier: Path, tmp_path: Path) -> None:
    """Longer than a file name may be, and like the home of somebody."""
    for text in ("猫" * 200, "~nobody", "~nobody " + "a" * 300):
        assert main(["predict", str(classifier), text]) == 0
        assert main(["predict", str(classifier), text, "--out", str(tmp_path / "out.csv")]) == 0


def test_an_interrupted_file_leaves_nothing(tmp_path: Path) -> None:
    for suffix in TABLES:
        require(suffix)
        with pytest.raises(KeyboardInterrupt), table_file(tmp_path / f"a{suffix}", suffix) as table:
            for number in range(2000):
                table.write({"a": number})
            raise KeyboardInterrupt
        assert not any(tmp_path.iterdir())


def test_names_that_are_taken() -> None:
    assert rename_taken(["label", "input_label", "id"], ["label"]) == {
        "label": "input_input_label",
        "input_label": "input_label",
        "id": "id",
    }


def test_which_sheet_is_read(classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said where there are several."""
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.title = "Data"
    for row in (["text"], ["the cat"]):
        book.active.append(row)
    file, out = tmp_path / "a.xlsx", tmp_path / "out.csv"
    for verb in (["predict", str(classifier), str(file)], ["embed", "--file", str(file), "--model", str(classifier)]):
        book.save(file)
        assert main([*verb, "--text", "text", "--out", str(out)]) == 0
        assert "only sheet" not in capsys.readouterr().err
        other = book.create_sheet("Other")
        book.save(file)
        assert main([*verb, "--text", "text", "--out", str(out)]) == 0
        assert f"{file}: reading only sheet 'Data' of 2\n" in capsys.readouterr().err
        book.remove(other)
