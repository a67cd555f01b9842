"""Remarks on labels, on both sides of their lines."""

import numpy as np

from qkv.jobs.finetune.remarks import (
    remark_few_examples,
    remark_hidden_by_accuracy,
    remark_most_confused,
    remark_never_answered,
    remark_not_in_dev,
)
from qkv.report.remarks import NOTE, WARNING
from qkv.tasks.task import LabelScore, Scored
from tests.unit.report.test_remarks import check


def label(name: str, f1: float = 0.9, support: int = 10, answered: int = 10) -> LabelScore:
    return LabelScore(name, f1, f1, f1, support, answered)


def test_rare_labels_behind_a_good_accuracy() -> None:
    def scored(macro_f1: float, rarest: int) -> Scored:
        labels = (label("a", support=30), label("b", support=rarest), label("c", support=0))
        return Scored("accuracy", {"accuracy": 0.95, "macro_f1": macro_f1}, {}, 100, labels)

    check(remark_hidden_by_accuracy(scored(0.6, 10)), WARNING, "95.0", "60.0")
    assert remark_hidden_by_accuracy(scored(0.86, 10)) is None
    assert remark_hidden_by_accuracy(scored(0.6, 11)) is None, "no label is rare"
    assert remark_hidden_by_accuracy(Scored("f1", {"macro_f1": 0.1}, {}, 100)) is None


def test_labels_that_are_never_given() -> None:
    found = check(remark_never_answered([label("a"), label("b", answered=0, support=7)]), WARNING, "7", "b")
    assert "expects it" in found.text.en
    assert remark_never_answered([label("a"), label("b", support=0, answered=0)]) is None


def test_labels_that_dev_does_not_have() -> None:
    found = check(remark_not_in_dev({"a": 5, "b": 9}, [label("a"), label("b", support=0)]), NOTE, "b")
    assert "how well it will go" in found.text.en
    found = check(remark_not_in_dev({"a": 5, "b": 9, "c": 9}, [label("a")]), NOTE, "b", "c")
    assert "how well they will go" in found.text.en
    assert remark_not_in_dev({"a": 5}, [label("a")]) is None and remark_not_in_dev({"a": 5}, []) is None


def test_few_examples() -> None:
    labels = [label("a"), label("b", f1=0.4)]
    check(remark_few_examples({"a": 100, "b": 19}, labels), WARNING, "b (19)", "40", "90")
    check(remark_few_examples({"a": 100, "b": 19}, [label("a"), label("b")]), NOTE, "b (19)")
    assert remark_few_examples({"a": 100, "b": 20}, labels) is None and remark_few_examples({"a": 1}, []) is None
    many = check(remark_few_examples({f"x{i}": i + 1 for i in range(9)} | {"a": 99}, []), NOTE, "x0 (1)", "x3 (4)")
    assert "and 5 more" in many.text.en and "等 9 个" in many.text.zh


def test_two_labels_that_are_taken_for_each_other() -> None:
    counts = np.array([[20, 4, 1], [3, 20, 0], [0, 1, 20]])
    check(remark_most_confused(counts, ("a", "b", "c")), NOTE, "a", "b", "7", "78")
    assert remark_most_confused(np.diag([3, 3, 3]), ("a", "b", "c")) is None and remark_most_confused(None, ()) is None
    assert remark_most_confused(np.array([[1, 9], [9, 1]]), ("a", "b")) is None, "of two labels it goes without saying"
