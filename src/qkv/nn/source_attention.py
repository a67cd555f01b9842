"""Attention of a recurrent decoder to the source: C_i, a weighted mean of the source's states.

    α_ij = softmax_j F(h_j, H),   C_i = Σ_j α_ij h_j

h_j is the encoder's state at source token j, H a state of the decoder, and F a score:

    AdditiveScore    vᵀ tanh(W_q H + W_k h_j)    Bahdanau et al. 2015, appendix A.1.2
    DotScore         H · h_j                     Luong et al. 2015, §3.1
    BilinearScore    Hᵀ W h_j                    the same ("general")

The keys are computed once per source. The hypotheses of one source are grouped (`SourceRows`), so that all of them
query it in one product and no key is copied.

Not here: which decoder state is the query (recurrent_decoder.py).

Shapes: R sources, S tokens of the longest one, E width of the encoder's states, A width of keys, P width of the
decoder's states, K rows (hypotheses) of a source; for `SourceRows` Q rows, W rows of the source with the most rows.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from qkv.nn.attention import attend, dot_scores
from qkv.nn.layers import AttentionRecord, rows_mask


class Source(NamedTuple):
    """The encoder's output."""

    context: Tensor  # (R, E), C: the states at both ends
    states: Tensor  # (R, S, E), h
    mask: Tensor  # (R, S) bool, False beyond a row's end
    keys: Tensor | None = None  # (R, S, A)

    def take(self, sources: Tensor) -> "Source":
        """Select or reorder sources."""
        return self._each(lambda part: part.index_select(0, sources))

    def first(self, sources: int) -> "Source":
        return self._each(lambda part: part[:sources])

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Source":
        keys = None if self.keys is None else change(self.keys)
        return Source(change(self.context), change(self.states), change(self.mask), keys)


class Score(nn.Module):
    """F in two parts: `keys` once per source, `forward` once per step."""

    name: ClassVar[str]  # in configs

    def __init__(self, query_width: int, state_width: int) -> None:
        super().__init__()

    @abstractmethod
    def keys(self, states: Tensor) -> Tensor:
        """(R, S, E) → (R, S, A)"""

    @abstractmethod
    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """(R, K, P), (R, S, A) → (R, K, S)"""

    def look(self, query: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """(R, K, P) → C_i (R, K, E) and α (R, K, S)"""
        assert source.keys is not None
        return attend(self(query, source.keys), source.states, source.mask[:, None])

    def record(self, query: Tensor, lengths: tuple[int, ...], source: Source) -> AttentionRecord:
        """The attention of queries (M, P), rows end to end, as a record with one head."""
        assert source.keys is not None
        keys, values = source.keys[source.mask], source.states[source.mask]  # (N, A), (N, E)
        seen = rows_mask(lengths, tuple(source.mask.sum(1).tolist()), device=query.device)
        return self.compared(AttentionRecord(query[None], keys[None], values[None], mask=seen, score=self.name))

    def compared(self, record: AttentionRecord) -> AttentionRecord:
        """The record with its queries projected to the space of the keys."""
        return record


class AdditiveScore(Score):
    name = "additive"

    def __init__(self, query_width: int, state_width: int) -> None:
        super().__init__(query_width, state_width)
        self.query = nn.Linear(query_width, query_width, bias=False)
        self.key = nn.Linear(state_width, query_width, bias=False)
        self.score = nn.Linear(query_width, 1, bias=False)

    def keys(self, states: Tensor) -> Tensor:
        keys: Tensor = self.key(states)
        return keys

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(self.query(query)[:, :, None] + keys[:, None])  # (R, K, S, A)
        scores: Tensor = self.score(hidden)[..., 0]
        return scores

    def compared(self, record: AttentionRecord) -> AttentionRecord:
        return replace(record, query=self.query(record.query), direction=self.score.weight[0].detach())


class DotScore(Score):
    name = "dot"

    def __init__(self, query_width: int, state_width: int) -> None:
        super().__init__(query_width, state_width)
        assert query_width == state_width, f"a query of {query_width} numbers has no dot product with {state_width}"

    def keys(self, states: Tensor) -> Tensor:
        return states

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return dot_scores(query, keys)


class BilinearScore(Score):
    name = "bilinear"

    def __init__(self, query_width: int, state_width: int) -> None:
        super().__init__(query_width, state_width)
        self.key = nn.Linear(state_width, query_width, bias=False)

    def keys(self, states: Tensor) -> Tensor:
        keys: Tensor = self.key(states)
        return keys

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return dot_scores(query, keys)


@dataclass(frozen=True)
class SourceRows:
    """Which source each row of a search belongs to. Unused sources are dropped once they are half of all, since
    dropping copies the others.

    >>> rows = SourceRows.of([0, 0, 2], 3)                        # source 1 has no row left
    >>> rows.width, rows.grouped(torch.tensor([[5.0], [6.0], [7.0]]))[..., 0].tolist()
    (2, [[5.0, 6.0], [0.0, 0.0], [7.0, 0.0]])
    >>> rows.flat(rows.grouped(torch.tensor([[5.0], [6.0], [7.0]])))[:, 0].tolist()
    [5.0, 6.0, 7.0]
    """

    owners: tuple[int, ...]  # (Q,) on the host
    sources: int  # R
    width: int  # W
    places: Tensor | None  # (Q,) in the flattened rectangle; None: rows fill it, in their order
    device: torch.device

    @staticmethod
    def of(owners: Sequence[int], sources: int, device: torch.device | str = "cpu") -> "SourceRows":
        taken, places = [0] * sources, []
        for owner in owners:
            places.append((owner, taken[owner]))
            taken[owner] += 1
        width = max(taken, default=0)
        flat = [owner * width + place for owner, place in places]
        is_full = flat == list(range(sources * width))
        where = None if is_full else torch.tensor(flat, dtype=torch.int64, device=device)
        return SourceRows(tuple(owners), sources, width, where, torch.device(device))

    @cached_property
    def owner(self) -> Tensor:
        """(Q,)"""
        return torch.tensor(self.owners, dtype=torch.int64, device=self.device)

    def grouped(self, x: Tensor) -> Tensor:
        """(Q, …) → (R, W, …), padded with zeros"""
        if self.places is not None:
            x = x.new_zeros(self.sources * self.width, *x.shape[1:]).index_copy(0, self.places, x)
        return x.unflatten(0, (self.sources, self.width))

    def flat(self, x: Tensor) -> Tensor:
        """(R, W, …) → (Q, …)"""
        x = x.flatten(0, 1)
        return x if self.places is None else x.index_select(0, self.places)

    def select(self, rows: Sequence[int]) -> tuple["SourceRows", Tensor | None]:
        """Row i becomes the former row rows[i]. Also returns the sources to keep, if some are to be dropped.

        >>> rows, kept = SourceRows.of([0, 1, 2], 3).select([0, 1])
        >>> rows.owners, kept
        ((0, 1), None)
        >>> rows, kept = rows.select([1])
        >>> rows.owners, rows.sources, kept
        ((0,), 1, tensor([1]))
        """
        owners = tuple(self.owners[row] for row in rows)
        if owners == self.owners:
            return self, None
        asked = sorted(set(owners))
        if 2 * len(asked) > self.sources or not asked:
            return SourceRows.of(owners, self.sources, self.device), None
        number = {source: new for new, source in enumerate(asked)}
        left = SourceRows.of([number[owner] for owner in owners], len(asked), self.device)
        return left, torch.tensor(asked, dtype=torch.int64, device=self.device)
