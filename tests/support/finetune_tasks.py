"""Facts of every task, and of the odd cases, as a job would put them together: see finetune_runs.py."""

import math
from dataclasses import replace

import numpy as np

from qkv.jobs.finetune.facts import CalibrationFacts, CostFacts, DataFacts, FinetuneFacts, LengthBin, SeedFacts, Shown
from qkv.tasks.task import Judgement, LabelScore, Scored
from tests.support.finetune_runs import (
    COST,
    FAULTS,
    SEEDS,
    calibration_facts,
    classification,
    constant,
    many_labels,
    part_of,
    shown,
)


def multi_label() -> FinetuneFacts:
    labels = ("物流慢", "质量差", "客服好", "price", "packaging")
    per_label = tuple(
        LabelScore(name, 0.9 - 0.1 * i, 0.85 - 0.12 * i, 0.87 - 0.11 * i, 80 - 15 * i, 78 - 16 * i)
        for i, name in enumerate(labels)
    )
    values = {"micro_f1": 0.81, "macro_f1": 0.66, "samples_f1": 0.79, "subset_accuracy": 0.58}
    scored = Scored(
        "micro_f1", values, {name: (value - 0.04, value + 0.04) for name, value in values.items()}, 300, per_label
    )
    calibration = replace(
        calibration_facts(),
        thresholds={"物流慢": 0.42, "质量差": 0.37, "客服好": 0.55, "price": 0.21},
        abstain_below=None,
        answered=None,
    )
    return replace(
        classification(),
        kind="multi",
        main="micro_f1",
        train=part_of("reviews.jsonl", 2400, labels),
        scored=scored,
        test=None,
        test_scored=None,
        calibration=calibration,
        baselines=(constant("每条都答 '物流慢'", 0.34),),
        seeds=SEEDS[:1],
        by_length=(),
    )


def tagging() -> FinetuneFacts:
    labels = ("LOC", "MISC", "ORG", "PER", "地址")
    per_label = tuple(
        LabelScore(name, f1 + 0.01, f1 - 0.01, f1, n, n - 9)
        for name, f1, n in zip(labels, (0.94, 0.71, 0.86, 0.96, 0.52), (412, 120, 300, 390, 12), strict=True)
    )
    values = {"f1": 0.902, "precision": 0.911, "recall": 0.893, "macro_f1": 0.80}
    scored = Scored(
        "f1", values, {name: (value - 0.014, value + 0.013) for name, value in values.items()}, 1000, per_label
    )
    errors = (
        shown(
            "Tom Hanks and Rita met in Paris , Texas on Monday",
            "PER Tom Hanks; PER Rita; LOC Paris; LOC Texas",
            "PER Tom Hanks; PER Rita; LOC Paris , Texas",
            0.96,
            4411,
            file="eng.testa",
        ),
        shown(
            "阿里巴巴总部位于杭州市余杭区。",
            "ORG 阿里巴巴; 地址 杭州市余杭区",
            "ORG 阿里巴巴; LOC 杭州市",
            0.91,
            12,
            file="dev.bmes",
        ),
        shown("Nothing to see here", "", "MISC Nothing", 0.6, 71, file="eng.testa"),
    )
    return replace(
        classification(),
        task="tag",
        kind="crf",
        transfer="top:2",
        main="f1",
        train=part_of("eng.train", 2000, labels),
        dev=part_of("eng.testa", 1000, labels),
        scored=scored,
        test=None,
        test_scored=None,
        baselines=(),
        calibration=calibration_facts("entity"),
        hardest=errors,
        confident_errors=errors[:2],
        seeds=SEEDS[1:2],
        cost=replace(COST, trained_parameters=3_550_000),
    )


CONTEXT = (
    "南京市长江大桥始建于1960年，1968年12月29日全面建成通车，是长江上第一座由中国自行设计和建造的双层式铁路、公路两用桥梁。"
    * 6
)


