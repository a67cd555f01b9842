"""Lines of bench/lineage.py and what they come to: figures with intervals and tests from single examples, the page, the
picture, and a file that was cut."""

import doctest
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qkv.errors import InputError
from tests.support.bench_modules import ROOT, bench_module

table = bench_module("lineage_table")
found_lines = bench_module("lineage_lines")

HALF, MOST = [[1, 1], [0, 1]] * 100, [[1, 1], [1, 1], [1, 1], [0, 1]] * 50
SETTINGS = {"most": 10, "scored": None, "epochs": None, "language_model_weight": None}


def lines_of(task: str, rows: dict[str, list[list[list[int]]]]) -> list[dict[str, Any]]:
    run = {"part": "finetune", "task": task, "whole_seconds": 1.0, "settings": SETTINGS}
    return [
        {**run, "system": system, "seed": seed, "statistics": one, "weights": system}
        for system, seeds in rows.items()
        for seed, one in enumerate(seeds)
    ]


def side(system: str, side: str, right: list[int], language: str = "zh") -> dict[str, Any]:
    told = {"part": "sides", "language": language, "system": system, "side": side, "words": len(right)}
    return told | {"right": right, "accuracy": float(np.mean(right))}


@pytest.mark.parametrize("name", ["lineage_statistics", "lineage_systems"])
def test_examples_in_docstrings(name: str) -> None:
    found = doctest.testmod(bench_module(name))
    assert found.attempted and not found.failed


def test_figures_and_steps_of_the_lineage() -> None:
    tags = [[2, 3, 4], [1, 1, 2]]
    lines = lines_of("sst2", {"word2vec": [HALF, HALF], "bert": [MOST]}) + lines_of("conll2003", {"gpt": [tags]})
    found = table.cells(lines)
    assert found["sst2", "word2vec"].value == 0.5 and found["sst2", "word2vec"].deviation == 0
    assert found["sst2", "bert"].low < 0.75 < found["sst2", "bert"].high and found["sst2", "bert"].deviation is None
    assert found["conll2003", "gpt"].value == 2 * 3 / (4 + 6) and found["conll2003", "gpt"].examples == 2
    (step,) = table.steps(found)
    assert (step.earlier, step.later, step.is_sure) == ("word2vec", "bert", True)
    assert step.difference.difference == pytest.approx(0.25)
    (again,) = table.steps(table.cells(lines_of("sst2", {"gpt": [HALF], "bert": [HALF[::-1]]})))
    assert not again.is_sure


def test_what_one_lucky_training_did_is_not_sure() -> None:
    right, wrong = [[1, 1]] * 200, [[0, 1]] * 200
    found = table.cells(lines_of("sst2", {"gpt": [HALF, HALF, HALF], "bert": [right, right, wrong]}))
    assert found["sst2", "bert"].low < 0.1 and found["sst2", "bert"].high > 0.9
    assert found["sst2", "gpt"].high - found["sst2", "gpt"].low < 0.2
    (step,) = table.steps(found)
    assert step.difference.difference == pytest.approx(1 / 6) and not step.is_sure
    (step,) = table.steps(table.cells(lines_of("sst2", {"gpt": [HALF] * 3, "bert": [right] * 3})))
    assert step.is_sure


def test_questions_about_one_passage_are_drawn_together() -> None:
    rows = [[1, 1, 1]] * 100 + [[0, 0, 1]] * 100
    lines = lines_of("squad", {"gpt": [rows]})
    apart = table.cells(lines)["squad", "gpt"]
    together = table.cells([{**lines[0], "groups": [0] * 100 + [1] * 100}])["squad", "gpt"]
    assert together.value == apart.value == 0.5 and together.examples == 200
    assert apart.high - apart.low < 0.2 and (together.low, together.high) == (0, 1)


def test_systems_that_answered_other_examples_are_not_compared() -> None:
    with pytest.raises(ValueError, match="same examples"):
        table.steps(table.cells(lines_of("sst2", {"gpt": [HALF], "bert": [HALF[:10]]})))


def test_p_of_the_side_test_is_corrected() -> None:
    words = 400
    right = [int(n % 2) for n in range(words)]
    better = [int(n % 2 or n % 16 == 0) for n in range(words)]
    lines = [side("gpt", "left", right), side("bert", "left", right), side("bert", "both", better)]
    found = table.summed_up(lines)["side_differences"]
    assert [(one["one"], one["other"]) for one in found] == list(table.SIDE_PAIRS[:3])
    assert [one["p_corrected"] for one in found] == table.holm([one["p"] for one in found])
    assert found[0]["p_corrected"] == pytest.approx(3 * found[0]["p"]) and found[1]["p_corrected"] == 1
    assert table.compared_sides(table.sides_of(lines)["zh"], "bert both", "nobody") is None


