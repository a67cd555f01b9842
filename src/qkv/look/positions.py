"""The view of positions: position tables, and the effect of word order.

Question `positions`: the sinusoids of the Transformer (nn/position.py), 128 positions by 128 dimensions as in the
notes, the model's own table, and the cosines between positions in each.

Question `order`: two texts of the same words, 他欠我100万 and 我欠他100万. A bag of words cannot distinguish them,
nor can attention if all tokens have one position; with positions the vectors of a word differ, layer by layer. GPT has
some order without positions, since it is causal; a recurrent network needs none.

Shapes: T positions, D width, K layers including the embeddings, n words common to both texts.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from qkv.look.attention import word_ranges
from qkv.look.subject import Subject
from qkv.look.token_layers import TokenLayers, VectorArray, cosine_matrix, has_positions, read_token_layers
from qkv.look.wire import Asked, RefusalError, Reply, to_float32
from qkv.nn.position import sinusoidal_table
from qkv.report.attention import Token

WAVE_ROWS, WAVE_WIDTH = 128, 128
"""Size of the table of sinusoids, as in the notes."""
MOST_ROWS = 512
"""Maximum number of rows of the model's own table in a reply; the head has the total."""
LONGEST_COMPARED = 600
_NOTHING = 1e-5
"""Cosine distances below this are rounding errors."""


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
    table: VectorArray  # (T, D), the first rows
    rows: int  # number of positions of the model


def _find_own_positions(subject: Subject) -> _OwnPositions | None:
    """None for a model without a position encoding."""
    encoding = None if subject.is_table else subject.network.position_encoding
    if encoding is None:
        return None
    rows = encoding.length or subject.max_length
    shown = torch.arange(min(rows, MOST_ROWS if encoding.length else WAVE_ROWS), device=subject.device)
    return _OwnPositions(encoding.kind, to_float32(encoding(shown)), rows)


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
        # distance of the mean embeddings; None if the lowest layer is already contextual
        "bag": round(float(bag), 6) if float(lowest.max()) < _NOTHING else None,
        "has_positions": has_positions(subject),
    }  # fmt: skip
    return Reply(head, arrays)


def pair_words(some: Sequence[str], others: Sequence[str]) -> tuple[list[tuple[int, int]], tuple[list[int], list[int]]]:
    """Pairs the i-th occurrence of a word here with the i-th there; and the unpaired words of either side.

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
    """The words, with the mean of their subwords' vectors; and the words that the vocabulary does not know."""
    tokens = [
        Token(token, text[start:end], start, end, 0)
        for token, (start, end) in zip(found.tokens, found.offsets, strict=True)
    ]
    words: list[_Word] = []
    unknown: list[_Word] = []
    for first, last in word_ranges(tokens, [text]):
        pieces = slice(first, last + 1)
        start, end = tokens[first].start, tokens[last].end
        start += len(text[start:end]) - len(text[start:end].lstrip())  # some tokens start with a space
        layers = tuple(layer[pieces].mean(0) for layer in found.layers)
        (words if all(found.known[pieces]) else unknown).append(_Word(text[start:end], start, end, layers))
    if not words:
        raise RefusalError("no_vector", f"No word of '{text:.40}' has a vector.", word=text[:40], near="")
    return words, unknown


def _word_distances(one: Sequence[_Word], two: Sequence[_Word], pairs: Sequence[tuple[int, int]]) -> VectorArray:
    """(K, n): 1 − cosine of each word's vectors in the two texts"""
    return np.stack(
        [
            [_cosine_distance(here, there) for here, there in zip(one[a].layers, two[b].layers, strict=True)]
            for a, b in pairs
        ],
        axis=1,
    ).astype(np.float32)


def _text_distances(one: Sequence[_Word], two: Sequence[_Word]) -> VectorArray:
    """(K,): 1 − cosine of the mean vectors of the two texts"""
    layers = range(len(one[0].layers))
    means = [[np.mean([word.layers[layer] for word in words], 0) for layer in layers] for words in (one, two)]
    return np.array([_cosine_distance(here, there) for here, there in zip(*means, strict=True)], np.float32)


def _cosine_distance(here: VectorArray, there: VectorArray) -> float:
    one, two = here.astype(np.float64), there.astype(np.float64)
    lengths = float(np.linalg.norm(one) * np.linalg.norm(two))
    return max(0.0, 1.0 - float(one @ two) / lengths) if lengths else 0.0


def _span(word: _Word) -> dict[str, Any]:
    return {"text": word.written, "at": [word.start, word.end]}
