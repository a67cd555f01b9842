"""The token vectors of all layers from one run, the embeddings first; and their planes and cosines.

    bert, gpt, transformer (its encoder)   token and position, then every block; the last after the final norm
    elmo                                   character CNN, then every recurrent layer, both directions concatenated
    rnnlm, nnlm, word2vec                  one vector
    plain encoders (reader)                token vectors, then the encoder's output

The vectors of a layer equal those of `Model.embed_tokens`. Texts that exceed the model's maximum length are refused,
not truncated. With `in_place` False every token has position 0, which shows what attention does without positions.

Shapes: T tokens of a text, N of all texts, D width, K layers including the embeddings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.api.embedder import scale_to_unit
from qkv.data.batch import Batch
from qkv.look.subject import Subject
from qkv.look.wire import check_length, to_float32
from qkv.metrics.numbers import principal
from qkv.models.word2vec.folder import WordVectors, tokenizer_of_words
from qkv.text.tokenizer import Encoded, Tokenizer

_Floats = NDArray[np.float32]


@dataclass(frozen=True)
class TokenLayers:
    tokens: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]  # characters of the text
    layers: tuple[_Floats, ...]  # K of (T, D)
    known: tuple[bool, ...]  # False: unknown to the vocabulary


def has_positions(subject: Subject) -> bool:
    """Whether the model has a position encoding."""
    return not subject.is_table and subject.network.position_encoding is not None


@torch.inference_mode()
def read_token_layers(subject: Subject, texts: Sequence[str], *, in_place: bool = True) -> list[TokenLayers]:
    assert in_place or has_positions(subject), f"{subject.kind} has no positions to leave out"
    if subject.translates:
        if all(kind.part != "encoder" for kind in subject.network.attentions):
            raise subject.refusal("no_vectors", "whose word vectors are not shown")
        return _read_encoder_layers(subject, texts, in_place)
    if subject.is_table:
        return [
            _look_up(subject.vectors, one) for one in find_table_tokenizer(subject).encode_batch(texts, special=False)
        ]
    model = subject.model
    encoded, marks = model.tokenizer.encode_batch(texts, special=False), model.tokenizer.marks
    rows = [[marks.start, *one.ids, marks.end] for one in encoded]
    _check(rows, texts, model.config.max_length)
    batch = _batch(rows, in_place)
    found = _by_text(model.network.encoder.token_states(batch), batch, slice(1, -1))  # without the special tokens
    return [
        TokenLayers(
            tuple(one.tokens), tuple(one.offsets), layers, tuple(number != model.tokenizer.unk_id for number in one.ids)
        )
        for one, layers in zip(encoded, found, strict=True)
    ]


@lru_cache(maxsize=8)
def find_table_tokenizer(subject: Subject) -> Tokenizer:
    """The tokenizer of a table; for a file of vectors one made from its words, without loading the table again."""
    return tokenizer_of_words(subject.vectors.words) if subject.path.is_file() else Tokenizer.load(subject.path)


def _look_up(table: WordVectors, found: Encoded) -> TokenLayers:
    rows = [table.rows.get(token) for token in found.tokens]
    vectors = np.zeros((len(rows), table.width), np.float32)
    for place, row in enumerate(rows):
        if row is not None:
            vectors[place] = table.vectors[row].numpy()
    return TokenLayers(tuple(found.tokens), tuple(found.offsets), (vectors,), tuple(row is not None for row in rows))


def _read_encoder_layers(subject: Subject, texts: Sequence[str], in_place: bool) -> list[TokenLayers]:
    translator = subject.translator
    tokenizer = translator.languages.source
    encoded = [tokenizer.encode(text, special=False) for text in texts]
    rows = translator.languages.read(texts)
    _check(rows, texts, translator.max_length)
    batch = _batch(rows, in_place)
    first, *rest = translator.network.layers(batch)
    found = _by_text([first.entered, first.left, *(layer.left for layer in rest)], batch, slice(None))
    return [
        TokenLayers(
            tuple(one.tokens),
            tuple(one.offsets),
            tuple(layer[: len(one.ids)] for layer in layers),  # without the end token
            _known(one, tokenizer.unk_id),
        )
        for one, layers in zip(encoded, found, strict=True)
    ]


def _batch(rows: Sequence[Sequence[int]], in_place: bool) -> Batch:
    return Batch.of(rows, positions=None if in_place else [[0] * len(row) for row in rows])


def _by_text(states: Sequence[Tensor], batch: Batch, kept: slice) -> list[tuple[_Floats, ...]]:
    by_layer = [[to_float32(row)[kept] for row in batch.rows(state)] for state in states]
    return [tuple(rows) for rows in zip(*by_layer, strict=True)]


def _known(one: Encoded, unknown: int) -> tuple[bool, ...]:
    return tuple(number != unknown for number in one.ids)


def _check(rows: Sequence[Sequence[int]], texts: Sequence[str], most: int) -> None:
    for row, text in zip(rows, texts, strict=True):
        check_length(len(row), most, text)


# --- Two principal components of vectors, layer by layer, and their cosines.
#
# Every layer has its own components (metrics/numbers.py), whose signs are arbitrary. They are flipped to agree with the
# previous layer, so that a point can be followed from layer to layer.
#
# Shapes: K layers, n vectors, D width (may differ between layers).

VectorArray = NDArray[np.float32]
_NOTHING = 1e-5
"""Relative to the length of a vector: smaller differences are rounding errors."""


class _Planes(NamedTuple):
    points: VectorArray  # (K, n, 2)
    variance: VectorArray  # (K, 2) share of the variance on each axis
    cosine: VectorArray  # (K, n, n)


def project_layers(layers: Sequence[VectorArray]) -> _Planes:
    """K of (n, D) →

    >>> found = project_layers([np.array([[0, 1, 5], [2, 0, 5], [4, 0, 5]], np.float32)] * 2)
    >>> found.points.shape, [round(float(share), 2) for share in found.variance[0]]
    ((2, 3, 2), [0.98, 0.02])
    """
    points: list[VectorArray] = []
    shares: list[VectorArray] = []
    for vectors in layers:
        places, share = project_vectors(vectors)
        if points:
            agree = (points[-1] * places).sum(0)  # (2,)
            places = places * np.where(agree < 0, np.float32(-1), np.float32(1))
        points.append(places)
        shares.append(share)
    return _Planes(np.stack(points), np.stack(shares), np.stack([cosine_matrix(vectors) for vectors in layers]))


def project_vectors(vectors: VectorArray) -> tuple[VectorArray, VectorArray]:
    """(n, D) → points (n, 2) and variance shares (2,); zeros if all vectors are equal."""
    places, shares = np.zeros((len(vectors), 2), np.float32), np.zeros(2, np.float32)
    length = float(np.linalg.norm(vectors, axis=1).max())
    if float(np.abs(vectors - vectors[:1]).max()) > _NOTHING * length:
        found = principal(vectors.astype(np.float64), 2)
        k = found.places.shape[1]  # 1 if D is 1
        places[:, :k], shares[:k] = found.places, found.shares
    return places, shares


def cosine_matrix(vectors: VectorArray, others: VectorArray | None = None) -> VectorArray:
    """(n, D) and (m, D), by default the same → (n, m)"""
    unit = scale_to_unit(vectors.astype(np.float32))
    with_ = unit if others is None else scale_to_unit(others.astype(np.float32))
    return np.clip(unit @ with_.T, -1, 1)
