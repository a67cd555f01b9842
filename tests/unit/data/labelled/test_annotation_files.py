"""Spans out of CLUENER, doccano, spaCy, tagged words and Label Studio; wrong ones are mended or told."""

import json
from pathlib import Path
from typing import Any

import pytest

from qkv.data.labelled.examples import Fault, Span, TagExample, TextExample
from qkv.data.labelled.reader import labelled
from qkv.errors import InputError

TEXT = "汤姆在北京，北京很大。"


def read(path: Path, rows: list[Any] | str, task: str = "tag", **how: Any) -> tuple[list[Any], list[Fault], str]:
    text = rows if isinstance(rows, str) else "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(text, encoding="utf-8")
    source = labelled(path, task, **how)
    return list(source), source.faults, source.format


def spans(path: Path, rows: list[Any] | str, **how: Any) -> list[tuple[Span, ...] | None]:
    return [one.spans for one in read(path, rows, **how)[0]]


def test_cluener(tmp_path: Path) -> None:
    row = {"text": TEXT, "label": {"name": {"汤姆": [[0, 1]]}, "address": {"北京": [[3, 4], [6, 7]]}}}
    text = "\n".join(json.dumps(row, ensure_ascii=False, indent=2) for _ in range(2))
    found, faults, format = read(tmp_path / "train.json", text)
    assert format == "cluener" and not faults and [one.place.line for one in found] == [1, 26]
    assert found[0].spans == (Span(0, 2, "name"), Span(3, 5, "address"), Span(6, 8, "address"))


@pytest.mark.parametrize(
    "row",
    [
        {"text": TEXT, "label": [[3, 5, "LOC"], [0, 2, "PER"]]},
        {"text": TEXT, "labels": [[3, 5, "LOC"], [0, 2, "PER"]], "id": 3},
        {"text": TEXT, "entities": [{"id": 1, "label": "LOC", "start_offset": 3, "end_offset": 5}, [0, 2, "PER"]]},
        {"text": TEXT, "spans": [{"start": 3, "end": 5, "label": "LOC"}, {"start": 0, "end": 2, "label": "PER"}]},
    ],
)
def test_doccano_and_its_kin(tmp_path: Path, row: dict[str, Any]) -> None:
    found, _, format = read(tmp_path / "a.jsonl", [row])
    assert found == [TagExample(TEXT, (Span(0, 2, "PER"), Span(3, 5, "LOC")), None, found[0].place)]
    assert format == "doccano"


def test_tagged_words(tmp_path: Path) -> None:
    row = {"id": "0", "tokens": ["EU", "rejects", "it"], "ner_tags": ["B-ORG", "O", "O"], "pos_tags": [1, 2, 3]}
    (one,), _, _ = read(tmp_path / "a.jsonl", [row])
    assert (
        one.text == "EU rejects it" and one.spans == (Span(0, 2, "ORG"),) and one.units == ((0, 2), (3, 10), (11, 13))
    )
    (one,), _, _ = read(tmp_path / "a.csv", "text,tags\n我 在 北 京,O O B-LOC I-LOC\n")
    assert one.text == "我在北京" and one.spans == (Span(2, 4, "LOC"),)
    assert spans(tmp_path / "b.csv", f'text,label\n{TEXT},"[[0, 2, ""PER""]]"\n{TEXT},[]\n') == [
        (Span(0, 2, "PER"),),
        (),
    ]


def test_wrong_spans(tmp_path: Path) -> None:
    rows = [
        {"text": TEXT, "label": {"name": {"汤姆": [[5, 6]]}}},  # stands once: mended
        {"text": TEXT, "label": {"address": {"北京": [[0, 1]]}}},  # stands twice
        {"text": TEXT, "label": {"address": {"上海": [[0, 1], [3, 4]]}}},  # nowhere
        {"text": TEXT, "label": {}},
    ]
    found, faults, _ = read(tmp_path / "a.jsonl", rows)
    assert [(one.place.line, one.spans) for one in found] == [(1, (Span(0, 2, "name"),)), (4, ())]
    assert [(fault.place.line, fault.action) for fault in faults] == [(1, "mended"), (2, "dropped"), (3, "dropped")]
    assert "occurs in the text 2 times" in faults[1].message and "1 more of its spans" in faults[2].message
    found, (fault,), _ = read(tmp_path / "b.jsonl", [{"text": "ab", "label": [[1, 3, "X"]]}])
    assert not found and "1–3 (X) is not within the text of 2 characters" in fault.message


def test_without_labels(tmp_path: Path) -> None:
    assert spans(tmp_path / "a.jsonl", [{"id": 1, "text": TEXT}], needs_labels=False) == [None]
    assert spans(tmp_path / "a.txt", f"{TEXT}\n\nTwo.\n", needs_labels=False) == [None, None]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a", "label": [[0, 1]]}, r"a span must be \[start, end, label\]"),
        ({"text": "a", "label": [["0", "1", "X"]]}, r"a span must be \[start, end, label\]"),
        ({"text": "a", "label": {"X": [[0, 1]]}}, "under 'X'"),
        ({"text": "a", "label": None}, "line 1 has no spans: 'label' is empty"),
        ({"tokens": ["a", "b"], "ner_tags": ["O"]}, "has 2 words and 1 tags"),
        ({"tokens": ["a", ""], "ner_tags": ["O", "B-X"]}, "a list of texts that are not empty"),
        ({"tokens": ["a"], "ner_tags": [0]}, "0 is not a tag.*Write the tags"),
        ({"korpus": "a"}, "no column has a usual name for the text and the label"),
    ],
)
def test_bad_rows(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path / "a.jsonl", [row])


def studio(text: str, *results: dict[str, Any], cancelled: bool = False) -> dict[str, Any]:
    values = [{"value": value, "from_name": "label", "to_name": "text"} for value in results]
    return {"id": 1, "data": {"text": text}, "annotations": [{"result": values, "was_cancelled": cancelled}]}


def test_label_studio(tmp_path: Path) -> None:
    tasks = [
        studio(TEXT, {"start": 3, "end": 5, "text": "北京", "labels": ["LOC"]}),
        studio("😀" + TEXT, {"start": 2, "end": 4, "text": "汤姆", "labels": ["PER"]}),  # counted in UTF-16
        studio(TEXT, cancelled=True),
    ]
    found, faults, format = read(tmp_path / "export.json", json.dumps(tasks, ensure_ascii=False))
    assert format == "label-studio"
    assert [one.spans for one in found] == [(Span(3, 5, "LOC"),), (Span(1, 3, "PER"),)]
    assert [fault.action for fault in faults] == ["mended", "dropped"]


def test_label_studio_choices(tmp_path: Path) -> None:
    tasks = [
        studio("a", {"choices": ["pos"]}),
        studio("b", {"choices": ["x", "y"]}),
        studio("c"),
        studio("d", {"choices": [""]}),
    ]
    tasks[0]["annotations"] *= 2
    found, faults, _ = read(tmp_path / "export.json", json.dumps(tasks), task="classify")
    assert [one.label for one in found if isinstance(one, TextExample)] == ["pos", ("x", "y")]
    assert [(fault.kind, fault.action) for fault in faults] == [
        ("several annotations", "noted"),
        ("not annotated", "dropped"),
        ("not annotated", "dropped"),
    ]
