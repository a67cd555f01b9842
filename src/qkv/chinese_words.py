"""Chinese words for a tokenizer of words: spaces are put where a segmenter says that words begin.

    我在北京大学读书。   →    我 在 北京大学 读书 。

A tokenizer that cuts at spaces then sees words, and needs to know nothing of Chinese; the offsets of its tokens are
brought back to the text as it was written. Only runs of 汉字 are touched. A word that the vocabulary lacks is read as
WordPiece reads one: the longest known word it begins with, then the longest that comes next. 西安站 is 西安 and 站 if
these two are known; where some part of it is not, it stays in one piece, and is unknown.

What this file does NOT do: segment (`segmenter.py`), or cut and look up (`tokenizer.py`).
"""

import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any

from qkv.errors import InputError
from qkv.segmenter import Segmenter, is_installed, segmenter
from qkv.wordpiece import CHINESE

_several = re.compile(f"[{CHINESE}]{{2,}}")
MOST_WORDS = 1 << 17  # outside the vocabulary, remembered at a time

Span = tuple[int, int]


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
        found = _loaded(choice)
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
        if len(self) >= MOST_WORDS:
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
def _loaded(name: str) -> Segmenter:
    found = segmenter(name)
    assert found is not None
    return found


def are_chinese_words(vocabulary: Collection[str]) -> bool:
    """Whether one in a hundred is a word of several 汉字, so that only a segmenter could find them in a text.

    >>> are_chinese_words(["king", "国王"]), are_chinese_words(["king", "国", "王"])
    (True, False)
    """
    return 100 * sum(_several.fullmatch(word) is not None for word in vocabulary) >= len(vocabulary) > 0


def spans_before(text: str, spaced: str, spans: Iterable[Span]) -> list[Span]:
    """Spans of a text with spaces put in, as spans of the text itself: what is no space stands in both, in one order.

    >>> spans_before("我爱 you", " 我 爱  you", [(1, 2), (3, 4), (6, 9)])
    [(0, 1), (1, 2), (3, 6)]
    """
    places = [place for place, character in enumerate(text) if character != " "]
    counts = [0, *accumulate(character != " " for character in spaced)]  # up to each place
    return [(places[counts[start]], places[counts[end] - 1] + 1) if end > start else (0, 0) for start, end in spans]
