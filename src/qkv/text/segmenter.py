"""Chinese word segmentation, for tokenizers of words and for whole word masking; and sentence splitting.

Chinese is written without spaces. A segmenter, given by name or as a function, finds the words. It sees only runs of
汉字, so it never affects Latin words, digits and punctuation marks.

`ChineseWords` inserts spaces between Chinese words, so that a tokenizer that splits at spaces reads words:

    我在北京大学读书。   →    我 在 北京大学 读书 。

A word outside the vocabulary is split as in WordPiece, longest known word first: 西安站 becomes 西安 and 站 if both are
known; if some part is unknown, the word stays whole and is unknown. Offsets of tokens are mapped back to the original
text.

`word_starts` finds where words begin, for whole word masking (Cui et al. 2019, "Pre-Training with Whole Word Masking
for Chinese BERT"). It is computed once, when a corpus is prepared, and changes no token and no id.

What this file does NOT do: segment. `rjieba` does (a dictionary, the most likely path through it, a hidden Markov model
for words outside it), or any function from a string to its words.
"""

import re
import warnings
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import util
from itertools import accumulate, islice
from typing import Any

import numpy as np

from qkv.errors import InputError, did_you_mean
from qkv.text.wordpiece import CHINESE

Cut = Callable[[str], list[str]]
_NAMES = ("rjieba", "none")
LINES = 2048  # runs per call: rjieba is slower with few, and much slower with a hundred thousand


@dataclass(frozen=True)
class Segmenter:
    """A segmentation function and its name in files. `line_by_line`: lines are segmented independently, so that many
    runs fit into one call."""

    name: str
    cut: Cut
    line_by_line: bool = False

    def words(self, runs: Sequence[str]) -> list[str]:
        """Return the words of all runs of 汉字 as one list, with a line end between runs.

        >>> Segmenter("characters", list).words(["北京", "我"])
        ['北', '京', '\\n', '我']
        """
        step = LINES if self.line_by_line else 1
        found: list[str] = []
        for first in range(0, len(runs), step):
            text = "\n".join(runs[first : first + step])
            words = self.cut(text)
            if "".join(words) != text:
                raise InputError(
                    f"the segmenter {self.name} split {_short(text)} into {_short(words)}: the words, joined "
                    "together, must give exactly the original text."
                )
            found += ["\n", *words] if first else words
        return found


def find_segmenter(choice: str | Cut) -> Segmenter | None:
    """Return the segmenter with this name ("rjieba", or "none" for no segmenter) or made from a function.

    >>> find_segmenter("none") is None
    True
    >>> find_segmenter(list).cut("北京")
    ['北', '京']
    """
    if callable(choice):
        return Segmenter(f"{choice.__module__}.{getattr(choice, '__qualname__', type(choice).__name__)}", choice)
    if choice not in _NAMES:
        raise InputError(
            f"there is no segmenter {choice!r}, only {', '.join(_NAMES)}.{did_you_mean(choice, _NAMES)} In Python, "
            "any function from a string to a list of words is accepted."
        )
    if choice == "none":
        return None
    if not is_installed("rjieba"):
        raise InputError(
            "Chinese words need a segmenter, and rjieba is not installed: pip install 'qkv[zh]'. "
            "With the segmenter 'none' each 汉字 counts as a word."
        )
    from importlib import metadata  # slow to import, rarely needed

    try:
        import rjieba

        return Segmenter(f"rjieba {metadata.version('rjieba')}", rjieba.cut, line_by_line=True)
    except ImportError as error:  # compiled for another machine or Python version
        raise InputError(
            f"rjieba is installed but cannot be imported ({error}). Install it again: pip install --force-reinstall "
            "rjieba. With the segmenter 'none' each 汉字 counts as a word."
        ) from error


