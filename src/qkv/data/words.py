"""Where Chinese words begin, so that whole words can be masked (Cui et al. 2019, "Pre-Training with Whole Word Masking
for Chinese BERT").

Chinese is written without spaces and BERT reads it character by character; which characters make a word is for a
segmenter to say. It is asked once, while a corpus is prepared, and sees nothing but runs of 汉字: its answer moves no
token and changes no id.

What this file does NOT do: segment. `rjieba` does (a dictionary, the likeliest path through it, a hidden Markov model
for what the dictionary lacks), or any function that takes a string and returns its words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import util

import numpy as np

from qkv.errors import InputError, did_you_mean

Cut = Callable[[str], list[str]]
NAMES = ("rjieba", "none")


@dataclass(frozen=True)
class Segmenter:
    """`name` is what a manifest says was used. `line_by_line`: a line end parts words and changes nothing else, so that
    many runs can be cut in one call."""

    name: str
    cut: Cut
    line_by_line: bool = False


def segmenter(choice: str | Cut) -> Segmenter | None:
    """From a name ("rjieba", or "none" for no words at all), or from a function.

    >>> segmenter("none") is None
    True
    >>> segmenter(list).cut("北京")
    ['北', '京']
    """
    if callable(choice):
        return Segmenter(f"{choice.__module__}.{getattr(choice, '__qualname__', type(choice).__name__)}", choice)
    if choice not in NAMES:
        raise InputError(
            f"there is no segmenter {choice!r}, only {', '.join(NAMES)}.{did_you_mean(choice, NAMES)} From Python, any "
            "function from a string to the list of its words will do."
        )
    if choice == "none":
        return None
    if not is_installed("rjieba"):
        raise InputError(
            "Chinese words need a segmenter, and rjieba is not installed: pip install 'qkv[zh]'. "
            "With the segmenter 'none' each 汉字 counts as a word."
        )
    from importlib import metadata  # slow to import, and seldom needed

    import rjieba

    return Segmenter(f"rjieba {metadata.version('rjieba')}", rjieba.cut, line_by_line=True)


def is_installed(name: str) -> bool:
    return util.find_spec(name) is not None


def word_starts(runs: Sequence[str], segmenter: Segmenter) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """For every character of every run, in order: does a word begin here?

    >>> by_hand = {"我爱北京": ["我", "爱", "北京"], "天安门": ["天安门"]}
    >>> word_starts(list(by_hand), Segmenter("by hand", by_hand.__getitem__))
    array([ True,  True,  True, False,  True, False, False])
    """
    if not runs:
        return np.zeros(0, np.bool_)
    texts = ["\n".join(runs)] if segmenter.line_by_line else runs
    words: list[str] = []
    for text in texts:
        found = segmenter.cut(text)
        if "".join(found) != text:
            raise InputError(
                f"the segmenter {segmenter.name} cut {_short(text)} into {_short(found)}: put together again, its "
                "words must give exactly the text they came from."
            )
        words += found
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    starts = np.zeros(lengths.sum(), np.bool_)
    starts[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
    if segmenter.line_by_line:  # the line ends between the runs go again
        ends = np.cumsum(np.fromiter(map(len, runs), np.int64, len(runs)) + 1) - 1
        starts = np.delete(starts, ends[:-1])
    return starts


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 100 else text[:100] + " …"
