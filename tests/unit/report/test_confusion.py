"""Confusions: the largest are named, the map holds every count, and sixty labels are a list."""

import re

import numpy as np

from qkv.report.tables import MOST_LABELS, Confusion, largest_confusions
from tests.support.finetune_runs import INTENTS, confusion_of
from tests.unit.report.test_run_page import NASTY, checked

COUNTS = np.array([[8, 2, 0], [5, 4, 1], [0, 0, 3]])


def test_the_largest_first_and_by_share() -> None:
    found = largest_confusions(COUNTS, ("a", "b", "c"))
    assert [(one.expected, one.answered, one.n, one.of) for one in found] == [
        ("b", "a", 5, 10),
        ("a", "b", 2, 10),
        ("b", "c", 1, 10),
    ]
    counts = np.diag(np.full(9, 5)) + np.eye(9, k=1, dtype=np.int64) * 2 + np.eye(9, k=2, dtype=np.int64)
    assert {one.n for one in largest_confusions(counts, tuple("abcdefghi"))} == {2}, (
        "what happened once is left out where more did twice"
    )
    assert largest_confusions(np.diag([3, 4]), ("a", "b")) == ()


def test_every_count_is_on_the_map() -> None:
    text = Confusion("t", COUNTS, ("a", "b", "c")).html()
    checked(text)
    assert text.count('class="none"') == 3
    assert re.findall(r"<title>(.*?)</title>", text)[1] == "a → b: 2 / 10 (20.0\u00a0%)"
    assert [int(count) for count in re.findall(r'class="count[^"]*"[^>]*>(\d+)<', text)] == [8, 2, 5, 4, 1, 3]
    assert "5 of 10 (50\u00a0%)" in text and "10 条中 5 条（50\u00a0%）" in text


def test_a_small_map_is_not_blown_up() -> None:
    """Two labels of one letter were drawn two and a half times as large, caption and all."""
    for labels, large in ((("a", "b", "c"), False), (tuple("abcdefghijkl"), True)):
        text = Confusion("t", confusion_of(len(labels)), labels)
        assert ('class="large"' in text.html()) == large
    assert "svg.large { min-width: 420px }" in text.style and "svg { min-width" not in text.style


def test_no_confusion_and_too_many_labels() -> None:
    assert "Nothing was confused." in Confusion("t", np.diag([3, 4]), ("a", "b")).html()
    labels = tuple(f"{INTENTS[i % 10]}{i}" for i in range(MOST_LABELS + 1))
    text = Confusion("t", confusion_of(MOST_LABELS + 1), labels).html()
    assert "<svg" not in text and "31 labels" in text
    assert "<svg" in Confusion("t", confusion_of(MOST_LABELS), labels[:MOST_LABELS]).html()


def test_labels_of_any_length_and_kind() -> None:
    text = Confusion("t", COUNTS, (NASTY, "标签" * 80, "👩‍👩‍👧 \u202eabc\n")).html()
    assert "script" not in checked(text).shown
    text.encode("utf-8")


def test_a_label_that_nothing_expects() -> None:
    checked(Confusion("t", np.array([[0, 0], [1, 2]]), ("a", "b")).html())
