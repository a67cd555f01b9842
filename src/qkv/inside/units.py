"""A text as what can be clicked on the page: words, 汉字, signs. The rule of fill_units.js, by which a saved page asks.

    a blank         [MASK], which is hidden already and is no unit here
    a 汉字           each alone
    a word          of other letters, marks, digits and _, with what stands inside it: isn't, 3.5, e-mail
    a picture       an emoji with what changes it: a variant, a colour of skin, another one joined on; a flag
    a sign          each alone

Each character becomes a letter for what it is, and the rule is an expression over those letters: Python's own
expressions know neither scripts nor marks.
"""

import re
import unicodedata

MASK = "[MASK]"
HAN = re.compile(
    "[\u2e80-\u2e99\u2e9b-\u2ef3\u2f00-\u2fd5\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufa6d\ufa70-\ufad9\U00016fe2\U00016fe3\U00016ff0\U00016ff1\U00020000-\U0002a6df\U0002a700-\U0002ebe0"
    "\U0002ebf0-\U0002ee5d\U0002f800-\U0002fa1d\U00030000-\U000323af]"
)
"""Unicode's script Han: more than one block, and 々 and 〇 too."""
PICTURE = re.compile("[\u00a9\u00ae\u203c\u2049\u2122\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001fffd]")
"""What Unicode calls pictographic, and arrows and shapes that it does not, which nothing changes."""
FLAG, SKIN = re.compile("[\U0001f1e6-\U0001f1ff]"), re.compile("[\U0001f3fb-\U0001f3ff]")
VARIANTS, JOINER = "\ufe0e\ufe0f\u20e3", "\u200d"
JOINS = "'’.,-"
SPACES = "\t\n\v\f\r\ufeff\u2028\u2029"
"""Beside those that Unicode calls spaces."""
UNITS = re.compile(r"h|[lv]+(?:j[lv]+)*|ff|p(?:[vs]|zp)*|[jpfszx]")


def units(text: str) -> list[tuple[int, int]]:
    """Where each begins and ends, in characters.

    >>> [text[a:b] for text in ["Python是3.5 [MASK]!"] for a, b in units(text)]
    ['Python', '是', '3.5', '!']
    """
    classes = "".join(map(_class, text))
    for found in re.finditer(re.escape(MASK), text):
        classes = classes[: found.start()] + " " * len(MASK) + classes[found.end() :]
    return [one.span() for one in UNITS.finditer(classes)]


def _class(character: str) -> str:
    if HAN.match(character):
        return "h"
    if character in VARIANTS:
        return "v"
    kind = unicodedata.category(character)
    if kind[0] in "LMN" or character == "_":
        return "l"
    if kind == "Zs" or character in SPACES:
        return " "
    if character in JOINS:
        return "j"
    if character == JOINER:
        return "z"
    return "f" if FLAG.match(character) else "s" if SKIN.match(character) else "p" if PICTURE.match(character) else "x"
