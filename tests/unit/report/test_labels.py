"""Widths and spellings of labels."""

from qkv.report.charts import format_share, printable, shorten, text_width


def test_wide_characters_take_an_em_and_marks_none() -> None:
    assert text_width("汉字", 10) == 20
    assert text_width("Ａ", 10) == 10
    assert text_width("e\u0301", 10) == text_width("e", 10)
    assert text_width("a\u200bb", 10) == text_width("ab", 10)
    assert text_width("il", 10) < text_width("mw", 10)
    assert text_width("", 10) == 0


def test_shorten_marks_what_it_cut() -> None:
    assert shorten("汉字", 10, 20) == "汉字"
    assert shorten("汉字汉字", 10, 30) == "汉字…"
    assert shorten("汉字", 10, 1) == "…"


def test_what_cannot_be_seen_is_made_visible() -> None:
    assert printable("a\tb\u3000\x00\ud800") == "a␣b␣��"
    assert printable("") == "∅"


def test_percent() -> None:
    assert (format_share(0.647), format_share(1.0), format_share(0.0)) == ("65%", "100%", "0%")
