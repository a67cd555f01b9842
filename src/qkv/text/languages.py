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

`detect_language` names the language of a text of a user, so that a model can refuse one that it does not know: by the
script, and among languages in Latin letters by their commonest words. It is for a sentence or more; a name or a single
word in Latin letters counts as English.

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


def language_name(code: str) -> str:
    """The English name of a language, for messages; a code without one as it is.

    >>> [language_name(code) for code in ("zh", "zh-CN", "fr", "tlh")]
    ['Chinese', 'Chinese', 'French', 'tlh']
    """
    base = base_of(code)
    return next((name.capitalize() for name, known in LANGUAGE_NAMES.items() if known == base), code)


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


# The language of a text

_SCRIPTS = {
    "ja": "\u3041-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9d",
    "ko": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "ru": "\u0400-\u052f",
    "el": "\u0370-\u03ff\u1f00-\u1fff",
    "ar": "\u0600-\u06ff\u0750-\u077f",
    "he": "\u0590-\u05ff",
    "hi": "\u0900-\u097f",
    "th": "\u0e00-\u0e7f",
}
"""Letters of one script, and the language it most often writes: Cyrillic counts as Russian."""
_scripts = {code: re.compile(f"[{letters}]") for code, letters in _SCRIPTS.items()}
_latin = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_LETTERS_OF_A_WORD = 3
"""A 汉字 weighs as much as so many Latin letters: 我爱 BERT is Chinese."""
_LEAST_JAPANESE = 0.1
"""Share of kana in the letters of a Japanese text at least: の in a name is not one."""

_COMMON = {
    "en": "the a an and or but if of to in on at by for from with about into is are was were be been being am do does "
    "did don't didn't doesn't have has had will would can could can't should must may might not no i you he she it we "
    "they me him her us them my your his its our their this that these those there here what who which when where why "
    "how all any some as so than then too very just let's i'm it's i'll you're that's he's she's i've out up down "
    "get got go going one two more now new time like want know over after before under off only because please "
    "people man woman men women come war die hat son met",
    "fr": "le la les un une des du de et ou est sont était à au aux en dans sur avec pour par sans sous ne pas plus "
    "que qui quoi je tu il elle nous vous ils elles mon ma mes ton ta son sa ses leur leurs ce cette ces cet on se "
    "mais très bien être avoir fait bonjour merci oui non c'est j'ai n'est d'un d'une qu'il homme femme deux",
    "de": "der die das den dem des ein eine einen einem einer und oder aber ist sind war waren wird werden ich du er "
    "sie es wir ihr mich mir dich nicht kein keine mit von zu zum zur auf für im am an in aus bei nach vor über unter "
    "eines so wie wer wo wann warum dass daß sich auch noch nur schon sehr hat habe haben kann wenn guten danke ja "
    "nein mann frau zwei",
    "es": "el la los las un una unos unas y o pero es son está están era de del al en con por para sin sobre que qué "
    "quien como cómo yo tú él ella nosotros ellos me te se mi su sus este esta estos no muy más también hay hola "
    "gracias sí lo le ser hombre mujer dos",
    "it": "il lo la gli i le un uno una e o ma è sono era di del della dei delle al alla nel nella con per da dal che "
    "chi come non più molto mi ti si ci questo questa io tu lui lei noi loro ciao grazie sì ho ha uomo donna due",
    "pt": "o os as um uma uns umas e ou mas é são está estão era de do da dos das no na nos nas em com por para sem "
    "que quem como não mais muito eu você ele ela nós eles me te se meu minha seu sua isto este esta olá obrigado "
    "obrigada sim homem mulher dois",
    "nl": "de het een en of maar is zijn was waren ik jij hij zij wij jullie van in op met voor aan uit bij naar niet "
    "geen dat die deze dit wat wie waar hoe ook nog zeer heeft hebben kan wordt hallo dank ja nee man vrouw twee",
    "sv": "och eller men är var en ett den det de som att på i med för av till från inte jag du han hon vi ni mig sig "
    "har hade kan skall hur vad hej tack ja nej två",
    "pl": "i w z na do nie jest są był była się to że jak ale czy co kto ja ty on ona my wy oni mój dla od po przez "
    "dzień dobry dziękuję tak dwa",
    "tr": "bir ve bu da de için ile çok ne ben sen o biz siz onlar var yok değil mi mı gibi daha merhaba evet hayır",
    "id": "yang dan di ke dari ini itu tidak ada dengan untuk saya kamu dia kami kita mereka adalah akan sudah bisa "
    "apa siapa terima kasih dua",
    "vi": "và là của không có được cho một những các này tôi bạn anh chị em ở với đã sẽ người xin chào cảm ơn",
}
"""The commonest words of languages in Latin letters, and words of greeting. Those that are in the list of English too
decide nothing."""
_common: dict[str, frozenset[str]] = {code: frozenset(words.split()) for code, words in _COMMON.items()}


def in_latin(code: str) -> bool:
    """Whether `detect_language` tells a language by its words, not by its letters."""
    return base_of(code) in _common


_FEWEST_LETTERS = 2  # of a script: π and 奈雪の茶 are no Greek and no Japanese


def detect_language(text: str) -> str:
    """The code of the language that a text is most likely in; "" if it has no letters.

    >>> [detect_language(text) for text in ("你好！", "Tom chases Jerry", "Bonjour le monde", "こんにちは", "3 + 4")]
    ['zh', 'en', 'fr', 'ja', '']
    """
    chinese = len(_chinese.findall(text))
    others = {code: len(letters.findall(text)) for code, letters in _scripts.items()}
    latin = sum(map(len, words)) if (words := _latin_words(text)) else 0
    others = {code: count if count >= _FEWEST_LETTERS else 0 for code, count in others.items()}
    script = max(others, key=others.__getitem__)
    if others["ja"] and others["ja"] >= _LEAST_JAPANESE * (chinese + others["ja"]) and others["ja"] + chinese > latin:
        return "ja"
    if others[script] > max(latin, _LETTERS_OF_A_WORD * chinese):
        return script
    if chinese and _LETTERS_OF_A_WORD * chinese >= latin:
        return "zh"
    return _latin_language(words) if latin else ""


def _latin_words(text: str) -> list[str]:
    return [word for word in _latin.findall(text) if unicodedata.name(word[0], "").startswith("LATIN")]


def _latin_language(words: list[str]) -> str:
    """By the number of words that are common in a language, less those that are common in English; English if none
    has more."""
    english, best, most = _common["en"], "en", 0
    lower = [word.lower().replace("’", "'") for word in words]
    # Los Angeles, van Gogh: a word before a capital letter may be part of a name, but German nouns have one
    named = [after[0].isupper() for after in words[1:]] + [False]
    for code, common in _common.items():
        counted = [word for word, part in zip(lower, named, strict=True) if not part or code == "de"]
        more = sum(word in common for word in counted) - sum(word in english for word in lower)
        if more > most:
            best, most = code, more
    return best
