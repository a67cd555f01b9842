"""The benchmarks that are meant for a GPU: every path of theirs once on a CPU, with tiny shapes and no figures."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words", "parts"),
    [
        (
            "pretrain_gpu",
            ["--only", "limits", "qkv", "eager", "128", "mixed", "--profile"],
            ["limits", "results", "profiles"],
        ),
        ("scaling", ["--threads", "1"], ["length", "width", "batch"]),
    ],
)
def test_every_path_runs(tmp_path: Path, name: str, words: list[str], parts: list[str]) -> None:
    out = tmp_path / "found.json"
    command = [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--tiny", "--steps", "1", *words, "--json", str(out)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert all(found[part] for part in parts)
    results = found.get("results", [])
    assert [one for one in results if "failure" in one] == []
    assert all(("computed" in one) == (one["side"] == "qkv") for one in results)
    assert all(0 < one["computed"] < one["teraflops"] for one in results if "computed" in one)


@pytest.mark.slow
def test_every_side_of_elmo_runs(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    few = ["--sizes", "mini", "--words", "300", "--rows", "3", "--length", "5", "--threads", "1", "--steps", "1"]
    command = [
        sys.executable,
        str(ROOT / "bench" / "elmo.py"),
        *few,
        "--precisions",
        "fp32",
        "bf16",
        "--json",
        str(out),
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    sides = ("qkv sampled", "qkv full", "torch.nn", "nn.LSTM")
    assert [(one["precision"], one["side"]) for one in found] == list(itertools.product(("fp32", "bf16"), sides))
    assert not any("failure" in one for one in found)
    assert all((len(one.get("parts", {})) == 4) == one["side"].startswith("qkv") for one in found)


@pytest.mark.slow
def test_every_side_of_search_finds_the_same(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    few = ["--vectors", "2000", "--width", "16", "--queries", "1", "3", "--rounds", "1", "--threads", "1"]
    command = [sys.executable, str(ROOT / "bench" / "search.py"), *few, "--json", str(out)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert {(one["queries"], one["side"]) for one in found} >= set(itertools.product((1, 3), ("numpy", "qkv")))
    assert all(one["recall"] >= 0.8 for one in found)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="gloo over loopback, as on Unix")
def test_every_side_of_scale_runs(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    few = ["--tiny", "--rounds", "1", "--steps", "1", "--rows", "4", "--longest", "16", "--json", str(out)]
    subprocess.run([sys.executable, str(ROOT / "bench" / "scale.py"), *few], capture_output=True, check=True)
    sides = json.loads(out.read_text(encoding="utf-8"))["results"]
    assert [one["side"].split(",")[0] for one in sides] == ["1 × 2 threads", "1 × 2 threads", "2 × 1 thread"]
