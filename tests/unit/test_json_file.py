from pathlib import Path

import pytest

from qkv.errors import InputError
from qkv.files import read_json, read_object, to_json


def test_reads_what_it_writes(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    for content in ({"标签": ["好", "坏 😀"], "n": 1.5, "none": None}, {}):
        file.write_text(to_json(content), encoding="utf-8")
        assert read_object(file) == content
    assert "好" in to_json("好")


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf[1]")
    assert read_json(tmp_path / "a.json") == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1,\n "b" 2}', r"a\.json is not valid JSON at line 2, column 6"),
        (b"", r"a\.json is not valid JSON at line 1"),
        ('{"a": "好"}'.encode("gb18030"), r"a\.json is not UTF-8 \(byte 7\)"),
        (b"[1]", r"a\.json holds a JSON list"),
    ],
)
def test_a_fault_names_file_and_place(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_object(tmp_path / "a.json")


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.json is missing"):
        read_json(tmp_path / "a.json")
    with pytest.raises(InputError, match="cannot be read"):
        read_json(tmp_path)
