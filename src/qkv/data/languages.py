"""Which languages a text is written in, judged by its letters: 汉字, the letters a to z, any others.

Punctuation, digits and spaces say nothing. Japanese counts as both zh (kanji) and other (kana).
"""

import re
import unicodedata

import numpy as np
from numpy.typing import NDArray

from qkv.wordpiece import CHINESE

LANGUAGES = ("zh", "en", "other")
NEW, NO_LETTER = 0, 4  # 1 to 3 are the languages

_chinese = re.compile(f"[{CHINESE}]")


class Letters:
    """Counts letters by language, remembering what each code point is.

    >>> letters = Letters()
    >>> letters.count("我爱 BERT, très 3!").tolist()
    [2, 7, 1]
    """

    def __init__(self) -> None:
        self._table = np.zeros(0x110000, np.uint8)

    def count(self, text: str) -> NDArray[np.int64]:
        """How many of zh, en, other."""
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


def shares(counts: NDArray[np.int64]) -> dict[str, float]:
    """By language, of all letters.

    >>> shares(np.array([2, 6, 0]))
    {'zh': 0.25, 'en': 0.75, 'other': 0.0}
    """
    total = max(1, int(counts.sum()))
    return {name: round(int(count) / total, 6) for name, count in zip(LANGUAGES, counts, strict=True)}
