"""What a file is labelled for, and what is a corpus."""

import json
from pathlib import Path

import pytest

from qkv.data.labelled.reader import guess_task

STUDIO = {"data": {"text": "ab"}, "annotations": [{"result": [{"value": {"start": 0, "end": 1, "labels": ["X"]}}]}]}
CHOSEN = {"data": {"text": "ab"}, "annotations": [{"result": [{"value": {"choices": ["X"]}}]}]}


@pytest.mark.parametrize(
    ("name", "text", "task"),
    [
        ("a.csv", "text,label\na,b\n", "classify"),
        ("a.tsv", "a\tb\n", "classify"),
        ("a.csv", "question,context,answer\na,b,c\n", "answer"),
        ("a.csv", "question,A,B,answer\na,b,c,A\n", "choice"),
        ("a.txt", "北\tB-LOC\n京\tI-LOC\n", "tag"),
        ("a.bio", "x\n", "tag"),
        ("a.jsonl", '{"text": "a", "label": "b"}', "classify"),
        ("a.jsonl", '{"text": "a", "label": [[0, 1, "X"]]}', "tag"),
        ("a.jsonl", '{"text": "a", "label": {}}', "tag"),
        ("a.jsonl", '{"tokens": ["a"], "ner_tags": ["O"]}', "tag"),
        ("a.jsonl", '{"question": "a", "choices": ["x", "y"], "answer": 1}', "choice"),
        ("a.json", '{"data": [{"paragraphs": []}]}', "answer"),
        ("a.json", '[[["a"], [{"question": "b"}], "1"]]', "choice"),
        ("a.json", json.dumps([STUDIO]), "tag"),
        ("a.json", json.dumps([CHOSEN]), "classify"),
        ("a.txt", "A line.\nAnother one.\n", None),
        ("a.txt", "Words\twith tabs\n", None),
        ("a.jsonl", '{"text": "a corpus"}\n{"text": "of documents"}', None),
        ("a.jsonl", '{"text": \n', None),
    ],
)
def test_guesses(tmp_path: Path, name: str, text: str, task: str | None) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert guess_task(tmp_path / name) == task
