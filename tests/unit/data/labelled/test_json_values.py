"""JSON values and their lines, in every packing."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from qkv.data.labelled.json_values import container_of, read_json_values
from qkv.data.labelled.opened import BrokenUnit, read_beginning
from qkv.errors import InputError

ITEMS = [{"text": "a\n汉"}, {"text": "b", "n": 2}]


def values(path: Path, text: str) -> tuple[str | None, list[tuple[int, object]]]:
    path.write_text(text, encoding="utf-8")
    container = container_of(read_beginning(path))
    found: list[tuple[int, object]] = []
    for line, one in read_json_values(path, container or "json"):
        if isinstance(one, BrokenUnit):
            raise one.error
        found.append((line, one.value))
    return container, found


@pytest.mark.parametrize(
    ("text", "container", "lines"),
    [
        ("\n".join(map(json.dumps, ITEMS)), "jsonl", [1, 2]),
        ("\ufeff" + "\r\n\r\n".join(map(json.dumps, ITEMS)), "jsonl", [1, 3]),
        (json.dumps(ITEMS), "json", [1, 1]),
        (json.dumps(ITEMS, indent=1), "json", [2, 5]),
        ("\n".join(json.dumps(one, indent=2) for one in ITEMS), "json", [1, 4]),
        (",\n".join(json.dumps(one, indent=2) for one in ITEMS), "json", [1, 4]),
        (json.dumps({"version": "1", "data": ITEMS}), "json", [1, 1]),
        (json.dumps({"version": "1", "data": ITEMS, "more": {}}, indent=1), "json", [4, 7]),
        (json.dumps({"deep": {"data": []}, "data": ITEMS}, indent=1), "json", [1, 1]),
    ],
)
def test_every_packing(tmp_path: Path, text: str, container: str, lines: list[int]) -> None:
    assert values(tmp_path / "a.json", text) == (container, list(zip(lines, ITEMS, strict=True)))


def test_numbers_keep_how_they_are_written(tmp_path: Path) -> None:
    _, [(_, value)] = values(tmp_path / "a.jsonl", '{"label": 5.000, "n": 3}')
    assert value == {"label": Decimal("5.000"), "n": 3} and "5.000" in str(value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": \n', "line 2 is not JSON"),
        ("a.jsonl", '{"a": oh}\n', "line 1 is not JSON, column 7"),
        ("a.json", '[\n {"a": 1},\n {"a": 2}', r"line 3 is not JSON: expected '\]', but the file ends"),
        ("a.json", '[\n {"a": 1},\n {"a": ', "line 3 is not JSON.*truncated"),
        ("a.json", '[{"a": 1}]\n[{"a": 2}]', "line 2: text follows after the end of the JSON"),
        ("a.json", "[" * 100_000, "nested too deeply|not JSON"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        values(tmp_path / name, text)


def test_what_is_no_json(tmp_path: Path) -> None:
    for text in ("[CLS] a\t1\n", "[\tO\n{\tO\n", "a,b\n", "{a}\n"):
        (tmp_path / "a.txt").write_text(text)
        assert container_of(read_beginning(tmp_path / "a.txt")) is None
