"""The grid of fine-tuning defaults: its runs, what a stopped grid continues with, and its table."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import labelled_sets as sets
from tests.support.bench_modules import bench_module
from tests.support.folders import make_folder

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_grid(tmp_path: Path) -> None:
    grid: Any = bench_module("finetune_defaults")
    sets.write_texts(tmp_path / "train.csv")
    sets.write_texts(tmp_path / "dev.csv", sets.texts(90)[60:])
    one = {"name": "toy", "task": "classify", "train": "train.csv", "dev": "dev.csv", "settings": ["epochs=1"]}
    broken = one | {"name": "gone", "train": "nowhere.csv"}
    (tmp_path / "sets.json").write_text(json.dumps([one, broken]), encoding="utf-8")
    folder = str(make_folder(tmp_path / "model", "BertModel"))
    cells = [
        grid.Cell(source, "tiny", folder, 40, seed, settings, (), "cpu", 20, 1)
        for seed in (0, 1)
        for source in grid.read_sets(tmp_path / "sets.json", None)
        for settings in grid.varied(["train.lr=default,1e-3"])
    ]
    out = tmp_path / "grid.jsonl"
    grid.run_grid(cells[:3], out, 1)
    first = out.read_text(encoding="utf-8")
    out.write_text(first + '{"set": "toy", "mod', encoding="utf-8")  # killed in the middle of a line
    grid.run_grid(cells, out, 1)
    assert out.read_text(encoding="utf-8").startswith(first)
    lines = grid.read_grid(out)
    assert len(lines) == len(cells) == 8
    toy = [line for line in lines if line["set"] == "toy"]
    assert all(0 <= line["score"] <= 1 and line["curve"] and line["reached"] <= line["steps"] for line in toy)
    assert all("nowhere.csv" in line["failure"] for line in lines if line["set"] == "gone")
    rows = grid.summarise(lines)
    assert [(row["set"], row["seeds"], row["failed"]) for row in rows] == [("gone", 0, 2)] * 2 + [("toy", 2, 0)] * 2
    assert rows[-1]["worst"] <= rows[-1]["median"]
