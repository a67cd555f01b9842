"""Multiple choice: C3 and flat records, and the ways to name the right choice."""

import json
from pathlib import Path
from typing import Any

import pytest

from qkv.data.labelled.examples import ChoiceExample, Place
from qkv.data.labelled.question_files import answer_number
from qkv.data.labelled.reader import labelled
from qkv.errors import InputError


def read(path: Path, text: str, **how: Any) -> list[ChoiceExample]:
    path.write_text(text, encoding="utf-8")
    return [one for one in labelled(path, "choice", **how) if isinstance(one, ChoiceExample)]


def test_c3(tmp_path: Path) -> None:
    questions = [
        {"question": "谁走?", "choice": ["男", "女", "都走"], "answer": "都走"},
        {"question": "去哪?", "choice": ["家", "店"], "answer": "家"},
    ]
    item = [["男：走吗？", "女：走。"], questions, "1-2"]
    path = tmp_path / "c3.json"
    first, second = read(path, json.dumps([item], ensure_ascii=False, indent=1))
    assert first == ChoiceExample("男：走吗？\n女：走。", "谁走?", ("男", "女", "都走"), 2, "1-2-0", first.place, "1-2")
    lines = path.read_text(encoding="utf-8").split("\n")
    assert "谁走?" in lines[first.place.line - 1] and "去哪?" in lines[second.place.line - 1]


def test_flat(tmp_path: Path) -> None:
    rows = [
        {"context": "c", "question": "q", "choices": ["x", "y"], "answer": "B"},
        {"question": "q", "choices": ["x", "y", "z"], "answer": 0},
    ]
    first, second = read(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert (first.text, first.answer, second.text, second.answer) == ("c", 1, "", 0)
    first, second = read(tmp_path / "a.csv", "问题,A,B,C,答案\n几?,一,二,三,C\n谁?,我,你,,A\n")
    assert (first.choices, first.answer, second.choices) == (("一", "二", "三"), 2, ("我", "你"))
    (one,) = read(
        tmp_path / "b.csv", "p,c1,c2,y\nq,a,b,1\n", columns={"question": "p", "choices": "c1,c2", "answer": "y"}
    )
    assert (one.question, one.choices, one.answer) == ("q", ("a", "b"), 1)
    (one,) = read(tmp_path / "b.jsonl", '{"question": "q", "options": [1, 2]}', needs_labels=False)
    assert one.choices == ("1", "2") and one.answer is None


@pytest.mark.parametrize(
    ("answer", "number"), [("b", 1), ("B", 1), (" beta ", 1), ("2", 2), (2, 2), (["A"], 0), (None, None), ("", None)]
)
def test_ways_to_name_a_choice(answer: Any, number: int | None) -> None:
    assert answer_number(answer, ["alpha", "beta", "gamma"], Place("a", 1)) == number


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"question": "q", "choices": ["a", "b"], "answer": 2}', "the answer '2' is not one of the 2 choices.*from 0"),
        ('{"question": "q", "choices": ["a", "b"], "answer": "other"}', "'other' is not one of the 2"),
        ('{"question": "q", "choices": ["a"], "answer": 0}', "has 1 choices; there must be at least two"),
        ('{"question": "q", "choices": "a b", "answer": 0}', "must be a list of texts"),
        ('{"question": "q", "choices": ["a", "b"]}', "no column has a usual name for the answer"),
        ('{"question": "q", "choices": ["a", "b"], "answer": null}', "line 1 has no answer"),
    ],
)
def test_bad_rows(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path / "a.jsonl", row)
