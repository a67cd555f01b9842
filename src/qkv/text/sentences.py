"""Sentence splitting for Chinese, English, and lines that mix the two.

Next-sentence prediction (Devlin et al. 2019, section 3.1) needs consecutive segments of a document. Rules are good
enough for that, and fast: one pattern finds every possible end of a sentence, and a few rules decide.

    line end     always ends a sentence
    。！？；……   ends one, with the closing quotes and brackets after it, unless a comma follows: 「走！」，他说
    . ! ?        ends one before a space, unless a lower-case letter follows, or the full stop belongs to an
                 abbreviation (Dr., e.g., U.S., No. 5), an initial (J. K.) or a list number (1. First)

What this file does NOT do: learn abbreviations from a corpus (Kiss and Strunk 2006); other languages with other
sentence ends.
"""

import re

from qkv.text.wordpiece import CHINESE

CLOSING = "”’」』）】》〉］｝\"')]}»"
OPENING = "“‘「『（【《〈［｛\"'([{«¿¡*—–-"
STRONG = "。！？；｡"
GOES_ON = "，、：,:;"  # before these a sentence does not end

# Titles and words that rarely end a sentence: it ends after them only if the next word often begins one.
ABBREVIATIONS = frozenset(
    "Mr Mrs Ms Mx Messrs Dr Drs Prof St Ste Mt Ft Gen Col Lt Maj Sgt Capt Cmdr Adm Rev Fr Hon Gov Sen Rep Pres Supt "
    "Sir Jr Sr Inc Ltd Co Corp Bros Univ Dept Assn Ave Blvd Rd vs viz cf etc al Esq incl esp".split()
)
# Before a number the full stop belongs to the word: No. 5, Fig. 2, pp. 3–9, Jan. 31, ca. 1900.
_NUMBERED = frozenset(
    "No Nos Nr Fig Figs Vol Vols p pp Eq Eqs Sec Sect Ch Chap Art Tab Op Pt Bk approx ca c circa "
    "Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec".split()
)
NEVER_LAST = frozenset(("e.g", "i.e", "E.g", "I.e"))
STARTERS = frozenset(
    "The A An In On At It He She They We I You This That These Those There Here But And Or However After Before When "
    "While As For From By With Without If His Her Its Their Our My Your One Two Some Many Most Each All Both Another "
    "Other Others Although Though Because Since Until During Despite Under Over Through Between Among Then Thus So Yet "
    "Not No Such What Who Which Where Why How Also Later Today Now According Following Several Few To Of".split()
)

# Possible ends of a sentence. The empty group matches at a certain end, the most frequent case: a full stop after a
# word too long for an abbreviation, then a space and a capital.
_end = re.compile(rf"[\n.!?…{STRONG}](?:(?<=[a-z]{{7}}\.)(?= [A-Z])()|(?<!\n)[.!?…{STRONG}]*[{re.escape(CLOSING)}]*)?")
_next_word = re.compile(rf"[^\S\n]*[{re.escape(OPENING)}]*(\w*)(\.?)")
_numeral = re.compile(r"\d+|[B-HJ-Z]|[IVXLC]{2,}")
_letters_and_stops = re.compile(r"(?:[^\W\d_]{1,3}\.)+[^\W\d_]{1,3}")
_list_number = re.compile(r"[(\[]?(?:\d{1,3}(?:\.\d{1,3})*|[a-zA-Z]|[ivxIVX]{1,4})")
_chinese = re.compile(f"[{CHINESE}]")
_strong = frozenset(STRONG)


def split_sentences(text: str) -> list[tuple[int, int]]:
    """Return the spans of the sentences, in order and without overlap; only white space is outside them.

    >>> text = '他说：“3.14！”Dr. Lee of the U.S. Army left at 5 p.m. "Why?" 谁知道……'
    >>> [text[start:end] for start, end in split_sentences(text)]
    ['他说：“3.14！”', 'Dr. Lee of the U.S. Army left at 5 p.m.', '"Why?"', '谁知道……']
    """
    spans: list[tuple[int, int]] = []
    length = len(text)
    start = 0
    while start < length and text[start].isspace():
        start += 1
    for found in _end.finditer(text, start):
        place, end = found.span()
        if place < start:  # a line end within skipped white space
            continue
        if text[place] == "\n":
            end = start + len(text[start:place].rstrip())
        elif not found.lastindex and not _ends(text, start, place, end):
            continue
        spans.append((start, end))
        start = end
        while start < length and text[start].isspace():
            start += 1
    if start < length:
        spans.append((start, start + len(text[start:].rstrip())))
    return spans


def _ends(text: str, start: int, place: int, end: int) -> bool:
    """Whether the sentence that began at `start` ends with the punctuation text[place:end]."""
    following = text[end : end + 1]
    if following in GOES_ON:  # also true for "" at the end of the text, where the last sentence ends anyway
        return False
    marks = text[place:end]
    if not _strong.isdisjoint(marks) or "……" in marks:
        return True
    if not following.isspace():  # 走!他 and 好.他 are two sentences; 3.14, a.b and Yahoo!奇摩 are not
        return marks != "…" and bool(_chinese.match(following) and _chinese.match(text, place - 1))
    after = _next_word.match(text, end)
    assert after is not None  # the pattern matches the empty string
    word, stop = after.groups()
    if word[:1].islower():
        return False
    return marks.rstrip(CLOSING) != "." or not _is_abbreviation(text, start, place, word, word + stop)


def _is_abbreviation(text: str, start: int, place: int, word: str, word_and_stop: str) -> bool:
    """Whether the full stop at `place` belongs to the word before it; `word` is the next word."""
    if place - start < 10 and _list_number.fullmatch(text, start, place):
        return True
    before = text[max(start, place - 12) : place].split(" ")[-1].lstrip(OPENING)
    if before in _NUMBERED:
        return bool(_numeral.fullmatch(word))
    if before in NEVER_LAST:
        return True
    if before in ABBREVIATIONS or (len(before) == 1 and before.isupper()) or _letters_and_stops.fullmatch(before):
        return word_and_stop not in STARTERS  # "A." is an initial, "A" may begin a sentence
    return False
