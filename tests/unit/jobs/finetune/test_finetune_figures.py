"""Headline figures: what stands at the head of the page, in both languages."""

from collections.abc import Iterable
from dataclasses import replace

from qkv.jobs.finetune.page import headline_figures
from qkv.report.bilingual import phrase
from qkv.report.page import Figure
from tests.support.finetune_runs import classification
from tests.support.finetune_tasks import answering, nothing, one_example, regression


def names(found: Iterable[Figure]) -> list[str]:
    return [phrase(one.label).en.replace("\u00a0", " ") for one in found]


def test_with_a_test_file() -> None:
    facts = classification()
    dev, test, alone, trust = headline_figures(facts)
    assert names((dev, test)) == ["Accuracy (dev)", "Accuracy (test)"]
    assert dev.value == "88.6\u00a0%" and dev.gauge and dev.gauge.interval == facts.scored.intervals["accuracy"]
    assert dev.gauge.marks[0][1] == ("baseline 12\u00a0%", "基线 12\u00a0%")
    assert "229 texts" in phrase(dev.note).en and "229 条文本" in phrase(dev.note).zh
    assert alone.value == "82\u00a0%" and "0.71" in phrase(alone.note).zh and "18\u00a0%" in phrase(alone.note).en
    assert trust.value == "1.8\u00a0%" and trust.gauge and trust.gauge.marks[0][0] == 0.062


def test_without_a_test_file_another_metric_stands_beside() -> None:
    assert names(headline_figures(replace(classification(), test_scored=None)))[:2] == [
        "Accuracy (dev)",
        "Macro F1 (dev)",
    ]
    f1, em, *_ = headline_figures(answering())
    assert "words" in phrase(f1.note).en and phrase(em.label).zh == "完全匹配（验证集）"


def test_numbers_have_no_probabilities() -> None:
    assert names(headline_figures(regression())) == [
        "Pearson correlation (dev)",
        "Spearman correlation (dev)",
        "Mean absolute error (dev)",
    ]


def test_no_threshold_and_few_answers() -> None:
    calibration = classification().calibration
    assert calibration
    none = replace(calibration, abstain_below=None, answered=None)
    shown = list(headline_figures(replace(classification(), calibration=none)))[2]
    assert shown.value == "0\u00a0%" and "No threshold reaches 95\u00a0%" in phrase(shown.note).en
    assert "1 answer is too few" in phrase(list(headline_figures(one_example()))[2].note).en
    bins = tuple((sure, right, 2) for sure, right, _ in calibration.after)
    few = replace(calibration, before=bins, after=bins)
    shown = list(headline_figures(replace(classification(), calibration=few)))[3]
    assert shown.value == "–" and "not to be seen from" in phrase(shown.note).en, "no error to three digits"


def test_nothing_known() -> None:
    assert list(headline_figures(nothing())) == []
