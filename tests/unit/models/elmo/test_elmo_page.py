import json
import math
from pathlib import Path
from typing import Any

import pytest

from qkv.models.elmo.pretrain import elmo_page
from qkv.report.page import render_page
from qkv.report.run_log import LanguageModelFacts

FACTS = LanguageModelFacts("elmo", 8000, 6.4, resumed_from=(40,))


def write_run(run: Path, *, evaluated: bool = True) -> Path:
    lines: list[dict[str, Any]] = []
    for step in (10, 20):
        both = {"next_loss": 5.0, "next_accuracy": 0.1, "previous_loss": 5.5, "previous_accuracy": 0.2}
        lines.append({"step": step, "loss": 10.5, **both, "gradient_norm": 0.5, "lr": 1e-3, "tokens": 1000})
    if evaluated:
        lines.append({"step": 20, "evaluation": {**both, "previous_loss": 6.0}})
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "config.toml").write_text("rows = 4\n[train]\nsteps = 20\n")
    return run


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_both_directions_are_shown(tmp_path: Path, lang: str) -> None:
    page = elmo_page(write_run(tmp_path), FACTS, sampled=8192)
    text = render_page(page, lang)
    assert page.figures[0].value == f"{math.exp(5):.1f}" and page.figures[-1].value == f"{math.exp(6):.1f}"
    for part in (
        "ELMo：正、反两个方向的语言模型",
        "Loss of the token before",
        "told from 8,192 that",
        "8,192 个词比较",
    ):
        assert part in text


def test_without_evaluation_and_without_a_step(tmp_path: Path) -> None:
    page = elmo_page(write_run(tmp_path, evaluated=False), FACTS)
    assert page.figures[-1].value == f"{math.exp(5.5):.1f}" and "8,192" not in render_page(page)
    (tmp_path / "log.jsonl").unlink()
    assert "No step was logged yet" in render_page(elmo_page(tmp_path, FACTS))
