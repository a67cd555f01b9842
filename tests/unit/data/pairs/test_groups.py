"""Texts to compare: what a file holds, its columns, what is held out, and groups as numbers."""

import json
import lzma
from pathlib import Path

import pytest

from qkv.data.pairs.groups import (
    check_scores_differ,
    hold_out_groups,
    make_table,
    parse_columns,
    pin_columns,
    read_groups,
    read_translations,
)
from qkv.errors import InputError
from tests.support.folders import make_tokenizer

SQUAD = {"paragraphs": [{"context": "paris", "qas": [{"question": "where", "id": "1", "answers": []}]}]}


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.tsv", "the cat\t猫\nthe dog\t狗\n", "pairs"),
        ("a.tsv", "the cat\t猫\t4.5\nthe dog\t狗\t1\n", "scores"),
        ("a.csv", "question,passage\nwhere is paris,paris is in france\n", "pairs"),
        ("a.csv", "sentence1,sentence2,label\n我爱吃鱼,他爱吃鱼,1\n", "scores"),
        ("a.csv", "问题,答案\n他欠我,一万元\n", "pairs"),
        ("a.csv", "文本1,文本2,相似度\n他欠我,一万元,0.5\n", "scores"),
        ("a.jsonl", '{"query": "cat", "pos": ["猫", "dog"], "neg": ["狗", "鱼"]}\n', "triplets"),
        ("a.csv", "anchor,positive,negative_1,negative_2\ncat,猫,狗,鱼\ndog,狗,猫,\n", "triplets"),
        ("a.txt", "the cat sat.\n\n北京是首都。\n", "texts"),
        ("a.csv", "text,label\nthe cat,animal\n", "texts"),
        ("a.json", json.dumps({"data": [SQUAD]}), "pairs"),
    ],
)  # fmt: skip
def test_what_a_file_holds(tmp_path: Path, name: str, text: str, kind: str) -> None:
    assert read_groups(write(tmp_path, name, text)).kind == kind


def test_every_positive_of_a_list_is_a_pair(tmp_path: Path) -> None:
    file = write(tmp_path, "a.jsonl", '{"query": "cat", "pos": ["猫", "dog"], "neg": ["狗", "鱼"]}\n')
    found = read_groups(file).groups
    assert [one.every_text() for one in found] == [("cat", "猫", "狗", "鱼"), ("cat", "dog", "狗", "鱼")]


def test_given_columns_and_packed_files(tmp_path: Path) -> None:
    packed = tmp_path / "sts.csv.xz"
    packed.write_bytes(lzma.compress("main\tx\t5.0\tA cat.\tThe cat.\textra\nmain\tx\t1.0\t猫\t狗\n".encode()))
    found = read_groups(str(packed), ("1,2", "sts.csv.xz:4,5,3"))
    assert [(one.text, one.positive, one.score) for one in found.groups] == [
        ("A cat.", "The cat.", 5.0),
        ("猫", "狗", 1.0),
    ]
    assert "score = column 3" in found.about


def test_two_files_of_a_bitext(tmp_path: Path) -> None:
    both = ",".join([write(tmp_path, "a.en", "the cat\n"), write(tmp_path, "a.zh", "猫\n")])
    assert read_groups(both).kind == "pairs" and read_translations(both).kind == "translations"
    assert read_translations(both).groups[0].every_text() == ("the cat", "猫")


def test_sentences(tmp_path: Path) -> None:
    file = write(tmp_path, "a.txt", "The cat sat. He owes me.\n北京是首都。上海很大。\n")
    texts = [one.text for one in read_groups(file, sentences=True).groups]
    assert texts == ["The cat sat.", "He owes me.", "北京是首都。", "上海很大。"]


