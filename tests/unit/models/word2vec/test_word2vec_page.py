import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qkv.models.word2vec.page import PlacedWord, VectorFacts, word2vec_page
from qkv.report.page import render_page

FACTS = VectorFacts(
    words=60_000,
    width=100,
    negatives=5,
    chunks=20,
    running_words=1_000_000,
    documents=300,
    sentences=4000,
    seconds=75.0,
    peak_memory=3 << 28,
    resumed_from=(40,),
    map=(PlacedWord("king", 0.0, 1.0), PlacedWord("女王", 1.0, 0.0), PlacedWord("the", -1.0, -1.0)),
    map_shares=(0.08, 0.04),
)


def write_run(run: Path, *, losses: bool = True) -> Path:
    lines: list[dict[str, Any]] = []
    for step in range(10, 101, 10):
        lines.append({"step": step, "loss": 4.0 - step / 100, "lr": 0.025 * (1 - step / 100), "tokens": 5000})
        if step % 50 == 0:
            near = [["queen", 0.5 + step / 250], ["<i>", -0.25], ["lost", None]]
            found: dict[str, Any] = {"neighbours": [{"word": "king", "near": near}, {"word": "cut"}, "torn"]}
            lines.append({"step": step, "evaluation": ({"loss": 3.1} if losses else {}) | found})
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    timing = [{"step": step, "seconds": 1.0, "tokens_per_second": 5000.0} for step in range(10, 101, 10)]
    (run / "timing.jsonl").write_text("".join(json.dumps(line) + "\n" for line in timing))
    (run / "config.toml").write_text('[train]\nsteps = 100\nkernel = "numba"\nthreads = 2\n')
    return run


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_what_is_on_the_page(tmp_path: Path, lang: str) -> None:
    page = word2vec_page(write_run(tmp_path), FACTS)
    text = render_page(page, lang)
    assert [figure.value for figure in page.figures[:1]] == ["3.100"] and page.figures[2].value == "5"
    assert page.figures[0].gauge is not None
    assert page.figures[0].gauge.marks[0][0] == pytest.approx(6 * math.log(2))
    for part in (
        "word2vec, skip-gram",
        "60,000 words",
        "60,000 个词",
        "6 ln 2 = 4.16",
        "第 100 步",
        ">queen<",
        "&lt;i&gt;",
        "A map of the most frequent words",
        ">女王</text>",
        "These hold 12.0\u00a0% of the spread",
        "numba, 2",
        "5,000",
        "1\u00a0min 15\u00a0s",
    ):
        assert part in text, part
    assert ">lost<" not in text and ">cut<" not in text
    assert page.notices == ()


def test_without_held_out_text_and_not_at_the_end(tmp_path: Path) -> None:
    write_run(tmp_path, losses=False)
    (tmp_path / "config.toml").write_text("[train]\nsteps = 400\n")
    page = word2vec_page(tmp_path, replace(FACTS, map=(), map_shares=()))
    text = render_page(page)
    assert page.figures[0].value == f"{(3.0 + 3.1 + 3.2 + 3.3 + 3.4) / 5:.3f}"
    assert "没有留出文本，这里给出的是训练损失。" in text
    assert "No text was held out" in text and "chunk 100 of 400" in text and "most frequent words" not in text


def test_a_run_that_wrote_nothing(tmp_path: Path) -> None:
    text = render_page(word2vec_page(tmp_path, VectorFacts(words=0, width=10, negatives=2)))
    assert "No step was logged yet" in text and "log.jsonl is missing" in text
