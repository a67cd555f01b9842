"""Fine-tuning runs and facts that look like real ones, for tests of reports: every task, and the odd cases."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.data.labelled.examples import Fault, Place
from qkv.jobs.finetune.facts import CalibrationFacts, CostFacts, DataFacts, FinetuneFacts, LengthBin, SeedFacts, Shown
from qkv.report.bilingual import phrase
from qkv.tasks.baselines import BaselineScore
from qkv.tasks.task import Judgement, LabelScore, Scored

INTENTS = "退款 查物流 cancel_order change_address 发票 track_parcel 投诉 wrong_item 优惠券 account_login".split()
CONFIG = """task = "classify"
model = "sentence-transformers/all-MiniLM-L6-v2"
transfer = "full"

[train]
lr = 5e-5
epochs = 10
tokens_per_batch = 2048
seeds = 3

[classify]
overlap = 64
class_weights = "auto"
"""
SEEDS = (
    SeedFacts(0, 0.873, 480, 640, 41.2, "seed-0"),
    SeedFacts(1, 0.886, 560, 640, 40.8, "seed-1"),
    SeedFacts(2, 0.869, 400, 560, 36.9, "seed-2"),
)
COST = CostFacts(41.0, None, 18_420.0, 1_240_000_000, 22_720_000, 22_720_000, "2 CPU threads")


def make_run(run: Path, main: str = "accuracy", seeds: tuple[SeedFacts, ...] = SEEDS) -> Path:
    """A folder with its settings, and a log for every seed."""
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.toml").write_text(CONFIG, encoding="utf-8")
    for seed in seeds:
        folder = run / seed.folder
        folder.mkdir(exist_ok=True)
        draw, lines = random.Random(seed.seed), list[dict[str, Any]]()
        for step in range(10, seed.steps + 1, 10):
            share = step / seed.steps
            loss = 2.3 * math.exp(-4 * share) + 0.08 + abs(draw.gauss(0, 0.05))
            lines.append({"step": step, "loss": loss, "lr": 5e-5 * min(1, 10 * share) * (1.1 - share), "tokens": 2048})
            if step % 80 == 0:
                gone = abs(step - seed.best_step) / seed.steps
                score = seed.score - 0.5 * gone**2 * (2.2 if step < seed.best_step else 0.4)
                lines.append({"step": step, "evaluation": {"loss": 0.35 + 1.8 * math.exp(-5 * share), main: score}})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "log.jsonl").write_text(text, encoding="utf-8")
    return run


def scored_of(counts: NDArray[np.int64], labels: tuple[str, ...], main: str = "accuracy") -> Scored:
    """The figures that belong to a confusion matrix."""
    right, expected, answered = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    precision = right / np.maximum(answered, 1)
    recall = right / np.maximum(expected, 1)
    f1 = 2 * right / np.maximum(answered + expected, 1)
    n = int(counts.sum())
    accuracy = float(right.sum() / n)
    values = {
        "accuracy": accuracy,
        "macro_f1": float(f1.mean()),
        "weighted_f1": accuracy - 0.002,
        "mcc": accuracy - 0.01,
    }
    half = 1.96 * math.sqrt(accuracy * (1 - accuracy) / n)
    return Scored(
        main,
        values,
        {name: (value - half, min(1.0, value + half)) for name, value in values.items()},
        n,
        tuple(
            LabelScore(label, float(precision[i]), float(recall[i]), float(f1[i]), int(expected[i]), int(answered[i]))
            for i, label in enumerate(labels)
        ),
        counts,
        labels,
    )


def confusion_of(n: int, each: int = 24, seed: int = 0) -> NDArray[np.int64]:
    """Mostly right, with pairs that are taken for each other and one label that is never given."""
    draw = np.random.default_rng(seed)
    counts = np.diag(draw.integers(each - 6, each + 1, n)).astype(np.int64)
    for _ in range(2 * n):
        row, column = draw.integers(0, n, 2)
        counts[row, column] += 1
    if n > 3:
        counts[0, 2] += 5
        counts[2, 0] += 3
    return counts


def calibration_facts(unit: str = "text", seed: int = 0) -> CalibrationFacts:
    draw = random.Random(seed)
    middles = [(i + 0.5) / 10 for i in range(3, 10)]
    before = tuple((m, max(0.1, m - 0.02 - 0.07 * m**2 + draw.gauss(0, 0.03)), int(8 + 300 * m**6)) for m in middles)
    after = tuple((m, min(1.0, max(0.1, m + draw.gauss(0, 0.025))), int(10 + 160 * m**3)) for m in middles)
    shares = [1 - i / 60 for i in range(59)]
    coverage = tuple((0.3 + 0.69 * (1 - s) ** 0.5, s, 0.995 - 0.075 * s**2.5) for s in shares)
    return CalibrationFacts(unit, 1.62, 0.062, 0.018, before, after, coverage, 0.95, 0.71, 0.82)


LONG = "我上周三在你们店里买了一双鞋，" * 40 + "到现在还没有发货，请问什么时候能退款？"


def shown(text: str, expected: str, answered: str, sure: float, line: int, **more: Any) -> Shown:
    right = expected == answered
    judgement = Judgement(expected, answered, right, sure, -math.log(sure if right else max(1e-4, 1 - sure)))
    return Shown(
        more.get("file", "dev.csv"), line, text, more.get("pair"), judgement, len(text), more.get("windows", 1)
    )


ERRORS = (
    shown("快递三天没动了，钱能退给我吗", "退款", "查物流", 0.97, 14),
    shown(
        "I never got the blue one, you sent me a red <b>jacket</b> & no note", "wrong_item", "track_parcel", 0.94, 88
    ),
    shown(LONG, "退款", "投诉", 0.92, 131, windows=3),
    shown("Please stop the order, wrong street!", "change_address", "cancel_order", 0.88, 202),
    shown("发票抬头写错了，我要投诉", "发票", "投诉", 0.83, 240),
    shown("can't log in to get my coupon", "优惠券", "account_login", 0.81, 17),
)


def part_of(source: str, n: int, labels: tuple[str, ...] = tuple(INTENTS), **more: Any) -> DataFacts:
    counts = {label: max(1, round(1.6 * n / len(labels) * 0.8**i)) for i, label in enumerate(labels)}
    return DataFacts(
        source, n, counts, n * 19, more.pop("longest", 212), more.pop("windowed", 0), **{"most_windows": 1, **more}
    )


FAULTS = (
    Fault(Place("intents.csv", 77), "empty text", "The text is empty.", "dropped"),
    Fault(Place("intents.csv", 301), "no label", "Label '-': no label was agreed on.", "dropped"),
    Fault(Place("intents.csv", 402), "span", "“北京市” stands at 12, not at 11.", "mended"),
)


def constant(label: str, value: float) -> BaselineScore:
    return BaselineScore("constant", phrase(label), value)


def classification() -> FinetuneFacts:
    labels = tuple(INTENTS)
    counts = confusion_of(10)
    test = confusion_of(10, 40, seed=5)
    return FinetuneFacts(
        "classify",
        "single",
        "all-MiniLM-L6-v2",
        "full",
        "accuracy",
        part_of("intents.csv", 480, windowed=7, most_windows=3, longest=940, faults=FAULTS, n_dropped=2, n_mended=1),
        part_of("held out of intents.csv", int(counts.sum())),
        scored_of(counts, labels),
        (constant("退款", 0.118),),
        SEEDS,
        COST,
        calibration_facts(),
        part_of("test.csv", int(test.sum())),
        scored_of(test, labels),
        (*ERRORS[:2], shown("发票什么时候开", "发票", "发票", 0.31, 9), shown("物流", "查物流", "投诉", 0.4, 33)),
        ERRORS,
        (LengthBin(3, 16, 90, 86), LengthBin(17, 32, 80, 76), LengthBin(33, 64, 40, 36), LengthBin(65, 940, 26, 13)),
        notes=(
            "No dev file was given: 240 of 720 texts were held out, stratified by label.",
            "Class weights: 0.62 to 3.10, by how rare a label is.",
        ),
    )


def many_labels(n: int = 60) -> FinetuneFacts:
    labels = tuple(f"{INTENTS[i % 10]}/{i // 10:02d}" for i in range(n))
    scored = scored_of(confusion_of(n, 12), labels)
    return replace(
        classification(), scored=scored, train=part_of("many.csv", 9000, labels), test=None, test_scored=None
    )
