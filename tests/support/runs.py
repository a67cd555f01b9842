"""A run folder that looks like a real one, for tests of reports."""

import json
import math
import random
from pathlib import Path
from typing import Any

from qkv.models.bert.page import PretrainingFacts

CONFIG = """rows = 32

[train]
steps = 2000
lr = 0.0005
clip = 1.0

[masking]
treatment = [0.8, 0.1, 0.1]
"""
FACTS = PretrainingFacts(
    vocabulary_size=8000,
    unigram_entropy=6.42,
    vocabulary_seen=7612,
    documents=18_204,
    sentences=412_332,
    tokens=14_301_220,
    parameters=11_170_000,
    languages={"zh": 0.55, "en": 0.45},
    seconds=1320.0,
    peak_memory=1_420_000_000,
    resumed_from=(700,),
    held_out_documents=91,
)
BLANKS = (("巴黎是[MASK]国的首都。", "法"), ("The <b>animal</b> crossed the [MASK].", "street"))


def make_run(run: Path, steps: int = 2000, spike: int | None = 1310, pairs: bool = True) -> Path:
    """Losses that fall from ln V to 3.4, next sentences that get above chance, one gradient spike."""
    run.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    log, timing = [], []
    for step in range(10, steps + 1, 10):
        share = step / 2000
        level = 3.4 + 5.6 * math.exp(-4 * share)
        line: dict[str, Any] = {"step": step, "loss": level + 0.6, "masked_loss": level + draw.gauss(0, 0.05)}
        line["masked_accuracy"] = 0.46 * share
        if pairs:
            line |= {"next_sentence_loss": 0.6, "next_sentence_accuracy": 0.5 + 0.3 * share}
        norm = 2.0 * math.exp(draw.gauss(0, 0.1)) * (10 if step == spike else 1)
        log.append(line | {"gradient_norm": norm, "tokens": 4096, "lr": 5e-4 * (1 - share)})
        timing.append(
            {
                "step": step,
                "seconds": 1.5,
                "tokens_per_second": 2730.7,
                "waited_for_batches": 0.011,
                "building_batches": 0.03,
                "share_of_peak": 0.41,
            }
        )
        if step % 250 == 0:
            log.append({"step": step, "evaluation": evaluation(level + 0.05, share, pairs)})
    for name, lines in (("log.jsonl", log), ("timing.jsonl", timing)):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (run / name).write_text(text, encoding="utf-8")
    (run / "config.toml").write_text(CONFIG, encoding="utf-8")
    return run


def evaluation(loss: float, share: float, pairs: bool) -> dict[str, Any]:
    found = {
        "masked_loss": loss,
        "masked_accuracy": 0.4 * share,
        "masked_perplexity": math.exp(loss),
        "masked_count": 10_000,
        "samples": [
            {"text": text, "answer": answer, "candidates": [["的", 0.3], [answer, 0.6 * share], ["<i>", 0.01]]}
            for text, answer in BLANKS
        ],
    }
    right = round(1000 * (0.5 + 0.3 * share))
    if pairs:
        found |= {"next_sentence_accuracy": right / 1000, "next_sentence_correct": right, "next_sentence_count": 1000}
    return found
