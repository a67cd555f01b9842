"""Labelled files of every format, as people have them: columns, encodings, faults, and the sets in shared/data."""

import gzip
import lzma
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data.labelled.examples import Fault, Place, TextExample
from qkv.data.labelled.reader import LABELLINGS, Labelled, labelled
from qkv.errors import InputError


def opened(path: Path, text: str, task: str = "classify", **how: Any) -> Labelled:
    path.write_text(text, encoding="utf-8", newline="")
    return labelled(path, task, **how)


def examples(path: Path, text: str, **how: Any) -> list[TextExample]:
    return [one for one in opened(path, text, **how) if isinstance(one, TextExample)]


def pairs(found: list[TextExample]) -> list[tuple[str, Any]]:
    return [(one.text, one.label) for one in found]


def test_places_and_a_second_reading(tmp_path: Path) -> None:
    source = opened(tmp_path / "a.csv", 'text,label\n"one\ntwo",x\n\nthree,y\n')
    expected = [
        TextExample("one\ntwo", None, "x", Place(str(tmp_path / "a.csv"), 2)),
        TextExample("three", None, "y", Place(str(tmp_path / "a.csv"), 5)),
    ]
    assert list(source) == expected and list(source) == expected
    assert source.describe() == "csv, text = 'text', label = 'label'"
    assert (source.path, source.task, source.format) == (tmp_path / "a.csv", "classify", "csv")


def test_faults_belong_to_the_latest_reading(tmp_path: Path) -> None:
    source = opened(tmp_path / "a.tsv", "text\tlabel\na\t1\n \t0\nb\t0\n")
    assert source.faults == []
    for _ in range(2):
        assert len(list(source)) == 2
        assert source.faults == [Fault(Place(str(source.path), 3), "empty text", "'text' is empty", "dropped")]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("packing", ["", ".gz", ".xz"])
def test_line_ends_marks_and_packings(tmp_path: Path, end: str, mark: str, packing: str) -> None:
    data = (mark + end.join(["text\tlabel", "好 \t1", "bad\t0", ""])).encode()
    path = tmp_path / f"a.tsv{packing}"
    path.write_bytes(gzip.compress(data) if packing == ".gz" else lzma.compress(data) if packing == ".xz" else data)
    assert pairs([one for one in labelled(path, "classify") if isinstance(one, TextExample)]) == [
        ("好 ", "1"),
        ("bad", "0"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "described"),
    [
        ("a.csv", "id,评论,情感\n1,好,1\n", "csv, text = '评论', label = '情感'"),
        ("a.csv", "S_1,S_2,Gold Label\na,b,1\n", "csv, text = 'S_1', pair = 'S_2', label = 'Gold Label'"),
        ("a.csv", ",text,category\n0,a,b\n", "csv, text = 'text', label = 'category'"),  # a data frame's index
        ("a.csv", "text,stars,label\na,5,b\n", "csv, text = 'text', label = 'label'"),
        ("a.csv", "text;kind\na, b;c\n", "csv separated by semicolon, text = 'text', label = 'kind'"),
        ("a.jsonl", '{"query": "a", "intent": 1, "组": 3}', "jsonl, text = 'query', label = 'intent', group = '组'"),
    ],
)  # fmt: skip
def test_columns_by_their_usual_names(tmp_path: Path, name: str, text: str, described: str) -> None:
    source = opened(tmp_path / name, text)
    assert source.describe() == described
    assert len(list(source)) == 1 and not source.faults


def test_columns_that_are_given(tmp_path: Path) -> None:
    text = "a,b,text,label\n1,2,3,4\n"
    assert pairs(examples(tmp_path / "a.csv", text, columns={"text": "a", "label": "b"})) == [("1", "2")]
    assert pairs(examples(tmp_path / "a.csv", text, columns={"text": "B"})) == [("2", "4")]
    assert pairs(examples(tmp_path / "a.csv", text, columns={"text": "2", "label": "1"})) == [("2", "1")]
    with pytest.raises(InputError, match="no column 'txt' for the text, only 'a', 'b', 'text', 'label'. Did you mean"):
        opened(tmp_path / "a.csv", text, columns={"text": "txt"})
    with pytest.raises(InputError, match="'classify' has no column 'question'"):
        opened(tmp_path / "a.csv", text, columns={"question": "a"})


