"""The benchmarks of translation: what they measure is what they say, and every path of theirs runs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.nn.cpu.precision import explain_no_int8
from tests.support.bench_modules import bench_module

ROOT = Path(__file__).resolve().parents[2]


def found(name: str, words: list[str], out: Path) -> list[dict[str, Any]]:
    command = [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--tiny", "--quick", "--threads", "1", *words]
    said = subprocess.run([*command, "--json", str(out)], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    lines: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
    return lines


def test_batches_are_as_long_as_multi30k() -> None:
    bench = bench_module("train_translate")
    setting = bench.Setting(500, 1024, 4, 4, "fp32", torch.device("cpu"), tiny=True)
    padding = {}
    for kind in bench.KINDS:
        batches = bench.batches(setting, kind)
        assert len(batches) == 4
        lengths = [length for batch in batches for length in batch.target.lengths]
        assert 10 < sum(lengths) / len(lengths) < 20 and min(lengths) >= 4 and max(lengths) <= 46
        for batch in batches:
            assert 0.8 * 1024 < max(batch.source.n_tokens, batch.n_tokens) <= 1024
            assert all(row[-1] == bench.END for row in batch.source.rows(batch.source.ids))
            assert int(batch.target.ids.max()) < 500
        padding[kind] = sum(batch.n_rows * batch.target.longest / batch.n_tokens for batch in batches)
    assert padding["sorted"] < padding["shuffled"]


def test_what_lines_share_is_the_same_for_all_sizes() -> None:
    bench = bench_module("train_translate")
    small, large = (bench.Setting(500, tokens, 4, 4, "fp32", torch.device("cpu"), tiny=True) for tokens in (64, 1024))
    assert bench.shared(small) == bench.shared(large)
    assert bench.shared(small)["device"] == "cpu"


@pytest.mark.slow
def test_training_runs_on_every_side(tmp_path: Path) -> None:
    sides = ["qkv", "transformers", "seq2seq"]
    lines = found("train_translate", ["--device", "cpu", "--words", "200", "--sides", *sides], tmp_path / "found.json")
    assert [(line["kind"], line["side"]) for line in lines] == [
        (kind, side) for kind in ("sorted", "shuffled") for side in sides
    ]
    for line in lines:
        assert line["tokens_per_second"] > 0 and line["tokens"] == lines[3 * (line["kind"] == "shuffled")]["tokens"]
    ours, theirs = (next(line["parameters"] for line in lines if line["side"] == side) for side in sides[:2])
    assert ours - theirs == 200  # the same network, and a bias on the scores of words


@pytest.mark.slow
def test_all_sides_write_the_same(tmp_path: Path) -> None:
    lines = found("translate", [], tmp_path / "found.json")
    settings = [(line["setting"]["batch"], line["setting"]["beams"]) for line in lines]
    assert settings == [(1, 1), (1, 4), (8, 1), (8, 4)]
    for line in lines:
        assert line["same"]["qkv"] == 1 and line["ratio"]["qkv"] > 0 and line["ratio"]["transformers"] == 1
        assert line["tokens"]["qkv"] == 12 * line["setting"]["sources"]
        if explain_no_int8() is None:
            assert line["ratio"]["qkv int8"] > 0 and line["same_next_token"] > 0.9
            alone = line["setting"]["batch"] == line["setting"]["beams"] == 1
            assert line["same"].get("qkv drafted") == (1 if alone else None)
