import json
import math
from pathlib import Path
from typing import Any

import pytest

from qkv.report.page import render_page
from qkv.report.run_log import LanguageModelFacts, language_model_page

FACTS = LanguageModelFacts("rnnlm", 8000, 6.4, 100, 5, 2000, 50_000, 3_000_000, 90.0, 500_000_000, resumed_from=(40,))


def write_run(run: Path, steps: int = 100, planned: int = 100) -> Path:
    lines: list[dict[str, Any]] = []
    for step in range(10, steps + 1, 10):
        loss = 5 + 3 * math.exp(-step / 40)
        lines.append(
            {"step": step, "loss": loss, "next_loss": loss, "next_accuracy": 0.1, "gradient_norm": 0.5, "lr": 1e-3}
        )
        lines[-1]["tokens"] = 1000
        if step % 50 == 0:
            figures = {"next_loss": loss + 0.1, "next_accuracy": 0.12, "next_count": 400, "next_correct": 48}
            lines.append({"step": step, "evaluation": figures})
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "timing.jsonl").write_text(json.dumps({"step": 10, "seconds": 1.0, "tokens_per_second": 1000.0}) + "\n")
    (run / "config.toml").write_text(f"rows = 4\n[train]\nsteps = {planned}\n")
    return run


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_perplexity_is_that_of_the_last_evaluation(tmp_path: Path, lang: str) -> None:
    page = language_model_page(write_run(tmp_path), FACTS)
    text = render_page(page, lang)
    perplexity = math.exp(5.1 + 3 * math.exp(-2.5))
    assert page.figures[0].value == f"{perplexity:.1f}" and f"{perplexity:.1f}" in text
    assert "循环神经网络语言模型" in text and "Recurrent language model" in text and not page.notices
    assert "frequencies only 602" in text


def test_a_run_that_has_hardly_begun(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("rows = 4\n")
    assert "No step was logged yet" in render_page(language_model_page(tmp_path, LanguageModelFacts("nnlm", 100)))
    page = language_model_page(write_run(tmp_path, steps=40), LanguageModelFacts("nnlm", 100))
    text = render_page(page)
    assert "stopped at step 40 of 100" in text and "There was no evaluation" in text
