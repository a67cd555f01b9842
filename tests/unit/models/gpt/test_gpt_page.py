import json
import math
from pathlib import Path
from typing import Any

import pytest

from qkv.models.gpt.pretrain import gpt_page
from qkv.report.page import render_page
from qkv.report.run_log import LanguageModelFacts

FACTS = LanguageModelFacts("gpt", 8000, 6.4, 100, 5, 2000, 50_000, 3_000_000, 90.0, 500_000_000, resumed_from=(40,))


def write_run(run: Path, samples: Any = None) -> Path:
    lines: list[dict[str, Any]] = []
    for step in range(10, 101, 10):
        loss = 5 + 3 * math.exp(-step / 40)
        lines.append({"step": step, "loss": loss, "next_loss": loss, "next_accuracy": 0.1, "lr": 1e-3, "tokens": 1000})
        if step % 50 == 0:
            written = [{"prompt": "", "text": f"从零 {step}"}, {"prompt": "To be", "text": f" <b>{step}</b>\nor not"}]
            figures: dict[str, Any] = {"next_loss": loss + 0.1, "bits_per_character": 2.345}
            figures["samples"] = written if samples is None else samples
            lines.append({"step": step, "evaluation": figures})
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (run / "timing.jsonl").write_text(json.dumps({"step": 10, "seconds": 1.0, "tokens_per_second": 1000.0}) + "\n")
    (run / "config.toml").write_text("rows = 4\n[train]\nsteps = 100\n")
    return run


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_what_it_writes_stands_in_the_order_of_time(tmp_path: Path, lang: str) -> None:
    page = gpt_page(write_run(tmp_path), FACTS)
    text = render_page(page, lang)
    assert "GPT：从左到右的 Transformer" in text and "GPT, a left-to-right Transformer" in text
    assert page.figures[-1].value == "2.345" and "每字符比特数" in text and not page.notices
    assert text.index("从零 50") < text.index("从零 100") < text.index("&lt;b&gt;50&lt;/b&gt;\nor not")
    assert text.count('<span class="prompt">To be</span>') == 2 and "<b>50" not in text
    assert text.index("从零 50") < text.index("Loss of the next token")


@pytest.mark.parametrize("samples", [[], "damaged", [{"prompt": "only"}, 3]])
def test_samples_that_are_missing_or_damaged(tmp_path: Path, samples: Any) -> None:
    assert "What it writes" not in render_page(gpt_page(write_run(tmp_path, samples), FACTS))


def test_a_run_that_has_hardly_begun(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("rows = 4\n")
    assert "No step was logged yet" in render_page(gpt_page(tmp_path, LanguageModelFacts("gpt", 100)))
