"""SQuAD, CMRC and flat questions: every accepted answer stands where it is said to, or that is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from qkv.data.labelled.examples import AnswerExample, AnswerSpan, Fault
from qkv.data.labelled.reader import labelled
from qkv.errors import InputError

CONTEXT = "Tom went to Paris. Tom liked Paris."
SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "Tom",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {"id": "1", "question": "Who?", "answers": [{"text": "Tom", "answer_start": 0}]},
                        {"id": "2", "question": "Where?", "answers": [{"text": "Paris", "answer_start": 28}]},
                        {"id": "3", "question": "Why?", "is_impossible": True, "answers": [],
                         "plausible_answers": [{"text": "Tom", "answer_start": 0}]},
                        {"id": "4", "question": "When?", "answers": [{"text": "noon", "answer_start": 3}]},
                        {"id": "5", "question": "Which?", "answers": [{"text": "Rome", "answer_start": 12},
                                                                      {"text": "Paris", "answer_start": 12}]},
                    ],
                }
            ],
        }
    ],
}  # fmt: skip


def read(path: Path, document: Any, **how: Any) -> tuple[list[AnswerExample], list[Fault], str]:
    text = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False, indent=2)
    path.write_text(text, encoding="utf-8")
    source = labelled(path, "answer", **how)
    return [one for one in source if isinstance(one, AnswerExample)], source.faults, source.format


def test_squad(tmp_path: Path) -> None:
    found, faults, format = read(tmp_path / "dev.json", SQUAD)
    assert format == "squad"
    assert [(one.id, one.answers) for one in found] == [
        ("1", (AnswerSpan(0, "Tom"),)),
        ("2", (AnswerSpan(29, "Paris"),)),
        ("3", ()),
        ("5", (AnswerSpan(12, "Paris"),)),
    ]
    assert {one.group for one in found} == {"Tom"} and all(one.text is found[0].text for one in found)
    lines = (tmp_path / "dev.json").read_text().split("\n")
    assert all(f'"question": "{one.question}"' in lines[one.place.line - 1] for one in found)
    assert [(fault.action, fault.message[:11]) for fault in faults] == [
        ("mended", "question 2:"),
        ("dropped", "question 4:"),
        ("mended", "question 5:"),
    ]
    assert "is not at 28 but at 29" in faults[0].message


def test_cmrc_as_it_was_first_published(tmp_path: Path) -> None:
    document = [
        {"context_id": "T1", "context_text": "范廷颂是越南枢机。", "title": "范廷颂",
         "qas": [{"query_id": "Q1", "query_text": "他是谁？", "answers": ["越南枢机", "枢机"]}]}
    ]  # fmt: skip
    (one,), faults, format = read(tmp_path / "cmrc.json", document)
    assert format == "cmrc" and not faults
    assert one == AnswerExample(
        "他是谁？", "范廷颂是越南枢机。", (AnswerSpan(4, "越南枢机"), AnswerSpan(6, "枢机")), "Q1", one.place, "范廷颂"
    )


def test_flat_records(tmp_path: Path) -> None:
    rows = [
        {"id": 7, "question": "Who?", "context": CONTEXT, "answers": {"text": ["Tom"], "answer_start": [19]}},
        {"id": 8, "question": "Where?", "context": CONTEXT, "answers": "Paris"},
        {"id": 9, "question": "Why?", "context": CONTEXT, "answers": []},
    ]
    found, faults, format = read(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert format == "jsonl"
    assert [one.answers for one in found] == [(AnswerSpan(19, "Tom"),), (AnswerSpan(12, "Paris"),), ()]
    assert [(fault.kind, fault.action, fault.place.line) for fault in faults] == [("answer place", "noted", 2)]
    table = f'问题,段落,答案,start\nWho?,"{CONTEXT}",Tom,19\nWhat?,"{CONTEXT}",Tim,0\n'
    found, faults, format = read(tmp_path / "a.csv", table)
    assert format == "csv" and [one.answers for one in found] == [(AnswerSpan(19, "Tom"),)]
    assert [(fault.place.line, fault.action) for fault in faults] == [(3, "dropped")]


def test_without_labels(tmp_path: Path) -> None:
    question: dict[str, Any] = {"question": "谁", "id": "1"}
    article = {"data": [{"paragraphs": [{"context": "甲乙", "qas": [question]}]}]}
    (one,), _, _ = read(tmp_path / "a.json", article, needs_labels=False)
    assert one.answers is None and one.group == "甲乙"
    question["answers"] = [{"text": "FAKE", "answer_start": -1}]
    (one,), (fault,), _ = read(tmp_path / "a.json", article, needs_labels=False)
    assert one.answers is None and fault.action == "noted"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "b"}]}]}]}, "has no answers"),
        ({"data": [{"paragraphs": [{"qas": [{"question": "b"}]}]}]}, "without 'context'"),
        ({"data": [{"paragraphs": [{"context": "a", "qas": {}}]}]}, '"qas" must be a list of objects'),
        (
            {"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "b", "answers": [3.5, True]}]}]}]},
            "an answer must be",
        ),
        ([{"question": "b", "context": "a", "answers": [{"text": "a", "answer_start": "x"}]}], "not an integer"),
        ([{"question": "b", "context": "a", "answers": [{"text": "a", "answer_start": "NaN"}]}], "not an integer"),
        ([{"question": "b", "korpus": "a"}], "no column has a usual name for the context and the answer"),
        ({"data": [{"paragraphs": [{"context": "\0", "qas": []}]}]}, "NUL"),
        ({"data": []}, "empty list"),
    ],
)
def test_bad_documents(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path / "a.json", document)


def test_empty_question_or_text(tmp_path: Path) -> None:
    rows = [{"question": " ", "context": "a", "answers": []}, {"question": "a", "context": "", "answers": []}]
    found, faults, _ = read(tmp_path / "a.json", rows)
    assert not found and [fault.kind for fault in faults] == ["empty text"] * 2
