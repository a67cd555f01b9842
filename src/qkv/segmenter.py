"""Who says where Chinese words begin: a segmenter, by its name or as a function.

Chinese is written without spaces; which characters make a word is for a segmenter to say. It sees nothing but runs of
汉字, so that it never has a say in what becomes of Latin words, digits and punctuation marks.

What this file does NOT do: segment. `rjieba` does (a dictionary, the likeliest path through it, a hidden Markov model
for what the dictionary lacks), or any function that takes a string and returns its words. Nor does it use the words:
`chinese_words.py` shows them to a tokenizer, `data/words.py` to whole word masking.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import util

from qkv.errors import InputError, did_you_mean

Cut = Callable[[str], list[str]]
NAMES = ("rjieba", "none")
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
    found = segmenter(choice)
    return None if found is None else found.name


def is_known(name: object) -> bool:
    """Whether what a file calls a segmenter, with a version or without, can be had here by its name.

    >>> is_known("rjieba 0.2.2"), is_known("my_module.cut"), is_known("none")
    (True, False, False)
    """
    return isinstance(name, str) and name.partition(" ")[0] in NAMES and name != "none"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 100 else text[:100] + " …"
