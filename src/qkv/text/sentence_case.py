"""English in capitals or in small letters alone, read as a sentence in a book is written.

A model that has learned from such sentences alone takes HOW ARE YOU for three unknown words. A folder says that its
source is read so by `"source_case": "sentence"` in the record of qkv.json; the text itself, in messages and alignments,
stays as it was given.
"""

import re

SENTENCE = "sentence"
_FIRST = re.compile(r"""(?:^|[.!?…]\s+)["'“‘(]*([a-z])""")
_I = re.compile(r"\bi\b")
_SHORT = 4  # letters of a single word, with nothing beside it, that is left in capitals: USA, NASA


def sentence_case(text: str) -> str:
    """The text with capitals where a sentence has them, if its letters are all of one case; as long as before.

    >>> sentence_case("HOW ARE YOU? I'M FINE."), sentence_case("i think so")
    ("How are you? I'm fine.", 'I think so')
    >>> sentence_case("STOP!"), sentence_case("USA")
    ('Stop!', 'USA')
    >>> sentence_case("Tom lives in the USA."), sentence_case("1 + 2"), sentence_case("你好")
    ('Tom lives in the USA.', '1 + 2', '你好')
    """
    if not (text.isupper() or text.islower()):
        return text
    small = text.lower()
    is_short = text.isupper() and text.isalpha() and len(text) <= _SHORT
    if is_short or len(small) != len(text):
        return text
    small = _FIRST.sub(lambda match: match[0][:-1] + match[1].upper(), small)
    return _I.sub("I", small)
