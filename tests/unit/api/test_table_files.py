"""Results next to the columns of the user's table: predict, embed, documents, DataFrames, notebooks."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv
from qkv.api.model import Model, load
from qkv.api.table_files import TABLES, rename_taken, table_file
from qkv.cli.main import main
from qkv.errors import InputError
from qkv.models.folders.own import add_to_record
from tests.support.task_folders import task_folder

pytestmark = pytest.mark.usefixtures("one_thread")
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
    assert "rows without a text, which have no result: 1; columns of the input: 'label' is now 'input_label'" in (
        capsys.readouterr().err
    )
    rows = read_rows(out)
    assert list(rows[0])[:3] == ["Ticket ID", "Customer message", "input_label"]
    assert [(row["Ticket ID"], row["input_label"], int(row["row"])) for row in rows] == [
        ("17", "x", 1), ("18", "y", 2), ("19", "z", 3),
    ]  # fmt: skip
    assert rows[0]["Customer message"] == "the\ncat" and not rows[1]["label"] and not rows[1]["probability"]
    model = load(classifier)
    (expected,) = model.predict("the dog")
    assert rows[2]["label"] == expected.label
    if suffix != ".jsonl":
        assert list(rows[0])[3:5] == ["label", "probability"]
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
    assert main(["predict", str(classifier), str(folder / "b.txt"), "--document", "--json"]) == 0
    (one,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert one["text"] == "the cat\n\nthe dog" and one["file"] == str(folder / "b.txt") and "line" not in one
    out = tmp_path / "out.csv"
    assert main(["predict", str(classifier), str(folder), "--out", str(out)]) == 0
    assert [row["file"] for row in read_rows(out)] == [str(folder / "b.txt"), str(folder / "inner" / "a.txt")]
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


def test_excel_has_limits(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    message = "a.xlsx, row 2, column 'text' has 40,000 characters"
    with pytest.raises(InputError, match=message), table_file(tmp_path / "a.xlsx", ".xlsx") as table:
        table.write({"text": "a" * 40_000})
    assert not any(tmp_path.iterdir())
    with table_file(tmp_path / "a.xlsx", ".xlsx") as table:
        table.write({"text": "=1+1"})
    assert read_rows(tmp_path / "a.xlsx") == [{"text": "=1+1"}], "no formula"


def test_parquet_columns_of_one_type(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    message = "the column 'a' has values of different types"
    with pytest.raises(InputError, match=message), table_file(tmp_path / "a.parquet", ".parquet") as table:
        for number in range(1025):
            table.write({"a": number if number < 1024 else "x"})
    assert not any(tmp_path.iterdir())


def test_names_that_are_taken() -> None:
    assert rename_taken(["label", "input_label", "id"], ["label"]) == {
        "label": "input_input_label",
        "input_label": "input_label",
        "id": "id",
    }