def answering() -> FinetuneFacts:
    values = {"f1": 0.803, "em": 0.712, "has_answer_f1": 0.77, "has_answer_em": 0.66, "no_answer_accuracy": 0.84}
    scored = Scored("f1", values, {"f1": (0.78, 0.826), "em": (0.683, 0.741)}, 1000)
    errors = (
        shown(
            CONTEXT,
            "1968年12月29日",
            "1960年",
            0.88,
            3,
            pair="南京长江大桥什么时候建成通车？",
            file="cmrc_dev.json",
            windows=2,
        ),
        shown(
            "The Normans were in the north of France.",
            "",
            "the north of France",
            0.74,
            1,
            pair="Where did the Danes settle?",
            file="squad.json",
        ),
    )
    data = DataFacts("cmrc_train.json", 10142, {}, 5_800_000, 1012, 4812, 4, FAULTS[2:], 200, 41)
    return replace(
        classification(),
        task="answer",
        kind="",
        main="f1",
        train=data,
        dev=replace(data, source="cmrc_dev.json", examples=1000, n_dropped=0, n_mended=0, faults=()),
        scored=scored,
        test=None,
        test_scored=None,
        baselines=(constant("no answer to any question", 0.2),),
        calibration=calibration_facts("question"),
        hardest=errors,
        confident_errors=errors[:1],
        seeds=SEEDS[:1],
    )


def choice() -> FinetuneFacts:
    text = "女：你怎么又迟到了？\n男：路上堵车，我也没办法。"
    errors = (shown(text, "因为堵车", "因为睡过头", 0.66, 21, pair="男的为什么迟到？", file="c3.json"),)
    scored = Scored("accuracy", {"accuracy": 0.612}, {"accuracy": (0.57, 0.65)}, 500)
    return replace(
        classification(),
        task="choice",
        kind="",
        main="accuracy",
        transfer="freeze",
        train=replace(part_of("c3-train.json", 3138), labels={}),
        scored=scored,
        test=None,
        test_scored=None,
        baselines=(constant("the longest choice", 0.58),),
        hardest=errors,
        confident_errors=(),
        by_length=(),
        seeds=SEEDS[:1],
        cost=replace(COST, trained_parameters=385),
    )


def regression() -> FinetuneFacts:
    draw = np.random.default_rng(0)
    gold = draw.uniform(0, 5, 1500)
    numbers = np.stack([gold.round(1), np.clip(0.85 * gold + 0.2 + draw.normal(0, 0.45, 1500), 0, 5.2)], 1)
    values = {"pearson": 0.884, "spearman": 0.879, "mean_absolute_error": 0.42, "mean_squared_error": 0.31}
    scored = Scored("pearson", values, {"pearson": (0.872, 0.895), "mean_absolute_error": (0.40, 0.44)}, 1500)
    judged = Judgement("4.8", "1.3", False, math.nan, 3.5)
    hardest = (Shown("stsb.tsv", 12, "A plane is taking off.", "An air plane is taking off.", judged, 18, 1),)
    return replace(
        classification(),
        kind="regression",
        transfer="features",
        main="pearson",
        train=replace(part_of("stsb.tsv", 5749), labels={}),
        scored=scored,
        test=None,
        test_scored=None,
        baselines=(),
        calibration=None,
        hardest=hardest,
        confident_errors=(),
        by_length=(),
        numbers=numbers,
        cost=replace(COST, seconds_vectors=12.3, trained_parameters=385),
    )


def one_example() -> FinetuneFacts:
    part = DataFacts("one.csv", 1, {"a": 1}, 5, 5, 0, 1)
    scored = Scored(
        "accuracy",
        {"accuracy": 1.0, "macro_f1": 1.0},
        {"accuracy": (0.0, 1.0)},
        1,
        (LabelScore("a", 1, 1, 1, 1, 1),),
        np.array([[1]]),
        ("a",),
    )
    calibration = CalibrationFacts("text", 1.0, 0.0, 0.0, ((1.0, 1.0, 1),), ((1.0, 1.0, 1),), ((1.0, 1.0, 1.0),))
    return FinetuneFacts(
        "classify",
        "single",
        "m",
        "full",
        "accuracy",
        part,
        part,
        scored,
        (constant("a", 1.0),),
        (SeedFacts(0, 1.0, 1, 1, 0.1),),
        COST,
        calibration,
        hardest=(shown("x", "a", "a", 1.0, 2),),
        by_length=(LengthBin(5, 5, 1, 1),),
    )


def nothing() -> FinetuneFacts:
    part = DataFacts("", 0, {}, 0, 0, 0, 0)
    return FinetuneFacts(
        "classify",
        "single",
        "",
        "full",
        "accuracy",
        part,
        part,
        Scored("accuracy", {}, {}, 0),
        (),
        (),
        CostFacts(0.0, None, None, None, 0, 0, ""),
    )


EVERY = {
    one.__name__: one
    for one in (classification, many_labels, multi_label, tagging, answering, choice, regression, one_example, nothing)
}
