"""Where a token stands: the tables of positions, and what a model makes of words in another order.

`positions`: the waves of the Transformer (nn/position.py), 128 positions by 128 dimensions as the notes draw them,
the model's own table beside them, and how alike positions are in each.

`order`: two texts of the same words, 他欠我100万 and 我欠他100万. A bag of words cannot tell them apart, and neither
can attention whose tokens all stand at one position; with positions each word has another vector, by layer. GPT, which
sees what is to the left alone, has some order without positions too, and a recurrent network needs none.

Shapes: T positions, D width, K layers and what lies below them, n words that both texts have.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from qkv.look.attention import word_ranges
from qkv.look.plane import VectorArray, cosine_matrix
from qkv.look.subject import Subject
from qkv.look.token_layers import TokenLayers, has_positions, read_token_layers
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.nn.position import sinusoidal_table
from qkv.report.attention_map import Token

WAVE_ROWS, WAVE_WIDTH = 128, 128
"""Of the waves: what is drawn in the notes."""
MOST_ROWS = 512
"""Of a model's own table; the head of a reply says how many there are."""
LONGEST_COMPARED = 600
_NOTHING = 1e-5
"""Of a cosine: what is left of no difference after rounding."""


@torch.inference_mode()
def show_positions(subject: Subject, asked: Asked) -> Reply:
    asked.done()
    waves = sinusoidal_table(WAVE_ROWS, WAVE_WIDTH).numpy()
    arrays = {"sinusoid": waves, "sinusoid_similarity": cosine_matrix(waves)}
    own = _find_own_positions(subject)
    if own is not None:
        arrays |= {"own": own.table, "own_similarity": cosine_matrix(own.table)}
    head = {
        "model": subject.title,
        "kind": subject.kind,
        "sinusoid": {"rows": WAVE_ROWS, "width": WAVE_WIDTH, "base": 10_000},
        "own": None if own is None else {"kind": own.kind, "rows": len(arrays["own"]), "of": own.rows,
                                         "width": own.table.shape[1]},
    }  # fmt: skip
    return Reply(head, arrays)


@dataclass(frozen=True)
class _OwnPositions:
    kind: str  # see `PositionEncoding`
    table: VectorArray  # (T, D), the first of them
    rows: int  # positions that the model has


def _find_own_positions(subject: Subject) -> _OwnPositions | None:
    """None for a model that is not told where a token stands."""
    encoding = None if subject.is_table else subject.network.position_encoding
    if encoding is None:
        return None
    rows = encoding.length or subject.max_length
    shown = torch.arange(min(rows, MOST_ROWS if encoding.length else WAVE_ROWS), device=subject.device)
    return _OwnPositions(encoding.kind, encoding(shown).float().cpu().numpy(), rows)


@dataclass(frozen=True)
class _Word:
    written: str
    start: int
    end: int
    layers: tuple[VectorArray, ...]  # K of (D,)


def compare_order(subject: Subject, asked: Asked) -> Reply:
    text, other = asked.text("text", longest=LONGEST_COMPARED), asked.text("other", longest=LONGEST_COMPARED)
    asked.done()
    texts = (text, other)
    (one, lost), (two, lost_there) = map(_read_words, texts, read_token_layers(subject, texts))
    pairs, left_over = pair_words([word.written for word in one], [word.written for word in two])
    if not pairs:
        raise RefusalError("no_common_words", "The two texts have no word in common: nothing can be compared.")
    arrays = {"moved": _word_distances(one, two, pairs), "texts": _text_distances(one, two)}
    lowest, bag = arrays["moved"][0], arrays["texts"][0]
    if has_positions(subject):
        (here, _), (there, _) = map(_read_words, texts, read_token_layers(subject, texts, in_place=False))
        arrays |= {"moved_without": _word_distances(here, there, pairs), "texts_without": _text_distances(here, there)}
        lowest, bag = arrays["moved_without"][0], arrays["texts_without"][0]
    head = {
        "model": subject.title,
        "kind": subject.kind,
        "layers": list(range(len(one[0].layers))),
        "words": [
            {"text": one[a].written, "here": [one[a].start, one[a].end], "there": [two[b].start, two[b].end],
             "from": a, "to": b}
            for a, b in pairs
        ],
        "lonely": [[_span(one[a]) for a in left_over[0]], [_span(two[b]) for b in left_over[1]]],
        "unknown": [[_span(word) for word in words] for words in (lost, lost_there)],
        "same_bag": not (left_over[0] or left_over[1]),
        # the mean of what lies below the layers; none where that has read other words already
        "bag": round(float(bag), 6) if float(lowest.max()) < _NOTHING else None,
        "has_positions": has_positions(subject),
    }  # fmt: skip
    return Reply(head, arrays)


def pair_words(some: Sequence[str], others: Sequence[str]) -> tuple[list[tuple[int, int]], tuple[list[int], list[int]]]:
    """The first of a word here with its first there, and so on; and what is left over on either side.

    >>> pair_words(["the", "dog", "the"], ["The", "man"])
    ([(0, 0)], ([1, 2], [1]))
    """
    there: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(others):
        there[word.casefold()].append(place)
    pairs, alone = [], []
    for place, word in enumerate(some):
        if places := there[word.casefold()]:
            pairs.append((place, places.pop(0)))
        else:
            alone.append(place)
    return pairs, (alone, sorted(place for places in there.values() for place in places))


def _read_words(text: str, found: TokenLayers) -> tuple[list[_Word], list[_Word]]:
    """The words, pieces of one put together by the mean of their vectors; and those that the vocabulary does not know,
    which have no vector, or that of all that is unknown."""
    tokens = [
        Token(token, text[start:end], start, end, 0)
        for token, (start, end) in zip(found.tokens, found.offsets, strict=True)
    ]
    words: list[_Word] = []
    unknown: list[_Word] = []
    for first, last in word_ranges(tokens, [text]):
        pieces = slice(first, last + 1)
        start, end = tokens[first].start, tokens[last].end
        start += len(text[start:end]) - len(text[start:end].lstrip())  # the space that some pieces begin with
        layers = tuple(layer[pieces].mean(0) for layer in found.layers)
        (words if all(found.known[pieces]) else unknown).append(_Word(text[start:end], start, end, layers))
    if not words:
        raise RefusalError("no_vector", f"No word of '{text:.40}' has a vector.", word=text[:40], near="")
    return words, unknown


def _word_distances(one: Sequence[_Word], two: Sequence[_Word], pairs: Sequence[tuple[int, int]]) -> VectorArray:
    """(K, n): 1 − cosine of a word here and there"""
    return np.stack(
        [
            [_cosine_distance(here, there) for here, there in zip(one[a].layers, two[b].layers, strict=True)]
            for a, b in pairs
        ],
        axis=1,
    ).astype(np.float32)


def _text_distances(one: Sequence[_Word], two: Sequence[_Word]) -> VectorArray:
    """(K,): the same of the mean of all words"""
    layers = range(len(one[0].layers))
    means = [[np.mean([word.layers[layer] for word in words], 0) for layer in layers] for words in (one, two)]
    return np.array([_cosine_distance(here, there) for here, there in zip(*means, strict=True)], np.float32)


def _cosine_distance(here: VectorArray, there: VectorArray) -> float:
    one, two = here.astype(np.float64), there.astype(np.float64)
    lengths = float(np.linalg.norm(one) * np.linalg.norm(two))
    return max(0.0, 1.0 - float(one @ two) / lengths) if lengths else 0.0


def _span(word: _Word) -> dict[str, Any]:
    return {"text": word.written, "at": [word.start, word.end]}
