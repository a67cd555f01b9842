"""Tags of words, as people write them, in the one spelling that `metrics.entities.chunks` reads as spans.

    IOB1         I-PER; B-PER only where one PER follows another
    IOB2, BIO    B-PER begins, I-PER goes on
    BIOES, BMES  as well E-PER ends, S-PER is a whole one; M goes on; BILOU's L and U are E and S

One reading serves them all, that of CoNLL's scorer, so that nothing is refused for its order. A tag without a type (B,
I, O) is of the type "entity".
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache

ENTITY = "entity"
READ_AS = "BIOES"  # the scheme of `normalised` tags

_tag = re.compile(r"(?:O|([BIESMLU])(?:[-_](\S+))?)")
_same = {"L": "E", "U": "S", "M": "I"}


@cache
def normalised(tag: str) -> str | None:
    """O, or B-, I-, E-, S- and a type; None for what is no tag of these schemes.

    >>> normalised("B_PER"), normalised("M-地名"), normalised("O"), normalised("I"), normalised("NN")
    ('B-PER', 'I-地名', 'O', 'I-entity', None)
    """
    found = _tag.fullmatch(tag)
    if found is None:
        return None
    if found[1] is None:
        return "O"
    return f"{_same.get(found[1], found[1])}-{found[2] or ENTITY}"


def scheme_of(sentences: Iterable[Sequence[str]]) -> str:
    """The name of the scheme, for people; nothing depends on it.

    >>> scheme_of([["I-PER", "O"]]), scheme_of([["B-PER", "I-PER"]]), scheme_of([["B-X", "E-X", "S-X"]])
    ('IOB1', 'IOB2', 'BIOES')
    """
    letters: set[str] = set()
    begins_with_i = False
    for tags in sentences:
        before = "O"
        for tag in tags:
            letters.add(tag[:1])
            begins_with_i = begins_with_i or (tag[:1] == "I" and before[1:] != tag[1:])
            before = tag
    if letters & {"L", "U"}:
        return "BILOU"
    if "M" in letters:
        return "BMES"
    if letters & {"E", "S"}:
        return "BIOES"
    return "IOB1" if begins_with_i else "IOB2"