def test_the_page_and_the_picture(tmp_path: Path) -> None:
    lines = lines_of("sst2", {"word2vec": [HALF], "elmo": [HALF], "gpt": [MOST], "bert": [MOST]})
    lines += [side("one word", "neither", [1, 0, 0, 0, 0]), side("gpt", "left", [1, 0, 0, 0, 0])]
    lines += [side("bert", "both", [1, 1, 0, 0, 0]), side("bert", "left, cut", [0, 0, 0, 0, 0])]
    tried = {"part": "finetune", "system": "gpt", "seed": 0, "settings": SETTINGS, "weights": "gpt"}
    lines += [{**tried, "task": "wic", "error": "ValueError: no"}]
    lines = [{**tried, "task": "sst2", "error": "it was killed"}, *lines]  # and went well the next time
    lines += [{"part": "pretrain", "system": "gpt", "parameters": 8_000_000, "seconds": 180.2, "steps": 4_000}]
    decided = {**SETTINGS, "language_model_weight": 0.5}
    lines += [{**tried, "part": "choose", "task": "sst2", "settings": decided, "scores": {"accuracy": 0.81}}]
    summary = table.summed_up(lines)
    page = table.markdown(summary)
    assert "| sst2 dev, accuracy | 50.0 [" in page and "elmo → gpt" in page
    assert "| one word | 20.0 [" in page and "| gpt |  | 20.0 [" in page and "| zh | gpt left → bert both |" in page
    assert "| gpt | 8,000,000 | 180 | 4,000 |" in page and "language_model_weight 0.5: 81.0" in page
    assert summary["failed"] == ["wic gpt 0: ValueError: no"] and "right" not in summary["sides"]["zh"][0]
    assert summary["side_differences"][0]["difference"] == pytest.approx(0.2)
    turned = table.summed_up(lines[::-1])
    assert [one["system"] for one in turned["sides"]["zh"]] == ["one word", "gpt", "bert", "bert"], (
        "in the lineage's order"
    )
    file = tmp_path / "lineage.json"
    file.write_text(json.dumps(summary))
    subprocess.run([sys.executable, str(ROOT / "docs" / "lineage_figure.py"), str(file)], check=True)
    assert "SST-2" in (tmp_path / "lineage.svg").read_text() and "只看左边" in (tmp_path / "lineage.zh.svg").read_text()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"weights": "another"}, "the training of gpt"),
        ({"settings": {**SETTINGS, "most": 64}}, "what runs are given"),
        ({"settings": {**SETTINGS, "language_model_weight": 0.5}}, "language_model_weight of gpt"),
    ],
)
def test_lines_of_two_comparisons_are_refused(other: dict[str, Any], said: str) -> None:
    lines = lines_of("sst2", {"gpt": [HALF, HALF]})
    table.summed_up(lines)
    with pytest.raises(InputError, match=said):
        table.summed_up([lines[0], {**lines[1], **other}])
    table.summed_up([lines[0], {**lines[1], **other, "error": "x"}])


def test_trainings_of_two_budgets_are_refused() -> None:
    one = {"part": "pretrain", "system": "gpt", "budget": {"minutes": 3.0}}
    with pytest.raises(InputError, match="budget"):
        table.summed_up([one, {**one, "system": "bert", "budget": {"minutes": 0.2}}])


def test_a_line_that_was_cut_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_bytes('{"part": "a", "说": "好"}\n{"part": "b", "说": "好'.encode()[:-1])  # inside a character
    lines = found_lines.Lines(file, [])
    assert [line["part"] for line in lines.found] == ["a"] and "line 2 was cut" in capsys.readouterr().err
    lines.add({"part": "c"})
    lines.add({"part": "d"})
    assert [line["part"] for line in found_lines.read_lines(file)] == ["a", "c", "d"]
    assert capsys.readouterr().err == ""
    file.write_text('{"part": "a"}\n{"part": "b"}')  # whole, but for the end of the line
    found_lines.Lines(file, []).add({"part": "c"})
    assert [line["part"] for line in found_lines.read_lines(file)] == ["a", "b", "c"]
    file.write_text('{"part": "a"}\n{"part": \n{"part": "c"}\n')
    with pytest.raises(InputError, match=r"lines.jsonl, line 2"):
        found_lines.read_lines(file)
    with pytest.raises(InputError, match="there is no"):
        found_lines.Lines(file, [tmp_path / "nowhere"])


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lineage.json"
    found_lines.write_whole(file, "old")

    def full(self: Path, text: str, **_: Any) -> int:
        self.write_bytes(text.encode()[:1])
        raise OSError("no space is left")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="no space"):
        found_lines.write_whole(file, "new")
    assert file.read_text() == "old" and [one.name for one in tmp_path.iterdir()] == ["lineage.json"]