STSB = "".join(
    f"main\tMSRvid\t2012\t{n:04}\t{n % 6}.000\tA man {n} dances.\tA {n} dancer." + ("\tx\ty" if n == 3 else "") + "\n"
    for n in range(9)
)


def test_without_a_header_by_numbers(tmp_path: Path) -> None:
    """As STS-B is: named .csv, separated by tabs, some rows longer than the others."""
    source = opened(tmp_path / "sts.csv", STSB, columns={"text": "6", "pair": "7", "label": "5"})
    found = list(source)
    assert source.describe() == "tsv without a header, text = column 6, pair = column 7, label = column 5"
    assert found[3] == TextExample("A man 3 dances.", "A 3 dancer.", "3.000", Place(str(tmp_path / "sts.csv"), 4))
    assert [(fault.kind, fault.place.line, fault.action) for fault in source.faults] == [("extra columns", 4, "noted")]
    with pytest.raises(InputError, match="unclear which column.*5: '0.000'; 6: 'A man 0.*--text NUMBER"):
        opened(tmp_path / "sts.csv", STSB)
    with pytest.raises(InputError, match="no column 'sentence1': its first line is not a header"):
        opened(tmp_path / "sts.csv", STSB, columns={"text": "sentence1"})
    with pytest.raises(InputError, match="has 7 columns, so there is no column 9"):
        opened(tmp_path / "sts.csv", STSB, columns={"text": "9", "label": "5"})


def test_without_a_header_by_what_stands_there(tmp_path: Path) -> None:
    text = "".join(f"这是第{n}个句子\t{n}号句子在这里\t{n % 2}\n" for n in range(12))
    source = opened(tmp_path / "afqmc.txt", text)
    assert source.describe() == "tsv without a header, text = column 1, pair = column 2, label = column 3"
    with pytest.raises(InputError, match="line 13 has 4 columns.*most rows have 3.*Remove the tabs"):
        list(opened(tmp_path / "afqmc.txt", text + "又一个\t制表符\t在这里\t1\n"))


def test_labels_as_they_are_written(tmp_path: Path) -> None:
    rows = '{"text": "a", "label": 1}\n{"text": "b", "label": 5.000}\n{"text": "c", "label": true}\n'
    rows += '{"text": "d", "label": " x "}\n{"text": "e", "label": ["p", "q", "p"]}\n{"text": 6, "label": []}\n'
    found = examples(tmp_path / "a.jsonl", rows)
    assert [one.label for one in found] == ["1", "5.000", "true", "x", ("p", "q"), ()] and found[-1].text == "6"
    assert pairs(examples(tmp_path / "a.csv", 'text,label\na,"[""x"", ""y""]"\n')) == [("a", ("x", "y"))]
    assert pairs(examples(tmp_path / "a.csv", "text,label\na,x|y\nb,x\n", separator="|")) == [
        ("a", ("x", "y")),
        ("b", ("x",)),
    ]


def test_no_agreed_label(tmp_path: Path) -> None:
    rows = (
        '{"sentence1": "a", "sentence2": "b", "label": "-"}\n{"sentence1": "a", "sentence2": "c", "label": "neutral"}'
    )
    source = opened(tmp_path / "a.json", rows)
    assert len(list(source)) == 1 and [fault.kind for fault in source.faults] == ["no agreed label"]
    assert pairs(examples(tmp_path / "a.csv", "text,label\na,-\nb,+\n")) == [("a", "-"), ("b", "+")]


