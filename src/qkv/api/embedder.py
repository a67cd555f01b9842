"""Compute vectors of texts and tokens, and the result types of the Python API.

Texts are split into windows, and tokens pooled to one vector per text, or returned. Pooling "mean" averages the tokens,
with [CLS] and [SEP] as in sentence-transformers (without them for models without a task head; for word vectors only
tokens that have a vector); "cls" takes the vector of [CLS]. Each token counts in the window where it is further from an
edge (data/windows.py). Layer 0 are the embeddings; the default is the last layer, or ELMo's mean of all layers.

`n_tokens` counts the tokens of a result, `n_windows` its windows, `n_unknown` its unknown tokens.

Shapes: E texts, N tokens of a batch, M counted ones, T tokens of a text, D width.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.data.batch import Batch, Watch, chunks, plan_batches
from qkv.data.pairs.groups import make_rows
from qkv.data.windows import Rows
from qkv.errors import InputError, did_you_mean
from qkv.models.family import ENCODES, Encodes, Opened
from qkv.tasks.embed import TEXT_POOLINGS, Counted, TextVectors, vectors_of_batch, vectors_of_rows
from qkv.tasks.embed import scale_to_unit as scale_to_unit
from qkv.text.tokenizer import Encoded
from qkv.text.unknown import count_unknown

_SHOWN, _ROWS = 6, 10
"""Numbers of a vector and rows that a notebook shows."""


def html_table(headings: Sequence[str], rows: Iterable[Sequence[object]], caption: str) -> str:
    """Return a table for a notebook; cells are text, never markup."""

    def line(cells: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return (
        f"<table><caption>{escape(caption)}</caption><thead>{line(headings, 'th')}</thead><tbody>{body}</tbody></table>"
    )


@dataclass(frozen=True)
class BlankCandidate:
    """A candidate for a blank: its token, the same as running text, and its probability."""

    token: str
    text: str
    probability: float


@dataclass(frozen=True)
class Blank:
    """One [MASK] at text[start:end] and its candidates, most probable first."""

    start: int
    end: int
    candidates: tuple[BlankCandidate, ...]
    n_tokens: int
    n_windows: int = 1
    n_unknown: int = 0  # tokens of the text that stand for what the vocabulary lacks

    @property
    def best(self) -> BlankCandidate:
        return self.candidates[0]


@dataclass(frozen=True)
class Embeddings:
    """One vector a text, in the order the texts were given. Also an array: `np.asarray(found)`, `found[0]`, `len`."""

    vectors: NDArray[np.float32]  # (texts, width)
    n_tokens: NDArray[np.int64]  # (texts,)
    n_windows: NDArray[np.int64]  # (texts,)
    n_unknown: NDArray[np.int64]  # (texts,) tokens that stand for what the vocabulary lacks
    n_without_vector: NDArray[np.int64] | None = None  # (texts,) words left out of the mean; None: each has a vector
    model: str = ""  # its name

    def __repr__(self) -> str:
        return f"Embeddings({len(self):,} texts × {self.shape[1]:,}{f', {self.model}' if self.model else ''})"

    def __len__(self) -> int:
        return len(self.vectors)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False and dtype is not None and np.dtype(dtype) != self.vectors.dtype:
            raise ValueError(f"vectors of {self.vectors.dtype} become {np.dtype(dtype)} only by a copy")
        return np.array(self.vectors, dtype=dtype, copy=True) if copy else np.asarray(self.vectors, dtype=dtype)

    def __getitem__(self, key: Any) -> Any:
        return self.vectors[key]

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return iter(self.vectors)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.vectors.shape

    def _repr_html_(self) -> str:
        """For notebooks: the beginning of the vectors."""
        rows = [
            (number, tokens, *(f"{value:.3f}" for value in vector[:_SHOWN].tolist()), "…")
            for number, (tokens, vector) in enumerate(zip(self.n_tokens[:_ROWS].tolist(), self.vectors, strict=False))
        ]
        headings = ("", "n_tokens", *map(str, range(min(_SHOWN, self.shape[1]))), "")
        return html_table(headings, rows, f"{len(self):,} vectors of {self.shape[1]:,} numbers")

    def similarity(self) -> NDArray[np.float32]:
        """(texts, texts) cosine of every pair."""
        unit = scale_to_unit(self.vectors)
        return np.clip(unit @ unit.T, -1, 1)


def join_embeddings(parts: Iterable[Embeddings], model: str, width: int, gaps: Sequence[int] = ()) -> Embeddings:
    """Parts of `Embedder.parts` as one; texts at the indices `gaps`, which were not embedded, have vectors of NaN."""
    nothing = np.zeros(0, dtype=np.int64)
    found = list(parts) or [Embeddings(np.zeros((0, width), dtype=np.float32), nothing, nothing, nothing)]
    without = [part.n_without_vector for part in found if part.n_without_vector is not None]
    at = np.array(gaps, np.int64) - np.arange(len(gaps))  # as np.insert counts

    def joined(arrays: Sequence[NDArray[Any]], gap: float = 0) -> NDArray[Any]:
        whole = np.concatenate(arrays)
        return np.insert(whole, at, gap, axis=0) if len(gaps) else whole

    return Embeddings(
        joined([part.vectors for part in found], np.nan),
        joined([part.n_tokens for part in found]),
        joined([part.n_windows for part in found]),
        joined([part.n_unknown for part in found]),
        joined(without) if without else None,
        model,
    )


@dataclass(frozen=True)
class TokenVectors:
    """One vector for each token of a text; a token is text[start:end]."""

    tokens: tuple[str, ...]  # as the vocabulary spells them
    offsets: tuple[tuple[int, int], ...]
    vectors: NDArray[np.float32]  # (tokens, width)
    has_vector: NDArray[np.bool_]  # (tokens,) False for a word that word vectors lack, and its vector is zeros
    n_windows: int = 1
    n_unknown: int = 0

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class NextSentence:
    """The probability that the second text follows the first (BERT §3.1, task 2)."""

    is_next: float
    not_next: float
    n_tokens: int
    n_windows: int = 1
    n_unknown: int = 0


# The embedder.

_TOKENS_PER_BATCH_ELSEWHERE = 32_768
"""A GPU wants enough rows to be busy; a CPU has `Encoder.batch_tokens`."""
TEXTS_PER_CHUNK, CHARACTERS_PER_CHUNK = 2048, 500_000
"""What is tokenised, sorted and held at a time: enough that sorting by length pays, little enough to stream. The second
bound is for long texts, of which the first alone would hold gigabytes."""
FIRST_CHARACTERS = 30_000
"""What is held at first where someone watches: a few seconds of work of a large model on a CPU."""
KEPT_CHARACTERS_PER_CHUNK = 50_000
"""Where the vectors of all tokens are held."""


@dataclass(frozen=True)
class Embedder:
    opened: Opened
    name: str  # of the model, for messages
    device: torch.device
    run: Callable[[Batch, int | None], Tensor]  # (N, D) of a batch on the device, of a layer
    layer: int | None = None
    watch: Watch | None = None

    @property
    def encodes(self) -> Encodes:
        return self.opened.ability(ENCODES)

    def parts(
        self, texts: Iterable[str], pooling: str | None, normalize: bool | None, tokens_per_batch: int | None
    ) -> Iterator[Embeddings]:
        """One vector per text; see `Model.embed`."""
        pool, budget = self.resolve_pooling(pooling), self._budget(tokens_per_batch)
        return self._parts(texts, pool, self.resolve_normalize(normalize), budget)

    def token_parts(
        self, texts: Iterable[str], normalize: bool, tokens_per_batch: int | None
    ) -> Iterator[list[TokenVectors]]:
        """One vector per token; see `Model.embed_tokens`."""
        return self._token_parts(texts, normalize, self._budget(tokens_per_batch))

    def lacks(self, text: str) -> str | None:
        """Why a text has no vector, to follow its name in a message; None if it has one."""
        # a line of nothing but spaces is empty to the person who wrote it, even where spaces are tokens
        if not text.strip() or self.encodes.tokenizer.is_empty(text):
            return "is empty"
        return None if self.encodes.known is None else self._unknown(self.encodes.tokenizer.encode_ids([text])[0])

    def resolve_normalize(self, normalize: bool | None) -> bool:
        """What was asked for, or what the folder says."""
        return self.opened.sentence.normalize if normalize is None else normalize

    def resolve_pooling(self, pooling: str | None) -> str:
        """What was asked for, or what the folder says, or the mean; an error for what the model cannot do."""
        if pooling is None and (foreign := self.opened.sentence.foreign):
            raise InputError(
                f"{self.name} pools with {foreign}, which qkv does not do: give pooling mean or cls (--pooling) to "
                "override it. The vectors will be other ones than this folder was made for."
            )
        pool = pooling or self.opened.sentence.pooling or "mean"
        if pool not in TEXT_POOLINGS:
            raise InputError(
                f"Unknown pooling '{pool}'.{did_you_mean(pool, TEXT_POOLINGS)} Known: {', '.join(TEXT_POOLINGS)}."
            )
        if pool == "cls" and not self.encodes.pools_first:
            raise InputError(
                f"{self.name} is a {self.opened.architecture}, which has learned no vector of a text at [CLS]: leave "
                "pooling (--pooling) out, or give mean."
            )
        return pool

    def _check_layer(self) -> None:
        layer, number = self.layer, self.encodes.named_layers
        if layer is None:
            return
        if number is None:
            raise InputError(
                f"{self.name} is a {self.opened.architecture}, which gives a token one vector: leave layer (--layer) "
                "out."
            )
        if not 0 <= layer <= number:
            raise InputError(
                f"There is no layer {layer}: {self.name} has {number} layers, 1 … {number}, and 0 is what lies below "
                "them."
            )

    def _budget(self, tokens_per_batch: int | None) -> int:
        self._check_layer()
        if (length := self.encodes.sizes.max_length) < 3:
            raise InputError(f"{self.name} has {length} positions; [CLS], a token and [SEP] need 3.")
        if tokens_per_batch is None:
            on_cpu = self.device.type == "cpu"
            return self.encodes.network.encoder.batch_tokens if on_cpu else _TOKENS_PER_BATCH_ELSEWHERE
        if tokens_per_batch < 1:
            raise InputError(f"tokens_per_batch must be 1 or more, not {tokens_per_batch}.")
        return tokens_per_batch

    def _parts(
        self, texts: Iterable[str], pooling: str, normalize: bool, tokens_per_batch: int
    ) -> Iterator[Embeddings]:
        seen = 0
        first = None if self.watch is None else FIRST_CHARACTERS
        for chunk in chunks(texts, TEXTS_PER_CHUNK, _characters, CHARACTERS_PER_CHUNK, first):
            rows = self.prepare(chunk, seen)
            vectors = vectors_of_rows(
                self.encodes,
                lambda batch: self.run(batch, self.layer),
                rows,
                pooling,
                self.device,
                tokens_per_batch,
                self.watch,
            )
            yield self.finish(rows, vectors, normalize)
            seen += len(chunk)

    # `parts` in three steps, for callers that run batches of several lists of texts (qkv.serve).

    def prepare(self, texts: Sequence[str], before: int = 0) -> Rows:
        """Tokenize, check and window texts; messages count from `before` + 1."""
        check_texts(texts, before)
        return self.prepare_ids(self.encodes.tokenizer.encode_ids(texts), before)

    def prepare_ids(self, ids: list[list[int]], before: int = 0) -> Rows:
        """`prepare` of texts that are token ids already, without special tokens."""
        for number, row in enumerate(ids, start=before + 1):
            if not row:
                raise InputError(describe_empty_text(f"Text {number}"))
            if lack := self._unknown(row):
                raise InputError(f"Text {number} {lack}. Leave it out, or have a model read it that spells words.")
        return self._rows(ids)

    def run_batch(self, batch: Batch, counted: Counted, pooling: str) -> TextVectors:
        """The vectors of rows, which may be those of several lists of texts."""
        return vectors_of_batch(
            self.encodes, lambda batch: self.run(batch, self.layer), batch, counted, pooling, self.device
        )

    def finish(self, rows: Rows, found: TextVectors, normalize: bool, at: slice = slice(None)) -> Embeddings:
        """The result for texts, from the vectors of the texts; those at `at` alone."""
        vectors = scale_to_unit(found.vectors) if normalize else found.vectors
        unknown, n_windows = rows.count_token(self.encodes.tokenizer.unknown_id)[at], rows.n_windows[at]
        if self.encodes.counts_marks:
            return Embeddings(vectors, rows.n_tokens[at], n_windows, unknown)
        n_tokens = rows.n_tokens[at] - 2  # without the two marks, which are no part of the mean
        without = None if self.encodes.known is None else n_tokens - found.counts
        return Embeddings(vectors, n_tokens, n_windows, unknown, without)

    def _unknown(self, ids: list[int]) -> str | None:
        if self.encodes.known is None or self.encodes.has_vector(torch.tensor(ids)).any():
            return None
        words = f"none of its {len(ids):,} words is" if len(ids) > 1 else "its only word is not"
        return f"has no vector: {words} among those of {self.name}"

    def _token_parts(
        self, texts: Iterable[str], normalize: bool, tokens_per_batch: int
    ) -> Iterator[list[TokenVectors]]:
        seen = 0
        for chunk in chunks(texts, TEXTS_PER_CHUNK, _characters, KEPT_CHARACTERS_PER_CHUNK):
            encoded, rows = self.prepare_tokens(chunk, seen)
            counts = rows.counts()  # (R,)
            starts = np.cumsum(counts) - counts  # rows keep the order of the texts, and a row's counted tokens theirs
            found = np.empty((int(counts.sum()), self.encodes.sizes.width), dtype=np.float32)
            for chosen in plan_batches(rows.lengths, tokens_per_batch):
                counted = rows.counted(chosen)
                where = np.arange(len(counted[0])) + np.repeat(starts[chosen] - counted[1].numpy(), counts[chosen])
                found[where] = self.run_tokens(rows.collate(chosen), counted)
            yield self.finish_tokens(encoded, rows, found, normalize)
            seen += len(chunk)

    def prepare_tokens(self, texts: Sequence[str], before: int = 0) -> tuple[list[Encoded], Rows]:
        """As `prepare`, of texts whose tokens have a vector each."""
        check_texts(texts, before)
        encoded = self.encodes.tokenizer.encode_batch(texts, special=False)
        ids = [one.ids for one in encoded]
        if 0 in map(len, ids):
            raise InputError(describe_empty_text(f"Text {before + 1 + list(map(len, ids)).index(0)}"))
        return encoded, self._rows(ids)

    @torch.inference_mode()
    def run_tokens(self, batch: Batch, counted: Counted) -> NDArray[np.float32]:
        """(M, D), of the counted tokens."""
        hidden = self.run(batch.to(self.device), self.layer).float()  # (N, D)
        found: NDArray[np.float32] = hidden[counted[0].to(self.device)].cpu().numpy()
        return found

    def finish_tokens(
        self, encoded: Sequence[Encoded], rows: Rows, found: NDArray[np.float32], normalize: bool
    ) -> list[TokenVectors]:
        """The results for texts, from the vectors of the counted tokens of all rows, in the order of the texts."""
        # each text's tokens are between its [CLS] and its [SEP]
        vectors = [of_text[1:-1] for of_text in np.split(found, np.cumsum(rows.n_tokens)[:-1])]
        return [
            TokenVectors(
                tuple(one.tokens),
                tuple(one.offsets),
                scale_to_unit(of_text) if normalize else of_text,
                self._has_vector(one.ids),
                windows,
                count_unknown(self.encodes.tokenizer, one.ids),
            )
            for one, of_text, windows in zip(encoded, vectors, rows.n_windows.tolist(), strict=True)
        ]

    def _has_vector(self, ids: list[int]) -> NDArray[np.bool_]:
        return self.encodes.has_vector(torch.tensor(ids)).numpy()

    def _rows(self, ids: list[list[int]]) -> Rows:
        return make_rows(ids, self.encodes.tokenizer, self.encodes.sizes.max_length)


def _characters(text: str) -> int:
    return len(text) if isinstance(text, str) else 0  # `check_texts` raises for other types


def check_texts(texts: Sequence[str], before: int) -> None:
    for number, text in enumerate(texts, start=before + 1):
        if not isinstance(text, str):
            if is_missing(text):
                raise InputError(f"Text {number} is missing ({text}): leave it out, or give it a word.")
            raise InputError(f"Text {number} is of type {type(text).__name__}; a text is a string.")


def is_missing(value: object) -> bool:
    """Whether this is how a table says that a value is missing: None, NaN, and NA and NaT of pandas.

    >>> is_missing(float("nan")), is_missing(None), is_missing(0.5)
    (True, True, False)
    """
    return value is None or type(value).__name__ == "NAType" or (not isinstance(value, np.ndarray) and value != value)


def describe_empty_text(name: str) -> str:
    return f"{name} is empty (nothing is left of it after tokenization): give it a word, or leave it out."
