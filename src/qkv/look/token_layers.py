"""A vector a token, of every layer at once: what lies below the layers first, then what each of them makes of it.

    bert, gpt, transformer (its encoder)   token and position, then every block; the last as the model hands it on
    elmo                                   spelled, then every recurrent layer, both directions side by side
    rnnlm, nnlm, word2vec                  the one vector there is
    a reader of texts                      what its tokens are looked up as, then what it makes of them

Those of a layer equal what `Model.embed_tokens` gives for it. One run gives all, where asking layer by layer would run
the model as often as it has layers. A text must fit the model in one piece: nothing is cut silently.

`in_place` False lets every token stand at position 0: what is left is what attention alone can tell.

Shapes: T tokens of a text, N of all texts, D width, K layers and what lies below them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.api.translator import Translator
from qkv.data.batch import Batch
from qkv.look.subject import Subject
from qkv.look.wire import RefusalError
from qkv.models.bert.network import Bert
from qkv.models.encoder import Encoder
from qkv.models.gpt.encoder import GPTEncoder
from qkv.models.gpt.tokenizer import marks_of
from qkv.models.plain.network import Reader
from qkv.models.transformer.network import Transformer
from qkv.models.word2vec.vectors import WordVectors, tokenizer_of_words
from qkv.nn.fused import Packed
from qkv.text.tokenizer import Encoded, Tokenizer

_Floats = NDArray[np.float32]


@dataclass(frozen=True)
class TokenLayers:
    tokens: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]  # characters of the text
    layers: tuple[_Floats, ...]  # K of (T, D)
    known: tuple[bool, ...]  # False: what the vocabulary lacks


def has_positions(subject: Subject) -> bool:
    """Whether a token is told where it stands, so that this can be left out."""
    return subject.kind in ("bert", "gpt", "transformer")


@torch.inference_mode()
def token_layers(subject: Subject, texts: Sequence[str], *, in_place: bool = True) -> list[TokenLayers]:
    assert in_place or has_positions(subject), f"{subject.kind} has no positions to leave out"
    if subject.kind == "transformer":
        return _of_translator(subject.translator, texts, in_place)
    if subject.kind == "seq2seq":
        raise subject.refusal("no_vectors", "whose vectors of words are not shown")
    if subject.kind in ("table", "nnlm"):
        return [_looked_up(subject.vectors, one) for one in tokenizer_of(subject).encode_batch(texts, special=False)]
    model = subject.model
    encoded, marks = model.tokenizer.encode_batch(texts, special=False), marks_of(model.tokenizer)
    rows = [[marks.start, *one.ids, marks.end] for one in encoded]
    _check(rows, texts, model.config.max_length)
    batch = Batch.of(rows, positions=None if in_place else [[0] * len(row) for row in rows])
    encoder = model.network.encoder
    run = next((run for kind, run in RUNS.items() if isinstance(encoder, kind)), None)
    assert run is not None, f"{type(encoder).__name__} is an encoder that nobody thought of here"
    found = _by_text(run(encoder, batch), batch, slice(1, -1))  # without the marks
    return [
        TokenLayers(
            tuple(one.tokens), tuple(one.offsets), layers, tuple(number != model.tokenizer.unk_id for number in one.ids)
        )
        for one, layers in zip(encoded, found, strict=True)
    ]


@lru_cache(maxsize=8)
def tokenizer_of(subject: Subject) -> Tokenizer:
    """How a table's words are found in a text; a file of vectors says nothing of it but its words. No second copy of
    the table is loaded for it."""
    return tokenizer_of_words(subject.vectors.words) if subject.path.is_file() else Tokenizer.load(subject.path)


def _looked_up(table: WordVectors, found: Encoded) -> TokenLayers:
    rows = [table.rows.get(token) for token in found.tokens]
    vectors = np.zeros((len(rows), table.width), np.float32)
    for place, row in enumerate(rows):
        if row is not None:
            vectors[place] = table.vectors[row].numpy()
    return TokenLayers(tuple(found.tokens), tuple(found.offsets), (vectors,), tuple(row is not None for row in rows))


def _bert(encoder: Encoder, batch: Batch) -> list[Tensor]:
    states = encoder(**batch.inputs(), states=True, pool=False).states
    assert states is not None, "they were asked for"
    return list(states)


def _gpt(encoder: Encoder, batch: Batch) -> list[Tensor]:
    assert isinstance(encoder, GPTEncoder)
    states, attend = [encoder.embedding(batch.ids, batch.positions)], Packed(*batch.packing, causal=True)
    for block in encoder.blocks:
        states.append(block(states[-1], attend)[0])
    return [*states[:-1], encoder.norm(states[-1])]


def _reader(encoder: Encoder, batch: Batch) -> list[Tensor]:
    looked_up: Tensor = encoder.embedding(batch.ids, batch.lengths)  # (N, E), or (N, K, E) of ELMo
    below = list(looked_up.unbind(1)) if looked_up.dim() == 3 else [looked_up]
    return [*below, encoder(**batch.inputs(), pool=False).hidden] if len(encoder.blocks) else below


RUNS: dict[type[Encoder], Callable[[Encoder, Batch], list[Tensor]]] = {Bert: _bert, GPTEncoder: _gpt, Reader: _reader}


def _of_translator(translator: Translator, texts: Sequence[str], in_place: bool) -> list[TokenLayers]:
    network, tokenizer = translator.network, translator.languages.source
    assert isinstance(network, Transformer), "the recurrent one was refused"
    encoded = [tokenizer.encode(text, special=False) for text in texts]
    rows = translator.languages.read(texts)
    _check(rows, texts, translator.max_length)
    batch = Batch.of(rows)
    table = network.embedding if network.source_embedding is None else network.source_embedding
    x = table(batch.ids) * network.scale
    x = x + network.positions(batch.positions if in_place else torch.zeros_like(batch.positions), x.dtype)
    states, attend = [x], Packed(*batch.packing)
    for block in network.encoder:
        states.append(block(states[-1], attend)[0])
    states[-1] = network.encoder_norm(states[-1])
    found = _by_text(states, batch, slice(None))
    return [
        TokenLayers(
            tuple(one.tokens),
            tuple(one.offsets),
            tuple(layer[: len(one.ids)] for layer in layers),  # the mark of the end comes after
            _known(one, tokenizer.unk_id),
        )
        for one, layers in zip(encoded, found, strict=True)
    ]


def _by_text(states: Sequence[Tensor], batch: Batch, kept: slice) -> list[tuple[_Floats, ...]]:
    by_layer = [[row.float().cpu().numpy()[kept] for row in batch.rows(state)] for state in states]
    return [tuple(rows) for rows in zip(*by_layer, strict=True)]


def _known(one: Encoded, unknown: int) -> tuple[bool, ...]:
    return tuple(number != unknown for number in one.ids)


def _check(rows: Sequence[Sequence[int]], texts: Sequence[str], most: int) -> None:
    for row, text in zip(rows, texts, strict=True):
        begins = text if len(text) <= 40 else text[:39] + "…"
        if len(row) > most:
            raise RefusalError(
                "too_many_tokens",
                f"'{begins}' has {len(row):,} tokens, and this model reads {most:,} at once. Shorten it.",
                tokens=len(row),
                most=most,
                text=begins,
            )