def test_without_labels(tmp_path: Path) -> None:
    assert pairs(examples(tmp_path / "a.csv", "id,text\n1,a\n", needs_labels=False)) == [("a", None)]
    assert pairs(examples(tmp_path / "a.csv", "text,label\na,1\nb,\n", needs_labels=False)) == [("a", "1"), ("b", None)]
    source = opened(tmp_path / "a.txt", "one, two\n\nthree\tfour\n", needs_labels=False)
    assert source.format == "lines" and [one.text for one in source if isinstance(one, TextExample)] == [
        "one, two",
        "three\tfour",
    ]
    assert [fault.place.line for fault in source.faults] == [2]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "text,label\na,1\nb,\n", r"a\.csv, line 3 has no label: 'label' is empty"),
        ("a.csv", "text,label\na,1\nb\n", r"line 3 has 1 columns \(separated by commas\), the header has 2"),
        ("a.csv", "text,label\na,1\nb, c,2\n", "line 3 has 3 columns.*\"quotes\""),
        ("a.csv", "text,label,category\na,1,\nb\n", "line 3 has 1 columns"),
        ("a.csv", "text,id\na,1\n", "no column has a usual name for the label; there are 'text', 'id'. Choose with"),
        ("a.csv", "text,sentiment,category\na,1,2\n", "'sentiment', 'category' could each be the label.*--label NAME"),
        ("a.csv", "text,text,label\na,b,1\n", "'text', 'text' could each be the text"),
        ("a.csv", "a,b,c\nd,e,f\n", "its first line, 1: 'a'; .* has no usual name.* a name if this line is a header"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}', "line 2 has no label"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"txt": "b", "label": 1}', "line 2 has no field 'text', only 'txt'"),
        ("a.jsonl", '{"text": ["a"], "label": 1}', "line 1: field 'text' holds a list, not a text"),
        ("a.jsonl", '{"text": "a", "label": {"b": 1}}', "holds an object; a label must be"),
        ("a.jsonl", '{"text": "a\\u0000", "label": 1}', "line 1: 'text' has a NUL character"),
        ("a.jsonl", '{"text": "\\ud83d", "label": 1}', "ud83d: it was truncated"),
        ("a.jsonl", '["a", 1]\n', "line 1: an object such as"),
        ("a.json", "text\n", "is not JSON: it begins with 'text'"),
        ("a.tsv", "text\tlabel\na\t1\nb\0\t1\n", "line 3 has a NUL character"),
        ("a.csv", "", "a.csv is empty"),
        ("a.txt", "one line\nanother\n", "has no format that 'classify' reads.*line 1 is 'one line'"),
    ],
)  # fmt: skip
def test_bad_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(opened(tmp_path / name, text))


