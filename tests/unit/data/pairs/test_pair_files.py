"""Pairs out of every kind of file; faults with file and line."""

import gzip
import lzma
from pathlib import Path

import pytest

from qkv.data.labelled.examples import Place
from qkv.data.pairs.files import PairFiles
from qkv.errors import InputError


def wrote(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    data = text.encode()
    file.write_bytes(
        gzip.compress(data) if name.endswith(".gz") else lzma.compress(data) if name.endswith(".xz") else data
    )
    return file


def texts(found: PairFiles) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in found]


TWO = [("a cat", "一只猫"), ("dogs", "狗")]


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_two_files(tmp_path: Path, ending: str) -> None:
    files = [
        wrote(tmp_path, f"t.en{ending}", "\ufeffa cat\r\ndogs\n"),
        wrote(tmp_path, f"t.zh{ending}", "一只猫\n狗\n"),
    ]
    found = PairFiles.of(files)
    assert texts(found) == TWO == texts(found)  # from the beginning each time
    assert next(iter(found)).place == Place(str(files[0]), 1)


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("t.tsv", "a cat\t一只猫\ndogs\t狗\n", ()),
        ("t.txt", "\ufeffa cat\t一只猫\tCC-BY 2.0\n\ndogs\t狗\tCC-BY 2.0\n", ()),
        ("t.tsv", "id\tzh\ten\n1\t一只猫\ta cat\n2\t狗\tdogs\n", ("en", "zh")),
        ("t.tsv.gz", "1\t一只猫\ta cat\n2\t狗\tdogs\n", ("3", "2")),
        ("t.jsonl", '{"source": "a cat", "target": "一只猫"}\n\n{"source": "dogs", "target": "狗"}\n', ()),
        ("t.jsonl", '{"en": "a cat", "zh": "一只猫"}\n{"en": "dogs", "zh": "狗"}\n', ("en", "zh")),
        ("t.jsonl.xz", '{"translation": {"en": "a cat", "zh": "一只猫"}}\n{"en": "dogs", "zh": "狗"}\n', ("en", "zh")),
    ],
)
def test_one_file(tmp_path: Path, name: str, text: str, columns: tuple[str, ...]) -> None:
    assert texts(PairFiles.of(wrote(tmp_path, name, text), columns)) == TWO


def test_a_blank_line_is_no_pair_where_a_line_has_both_sides(tmp_path: Path) -> None:
    for name, text in (("t.tsv", "a\t甲\n\n \t\nb\t \n"), ("t.jsonl", '{"source": "a", "target": "甲"}\n\n')):
        found = PairFiles.of(wrote(tmp_path, name, text))
        assert texts(found) == [("a", "甲")]
        assert [fault.place.line for fault in found.faults] == ([4] if name == "t.tsv" else [])


@pytest.mark.parametrize("longer", [0, 1])
def test_two_files_of_different_length(tmp_path: Path, longer: int) -> None:
    content = ["a\nb\nc d\ne\n", "甲\n乙\n"]
    files = [wrote(tmp_path, name, content[(number + longer) % 2]) for number, name in enumerate(("s.txt", "t.txt"))]
    with pytest.raises(InputError) as error:
        list(PairFiles.of(files))
    assert f"{files[1 - longer]} has 2 lines and {files[longer]} has 4: line 3 of {files[longer]} ('c d')" in str(
        error.value
    )


def test_a_pair_with_an_empty_side_is_left_out_and_told(tmp_path: Path) -> None:
    files = [wrote(tmp_path, "s.txt", "a\n \n\nd\n"), wrote(tmp_path, "t.txt", "甲\n乙\n\n \n")]
    found = PairFiles.of(files)
    assert texts(found) == [("a", "甲")]
    assert [(fault.place.line, fault.message) for fault in found.faults] == [
        (2, "the source is empty"),
        (3, "both sides are empty"),
        (4, "the target is empty"),
    ]
    list(found)
    assert len(found.faults) == 3  # those of the last time alone


@pytest.mark.parametrize(
    ("name", "text", "columns", "message"),
    [
        ("t.tsv", "a\t甲\nb c\n", (), r"t.tsv, line 2: there is 1 text between tabs"),
        ("t.tsv", "en\tzh\na\t甲\n", ("en", "zg"), "line 1: no column is called 'zg', only 'en', 'zh'. Name both"),
        ("t.tsv", "a\t甲\n", ("0", "1"), "counted from 1"),
        ("t.jsonl", '{"source": "a", "traget": "甲"}\n', (), "line 1 has no field 'target'.* Did you mean 'traget'"),
        ("t.jsonl", '{"source": "a", "target": 3}\n', (), "line 1: the field 'target' holds '3', not a text"),
        ("t.jsonl", "[1]\n", (), "line 1: each line must be an object"),
        ("t.jsonl", "{oops\n", (), "line 1 is not JSON"),
        ("t.jsonl", '{"source": "\\ud83d", "target": "b"}\n', (), "lone surrogate"),
        ("t.tsv", "", (), "is empty"),
        ("t.tsv", "a\t\0\n", (), "NUL"),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, text: str, columns: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(PairFiles.of(wrote(tmp_path, name, text), columns))


def test_how_many_files(tmp_path: Path) -> None:
    one, other = wrote(tmp_path, "a.txt", "a\n"), wrote(tmp_path, "b.txt", "b\n")
    for files, columns, message in (
        ([], (), "not 0"),
        ([one, other, one], (), "not 3"),
        ([one, one], (), "for both sides"),
        ([one, other], ("1", "2"), "are one side each"),
        ([one], ("1",), "Name two columns"),
        ([one], ("1", "1"), "column 1 was given for both"),
        ([one], ("2", "02"), "column 2 was given for both"),
        ([one], ("en", "en"), "column en was given for both"),
        ([one, tmp_path / "c.txt"], (), "no file"),
    ):
        with pytest.raises(InputError, match=message):
            PairFiles.of(files, columns)
