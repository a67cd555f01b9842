"""parquet, Arrow and Excel files as labelled files: the same examples as from csv, places by row, clear errors."""

import builtins
import datetime
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qkv.data.labelled.binary_tables import open_record_table
from qkv.data.labelled.check import check_labelled
from qkv.data.labelled.examples import AnswerExample, Span, TagExample, TextExample
from qkv.data.labelled.reader import guess_task, labelled
from qkv.errors import InputError

ROWS = [
    {"id": 1, "text": "快递太慢", "label": "差评"},
    {"id": 2, "text": "质量 good", "label": "好评"},
    {"id": 3, "text": "", "label": "好评"},
    {"id": 4, "text": "下次还来", "label": "好评"},
]


def write_arrow(path: Path, rows: list[dict[str, Any]]) -> Path:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.Table.from_pylist(rows)
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=2)
    elif path.suffix == ".feather":
        pytest.importorskip("pyarrow.feather").write_feather(table, path)
    else:  # the stream format, as `datasets` writes it
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    return path


def write_xlsx(path: Path, rows: list[dict[str, Any]], title: str = "Data") -> Path:
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.title = "Notes"  # an empty sheet comes first
    sheet = book.create_sheet(title)
    sheet.append(list(rows[0]))
    for row in rows:
        sheet.append(list(row.values()))
    book.save(path)
    return path


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], Path]] = {
    "a.parquet": write_arrow,
    "a.feather": write_arrow,
    "a.arrow": write_arrow,
    "a.xlsx": write_xlsx,
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_same_examples_as_from_csv(tmp_path: Path, name: str) -> None:
    path = WRITERS[name](tmp_path / name, ROWS)
    source = labelled(path, "classify")
    assert guess_task(path) == "classify"
    found = list(source)
    assert [(example.text, example.expected()) for example in found] == [
        ("快递太慢", "差评"),
        ("质量 good", "好评"),
        ("下次还来", "好评"),
    ]
    row = "sheet 'Data', row 5" if name == "a.xlsx" else "row 4"
    assert str(found[-1].place) == f"{path}, {row}"
    assert [fault.message for fault in source.faults] == ["'text' is empty"]
    assert check_labelled(path).examples == 3


def test_cells_of_a_sheet_are_text(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": 42, "label": 1.5},
        {"text": datetime.date(2026, 1, 2), "label": True},
        {"text": "a", "label": 2},
    ]
    path = write_xlsx(tmp_path / "a.xlsx", rows)
    source = labelled(path, "classify")
    assert [(example.text, example.expected()) for example in source] == [
        ("42", "1.5"),
        ("2026-01-02T00:00:00", "true"),
        ("a", "2"),
    ]
    assert source.describe() == "xlsx reading only sheet 'Data' of 2, text = 'text', label = 'label'"


def test_nested_values_of_parquet(tmp_path: Path) -> None:
    squad = [{"id": "q", "question": "who", "context": "the cat", "answers": {"text": ["cat"], "answer_start": [4]}}]
    path = write_arrow(tmp_path / "a.parquet", squad)
    assert guess_task(path) == "answer"
    (example,) = labelled(path, "answer")
    assert isinstance(example, AnswerExample) and example.answers == ((4, "cat"),)
    tagged = [{"tokens": ["the", "cat"], "ner_tags": ["O", "B-ANI"]}]
    path = write_arrow(tmp_path / "b.parquet", tagged)
    assert guess_task(path) == "tag"
    (one,) = labelled(path, "tag")
    assert isinstance(one, TagExample) and one.spans == (Span(4, 7, "ANI"),)


def test_missing_labels_and_numbers(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": 0.5}, {"text": "b", "label": float("nan")}]
    path = write_arrow(tmp_path / "a.parquet", rows)
    with pytest.raises(InputError, match=r"a\.parquet, row 2 has no label: 'label' is empty"):
        list(labelled(path, "classify"))
    assert [example.expected() for example in labelled(path, "classify", lenient=True)] == ["0.5"]
    path = write_xlsx(tmp_path / "a.xlsx", [{"text": "a", "label": "x"}, {"text": "b", "label": None}])
    with pytest.raises(InputError, match=r"a\.xlsx, sheet 'Data', row 3 has no label"):
        list(labelled(path, "classify"))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.parquet", b"PAR1 and no more", "a.parquet cannot be read as parquet: "),
        ("a.feather", b"ARROW1 and no more", "a.feather cannot be read as arrow: "),
        ("a.xlsx", b"PK\x03\x04 and no more", "a.xlsx cannot be read as xlsx: "),
        ("a.parquet", b"text,label\n", "a.parquet is not a parquet file: it begins with b'text,lab'"),
        ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old format, or encrypted: save it as .xlsx or .csv"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("openpyxl")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        labelled(tmp_path / name, "classify")


@pytest.mark.parametrize("start", [b"PAR1", b"ARROW1"])
def test_a_missing_library_is_named(tmp_path: Path, start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] in ("pyarrow", "openpyxl"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr("qkv.data.labelled.binary_tables.import_module", lambda name: without(name))
    (tmp_path / "a.bin").write_bytes(start)
    with pytest.raises(InputError, match=r"need pyarrow, which is not installed: pip install 'qkv\[tables\]'"):
        labelled(tmp_path / "a.bin", "classify")


def test_remembered_columns(tmp_path: Path) -> None:
    path = tmp_path / "todo.csv"
    path.write_text("Ticket ID;Customer message;Owner\n17;where is it;a\n18;hello;b\n")
    known = {"text": "Customer message", "label": "Category"}
    source = labelled(path, "classify", needs_labels=False, remembered=known)
    assert source.columns["text"] == "Customer message" and [one.text for one in source] == ["where is it", "hello"]
    given = labelled(path, "classify", needs_labels=False, remembered=known, columns={"text": "Owner"})
    assert [one.text for one in given] == ["a", "b"], "what is given comes first"
    path.write_text("text\nhello\n")
    assert [one.text for one in labelled(path, "classify", needs_labels=False, remembered=known)] == ["hello"]
    records = tmp_path / "todo.jsonl"
    records.write_text(json.dumps({"body": "x", "n": 1, "Customer message": "hello"}) + "\n")
    found = list(labelled(records, "classify", needs_labels=False, remembered=known))
    assert found == [TextExample("hello", place=found[0].place)]


def test_a_header_without_usual_names(tmp_path: Path) -> None:
    path = tmp_path / "todo.csv"
    path.write_text("Ticket ID;Customer message;Owner\n17;where is it;a\n18;hello;b\n19;no;c\n")
    with pytest.raises(InputError) as error:
        labelled(path, "classify", needs_labels=False)
    assert "no header" not in str(error.value) and "'Customer message'" in str(error.value)
    by_number = labelled(path, "classify", needs_labels=False, columns={"text": "2"})
    assert [one.text for one in by_number] == ["where is it", "hello", "no"], "the header is no text"


def test_many_columns_are_not_all_listed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n".join(",".join(f"{start}{number}" for number in range(100_000)) for start in "cxy") + "\n")
    for columns in ({}, {"text": "nothing"}, {"text": "c1", "label": "nothing"}):
        with pytest.raises(InputError, match="99,980 more") as error:
            labelled(path, "classify", columns=columns)
        assert len(str(error.value)) < 1000
    (first, _) = labelled(path, "classify", columns={"text": "c1", "label": "c99999"})
    assert first.expected() == "x99999"


def test_places_in_a_document_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "squad.json"
    asked = [
        {"id": f"q{n}", "question": f"who {n % 2}", "answers": [{"text": "cat", "answer_start": 4}]} for n in range(3)
    ]
    paragraphs = [{"context": "the cat", "qas": asked[:2]}, {"context": "the cat", "qas": asked[2:]}]
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    assert [(one.place.within, one.place.line) for one in labelled(path, "answer")] == [
        ("question 1", 1),
        ("question 2", 1),
        ("question 3", 1),
    ]
    (finding,) = check_labelled(path).findings
    assert (finding.place, finding.message) == ("question 3", f"the same as {path}, question 1")
    path.write_text(json.dumps([{"text": "a", "label": "x"}, {"text": "b", "label": "x"}, {"text": "a", "label": "x"}]))
    (finding,) = check_labelled(path).findings
    assert (finding.place, finding.message) == ("record 3", f"the same as {path}, record 1")


def test_a_label_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,1.5\nb,1e300\n")
    report = check_labelled(path)
    assert report.counts == {"large number": 1} and report.findings[0].line == 3 and report.has_faults


def test_one_large_batch_is_not_converted_at_once(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"text": ["一段文字" * 20] * 60_000, "label": ["a"] * 60_000})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as stream:
        stream.write_batch(table.to_batches()[0])
    rows = open_record_table(tmp_path / "a.arrow", "arrow").rows()
    tracemalloc.start()
    try:
        assert next(rows)[0] == 1
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()
    assert sum(1 for _ in rows) == 59_999
