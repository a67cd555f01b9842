"""Which pairs are held out: decided by the source text itself, so that a split can be published as two numbers.

The first 32 bits of the SHA-256 of a text, as a share of 1, say where it falls: below `dev_share` it is dev, from there
to `dev_share + test_share` test, else train. Capitals, marks and spaces make no difference, so that "Hi." and "Hi!"
fall together, and so do all translations of a text. No seed, no order: a pair stays where it is when others are added.

Texts of different places may share a translation ("Hurry!", "Be quick!"). What has the translation of a held-out pair
is therefore left out of train, by `run/pair_data.py`; this file looks at the source alone.
"""

import hashlib
import re
import unicodedata

_no_letter = re.compile(r"[\W_]+")
"""All that `str.isalnum` is false for."""


def folded(text: str) -> str:
    """Letters and digits alone; the text itself where it has none.

    >>> folded("Don’t  STOP!"), folded("……")
    ('dontstop', '……')
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    return _no_letter.sub("", plain) or text.strip()


def place(text: str) -> float:
    """From 0 to less than 1.

    >>> place("Hi.") == place("hi!"), round(place("Hello World"), 4)
    (True, 0.5758)
    """
    return int.from_bytes(hashlib.sha256(folded(text).encode()).digest()[:4], "big") / 2**32


def part_of(text: str, dev_share: float, test_share: float) -> str:
    """Of a source text: "train", "dev" or "test"."""
    at = place(text)
    return "dev" if at < dev_share else "test" if at < dev_share + test_share else "train"
