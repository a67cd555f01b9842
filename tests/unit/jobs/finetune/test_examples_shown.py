"""Examples shown: the file and line, what was expected, and no text that can break out or flood the page."""

import math

from qkv.jobs.finetune.facts import Shown
from qkv.jobs.finetune.tables import LENGTH, ExamplesShown, excerpt
from qkv.tasks.table import _TASKS, task_words
from qkv.tasks.task import Judgement
from tests.support.finetune_runs import ERRORS, shown
from tests.unit.report.test_run_page import NASTY, checked


def page(*examples: Shown, task: str = "classify", kind: str = "single") -> str:
    text = ExamplesShown("t", examples, task_words(task, kind)).html()
    checked(text)
    return text


def test_a_long_text_is_cut_and_says_so() -> None:
    text = page(shown("ab " * 50_000, "a", "b", 0.9, 3, windows=400))
    assert len(text) < 2000 and "150,000 characters, shown in part" in text and "in 400 windows" in text
    assert len(excerpt("汉" * 1000)[0]) < 0.6 * LENGTH, "汉字 say more"
    assert excerpt("short") == ("short", False)


def test_a_long_text_is_shown_around_its_answer() -> None:
    text = page(
        shown("x" * 3000 + " in 1968 " + "y" * 3000, "1968 / in 1968", "1960", 0.9, 3, pair="when?"), task="answer"
    )
    assert '<mark class="wanted">in 1968</mark>' in text and "… x" in text and "y …" in text
    assert text.index("when?") < text.index("1968"), "the question comes first"


def test_overlapping_answers_are_marked_once() -> None:
    text = page(shown("the north of France", "north", "the north of France", 0.9, 3), task="answer")
    assert text.count("<mark") == 1


def test_entities_that_both_have_are_quiet() -> None:
    text = page(shown("Tom in Paris", "PER Tom; LOC Paris", "PER Tom; ORG Paris", 0.9, 3), task="tag")
    assert text.count("chip both") == 2 and 'chip missed">LOC Paris' in text and 'chip wrong">ORG Paris' in text


def test_nothing_is_said_in_words() -> None:
    assert "no span" in page(shown("x", "–", "PER x", 0.9, 3), task="tag")
    assert "无答案" in page(shown("x", "∅", "x", 0.9, 3), task="answer")
    assert "no label" in page(shown("x", "a, b", "–", 0.9, 3), kind="multi")


def test_places_and_confidence() -> None:
    assert (
        "dev.csv:14" in page(ERRORS[0])
        and "97\u00a0% sure" in page(ERRORS[0])
        and "置信度 97\u00a0%" in page(ERRORS[0])
    )
    nowhere = Shown("", 0, " ", None, Judgement("4.8", "1.2", False, math.nan, 3.6), 2, 1)
    assert (
        "not from a file" in page(nowhere)
        and "sure" not in page(nowhere).split("class=")[-2]
        and "(empty)" in page(nowhere)
    )


def test_many_are_folded() -> None:
    text = ExamplesShown("t", ERRORS * 4, task_words("classify", "single"), note="n", shown=8).html()
    assert text.count('class="case"') == 24 and "16 more" in text
    assert "<details" not in ExamplesShown("t", ERRORS, task_words("classify", "single")).html()


def test_text_stays_text() -> None:
    for task, kind in _TASKS:
        found = checked(page(shown(NASTY, NASTY, "b", 0.9, 3, pair=NASTY, file=NASTY), task=task, kind=kind))
        assert "script" not in found.shown
