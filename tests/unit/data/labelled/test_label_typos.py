"""Slips of the pen among labels, and labels that only look like one."""

import pytest

from qkv.data.labelled.check import find_typos


@pytest.mark.parametrize(
    ("label", "meant", "why"),
    [
        ("Sport", "sport", "case"),
        ("ＰＯＳ", "POS", "full or half width"),
        ("not spam", "not_spam", "case, blanks or marks"),
        ("positve", "positive", "one character"),
        ("postiive", "positive", "one character"),
        ("查询余颔", "查询余额", "one character"),
    ],
)
def test_slips(label: str, meant: str, why: str) -> None:
    assert list(find_typos({meant: 500, label: 2, "something else": 500})) == [(label, meant, why)]


@pytest.mark.parametrize(
    ("one", "other"),
    [("0", "1"), ("1.0", "10"), ("+1", "-1"), ("PER", "PEA"), ("好评", "差评"), ("class1", "class2"), ("+", "-")],
)
def test_labels_that_differ_on_purpose(one: str, other: str) -> None:
    assert list(find_typos({one: 500, other: 1})) == []


def test_frequent_labels_are_no_slips() -> None:
    assert list(find_typos({"immoral": 500, "immortal": 400})) == []


def test_of_two_equals_the_one_without_doubled_blanks_is_meant() -> None:
    assert [typo[:2] for typo in find_typos({"a  bird": 3, "a bird": 3, "fish": 5})] == [("a  bird", "a bird")]
