"""Who says where Chinese words begin: a segmenter, by its name or as a function.

Chinese is written without spaces; which characters make a word is for a segmenter to say. It sees nothing but runs of
汉字, so that it never has a say in what becomes of Latin words, digits and punctuation marks.

What this file does NOT do: segment. `rjieba` does (a dictionary, the likeliest path through it, a hidden Markov model
for what the dictionary lacks), or any function that takes a string and returns its words. Nor does it use the words:
`segmenter.py` shows them to a tokenizer, `text/segmenter.py` to whole word masking.
"""

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
LINES = 2048  # runs that are cut in one call: rjieba is slower over few, and far slower over a hundred thousand


@dataclass(frozen=True)
class Segmenter:
    """`name` is what is written down of it. `line_by_line`: a line end parts words and changes nothing else, so that
    many runs can be cut in one call."""

    name: str
    cut: Cut
    line_by_line: bool = False

    def words(self, runs: Sequence[str]) -> list[str]:
        """The words of runs of 汉字, end to end, with a line end between one run and the next.

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
                    f"the segmenter {self.name} cut {_short(text)} into {_short(words)}: put together again, its "
                    "words must give exactly the text they came from."
                )
            found += ["\n", *words] if first else words
        return found


def find_segmenter(choice: str | Cut) -> Segmenter | None:
    """From a name ("rjieba", or "none" for no words at all), or from a function.

    >>> segmenter("none") is None
    True
    >>> segmenter(list).cut("北京")
    ['北', '京']
    """
    if callable(choice):
        return Segmenter(f"{choice.__module__}.{getattr(choice, '__qualname__', type(choice).__name__)}", choice)
    if choice not in _NAMES:
        raise InputError(
            f"there is no segmenter {choice!r}, only {', '.join(_NAMES)}.{did_you_mean(choice, _NAMES)} From Python, "
            "any function from a string to the list of its words will do."
        )
    if choice == "none":
        return None
    if not is_installed("rjieba"):
        raise InputError(
            "Chinese words need a segmenter, and rjieba is not installed: pip install 'qkv[zh]'. "
            "With the segmenter 'none' each 汉字 counts as a word."
        )
    from importlib import metadata  # slow to import, and seldom needed

    try:
        import rjieba

        return Segmenter(f"rjieba {metadata.version('rjieba')}", rjieba.cut, line_by_line=True)
    except ImportError as error:  # a compiled library that does not fit this machine or this Python
        raise InputError(
            f"rjieba is installed and cannot be used ({error}). Install it again: pip install --force-reinstall "
            "rjieba. With the segmenter 'none' each 汉字 counts as a word."
        ) from error


def is_installed(name: str) -> bool:
    return util.find_spec(name) is not None


def segmenter_name(choice: str | None) -> str | None:
    """What is written down of a choice by name: with its version where that can be known, None for no words at all.

    >>> segmenter_name("rjieba 0.1"), segmenter_name("none")
    ('rjieba 0.1', None)
    """
    if choice is None or (is_known(choice) and (" " in choice or not is_installed(choice))):
        return choice
    found = find_segmenter(choice)
    return None if found is None else found.name


def is_known(name: object) -> bool:
    """Whether what a file calls a segmenter, with a version or without, can be had here by its name.

    >>> is_known("rjieba 0.2.2"), is_known("my_module.cut"), is_known("none")
    (True, False, False)
    """
    return isinstance(name, str) and name.partition(" ")[0] in _NAMES and name != "none"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 100 else text[:100] + " …"


# --- Chinese words for a tokenizer of words: spaces are put where a segmenter says that words begin.
#
#     我在北京大学读书。   →    我 在 北京大学 读书 。
#
# A tokenizer that cuts at spaces then sees words, and needs to know nothing of Chinese; the offsets of its tokens are
# brought back to the text as it was written. Only runs of 汉字 are touched. A word that the vocabulary lacks is read as
# WordPiece reads one: the longest known word it begins with, then the longest that comes next. 西安站 is 西安 and 站 if
# these two are known; where some part of it is not, it stays in one piece, and is unknown.
#
# What this file does NOT do: segment (`segmenter.py`), or cut and look up (`tokenizer.py`).

_several = re.compile(f"[{CHINESE}]{{2,}}")
_MOST_WORDS = 1 << 17  # outside the vocabulary, remembered at a time

_Span = tuple[int, int]


class ChineseWords:
    """`name` says which segmenter the vocabulary was learned with, as in "rjieba 0.2.2".

    It is loaded when the first 汉字 is met: who only trains from shards or looks up a word needs none. `normalizer` is
    the tokenizer's, by which the vocabulary is spelled; `kept` are tokens inside which no word is looked for.

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
        """The texts with spaces around their Chinese words, and as they are where there are none."""
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
                f"this tokenizer reads Chinese in words, which {choice} cuts, and that is not installed: "
                "pip install 'qkv[zh]'."
            )
        found = _load(choice)
        if not self._is_checked:
            self._is_checked = True
            if " " in self.name and found.name != self.name:
                warnings.warn(
                    f"the tokenizer was made with {self.name}, and {found.name} is installed: some Chinese words may "
                    "be cut in another way than its model learned them",
                    stacklevel=2,
                )
        return found


class _Parts(dict[str, str]):
    """Word outside the vocabulary → the known words it consists of, with spaces between them; else itself."""

    def __init__(self, vocabulary: Mapping[str, int], normalizer: Any) -> None:
        self._vocabulary = vocabulary
        self._normalizer = normalizer

    def __missing__(self, word: str) -> str:
        if len(self) >= _MOST_WORDS:
            self.clear()
        self[word] = found = " ".join(self._longest(word)) or word
        return found

    def _longest(self, word: str) -> list[str]:
        """Nothing when some part of the word is unknown."""
        # compatibility forms, such as 豈 at U+F900, may stand in the vocabulary in their common form
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
    """Whether one in a hundred is a word of several 汉字, so that only a segmenter could find them in a text.

    >>> are_chinese_words(["king", "国王"]), are_chinese_words(["king", "国", "王"])
    (True, False)
    """
    return 100 * sum(_several.fullmatch(word) is not None for word in vocabulary) >= len(vocabulary) > 0


def spans_before(text: str, spaced: str, spans: Iterable[_Span]) -> list[_Span]:
    """Spans of a text with spaces put in, as spans of the text itself: what is no space stands in both, in one order.

    >>> spans_before("我爱 you", " 我 爱  you", [(1, 2), (3, 4), (6, 9)])
    [(0, 1), (1, 2), (3, 6)]
    """
    places = [place for place, character in enumerate(text) if character != " "]
    counts = [0, *accumulate(character != " " for character in spaced)]  # up to each place
    return [(places[counts[start]], places[counts[end] - 1] + 1) if end > start else (0, 0) for start, end in spans]


# --- Where Chinese words begin, so that whole words can be masked (Cui et al. 2019, "Pre-Training with Whole Word
# Masking
# for Chinese BERT").
#
# BERT reads Chinese character by character. A segmenter is asked once, while a corpus is prepared, and sees nothing
# but
# runs of 汉字: its answer moves no token and changes no id.
#
# What this file does NOT do: segment. See `segmenter.py`.


def word_starts(runs: Sequence[str], segmenter: Segmenter) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """For every character of every run, in order: does a word begin here?

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
    return np.delete(starts, ends[:-1])  # the line ends between the runs
