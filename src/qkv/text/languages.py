"""Languages: shares of a text by its letters, and validation of language codes (ISO 639).

Letters are counted as zh (汉字), en (a to z) and other. Punctuation, digits and spaces are ignored. Japanese counts as
both zh (kanji) and other (kana).

A code names the languages of a model, and the code of the target decides how BLEU splits a translation into words
(metrics/translation.py: Chinese, Japanese and Korean have their own rules). With cn instead of zh, Chinese would be
split at spaces: a wrong score that looks right. So common mistakes are rejected (cn, english, 中文), and where the
mistake is a valid code too (kr is Kanuri), the letters of the texts decide.

The two-letter codes are listed here, although the package langcodes has them (a test compares the two): training must
run without it. It would also find few mistakes, since it accepts half of the 17,576 three-letter combinations, names
need another 13 MB (language_data), and it knows neither countries (cn, chn) nor the letters of a text.

What this file does NOT do: list the seven thousand three-letter codes; all of them are accepted.
"""

import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from qkv.errors import InputError
from qkv.text.wordpiece import CHINESE

COUNTED_LANGUAGES = ("zh", "en", "other")
NEW, NO_LETTER = 0, 4  # 1 to 3 are the languages

_chinese = re.compile(f"[{CHINESE}]")


class Letters:
    """Counts letters by language, with a cache of the language of each code point.

    >>> letters = Letters()
    >>> letters.count("我爱 BERT, très 3!").tolist()
    [2, 7, 1]
    """

    def __init__(self) -> None:
        self._table = np.zeros(0x110000, np.uint8)

    def count(self, text: str) -> NDArray[np.int64]:
        """Return the counts of zh, en and other."""
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        found = self._table.take(codes)
        if not found.all():
            for code in np.unique(codes[found == NEW]).tolist():
                self._table[code] = _language(chr(code))
            found = self._table.take(codes)
        return np.array([np.count_nonzero(found == language) for language in (1, 2, 3)])


def _language(character: str) -> int:
    if _chinese.match(character):
        return 1
    if character.isascii() and character.isalpha():
        return 2
    return 3 if unicodedata.category(character)[0] in "LM" else NO_LETTER


def language_shares(counts: NDArray[np.int64]) -> dict[str, float]:
    """Return the share of each language in all letters.

    >>> language_shares(np.array([2, 6, 0]))
    {'zh': 0.25, 'en': 0.75, 'other': 0.0}
    """
    total = max(1, int(counts.sum()))
    return {name: round(int(count) / total, 6) for name, count in zip(COUNTED_LANGUAGES, counts, strict=True)}


UNKNOWN_LANGUAGE = "und"
"""Undetermined (ISO 639-2)."""

LANGUAGE_CODES = frozenset(
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el "
    "en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik in io is it "
    "iu iw ja ji jv jw ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mo "
    "mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh "
    "si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh "
    "yi yo za zh zu".split()
)
"""Two-letter codes: ISO 639-1, and withdrawn ones that are still in use (iw, in, ji, jw, mo, sh, bh)."""

LANGUAGE_NAMES = {
    "arabic": "ar",
    "bulgarian": "bg",
    "chinese": "zh",
    "czech": "cs",
    "danish": "da",
    "dutch": "nl",
    "english": "en",
    "finnish": "fi",
    "french": "fr",
    "german": "de",
    "greek": "el",
    "hebrew": "he",
    "hindi": "hi",
    "hungarian": "hu",
    "indonesian": "id",
    "italian": "it",
    "japanese": "ja",
    "korean": "ko",
    "mandarin": "zh",
    "norwegian": "no",
    "persian": "fa",
    "polish": "pl",
    "portuguese": "pt",
    "romanian": "ro",
    "russian": "ru",
    "spanish": "es",
    "swedish": "sv",
    "thai": "th",
    "turkish": "tr",
    "ukrainian": "uk",
    "vietnamese": "vi",
    "中文": "zh",
    "汉语": "zh",
    "漢語": "zh",
    "英文": "en",
    "英语": "en",
    "日文": "ja",
    "日语": "ja",
    "韩语": "ko",
    "德语": "de",
    "法语": "fr",
    "俄语": "ru",
}
"""Names of languages in English and Chinese."""

COUNTRIES = dict(
    re.findall(
        r"(\w+):(\w+)",
        "cn:zh hk:zh chn:zh us:en gb:en au:en jp:ja jap:ja at:de by:be cz:cs dk:da gr:el il:he ir:fa mx:es rs:sr ua:uk "
        "vn:vi al:sq",
    )
)
"""Country codes that are not language codes, and the language meant. (kr, se, tw and others are both.)"""

SLIPS = {"kr": ("Kanuri", "ko", "Hangul"), "tw": ("Twi", "zh-TW", "汉字"), "ch": ("Chamorro", "zh", "汉字")}
"""Valid codes that are often used by mistake: their language, the intended code, and the script that reveals it."""

_hangul = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]")
_shape = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9]+)*")


def is_language(code: str) -> bool:
    """
    >>> [is_language(code) for code in ("zh", "zh-CN", "pt_BR", "yue", "und", "xx", "cn", "english", "")]
    [True, True, True, True, True, False, False, False, False]
    """
    found = _shape.fullmatch(code.strip().lower())
    if found is None or found[1] in COUNTRIES:
        return False
    return len(found[1]) == 3 or found[1] in LANGUAGE_CODES


def check_language(code: str, what: str) -> None:
    """Raise for an invalid code; `what` names the setting or option in the message."""
    if is_language(code):
        return
    plain = code.strip().lower()
    meant = COUNTRIES.get(re.split("[-_]", plain)[0]) or next(
        (LANGUAGE_NAMES[name] for name in get_close_matches(plain, LANGUAGE_NAMES, n=1, cutoff=0.7)), None
    )
    hint = f" Did you mean '{meant}'?" if meant else ""
    raise InputError(
        f"{what}: '{code}' is not a language code.{hint} Use ISO 639 codes: en, de, zh, zh-CN, yue; "
        "und for undetermined. The target's code decides how BLEU splits translations into words: zh (汉字), ja and ko "
        "have their own rules, all others share one."
    )


def check_letters(code: str, texts: Iterable[str], what: str) -> None:
    """Raise for a valid code that does not fit the script of these texts: kr (Kanuri) for Korean."""
    name, meant, letters = SLIPS.get(base_of(code), ("", "", ""))
    if not name:
        return
    text = " ".join(texts)
    chinese, latin, other = Letters().count(text).tolist()
    shown = len(_hangul.findall(text)) if letters == "Hangul" else chinese
    if 2 * shown > chinese + latin + other:
        raise InputError(
            f"{what}: '{code}' is {name}, but the texts are written in {letters}. Did you mean '{meant}'? The "
            "target's code decides how BLEU splits translations into words."
        )


def base_of(code: str) -> str:
    """Return the language of a code, without country and script; "" for und.

    >>> [base_of(code) for code in ("zh", "zh-CN", "pt_BR", "und", "")]
    ['zh', 'zh', 'pt', '', '']
    """
    base = re.split("[-_]", code.strip().lower())[0]
    return "" if base == UNKNOWN_LANGUAGE else base
