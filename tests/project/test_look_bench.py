"""The benchmark of the page: its text is as long as it says, and every path of it runs in a browser."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="bench/look.py drives a browser with Playwright: pip install -e '.[dev]'")

from qkv.models.folders.hub import DEFAULT_MODEL, FOLDER
from qkv.text.tokenizer import Tokenizer
from tests.support.bench_modules import bench_module

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("tokens", [64, 511, 512])
def test_a_text_of_so_many_tokens(tokens: int) -> None:
    tokenizer = Tokenizer.load(FOLDER / DEFAULT_MODEL)
    text = bench_module("look").words_of(tokens, tokenizer)
    assert len(tokenizer.encode(text).ids) == tokens


@pytest.mark.slow
def test_every_path_runs(tmp_path: Path) -> None:
    bench = bench_module("look")
    if not os.environ.get("QKV_CHROMIUM") and not any(map(shutil.which, bench.NAMES)):
        pytest.skip("no Chromium is installed")
    out = tmp_path / "found.json"
    command = [sys.executable, str(ROOT / "bench" / "look.py"), "--tiny", "--quick", "--json", str(out)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["first_picture"]["bytes"] > 100_000 and found["hovering"]["tokens"] == 512
    assert all(found["hovering"][part]["frames"] > 3 for part in ("lines", "large"))
    assert found["hovering"]["lines"]["tokens"] > 3, "the pointer was over words"
    assert 512 * 512 * 2 <= found["hovering"]["layer_bytes"] < 700_000
