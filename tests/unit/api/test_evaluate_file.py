"""A saved model against a labelled file, and two models beside each other: the same figure for both, or a refusal."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qkv.api import evaluate as module
from qkv.api.evaluate import compare_answers, evaluate_file
from qkv.api.model import load
from qkv.cli.main import main
from qkv.data.labelled.examples import AnswerExample
from qkv.data.labelled.examples import AnswerSpan as Accepted
from qkv.errors import InputError
from qkv.metrics.numbers import pearson
from qkv.tasks.answer import AnswerResult
from qkv.tasks.classify import Regression
from qkv.tasks.task import ClassifySettings
from tests.support import labelled_sets as sets
from tests.support.task_folders import task_folder

pytestmark = pytest.mark.usefixtures("one_thread")


def write_numbers(path: Path) -> Path:
    rows = [f"{one.text},{(number * 7) % 11 / 2}" for number, one in enumerate(sets.texts(30))]
    path.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    return path


def write_several(path: Path) -> Path:
    rows = [
        json.dumps({"text": one.text, "label": ["animal", "place"][: number % 3]})
        for number, one in enumerate(sets.texts(30))
    ]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


CASES: dict[str, tuple[str, str, dict[str, Any], Any]] = {
    "classify": ("classify", "a.csv", {}, sets.write_texts),
    "several": ("classify", "a.jsonl", {"kind": "multi"}, write_several),
    "numbers": ("classify", "a.csv", {"kind": "regression"}, write_numbers),
    "tag": ("tag", "a.jsonl", {}, sets.write_tagged),
    "answer": ("answer", "a.json", {}, sets.write_asked),
    "choice": ("choice", "a.jsonl", {}, sets.write_chosen),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_compared_is_the_main_score(tmp_path: Path, case: str) -> None:
    task, name, record, writer = CASES[case]
    file = writer(tmp_path / name)
    one = task_folder(tmp_path / "one", task, seed=1, **record)
    two = task_folder(tmp_path / "two", task, seed=2, **record)
    found = evaluate_file(one, file, against=two)
    alone = evaluate_file(two, file)
    main = found["scores"]["main"]
    other = found["against"]
    assert other["figure"] == main == alone["scores"]["main"] and other["run"] == str(two)
    assert other["value"] == pytest.approx(alone["scores"][main], abs=1e-9)
    assert other["difference"] == pytest.approx(found["scores"][main] - alone["scores"][main], abs=1e-9)
    assert other["low"] <= other["difference"] <= other["high"] and 0 < other["p"] <= 1


def test_answers_in_other_words_count_for_both(tmp_path: Path) -> None:
    task = load(task_folder(tmp_path / "reader", "answer")).solver.task
    example = AnswerExample("who", "the cat sat", (Accepted(4, "cat"),), others=("the cat sat",))
    result = AnswerResult("the cat sat", 0, 11, 1.0, 0.0, (), 5, 1)
    assert task.statistics(example, result, task.judge(example, result)) == (1.0, 1.0)


def test_numbers_are_compared_by_their_correlation() -> None:
    draw = np.random.default_rng(0)
    expected = draw.normal(1000, 1, 200)
    good, bad = expected + draw.normal(0, 0.1, 200), expected + draw.normal(0, 3, 200)

    task = Regression(ClassifySettings(), paired=False)
    found = compare_answers(task, np.stack([expected, good], 1), np.stack([expected, bad], 1))
    assert found["value"] == pytest.approx(pearson(expected, bad), abs=1e-12)
    assert found["difference"] == pytest.approx(pearson(expected, good) - pearson(expected, bad), abs=1e-12)
    p, low = found["p"], found["low"]
    assert p is not None and p < 0.01 and low is not None and low > 0
    # a larger error in the same order is no worse a correlation
    same = compare_answers(task, np.stack([expected, good], 1), np.stack([expected, 3 * good + 7], 1))
    assert same["difference"] == pytest.approx(0, abs=1e-12)
    constant = compare_answers(task, np.stack([expected, good], 1), np.stack([expected, np.full(200, 0.1)], 1))
    assert constant["value"] is None and constant["difference"] is None and constant["p"] is None
    json.dumps(constant, allow_nan=False)


def test_a_constant_is_told_in_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = dict.fromkeys(("value", "difference", "low", "high", "p"))
    monkeypatch.setattr(module, "compare_answers", lambda *_: nothing)
    file = write_numbers(tmp_path / "a.csv")
    model = str(task_folder(tmp_path / "model", "classify", kind="regression"))
    assert main(["evaluate", model, str(file), "--against", model]) == 0
    assert "the pearson of one of the two is undefined" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("task", "record", "message"),
    [
        ("tag", {}, r"other is a model for 'tag', and .*first one for 'classify' \(one label a text\)"),
        ("classify", {"kind": "multi"}, r"\(any number of labels\), and .* \(one label a text\)"),
        ("classify", {"kind": "regression"}, r"\(a number\), and .* \(one label a text\)"),
        ("classify", {"paired": True}, "of pairs, and .* of single texts"),
    ],
)
def test_models_for_other_things_are_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, record: dict[str, Any], message: str
) -> None:
    def never(*given: Any) -> Any:
        raise AssertionError("nothing may be evaluated yet")

    monkeypatch.setattr(module, "evaluate_examples", never)
    first, other = task_folder(tmp_path / "first", "classify"), task_folder(tmp_path / "other", task, **record)
    with pytest.raises(InputError, match=message):
        evaluate_file(first, sets.write_texts(tmp_path / "a.csv"), against=other, out=tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_the_examples_are_not_written_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, link = write_several(tmp_path / "a.jsonl"), tmp_path / "link.jsonl"
    link.symlink_to(file)
    before = file.read_bytes()
    model = str(task_folder(tmp_path / "model", "classify", kind="multi"))
    for out in (file, link):
        assert main(["evaluate", model, str(file), "--out", str(out)]) == 2
        assert f"--out {out} is also an input file" in capfd.readouterr().err
    assert file.read_bytes() == before


def test_threads_are_used(tmp_path: Path) -> None:
    file = sets.write_texts(tmp_path / "a.csv")
    evaluate_file(task_folder(tmp_path / "model", "classify"), file, threads=3)
    assert torch.get_num_threads() == 3