def cut_longest(text: str, known: Container[str]) -> list[str]:
    """The words of a Chinese text by a list of words alone, the longest first; where no segmenter is installed.

    >>> cut_longest("汤姆追逐杰瑞", {"汤姆", "追逐", "追"})
    ['汤姆', '追逐', '杰', '瑞']
    """
    found, start = list[str](), 0
    while start < len(text):
        end = next((end for end in range(len(text), start + 1, -1) if text[start:end] in known), start + 1)
        found.append(text[start:end])
        start = end
    return found


def is_installed(name: str) -> bool:
    return util.find_spec(name) is not None


def segmenter_name(choice: str | None) -> str | None:
    """Return the name of a segmenter for files, with its version if installed; None for no segmenter.

    >>> segmenter_name("rjieba 0.1"), segmenter_name("none")
    ('rjieba 0.1', None)
    """
    if choice is None or (is_known(choice) and (" " in choice or not is_installed(choice))):
        return choice
    found = find_segmenter(choice)
    return None if found is None else found.name


def is_known(name: object) -> bool:
    """Whether the name of a segmenter in a file, with or without version, is one that qkv knows.

    >>> is_known("rjieba 0.2.2"), is_known("my_module.cut"), is_known("none")
    (True, False, False)
    """
    return isinstance(name, str) and name.partition(" ")[0] in _NAMES and name != "none"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 100 else text[:100] + " …"


_several = re.compile(f"[{CHINESE}]{{2,}}")
_MOST_WORDS = 1 << 17  # size of the cache of words outside the vocabulary

_Span = tuple[int, int]