@pytest.mark.parametrize(
    ("name", "text", "columns", "message"),
    [
        ("a.csv", "", (), "is empty"),
        ("a.csv", "x,y,z\nthe cat,猫,狗\n", (), "without a header, and not all of the third are scores"),
        ("a.csv", "id,passage\n1,the cat\n", (), "'passage' looks like the second text of a pair"),
        ("a.csv", "a,b\n1,cat\n2,dog\n3,it\n4,he\n", ("anchor=c,positive=b",), "has no column 'c'"),
        ("a.csv", "sentence1,sentence2,score\ncat,猫,nan\n", (), "line 2: the score in 'score' is 'nan'"),
        ("a.csv", "sentence1,sentence2,score\ncat,猫,\n", (), "line 2: the score in 'score' is ''"),
        ("a.jsonl", '{"sentence1": "a", "sentence2": "b", "score": NaN}\n', (), "line 1"),
        ("a.csv", "question,passage\n ,\n", (), "holds no text to learn from (1 rows were dropped"),
        ("a.tsv", "a\tb\n", ("ancor=1",), "Did you mean 'anchor'?"),
        ("a.tsv", "a\tb\n", ("positive=1",), "names no anchor"),
        ("a.tsv", "a\tb\n", ("anchor=1,anchor=2",), "names the anchor twice"),
    ],
)  # fmt: skip
def test_bad_files(tmp_path: Path, name: str, text: str, columns: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as error:
        read_groups(write(tmp_path, name, text), columns)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_columns_of_one_file_or_of_all() -> None:
    assert parse_columns((), "a.csv") == {}
    assert parse_columns(("b.csv:1,2",), "a.csv") == {}
    assert parse_columns(("b.csv:1,2", "3,4"), "a.csv") == {"anchor": "3", "positive": "4"}


def test_columns_of_a_file_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is made absolute, as those of the files are; a name that no file has is not passed over."""
    monkeypatch.chdir(tmp_path)
    files = (str(tmp_path / "data" / "sts.csv"), str(tmp_path / "a: b.tsv"))
    given = ("data/sts.csv:6,7,5", "sts.csv:1,2", "anchor=x:y,positive=z", f"{files[1]}:3,4")
    pinned = pin_columns(given, files)
    assert pinned == (f"{files[0]}:6,7,5", *given[1:]) and pin_columns(pinned, files) == pinned
    assert parse_columns(pinned, files[0]) == {"anchor": "6", "positive": "7", "score": "5"}
    assert parse_columns(pinned, files[1]) == {"anchor": "3", "positive": "4"}
    assert parse_columns(pinned[:3], files[1]) == {"anchor": "x:y", "positive": "z"}
    with pytest.raises(InputError, match="no file of this run is called 'sts.cvs'. Did you mean 'sts.csv'"):
        pin_columns(("sts.cvs:6,7,5",), files)


def test_a_row_without_a_positive_is_reported(tmp_path: Path) -> None:
    rows = '{"anchor": "the cat", "positive": ["猫"]}\n{"anchor": "the dog", "positive": []}\n'
    file = read_groups(write(tmp_path, "a.jsonl", rows))
    assert len(file.groups) == 1 and [(one.place.line, one.kind) for one in file.faults] == [(2, "empty text")]


def test_what_is_held_out_is_new(tmp_path: Path) -> None:
    """All questions of a passage go together, and nothing that is trained on shares a text with them."""
    rows = "".join(f"question {number},passage {number // 4}\n" for number in range(400))
    file = read_groups(write(tmp_path, "a.csv", f"question,passage\n{rows}"))
    train, held = hold_out_groups(file, 0.1)
    assert 20 <= len(held.groups) <= 60 and len(train.groups) + len(held.groups) == 400
    texts = [{text for one in part.groups for text in one.every_text()} for part in (train, held)]
    assert not texts[0] & texts[1] and not train.faults
    again = hold_out_groups(file, 0.1)
    assert again[1].groups == held.groups
    chained = "".join(f"question {number},question {number + 1}\n" for number in range(200))
    train, held = hold_out_groups(read_groups(write(tmp_path, "b.csv", f"question1,question2\n{chained}")), 0.1)
    texts = [{text for one in part.groups for text in one.every_text()} for part in (train, held)]
    assert not texts[0] & texts[1]
    assert len(train.groups) + len(held.groups) + len(train.faults) == 200 and train.faults[0].kind == "held out"


def test_a_table(tmp_path: Path) -> None:
    file = read_groups(write(tmp_path, "a.tsv", "the cat\t猫\nThe  Cat\t狗\n\u0301\t鱼\n他\t😀\n"))
    table = make_table(file, make_tokenizer(), 16)
    assert len(table) == 3 and len(table.faults) == 1
    assert table.same[table.anchors[0]] == table.same[table.anchors[1]] != table.same[table.anchors[2]]
    assert [table.texts[one] for one in table.positives] == ["猫", "狗", "😀"]
    assert table.tokens == sum(table.rows.n_tokens[[*table.anchors, *table.positives]])


def test_scores_that_order_nothing(tmp_path: Path) -> None:
    file = read_groups(write(tmp_path, "a.tsv", "the cat\t猫\t1\nthe dog\t狗\t1\n"))
    with pytest.raises(InputError, match="all 2 scores are 1"):
        check_scores_differ(make_table(file, make_tokenizer(), 16), file.name)
