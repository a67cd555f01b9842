"""Rows of csv and tsv: quotes, line ends inside cells, and the line where each row begins."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data.labelled.opened import Beginning
from qkv.data.labelled.tables import TableFile, detect_table, parse_rows
from qkv.errors import InputError


def found(name: str, text: str) -> TableFile:
    kind = "csv" if name.endswith(".csv") else "tsv"
    return detect_table(Beginning(Path(name), text, whole=True), kind, {})


def read(text: str, separator: str = ",", quoted: bool = True) -> list[tuple[int, list[str]]]:
    return list(parse_rows(Path("a.csv"), iter(enumerate(text.split("\n"), 1)), separator, quoted))


def test_quotes_and_the_lines_where_rows_begin() -> None:
    text = 'text,label\n"a, b",1\n\n"line one\nline ""two""\n",2\nplain "quote",3\n "after a blank" ,4\n"",5'
    assert read(text) == [
        (1, ["text", "label"]),
        (2, ["a, b", "1"]),
        (4, ['line one\nline "two"\n', "2"]),
        (7, ['plain "quote"', "3"]),
        (8, ["after a blank", "4"]),
        (9, ["", "5"]),
    ]


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"])), min_size=2, max_size=3)
    )
)
def test_equal_to_the_csv_module(cells: list[list[str]]) -> None:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(cells)
    assert [row for _, row in read(out.getvalue())] == cells


def test_a_quote_that_nobody_closes_is_named_where_it_opens() -> None:
    with pytest.raises(InputError, match=r"a\.csv, line 2: the quote before 'open"):
        read('a,b\n"open,1\nc,2\n')
    with pytest.raises(InputError, match=r"line 2: after the quoted cell 'So' comes ' he said'"):
        read('a,b\n"So" he said,1\n')


@pytest.mark.parametrize(
    ("name", "text", "separator", "quoted"),
    [
        ("a.csv", "text,label\na,1\n", ",", True),
        ("a.csv", "text;label\na, b;1\nc;2\n", ";", True),
        ("a.csv", "text;label\n" + "gut;3,5\n" * 40, ";", True),  # decimal commas
        ("a.csv", "text\tlabel\na, b\t1\nc\t2\n", "\t", False),  # as STS-B's files are named
        ("a.tsv", 'text\tlabel\n"Well" he said\t1\n"So\t2\n', "\t", False),
        ("a.tsv", 'text\tlabel\n"All of it quoted"\t1\n', "\t", False),
        ("a.tsv", 'text\tlabel\n"He said ""no"""\t1\n', "\t", True),  # as a spreadsheet writes
    ],
)
def test_separator_and_quotes_are_found_out(name: str, text: str, separator: str, quoted: bool) -> None:
    one = found(name, text)
    assert (one.separator, one.quoted, one.header) == (separator, quoted, ("text", "label"))


def test_header_or_not() -> None:
    assert found("a.tsv", "good\t1\nbad\t0\n").names == ("1", "2")
    assert found("a.tsv", "good\t1\nbad\t0\n").note == "without a header"
    assert found("a.csv", "Text ,  Label\ngood,1\n").names == ("Text", "Label")
    start = Beginning(Path("a.tsv"), "frage\tart\ngut\tja\n", whole=True)
    assert detect_table(start, "tsv", {}).header is None
    assert detect_table(start, "tsv", {"text": "frage"}).header == ("frage", "art")