def test_bad_bytes_and_names(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("text,label\n好,1\n".encode() + "评论,0\n".encode("gb18030"))
    with pytest.raises(InputError, match=r"a\.csv, line 3, byte 1 .*iconv -f gb18030"):
        labelled(path, "classify")
    path.write_bytes("text,label\n\x01\n".encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16"):
        labelled(path, "classify")
    with pytest.raises(InputError, match="There is no file .*b.csv. Did you mean 'a.csv'"):
        labelled(tmp_path / "b.csv", "classify")
    with pytest.raises(InputError, match="no task 'clasify'.*Did you mean 'classify'"):
        labelled(path, "clasify")
    with pytest.raises(InputError, match="no format 'cvs'. Did you mean 'csv'"):
        opened(path, "text,label\n", format="cvs")


def test_a_lenient_reading_goes_on(tmp_path: Path) -> None:
    source = opened(tmp_path / "a.csv", "text,label\na,1\nb\nc,2\n", lenient=True)
    assert [one.place.line for one in source] == [2, 4]
    assert [(fault.kind, fault.place.line, fault.action) for fault in source.faults] == [("unusable", 3, "dropped")]

    rows = '{"text": "a", "label": 1}\n{"text": \n{"text": "b", "label": 1}\n'
    source = opened(tmp_path / "a.jsonl", rows, lenient=True)
    assert [one.place.line for one in source] == [1, 3] and "line 2 is not JSON" in source.faults[0].message


@settings(deadline=None, max_examples=40)
@given(
    st.text(st.sampled_from("textlabel,\t\n\r\"'{}[]:01 OB-好\0\ufeff"), max_size=60),
    st.sampled_from(["a.csv", "a.tsv", "a.txt", "a.json", "a.jsonl", "a.bio"]),
    st.sampled_from(tuple(LABELLINGS)),
    st.booleans(),
)
def test_no_file_is_too_odd(tmp_path_factory: Any, text: str, name: str, task: str, needs_labels: bool) -> None:
    """Examples, or a message; nothing else."""
    path = tmp_path_factory.getbasetemp() / f"odd-{name}"
    try:
        named = [example.place.file for example in opened(path, text, task, needs_labels=needs_labels)]
    except InputError as error:
        named = [str(error)]
    assert all(str(path) in one for one in named)


def test_a_format_that_is_given(tmp_path: Path) -> None:
    assert pairs(examples(tmp_path / "odd.name", "text,label\na,b\n", format="csv")) == [("a", "b")]
    assert pairs(examples(tmp_path / "odd", '{"text": "a", "label": "b"}', format="doccano")) == [("a", "b")]


def test_long_text(tmp_path: Path) -> None:
    text = "很长的文本。" * 50_000
    assert examples(tmp_path / "a.csv", f'text,label\n"{text}",1\n')[0].text == text
    assert examples(tmp_path / "a.jsonl", f'{{"text": "{text}", "label": 1}}\n')[0].text == text


NUMBERED = {"text": "6", "pair": "7", "label": "5"}
COLA = {"text": "4", "label": "2"}
SETS: list[tuple[str, str, dict[str, Any], int, dict[tuple[str, str], int]]] = [
    ("sst2/dev.tsv", "classify", {}, 872, {}),
    ("sst2/test-labeled.tsv", "classify", {}, 1_821, {}),
    ("mrpc/msr_paraphrase_test.txt", "classify", {}, 1_725, {}),
    ("stsb/sts-dev.csv", "classify", {"columns": NUMBERED}, 1_500, {("extra columns", "noted"): 22}),
    ("stsb/sts-test.csv", "classify", {"columns": NUMBERED}, 1_379, {("extra columns", "noted"): 284}),
    ("stsb_zh/sts-b-dev.txt", "classify", {}, 1_458, {}),
    ("wic/dev.data.txt", "classify", {"columns": {"text": "4", "pair": "5"}, "needs_labels": False}, 638, {}),
    ("conll2003/eng.testa", "tag", {}, 3_250, {}),
    ("chnsenticorp/dev.tsv", "classify", {}, 1_200, {}),
    ("afqmc/dev.txt", "classify", {}, 4_316, {}),
    ("afqmc/test.txt", "classify", {"needs_labels": False}, 3_861, {}),
    ("ocnli/dev.json", "classify", {}, 3_000, {("no agreed label", "dropped"): 50}),
    ("msra_ner/dev.bio.xz", "tag", {}, 4_636, {}),
    ("cluener/dev.json", "tag", {}, 1_343, {}),
    ("cmrc2018/dev.json.xz", "answer", {}, 3_219, {("answer", "mended"): 200}),
    ("c3/c3-d-dev.json.xz", "choice", {}, 1_825, {}),
    ("c3/c3-m-dev.json.xz", "choice", {}, 1_991, {}),
    ("cola_rte/CoLA/dev.tsv", "classify", {"columns": COLA}, 1_043, {}),
    ("cola_rte/CoLA/val.tsv", "classify", {"columns": COLA}, 1_301, {}),
    ("cola_rte/RTE/dev.tsv", "classify", {}, 277, {}),
]
LARGE_SETS: list[tuple[str, str, dict[str, Any], int, dict[tuple[str, str], int]]] = [
    ("sst2/train.tsv", "classify", {}, 67_349, {}),
    ("stsb/sts-train.csv", "classify", {"columns": NUMBERED}, 5_749, {("extra columns", "noted"): 197}),
    ("conll2003/eng.train", "tag", {}, 14_041, {}),
    ("squad_v1.1/train-v1.1.json.xz", "answer", {}, 87_599, {}),
    ("chnsenticorp/train.tsv", "classify", {}, 9_600, {}),
    ("afqmc/train.txt", "classify", {}, 34_334, {}),
    ("ocnli/train.10k.json", "classify", {}, 10_000, {("no agreed label", "dropped"): 15}),
    ("msra_ner/train.bio.xz", "tag", {}, 45_352, {}),
    ("cluener/train.json", "tag", {}, 10_748, {}),
    ("c3/c3-d-train.json.xz", "choice", {}, 5_856, {("choices", "noted"): 1}),
    ("c3/c3-m-train.json.xz", "choice", {}, 6_013, {("choices", "noted"): 1}),
    ("cmrc2018/train.json.xz", "answer", {}, 10_142, {("answer", "mended"): 21}),
    ("conll2003/eng.testb", "tag", {}, 3_453, {}),
    ("chnsenticorp/test.tsv", "classify", {}, 1_200, {}),
    ("mrpc/msr_paraphrase_train.txt", "classify", {}, 4_076, {}),
    ("stsb_zh/sts-b-test.txt", "classify", {}, 1_361, {}),
    ("squad_v1.1/dev-v1.1.json.xz", "answer", {}, 10_570, {}),
]


@pytest.mark.parametrize(
    ("name", "task", "how", "number", "faults"),
    [pytest.param(*one, id=one[0], marks=[pytest.mark.slow] if one in LARGE_SETS else []) for one in SETS + LARGE_SETS],
)
def test_real_sets(
    shared_data: Path, name: str, task: str, how: dict[str, Any], number: int, faults: dict[tuple[str, str], int]
) -> None:
    """As many examples as the README of the data says; those that are dropped are told."""
    source = labelled(shared_data / name, task, **how)
    count = sum(1 for _ in source)
    found = Counter((fault.kind, fault.action) for fault in source.faults)
    assert found == faults
    assert count + sum(fault.action == "dropped" for fault in source.faults) == number


@pytest.mark.parametrize(
    ("name", "text", "task", "hint"),
    [
        ("a.jsonl", '{"text": "Tom", "label": []}\n{"text": "Tom", "label": [[0, 3, "A"]]}\n', "classify", "task tag"),
        ("a.jsonl", '{"text": "Tom", "label": {"name": {"Tom": [[0, 2]]}}}\n', "classify", r"\(cluener\): .* task tag"),
        ("a.csv", "text,label\na b,x\nc d,y\n", "tag", r"\(csv\): use the task classify \(qkv finetune classify"),
        ("a.csv", "text,label\na b,x\nc d,y\n", "answer", "use the task classify"),
        (
            "a.json",
            '{"data": [{"paragraphs": [{"context": "Tom", "qas": [{"id": "1", "question": "who", "answers": []}]}]}]}',
            "classify",
            r"questions about texts \(squad\): use the task answer",
        ),
    ],
)  # fmt: skip
def test_the_right_task_is_named(tmp_path: Path, name: str, text: str, task: str, hint: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=hint):
        list(labelled(tmp_path / name, task))


def test_another_task_is_not_named_where_the_task_fits(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,tags\nTom sat,B-PER\n", encoding="utf-8")
    with pytest.raises(InputError, match="a tag for every word.$"):
        list(labelled(tmp_path / "a.csv", "tag"))
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": "x"}\n{"text": "a", "label": [[0, 1, "B"]]}\n')
    with pytest.raises(InputError, match="a number or a list of these.$"):
        list(labelled(tmp_path / "a.jsonl", "classify"))


WEIGHTED = "text,label,w\na,x,2\nb,y,0.5\n"


def test_weights_of_rows(tmp_path: Path) -> None:
    source = opened(tmp_path / "a.csv", WEIGHTED, columns={"weight": "w"})
    assert [one.weight for one in source] == [2.0, 0.5] and "weight = 'w'" in source.describe()
    lines = '{"text": "a b", "label": [[0, 1, "X"]], "w": 3}\n'
    assert [one.weight for one in opened(tmp_path / "a.jsonl", lines, "tag", columns={"weight": "w"})] == [3.0]
    assert [one.weight for one in labelled(tmp_path / "a.csv", "classify", remembered={"weight": "w"})] == [1.0, 1.0]


@pytest.mark.parametrize("value", ["-1", "nan", "heavy", "", "inf"])
def test_a_weight_that_is_none(tmp_path: Path, value: str) -> None:
    source = opened(tmp_path / "a.csv", f"{WEIGHTED}c,x,{value}\n", columns={"weight": "w"})
    with pytest.raises(InputError, match=rf"a.csv, line 4: the weight in 'w' is '{value}'; a weight is a number"):
        list(source)
    lenient = labelled(tmp_path / "a.csv", "classify", columns={"weight": "w"}, lenient=True)
    assert len(list(lenient)) == 2 and lenient.faults[0].action == "dropped"


def test_files_without_a_column_of_weights(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="read as conll, which has no column of weights"):
        opened(tmp_path / "a.bio", "Tom\tB-PER\nsat\tO\n", "tag", columns={"weight": "3"})
    with pytest.raises(InputError, match="no column 'v' for the weight"):
        opened(tmp_path / "b.csv", WEIGHTED, columns={"weight": "v"})
    with pytest.raises(InputError, match="'answer' has no column 'weight'"):
        labelled(tmp_path / "b.csv", "answer", columns={"weight": "w"})
