"""Two languages in one file, numbers as each writes them, and text that stays text."""

import pytest

from qkv.errors import InputError
from qkv.report.bilingual import Phrase, check_page_language, count, duration, join_phrases, percent, safe, size, spans


def test_both_languages_are_there_and_one_is_enough_for_names() -> None:
    both = spans(Phrase("a < b", "甲 < 乙"))
    assert both == '<span class="en" lang="en">a &lt; b</span><span class="zh" lang="zh">甲 &lt; 乙</span>'
    assert spans("42") == "42" and spans("42", "b") == "<b>42</b>"
    assert spans(Phrase("same", "same")) == "same"


@pytest.mark.parametrize("text", ["<script>", "a\"b'c&d", "\x00\x1b[31m", "\ud800", "emoji 👩‍👩‍👧 全角Ａ é"])
def test_any_text_is_safe(text: str) -> None:
    found = safe(text)
    assert not set("<>\"'\x00\x1b") & set(found)
    found.encode("utf-8")
    assert safe("汉字\n\té") == "汉字\n\té"


def test_counts_as_each_language_writes_them() -> None:
    assert count(0) == Phrase("0", "0") and count(99_999).zh == "99,999"
    plain = [part.replace("\u00a0", " ") for part in (*count(412_332), *count(14_301_220), *count(2.5e9))]
    assert plain == ["412 k", "41.2 万", "14.3 M", "1,430 万", "2.50 B", "25.0 亿"]


def test_times_sizes_and_shares() -> None:
    assert [duration(s).en.replace("\u00a0", " ") for s in (0.26, 59.4, 60, 3599.6, 90_000)] == [
        "0.3 s",
        "59.4 s",
        "1 min 0 s",
        "1 h 0 min",
        "25 h 0 min",
    ]
    assert [size(n).replace("\u00a0", " ") for n in (5, 2048, 1.5 * 2**20, 139 * 2**30)] == [
        "5 B",
        "2.00 KiB",
        "1.50 MiB",
        "139 GiB",
    ]
    assert percent(0.5).replace("\u00a0", " ") == "50.0 %"


def test_joined_and_unknown() -> None:
    assert join_phrases([Phrase("a", "甲"), Phrase("b", "乙")], ", ") == Phrase("a, b", "甲, 乙")
    with pytest.raises(InputError, match="Unknown language 'cn'.*Known: en, zh"):
        check_page_language("cn")
