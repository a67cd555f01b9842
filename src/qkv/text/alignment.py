"""Word alignment between a text and its translation, from the attention of the network that translated it.

    tokens     Tom chase ##s Jerry [SEP]      attention of each target token to each source token
    words      Tom chases Jerry               summed over the subwords of a source word, averaged over a target word's
    links      Tom–汤姆, chases–追逐, Jerry–杰瑞       each with the characters of both texts and the weight

All spans are in characters of the user's texts: `source[start:end]` and `target[start:end]`. Attention to tokens
without characters (the end token) is stored separately, as `rest`. Words are runs of letters and digits; every 汉字 is
a word, unless a segmenter is given; words that share a token are merged.

What this file does NOT do: interpret attention. A network often, but not always, attends to the word it translates.
The attention may be of one layer, one head, or a mean of many; whether row i belongs to the step that generated token i
or to the one that read it is the caller's choice.

Shapes: T tokens of the translation, S tokens of the source, W and X words of them.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qkv.errors import InputError, did_you_mean
from qkv.text.segmenter import Segmenter
from qkv.text.wordpiece import CHINESE

_Weights = NDArray[np.float64]


class WordSpan(NamedTuple):
    start: int  # text[start:end]
    end: int


class Alignment(NamedTuple):
    """A link between a source word and a target word."""

    source: WordSpan
    target: WordSpan
    weight: float  # share of the target word's attention

    def to_dict(self, source: str, target: str) -> dict[str, Any]:
        """Return a JSON object, with the words."""
        return {
            "source": {"text": source[slice(*self.source)], **self.source._asdict()},
            "target": {"text": target[slice(*self.target)], **self.target._asdict()},
            "weight": round(self.weight, 6),
        }


@dataclass(frozen=True)
class WordAttention:
    """Attention between the words of two texts."""

    source: str
    target: str
    source_words: tuple[WordSpan, ...]  # X
    target_words: tuple[WordSpan, ...]  # W
    weights: _Weights  # (W, X); a row and its rest sum to 1, up to rounding
    rest: _Weights  # (W,) attention to tokens without characters
    by_character: bool = True  # every 汉字 is a word: no segmenter was given

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "source_words": [list(span) for span in self.source_words],
            "target_words": [list(span) for span in self.target_words],
            "weights": self.weights.round(6).tolist(),
            "rest": self.rest.round(6).tolist(),
        }


def word_attention(
    attention: ArrayLike,
    source: str,
    source_tokens: Sequence[tuple[int, int]],
    target: str,
    target_tokens: Sequence[tuple[int, int]],
    segmenter: Segmenter | None = None,
) -> WordAttention:
    """Convert attention between tokens (T, S) to words. Tokens are spans of the texts, empty for special tokens.

    Additional columns of `attention` (the end token, padding) count as rest; additional rows (the step that generated
    the end token) are ignored.

    >>> found = word_attention([[0.9, 0, 0.1], [0, 0.8, 0.2]], "a bc", [(0, 1), (2, 4)], "甲乙", [(0, 1), (1, 2)])
    >>> found.weights.tolist(), found.rest.round(9).tolist()
    ([[0.9, 0.0], [0.0, 0.8]], [0.1, 0.2])
    """
    tokens = np.asarray(attention, np.float64)  # (≥ T, ≥ S)
    if tokens.ndim != 2 or tokens.shape[0] < len(target_tokens) or tokens.shape[1] < len(source_tokens):
        raise ValueError(f"Attention of {tokens.shape} for {len(target_tokens)} × {len(source_tokens)} tokens.")
    tokens = tokens[: len(target_tokens)]
    source_words = _joined(word_spans(source, segmenter), source_tokens)
    target_words = _joined(word_spans(target, segmenter), target_tokens)
    looked_at = _places(source_words, source_tokens)  # (S, X)
    wrote = _places(target_words, target_tokens)  # (T, W)
    by_token = tokens[:, : len(source_tokens)] @ looked_at  # (T, X)
    pieces = np.maximum(wrote.sum(0), 1)[:, None]  # (W, 1)
    return WordAttention(
        source,
        target,
        source_words,
        target_words,
        weights=wrote.T @ by_token / pieces,
        rest=(wrote.T @ (tokens.sum(1) - by_token.sum(1))[:, None] / pieces)[:, 0].clip(min=0),
        by_character=segmenter is None,
    )


def argmax_links(weights: _Weights) -> Iterator[tuple[int, int]]:
    """Yield each target word with the source word of largest weight: (target, source)."""
    yield from ((row, int(best)) for row, best in enumerate(weights.argmax(1)) if weights[row, best] > 0)


def mutual_links(weights: _Weights) -> Iterator[tuple[int, int]]:
    """Yield the links of `argmax_links` that are also the maximum of the source word: fewer and more reliable."""
    given = weights.argmax(0)  # (X,)
    yield from ((row, best) for row, best in argmax_links(weights) if given[best] == row)


ALIGNMENT_METHODS: dict[str, Callable[[_Weights], Iterator[tuple[int, int]]]] = {
    "argmax": argmax_links,
    "mutual": mutual_links,
}


def align(found: WordAttention, method: str = "argmax", least: float = 0.0) -> list[Alignment]:
    """Return the links with a weight of at least `least`, in the order of the translation.

    A target word whose `rest` exceeds its attention to all words has no link. If every 汉字 is a word, neighbours with
    the same source word are merged: 汤 and 姆 of Tom become 汤姆.
    """
    if method not in ALIGNMENT_METHODS:
        raise InputError(
            f"Unknown alignment '{method}'.{did_you_mean(method, ALIGNMENT_METHODS)} "
            f"Known: {', '.join(ALIGNMENT_METHODS)}."
        )
    if not found.weights.size:
        return []
    groups: list[tuple[int, list[int]]] = []  # source word, target words
    for row, best in ALIGNMENT_METHODS[method](found.weights):
        if found.rest[row] > found.weights[row].sum():
            continue
        if groups and groups[-1][0] == best and _makes_one_word(found, groups[-1][1][-1], row):
            groups[-1][1].append(row)
        else:
            groups.append((best, [row]))
    links = [
        Alignment(
            found.source_words[best],
            WordSpan(found.target_words[rows[0]].start, found.target_words[rows[-1]].end),
            float(found.weights[rows, best].mean()),
        )
        for best, rows in groups
    ]
    return [link for link in links if link.weight >= least]


def _makes_one_word(found: WordAttention, before: int, after: int) -> bool:
    first, second = found.target_words[before], found.target_words[after]
    text = found.target[first.start : second.end]
    return found.by_character and first.end == second.start and all(map(_is_chinese, text))


def word_spans(text: str, segmenter: Segmenter | None = None) -> list[WordSpan]:
    """Return runs of letters and digits, 汉字 one by one or segmented, and punctuation marks one by one.

    >>> [text[slice(*span)] for text in ["Tom isn't 3.5 m tall…", "汤姆3岁"] for span in word_spans(text)]
    ['Tom', "isn't", '3.5', 'm', 'tall', '…', '汤', '姆', '3', '岁']
    """
    spans: list[WordSpan] = []
    before = "space"  # the kind of the last character
    for place, character in enumerate(text):
        kind = _kind(character)
        if kind == "mark" and _is_inside(text, place):
            kind = "letter"
        if kind == "joins" and before != "space":
            kind = before
            goes_on = True
        elif kind == before == "mark":
            goes_on = _is_glued(text, place, spans[-1])
        else:
            goes_on = kind == before and (kind == "letter" or (kind == "chinese" and segmenter is not None))
        if goes_on:
            spans[-1] = WordSpan(spans[-1].start, place + 1)
        elif kind != "space":
            spans.append(WordSpan(place, place + 1))
        before = "mark" if kind == "joins" else kind
    return spans if segmenter is None else [part for span in spans for part in _cut(text, span, segmenter)]


def _cut(text: str, span: WordSpan, segmenter: Segmenter) -> Iterator[WordSpan]:
    run, start = text[slice(*span)], span.start
    if len(run) == 1 or not all(map(_is_chinese, run)):
        yield span
        return
    for word in segmenter.words([run]):
        yield WordSpan(start, start + len(word))
        start += len(word)


def _kind(character: str) -> str:
    if character.isspace():
        return "space"
    if _is_chinese(character):
        return "chinese"
    category = unicodedata.category(character)
    if category[0] == "M" or category == "Cf" or "\U0001f3fb" <= character <= "\U0001f3ff":  # skin tones of emoji
        return "joins"
    return "letter" if category[0] in "LN" else "mark"


_chinese = re.compile(f"[{CHINESE}]")


def _is_chinese(character: str) -> bool:
    return _chinese.match(character) is not None


def _is_inside(text: str, place: int) -> bool:
    """Whether a punctuation mark belongs to the word around it: isn't, well-known, U.S.A, 3.5."""
    if not 0 < place < len(text) - 1:
        return False
    around = text[place - 1], text[place + 1]
    digits = sum(map(str.isdigit, around))
    if text[place] in ".,:" and digits:
        return digits == 2
    return text[place] in ".'’-" and all(_kind(character) == "letter" for character in around)


