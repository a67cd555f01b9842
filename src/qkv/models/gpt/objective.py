"""GPT's objective (Radford et al. 2018, §3.1): predict every token of every document from those before it.

A document is read as  end d₁ d₂ … dₙ  and predicted as  d₁ d₂ … dₙ end: the token that ends texts is also put before
them, so that a model can begin a text from nothing. One that is longer than a row is cut into rows, elsewhere in every
epoch; one that is shorter stays whole. Rows are concatenated without padding, and none attends to another: batches have
like numbers of tokens, and as many rows as that takes.

`CausalBatches` is a pure function of (seed, step): a run seeks to any step at once. In an epoch every token is
predicted once.

What a batch's labels say:

    next   (N,)  the token after each

Shapes: R rows, N tokens of all rows, P rows of an epoch, D width, V vocabulary.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from itertools import pairwise
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from qkv.data.batch import Batch, Epochs
from qkv.data.corpus.rows import Boundaries
from qkv.data.corpus.shards import ranges
from qkv.errors import InputError
from qkv.models.gpt.network import GPT
from qkv.nn.gpu.layers import word_loss
from qkv.train.loop import Term

_Integers = NDArray[np.int64]


class _Corpus(Boundaries, Protocol):
    def tokens(self, starts: _Integers, lengths: _Integers) -> _Integers: ...


class TextRows(NamedTuple):
    """Rows of an epoch, each a part of a document: positions of its tokens; position 0 is the special token before
    it."""

    document: _Integers  # (P,)
    begin: _Integers  # (P,)
    length: _Integers  # (P,)

    def take(self, chosen: _Integers) -> "TextRows":
        return TextRows(*(part[chosen] for part in self))


def cut_texts(lengths: _Integers, longest: int, first: _Integers) -> TextRows:
    """Cut documents of these lengths, with the start token, into rows of at most `longest`. The first row of a document
    that needs several has `first` tokens.

    >>> cut_texts(np.array([3, 9]), 4, np.array([2, 2]))
    TextRows(document=array([0, 1, 1, 1]), begin=array([0, 0, 2, 6]), length=array([3, 2, 4, 3]))
    """
    first = np.where(lengths > longest, first, lengths)
    counts = 1 - (first - lengths) // longest
    document = np.repeat(np.arange(len(lengths)), counts)
    number = ranges(np.zeros_like(counts), counts)  # of a row in its document
    begin = np.where(number > 0, first[document] + (number - 1) * longest, 0)
    limit = np.where(number > 0, longest, first[document])
    return TextRows(document, begin, np.minimum(limit, lengths[document] - begin))


class CausalBatches:
    """Step → the batches of that step, of about rows · length tokens each."""

    def __init__(
        self,
        corpus: _Corpus,
        end_id: int,
        length: int,
        *,
        rows: int,
        accumulate: int = 1,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        """Without `shuffle`, rows are in the order of the corpus and documents are cut from their start."""
        if length < 1:
            raise InputError(f"length must be at least 1, not {length}.")
        self.corpus, self.end_id, self.length, self.shuffle = corpus, end_id, length, shuffle
        self.rows, self.accumulate, self.seed = rows, accumulate, seed
        self.document_starts = corpus.sentence_offsets[corpus.document_offsets]  # (documents + 1,) places of tokens
        self.document_lengths = np.diff(self.document_starts) + 1  # as they are read, with the special token
        self.n_tokens = int(self.document_lengths.sum())  # that an epoch predicts
        if not self.n_tokens:
            raise InputError("The corpus has no document: there is nothing to train on.")
        self.epoch = Epochs(self._draw_epoch)

    def resized(self, rows: int, accumulate: int) -> Self:
        """The same steps in batches of another size."""
        other = copy(self)
        other.rows, other.accumulate = rows, accumulate
        return other

    @property
    def streams(self) -> int:
        """Rows of a step, if all were of the full length."""
        return self.rows * self.accumulate

    @property
    def steps_per_epoch(self) -> int:
        """A row belongs to the step in whose share of the tokens it begins, so a share must not be smaller than a
        row."""
        share = self.streams * self.length
        return -(-self.n_tokens // share) if self.streams > 1 else max(1, self.n_tokens // share)

    def __call__(self, step: int) -> list[Batch]:
        epoch, within = divmod(step, self.steps_per_epoch)
        drawn, begins = self.epoch(epoch)
        if within >= 0.75 * self.steps_per_epoch:
            self.epoch.begin(epoch + 1)
        parts = self.steps_per_epoch * self.accumulate
        shares = within * self.accumulate + np.arange(self.accumulate + 1)
        cuts = np.searchsorted(begins, -(-shares * self.n_tokens // parts)).tolist()
        return [
            self._batch(TextRows(*(part[first:last] for part in drawn)))
            for first, last in pairwise(cuts)
            if first < last
        ]

    def beginning(self, tokens: int) -> list[Batch]:
        """Rows of the first epoch with about this many tokens, independent of the batch size."""
        drawn, begins = self.epoch(0)
        begins = begins[begins < tokens]
        cuts = np.flatnonzero(np.diff(begins // (self.rows * self.length), prepend=-1)).tolist()
        return [
            self._batch(TextRows(*(part[first:last] for part in drawn)))
            for first, last in pairwise([*cuts, len(begins)])
        ]

    def _draw_epoch(self, epoch: int) -> tuple[TextRows, _Integers]:
        """All rows of an epoch in training order, and the number of tokens before each."""
        draw = np.random.default_rng(np.random.SeedSequence((self.seed, epoch)))
        first = np.full(len(self.document_lengths), self.length)
        if self.shuffle:
            first = draw.integers(1, self.length, size=len(first), endpoint=True)
        drawn = cut_texts(self.document_lengths, self.length, first)
        if self.shuffle:
            drawn = drawn.take(draw.permutation(len(drawn.length)))
        return drawn, np.cumsum(drawn.length) - drawn.length

    def _batch(self, rows: TextRows) -> Batch:
        """The batch of these rows, sorted by length, since a CPU groups rows of equal length."""
        document, begin, length = rows.take(np.argsort(rows.length, kind="stable"))
        # a row and the token after it, as places of  end d₁ … dₙ end  that become one longer in every row
        starts = np.cumsum(length + 1) - (length + 1)
        both = np.full(int((length + 1).sum()), self.end_id)
        first = np.maximum(begin, 1)  # of places that hold a token of the corpus
        inside = np.minimum(begin + length, self.document_lengths[document] - 1) + 1 - first
        sources = self.document_starts[document] + first - 1
        order = np.argsort(sources)  # corpus order, for sequential reads
        sources, inside, places = sources[order], inside[order], (starts + first - begin)[order]
        both[ranges(places, inside)] = self.corpus.tokens(sources, inside)
        read = ranges(starts, length)
        return Batch.packed(
            torch.from_numpy(both[read]),
            length.tolist(),
            examples=torch.from_numpy(document),
            labels={"next": torch.from_numpy(both[read + 1])},
        )


class Causal:
    """The cross entropy of the next token, for every token."""

    weights: Mapping[str, float] = {"next": 1.0}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"next": batch.labels["next"].numel()}

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Term]:
        assert isinstance(model, GPT)
        hidden = model(batch.ids, batch.packing, batch.positions)  # (N, D)
        return {"next": Term(*word_loss(*model.before_words(hidden), batch.labels["next"]))}


def evaluate_causal(model: nn.Module, batches: Iterable[Batch]) -> tuple[float, int, int]:
    """The summed loss, the number of correct predictions, and their total."""
    device, objective = next(model.parameters()).device, Causal()
    loss, right, count = 0.0, 0, 0
    for batch in batches:
        term = objective.terms(model, batch.to(device))["next"]
        loss, right, count = loss + term.loss.item(), right + int(term.correct), count + batch.n_tokens
    return loss, right, count


def causal_flops(model: GPT, batch: Batch) -> float:
    """Floating-point operations of forward and backward: 6 per weight and token, and per layer 6 D for each pair of
    tokens that attend, half of all in a row."""
    config = model.config
    weights = config.layers * (4 * config.width**2 + 2 * config.width * config.inner_width)
    head = config.width * config.vocabulary_size
    attention = config.layers * config.width * sum(length * (length + 1) for length in batch.lengths)
    return 6.0 * ((weights + head) * batch.n_tokens + attention)