class ChineseWords:
    """Inserts spaces between Chinese words. `name` is the segmenter of the vocabulary, as in "rjieba 0.2.2".

    The segmenter is loaded when the first 汉字 is encoded, so training from shards does not need it. `normalizer` is
    the tokenizer's; tokens in `kept` are never segmented.

    >>> words = ChineseWords("rjieba", {"我": 5, "爱": 6, "北京": 7, "北": 8, "天安门": 9})
    >>> words.spaced(["我爱BERT。", "北京天安门"])
    [' 我 爱 BERT。', ' 北京 天安门 ']
    """

    def __init__(
        self, name: str, vocabulary: Mapping[str, int], normalizer: Any = None, kept: Iterable[str] = ()
    ) -> None:
        self.name = name
        self._vocabulary = vocabulary
        self._kept = frozenset(token for token in kept if re.search(f"[{CHINESE}]", token))
        # the longest first, and a run ends where one of them begins
        either = "|".join(re.escape(token) for token in sorted(self._kept, key=len, reverse=True))
        self._runs = re.compile(f"({either}|(?:(?!{either})[{CHINESE}])+)" if either else f"([{CHINESE}]+)")
        self._parts = _Parts(vocabulary, normalizer)
        self._is_checked = False

    def spaced(self, texts: Sequence[str]) -> list[str]:
        """Return the texts with spaces around their Chinese words."""
        cut = [self._runs.split(text) for text in texts]  # between, run, between, run, …, between
        runs = [run for one in cut for run in one[1::2]]
        if self._kept:
            runs = [run for run in runs if run not in self._kept]
        if not runs:
            return list(texts)
        known, parts = self._vocabulary, self._parts
        words = [word if word in known else parts[word] for word in self._segmenter().words(runs)]
        lines = iter(f" {' '.join(words)} ".split("\n"))
        for one in cut:
            if self._kept:
                one[1::2] = [run if run in self._kept else next(lines) for run in one[1::2]]
            else:
                one[1::2] = islice(lines, len(one) // 2)
        return ["".join(one) for one in cut]

    def _segmenter(self) -> Segmenter:
        choice = self.name.partition(" ")[0]
        if not is_installed(choice):
            raise InputError(
                f"this tokenizer needs the segmenter {choice} for Chinese words, which is not installed: "
                "pip install 'qkv[zh]'."
            )
        found = _load(choice)
        if not self._is_checked:
            self._is_checked = True
            if " " in self.name and found.name != self.name:
                warnings.warn(
                    f"the tokenizer was trained with {self.name}, but {found.name} is installed: some Chinese words "
                    "may be segmented differently from the training data",
                    stacklevel=2,
                )
        return found


class _Parts(dict[str, str]):
    """Cache: word outside the vocabulary → its known parts, separated by spaces; or the word itself."""

    def __init__(self, vocabulary: Mapping[str, int], normalizer: Any) -> None:
        self._vocabulary = vocabulary
        self._normalizer = normalizer

    def __missing__(self, word: str) -> str:
        if len(self) >= _MOST_WORDS:
            self.clear()
        self[word] = found = " ".join(self._longest(word)) or word
        return found

    def _longest(self, word: str) -> list[str]:
        """Split into the longest known parts; [] if some part is unknown."""
        # the vocabulary may have compatibility forms, such as 豈 at U+F900, in their common form
        spelled = word if self._normalizer is None else self._normalizer.normalize_str(word)
        if len(spelled) != len(word):
            return []
        parts: list[str] = []
        start = 0
        while start < len(word):
            end = next((end for end in range(len(word), start, -1) if spelled[start:end] in self._vocabulary), None)
            if end is None:
                return []
            parts.append(word[start:end])
            start = end
        return parts


@lru_cache
def _load(name: str) -> Segmenter:
    found = find_segmenter(name)
    assert found is not None
    return found


def are_chinese_words(vocabulary: Collection[str]) -> bool:
    """Whether at least 1 % of the words have several 汉字, so that texts need a segmenter.

    >>> are_chinese_words(["king", "国王"]), are_chinese_words(["king", "国", "王"])
    (True, False)
    """
    return 100 * sum(_several.fullmatch(word) is not None for word in vocabulary) >= len(vocabulary) > 0


def spans_before(text: str, spaced: str, spans: Iterable[_Span]) -> list[_Span]:
    """Map spans of a text with inserted spaces to spans of the original text.

    >>> spans_before("我爱 you", " 我 爱  you", [(1, 2), (3, 4), (6, 9)])
    [(0, 1), (1, 2), (3, 6)]
    """
    places = [place for place, character in enumerate(text) if character != " "]
    counts = [0, *accumulate(character != " " for character in spaced)]  # up to each place
    return [(places[counts[start]], places[counts[end] - 1] + 1) if end > start else (0, 0) for start, end in spans]


def word_starts(runs: Sequence[str], segmenter: Segmenter) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Return, for every character of every run, whether a word begins there.

    >>> by_hand = {"我爱北京": ["我", "爱", "北京"], "天安门": ["天安门"]}
    >>> word_starts(list(by_hand), Segmenter("by hand", by_hand.__getitem__))
    array([ True,  True,  True, False,  True, False, False])
    """
    if not runs:
        return np.zeros(0, np.bool_)
    words = segmenter.words(runs)
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    starts = np.zeros(lengths.sum(), np.bool_)
    starts[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
    ends = np.cumsum(np.fromiter(map(len, runs), np.int64, len(runs)) + 1) - 1
    return np.delete(starts, ends[:-1])  # without the line ends between runs


# --- Sentence splitting for Chinese, English, and lines that mix the two.
#
# Next-sentence prediction (Devlin et al. 2019, section 3.1) needs consecutive segments of a document. Rules are good
# enough for that, and fast: one pattern finds every possible end of a sentence, and a few rules decide.
#
#     line end     always ends a sentence
#     。！？；……   ends one, with the closing quotes and brackets after it, unless a comma follows: 「走！」，他说
#     . ! ?        ends one before a space, unless a lower-case letter follows, or the full stop belongs to an
#                  abbreviation (Dr., e.g., U.S., No. 5), an initial (J. K.) or a list number (1. First)
#
# What this file does NOT do: learn abbreviations from a corpus (Kiss and Strunk 2006); other languages with other
# sentence ends.

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
