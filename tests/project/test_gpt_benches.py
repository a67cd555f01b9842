"""The benchmarks of GPT: what they measure is what they say, and every path of theirs runs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qkv.models.gpt.network import GPTConfig
from qkv.nn.cpu.precision import explain_no_int8
from tests.support.bench_modules import bench_module

ROOT = Path(__file__).resolve().parents[2]


def run(name: str, words: list[str], out: Path) -> Any:
    command = [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--tiny", "--quick", *words, "--json", str(out)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    return json.loads(out.read_text(encoding="utf-8"))


def test_rows_are_of_the_lengths_that_are_said_and_predict_their_next_token() -> None:
    bench = bench_module("pretrain_gpt")
    config = GPTConfig.preset("tiny", vocabulary_size=50)
    (batch,) = bench.ready(config, [np.array([5, 2, 9])])
    assert batch.lengths == (2, 5, 9)
    for ids, following in zip(batch.rows(batch.ids), batch.rows(batch.labels["next"]), strict=True):
        assert torch.equal(ids[1:], following[:-1])
    theirs = bench.padded(batch)
    assert theirs["input_ids"].shape == theirs["labels"].shape == (3, 9)
    assert int((theirs["labels"] != -100).sum()) == batch.n_tokens


def test_the_weights_are_the_same_memory() -> None:
    bench = bench_module("generate")
    theirs = bench.random_weights(bench.TINY).eval()
    ours = bench.as_ours(theirs)
    with torch.no_grad():
        theirs.transformer.h[1].mlp.c_fc.weight[3, 5] = 7.0
    assert ours.get_parameter("blocks.1.feed_forward.up.weight")[5, 3] == 7.0


def test_how_far_texts_agree() -> None:
    agreeing = bench_module("generate").agreeing
    assert agreeing((1, 2, 3), (1, 2, 4)) == 2 and agreeing((1, 2), (1, 2)) == 2 and agreeing((2,), (1,)) == 0


@pytest.mark.slow
def test_all_sides_write_the_same(tmp_path: Path) -> None:
    lines = run("generate", ["--threads", "1", "--beams", "1", "3"], tmp_path / "found.json")
    assert [(line["setting"]["batch"], line["setting"]["beams"]) for line in lines] == [(1, 1), (1, 3), (4, 1), (4, 3)]
    for line in lines:
        assert line["same_texts"]["qkv"] == 1 and line["ratio"]["qkv"] > 0 and line["ratio"]["transformers"] == 1
    if explain_no_int8() is None:
        assert lines[0]["same_texts"]["qkv drafted"] == 1 and "qkv drafted" not in lines[1]["ratio"]


@pytest.mark.slow
def test_training_runs_on_every_side(tmp_path: Path) -> None:
    found = run("pretrain_gpt", [], tmp_path / "found.json")
    assert [(one["side"], one["rows"]) for one in found["results"]] == [
        (side, rows) for side in ("qkv", "eager") for rows in ("1024", "mixed")
    ]
    assert all(one["tokens"] > 0 for one in found["results"])
