"""Two languages in one page: phrases, number formats, and escaping for HTML.

A page contains both languages and shows one, so the same file serves readers of both.
"""

import math
from html import escape
from typing import NamedTuple
from unicodedata import category

from qkv.errors import InputError, did_you_mean

_LANGUAGES = ("en", "zh")
SPACE = "\u00a0"  # between a number and its unit


class Phrase(NamedTuple):
    """The same text in English and Chinese."""

    en: str
    zh: str


Words = Phrase | str
"""A phrase, or a text that is the same in both languages: a name, a number, a user's sentence."""


def check_page_language(lang: str) -> None:
    if lang not in _LANGUAGES:
        raise InputError(f"Unknown language '{lang}'.{did_you_mean(lang, _LANGUAGES)} Known: {', '.join(_LANGUAGES)}.")


def phrase(words: Words) -> Phrase:
    return words if isinstance(words, Phrase) else Phrase(words, words)


def join_phrases(parts: "list[Phrase]", separator: str = " · ") -> Phrase:
    return Phrase(separator.join(part.en for part in parts), separator.join(part.zh for part in parts))


def safe(text: str) -> str:
    """Escape for HTML; control characters and lone surrogates become U+FFFD."""
    shown = "".join(c if c in "\n\t" or category(c) not in ("Cc", "Cs") else "\ufffd" for c in text)
    return escape(shown, quote=True)


def spans(words: Words, tag: str = "span", attributes: str = "") -> str:
    """Return both languages as elements, of which the page hides one; `attributes` must not contain user text."""
    both = phrase(words)
    space = " " if attributes else ""
    if both.en == both.zh:
        return f"<{tag}{space}{attributes}>{safe(both.en)}</{tag}>" if attributes or tag != "span" else safe(both.en)
    return "".join(
        f'<{tag} class="{lang}" lang="{lang}"{space}{attributes}>{safe(getattr(both, lang))}</{tag}>'
        for lang in _LANGUAGES
    )


def count(number: float) -> Phrase:
    """
    >>> count(12345), count(11_700_000)
    (Phrase(en='12,345', zh='12,345'), Phrase(en='11.7\\xa0M', zh='1,170\\xa0万'))
    """
    if abs(number) < 100_000:
        return phrase(f"{round(number):,}")
    units = ((1e9, "B"), (1e6, "M"), (1e3, "k"))
    unit, letter = next((unit, letter) for unit, letter in units if abs(number) >= unit)
    unit_zh, character = (1e8, "亿") if abs(number) >= 1e8 else (1e4, "万")
    return Phrase(f"{_three(number / unit)}{SPACE}{letter}", f"{_three(number / unit_zh)}{SPACE}{character}")


def parameter_count(number: int) -> Phrase:
    """
    >>> parameter_count(11_700_000)
    Phrase(en='11.7\\xa0M parameters', zh='1,170\\xa0万个参数')
    """
    n = count(number)
    return Phrase(f"{n.en} parameters", f"{n.zh}{'' if n.zh[-1] in '万亿' else ' '}个参数")


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}{SPACE}%"


def duration(seconds: float) -> Phrase:
    """
    >>> duration(3725.0).zh.replace(SPACE, " ")
    '1 小时 2 分'
    """
    whole = round(seconds)
    if whole < 60:
        return Phrase(f"{seconds:.1f}{SPACE}s", f"{seconds:.1f}{SPACE}秒")
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    if hours:
        return Phrase(f"{hours}{SPACE}h {minute}{SPACE}min", f"{hours}{SPACE}小时 {minute}{SPACE}分")
    return Phrase(f"{minute}{SPACE}min {second}{SPACE}s", f"{minute}{SPACE}分 {second}{SPACE}秒")


def size(number_of_bytes: float) -> str:
    """
    >>> size(3 * 2**30).replace(SPACE, " ")
    '3.00 GiB'
    """
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number_of_bytes >= unit:
            return f"{_three(number_of_bytes / unit)}{SPACE}{name}"
    return f"{number_of_bytes:.0f}{SPACE}B"


def _three(number: float) -> str:
    """Format with three significant digits, or all digits before the point."""
    if not math.isfinite(number):
        return str(number)
    digits = max(0, 2 - math.floor(math.log10(abs(number)))) if number else 0
    return f"{number:,.{digits}f}"