def _is_glued(text: str, place: int, before: WordSpan) -> bool:
    """Whether this symbol and those before it are displayed as one: joined emoji, or the two letters of a flag."""
    if text[place - 1] == "\u200d":  # zero width joiner
        return True
    flag = text[slice(*before)] + text[place]
    return len(flag) == 2 and all("\U0001f1e6" <= letter <= "\U0001f1ff" for letter in flag)


def _joined(words: Sequence[WordSpan], tokens: Sequence[tuple[int, int]]) -> tuple[WordSpan, ...]:
    """Merge words that share a token."""
    starts, ends = [word.start for word in words], [word.end for word in words]
    together: set[int] = set()  # words that belong to the one before them
    for start, end in tokens:
        if start < end:
            together.update(range(bisect_right(ends, start) + 1, bisect_left(starts, end)))
    found: list[WordSpan] = []
    for number, word in enumerate(words):
        if number in together:
            found[-1] = WordSpan(found[-1].start, word.end)
        else:
            found.append(word)
    return tuple(found)


def _places(words: Sequence[WordSpan], tokens: Sequence[tuple[int, int]]) -> _Weights:
    """(tokens, words): 1 where a token is part of a word; zeros for a token without characters."""
    places = np.zeros((len(tokens), len(words)))
    ends = [word.end for word in words]
    for number, (start, end) in enumerate(tokens):
        word = bisect_right(ends, start)
        if start < end and word < len(words) and words[word].start < end:
            places[number, word] = 1
    return places
