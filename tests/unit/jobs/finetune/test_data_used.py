"""The data as it was used: nothing that was dropped goes unnamed or uncounted."""

from dataclasses import replace

from qkv.data.labelled.examples import Fault, Place
from qkv.jobs.finetune.tables import DataUsed
from tests.support.finetune_runs import FAULTS, part_of
from tests.unit.report.test_run_page import NASTY, checked

TRAIN = part_of("intents.csv", 480, windowed=7, most_windows=3, longest=940, faults=FAULTS, n_dropped=2, n_mended=1)


def test_figures_and_faults_by_line() -> None:
    text = DataUsed("t", (("train", TRAIN), ("dev", part_of("dev.csv", 120)))).html()
    checked(text)
    for words in (
        "480",
        "940",
        "7 (1.5\u00a0%)",
        "intents.csv:77",
        "left out",
        "略去",
        "repaired",
        "at most 3",
        "最多 3 个",
    ):
        assert words in text, words
    assert "not listed" not in text


def test_what_is_not_listed_is_counted() -> None:
    many = tuple(Fault(Place("a.csv", line), "empty", "The text is empty.", "dropped") for line in range(30))
    text = DataUsed("t", (("train", replace(TRAIN, faults=many, n_dropped=200, n_mended=0)),)).html()
    assert "170 further ones" in text and "18 more" in text and text.count("<li>") == 30


def test_nothing_to_tell() -> None:
    text = DataUsed("t", (("dev", part_of("", 10)),)).html()
    assert "No text exceeds" in text and "faults" not in text


def test_text_stays_text() -> None:
    fault = Fault(Place(NASTY, 3), NASTY, NASTY, NASTY)
    text = DataUsed("t", (("train", replace(TRAIN, source=NASTY, faults=(fault,))),)).html()
    assert "script" not in checked(text).shown
