"""A list of sentences."""

from qkv.report.bilingual import Phrase
from qkv.report.page import Notes
from tests.unit.report.test_run_page import NASTY, checked


def test_both_languages_and_text_stays_text() -> None:
    text = Notes("t", (Phrase("said", "说"), NASTY)).html()
    assert "script" not in checked(text).shown and ">said<" in text and ">说<" in text
