"""Names in both languages: every metric of the scorers has one, and a new one is plain rather than wrong."""

import math

import pytest

from qkv.metrics.classes import MULTI_LABEL_FIGURES
from qkv.tasks.table import ERROR, METRICS, find_metric, task_words, transfer_words


@pytest.mark.parametrize("name", [*METRICS, *MULTI_LABEL_FIGURES, "has_answer_f1", "no_answer_em"])
def test_every_metric_has_a_chinese_name(name: str) -> None:
    found = find_metric(name)
    assert found.name.en[0].isupper() and found.name.en.isascii()
    assert found.name.zh == "F1" or any("\u4e00" <= c <= "\u9fff" for c in found.name.zh)


def test_values_as_they_are_written() -> None:
    assert find_metric("accuracy").shown(0.9234) == "92.3\u00a0%" and find_metric("pearson").shown(0.5) == "0.500"
    assert find_metric("mean_squared_error").shown(12345.6) == "12,346" and find_metric("f1").shown(math.nan) == "–"
    assert find_metric("accuracy").change(0.05).zh == "5.0 个百分点" and find_metric("mcc").change(-0.05).en == "0.050"


def test_what_is_not_in_the_table_keeps_its_name() -> None:
    assert find_metric("top_5").name == ("top 5", "top 5") and find_metric("strange_error").kind == ERROR
    assert task_words("translate", "").of(3) == ("3 examples", "3 条样本")
    assert transfer_words("half") == ("half", "half") and "最后 1 层" in transfer_words("top:1").zh


def test_kinds_share_a_task() -> None:
    assert task_words("tag", "crf") == task_words("tag", "bio") == task_words("tag", "")
    assert task_words("classify", "multi") != task_words("classify", "single")
