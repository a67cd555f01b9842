"""The page of a pretraining run: its figures come from its files, and a killed run has a page too."""

import json
import math
from pathlib import Path

import pytest

from qkv.models.bert.page import PretrainingFacts, pretraining_page
from qkv.report.bilingual import Words, phrase
from qkv.report.page import Charts, Remarks, RunPage, Samples, Settings, Table, render_page
from tests.support.runs import CONFIG, FACTS, make_run


def said(words: Words) -> str:
    both = phrase(words)
    return f"{both.en} {both.zh}".replace("\u00a0", " ")


def remarks_of(page: RunPage) -> str:
    (found,) = (section for section in page.sections if isinstance(section, Remarks))
    return " ".join(said(remark.text) for remark in found.remarks)


def table_of(page: RunPage, name: str) -> dict[str, str]:
    (found,) = (one for one in page.sections if isinstance(one, Table) and phrase(one.title).en == name)
    return {phrase(row[0]).en: said(row[1]) for row in found.rows}


def test_a_whole_run(tmp_path: Path) -> None:
    page = pretraining_page(make_run(tmp_path / "my run"), FACTS)
    assert page.title == "my run" and page.notices == ()
    assert "11.2 M parameters 1,117 万个参数" in [said(fact) for fact in page.facts]
    loss, filled, unsure, following = page.figures
    last = 3.4 + 5.6 * math.exp(-4) + 0.05
    assert said(loss.value).startswith(f"{last:.3f}") and loss.gauge and len(loss.gauge.marks) == 2
    assert said(filled.value).startswith("40.0 %") and "39.0 % to 41.0 %" in said(filled.note)
    assert said(unsure.value).startswith(f"{math.exp(last):,.1f}")
    assert said(following.value).startswith("80.0 %") and "77.4 % to 82.4 %" in said(following.note)
    assert [type(section) for section in page.sections] == [Remarks, Charts, Samples, Table, Table, Settings]
    words = remarks_of(page)
    for figure in (f"{last:.2f}", "6.42", "8.99", "80.0 %", "1,310", "4.9 %", "388"):
        assert figure in words
    assert "waited" not in words, "1.1 % is little"
    speed = table_of(page, "Performance")
    assert speed["Real tokens per second (median)"].startswith("2,731")
    assert speed["Time in training steps"].startswith("5 min 0 s") and speed["Peak memory"].startswith("1.32 GiB")
    assert speed["Tokens trained on"].startswith("819 k")
    corpus = table_of(page, "Corpus")
    assert corpus["Vocabulary that occurs in it"].startswith("7,612 of 8,000 (95.2 %)")
    assert "中文 55 %" in corpus["Languages"] and corpus["of which held out for evaluation"].startswith("91")
    assert page.sections[-1] == Settings(page.sections[-1].title, CONFIG)
    for lang in ("en", "zh"):
        render_page(page, lang)


def test_killed_before_the_first_logged_step(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").touch()
    page = pretraining_page(tmp_path, PretrainingFacts(100))
    assert any("No step was logged" in said(notice) for notice in page.notices)
    assert page.figures == () and page.sections == ()
    assert "尚未记录任何训练步" in render_page(page, "zh")


def test_stopped_half_way_without_evaluation(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=200, pairs=False)
    (run / "timing.jsonl").unlink()
    page = pretraining_page(run, PretrainingFacts(8000, unigram_entropy=6.42))
    words = " ".join(map(said, page.notices))
    assert "step 200 of 2,000" in words and "timing.jsonl is missing" in words and "no evaluation" in words
    assert [phrase(figure.label).en for figure in page.figures] == [
        "Masked language model loss",
        "Masked words filled correctly",
        "Perplexity",
    ]
    assert "Next sentence" not in remarks_of(page)
    render_page(page)


def test_a_loss_that_is_no_number(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with (run / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"step": 2010, "masked_loss": NaN, "masked_accuracy": NaN, "gradient_norm": Infinity}\n')
        log.write('{"step": 2020, "evaluation": {"masked_loss": NaN, "masked_accuracy": null, "samples": "?"}}\n')
    page = pretraining_page(run, FACTS)
    assert "not a number at 1 logged step, first at step 2,010" in " ".join(map(said, page.notices))
    text = render_page(page)
    assert "NaN" not in text and ">nan<" not in text.lower()


def test_waiting_is_remarked(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    line = json.dumps({"step": 10, "seconds": 2, "tokens_per_second": 1, "waited_for_batches": 0.25})
    (run / "timing.jsonl").write_text(line + "\n")
    assert "25.0 % of the time" in remarks_of(pretraining_page(run, FACTS))


@pytest.mark.parametrize("right", [-1, 2000, "many", None, 1.5])
def test_counts_that_do_not_fit(tmp_path: Path, right: object) -> None:
    found = {"masked_loss": 4.0, "next_sentence_correct": right, "next_sentence_count": 1000, "masked_count": -3}
    lines = [{"step": 10, "masked_loss": 4.1}, {"step": 10, "evaluation": found | {"masked_accuracy": 7.0}}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = pretraining_page(tmp_path, PretrainingFacts(1))
    assert "Next sentence recognised" not in [phrase(figure.label).en for figure in page.figures]
    render_page(page)
