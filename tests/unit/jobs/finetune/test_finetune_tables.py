"""The tables: weakest label first, whiskers from the counts, and what is not known left out."""

import math
from dataclasses import replace

from qkv.jobs.finetune.facts import CostFacts, LengthBin
from qkv.jobs.finetune.tables import cost_table, label_table, length_table, score_sections
from qkv.report.bilingual import Phrase, phrase
from qkv.report.tables import Bar, BarTable, Label
from qkv.tasks.table import task_words
from qkv.tasks.task import LabelScore, Scored
from tests.support.finetune_runs import COST, classification
from tests.support.finetune_tasks import choice, nothing, regression


def test_the_weakest_label_first_and_the_unjudged_last() -> None:
    labels = (
        LabelScore("good", 1, 1, 1.0, 9, 9),
        LabelScore("unseen", 0, 0, 0, 0, 2),
        LabelScore("poor", 0.5, 0.2, 0.3, 5, 2),
    )
    table = label_table(labels, {"good": 90, "poor": 4}, {"good": 0.41}, task_words("classify", "multi").counts, "test")
    assert [row[0] for row in table.rows] == [Label("poor"), Label("good"), Label("unseen")]
    assert table.rows[0][1] == Bar(0.3, "30\u00a0%") and table.rows[0][4:] == ("5", "2", "4", "–")
    assert table.rows[1][-1] == "0.41" and isinstance(table.rows[2][1], Bar) and math.isnan(table.rows[2][1].share)
    assert len(label_table(labels, {}, {}, task_words("tag", "").counts, "dev").headings) == 6


def test_scores_of_dev_and_test() -> None:
    (table,) = score_sections(classification())
    assert isinstance(table, BarTable) and len(table.headings) == 3
    first = table.rows[0][0]
    assert isinstance(first, Phrase) and first.en == "Accuracy"
    assert list(score_sections(choice())) == [] and list(score_sections(nothing())) == [], (
        "one figure stands at the head already"
    )
    assert "training was stopped" in phrase(table.note).en and "Where nothing was wrong" not in phrase(table.note).en
    perfect = Scored("accuracy", {"accuracy": 1.0, "mcc": 1.0}, {"accuracy": (0.8, 1.0), "mcc": (0.8, 1.0)}, 16)
    (table,) = score_sections(replace(classification(), scored=perfect, strength=0.1))
    assert isinstance(table, BarTable)
    assert "stopped" not in phrase(table.note).en and "Where nothing was wrong" in phrase(table.note).en
    (table,) = score_sections(regression())
    assert isinstance(table, BarTable)
    error = table.rows[2][1]
    assert isinstance(error, Bar) and math.isnan(error.share) and error.text == "0.420"


def test_f1_of_the_second_label() -> None:
    scored = Scored("accuracy", {"accuracy": 0.9, "f1": 0.8}, {}, 10, confusion_labels=("no", "yes"))
    (table,) = score_sections(replace(choice(), task="classify", kind="single", scored=scored))
    assert isinstance(table, BarTable) and table.rows[1][0] == ("F1 of “yes”", "「yes」的 F1")


def test_lengths_have_intervals() -> None:
    table = length_table((LengthBin(3, 16, 10, 9), LengthBin(17, 17, 0, 0), LengthBin(18, 18, 4, 4)))
    assert [row[0] for row in table.rows] == ["3–16", "18"]
    bar = table.rows[0][1]
    assert isinstance(bar, Bar) and bar.interval and bar.interval[0] < 0.9 < bar.interval[1]


def test_what_it_cost() -> None:
    rows = {phrase(row[0]).en: phrase(row[1]) for row in cost_table(COST, "full", 118.9).rows}
    assert rows["Parameters trained"] == ("all 22.7\u00a0M", "全部 2,272\u00a0万") and "All seeds" in rows
    few = replace(COST, trained_parameters=385, seconds_vectors=12.3)
    rows = {phrase(row[0]).en: phrase(row[1]) for row in cost_table(few, "features", 41.0).rows}
    assert rows["Parameters trained"].en.endswith("(0.002\u00a0%)") and "the encoder's one pass" in " ".join(rows)
    assert "All seeds" not in rows
    assert len(cost_table(CostFacts(0.0, None, None, None, 0, 0, ""), "freeze", 0.0).rows) == 1
