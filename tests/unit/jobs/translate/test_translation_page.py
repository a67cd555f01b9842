"""The page of a translation run: figures with their signature, both languages, what users wrote as text alone."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qkv.jobs.translate.page import TranslationFacts, translation_page
from qkv.metrics.translation import TranslationScore as Score
from qkv.report.page import render_page
from qkv.tasks.translate import LengthScore, TranslationScore

SCORE = TranslationScore(
    1000,
    0.125,
    Score("BLEU", 36.54, "nrefs:1|tok:13a", 35.0, 38.0),
    Score("chrF2", 55.5, "nrefs:1|nc:6"),
    (LengthScore(1, 5, 400, 40.0), LengthScore(6, 10, 600, 30.0)),
)
FACTS = TranslationFacts(
    *("transformer", "de", "en", (8000,), (29_000, 1014, 1000), 3),
    target_tokens=400_000,
    parameters=9_000_000,
    seconds=90.0,
    peak_memory=10**9,
    resumed_from=(40,),
    judged="test",
    score=SCORE,
    weights="the mean of 5 checkpoints",
)


def write_run(run: Path, steps: int = 100) -> Path:
    lines: list[dict[str, Any]] = []
    for step in range(10, steps + 1, 10):
        lines.append({"step": step, "loss": 5 - step / 40, "plain_loss": 4.5 - step / 40, "plain_accuracy": 0.4})
        lines[-1] |= {"lr": 1e-3, "gradient_norm": 0.5, "tokens": 4000}
        if step % 50 == 0:
            sample = {"source": "<b>Ein Mann</b>", "reference": "A man", "translation": f"A man at {step}"}
            figures = {"next_loss": 2.5, "next_accuracy": 0.5, "bleu": 30.0, "exact": 0.1, "samples": [sample]}
            lines.append({"step": step, "evaluation": figures})
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "timing.jsonl").write_text(json.dumps({"step": 10, "seconds": 1.0, "tokens_per_second": 1000.0}) + "\n")
    (run / "config.toml").write_text('model_type = "transformer"\n[train]\nsteps = 100\n')
    return run


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_figures_come_with_their_signature(tmp_path: Path, lang: str) -> None:
    page = translation_page(write_run(tmp_path), FACTS)
    text = render_page(page, lang)
    assert page.figures[0].value == "36.5" and "nrefs:1|tok:13a" in text and not page.notices
    for words in (
        "de → en",
        "Translation report",
        "翻译训练报告",
        "BLEU 与原文长度",
        "the mean of 5 checkpoints",
        "12.2",
    ):
        assert words in text, words
    assert "A man at 50" in text and "A man at 100" in text
    assert "&lt;b&gt;Ein Mann" in text and "<b>Ein Mann" not in text


def test_without_scores_and_not_finished(tmp_path: Path) -> None:
    page = translation_page(write_run(tmp_path, 40), replace(FACTS, score=None))
    assert "stopped at step 40 of 100" in render_page(page)
    unknown = replace(FACTS, score=TranslationScore(10, 0.5, unfinished=2))
    text = render_page(translation_page(tmp_path, unknown))
    assert "sacrebleu is not installed" in text and "2 translations are unfinished" in text


def test_a_run_that_has_hardly_begun(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    facts = TranslationFacts("seq2seq", "und", "und", (10, 12))
    assert "No step was logged yet" in render_page(translation_page(tmp_path, facts))
