"""Key-value caches for decoding: `TextCache` of language models, `TokenCache` and `SourceMemory` of translators.

Each returns `Attend` functions for the layers. Rows are reordered as a search keeps some hypotheses and drops others;
only rows that change are copied.

TextCache      Prompts of different lengths are right-aligned; the slots before shorter ones are masked. Memory is
               allocated once for the whole length. Hypotheses of one prompt share it, so that between them only the
               tokens after the prompt are copied.
TokenCache     The keys and values of the target tokens; a step computes those of one new token per row.
SourceMemory   The keys and values of the sources, once per source: the queries of its hypotheses are grouped. It is
               copied only when half of its sources are unused.

Not here: gradients. Training computes all positions at once (nn/multihead.py).

Shapes: L layers, R prompts or sources, W hypotheses of each, Q rows (hypotheses of all), P tokens of the longest
prompt, N tokens of all prompts, T capacity in tokens, C new tokens per row, S tokens of the longest source, H heads, K
head width.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from qkv.nn.multihead import Attend, attend_packed
from qkv.nn.source_attention import SourceRows


class TextCache:
    def __init__(
        self,
        layers: int,
        lengths: Sequence[int],
        longest: int,
        shape: tuple[int, int],
        like: Tensor,
        hypotheses: int = 1,
    ) -> None:
        """`lengths`: tokens of each prompt, may be 0; `longest`: maximum number of tokens after them; `shape`: (H, K);
        `like`: a tensor with the dtype and device. Row r · W + j is hypothesis j of prompt r."""
        self.lengths, self.hypotheses = tuple(lengths), hypotheses
        self.read = self.length = max(lengths)
        self.owners = [number for number in range(len(lengths)) for _ in range(hypotheses)]
        room = self.read + longest
        self.keys = like.new_empty(layers, len(self.owners), room, *shape)  # (L, Q or more, T, H, K)
        self.values = torch.empty_like(self.keys)
        self.unused = [self.read - length for length in lengths]  # slots before each prompt
        self._begins, self._mask = self._seen()

    @property
    def rows(self) -> int:
        return len(self.owners)

    @property
    def room(self) -> int:
        """Remaining capacity in tokens."""
        return self.keys.size(2) - self.length

    def prompts(self) -> list[Attend]:
        """One `Attend` per layer that stores all tokens of the packed prompts, (N, H, K), with causal attention."""
        assert self.length == self.read, "prompts are read before anything is written"
        device = self.keys.device
        lengths = tuple(length for length in self.lengths if length)
        offsets = torch.zeros(len(lengths) + 1, dtype=torch.int32)
        torch.cumsum(torch.tensor(lengths), 0, out=offsets[1:])
        attend = partial(attend_packed, offsets=offsets.to(device), longest=self.read, lengths=lengths, causal=True)
        places = torch.cat(
            [torch.arange(n) + (row * self.read + self.unused[row]) for row, n in enumerate(self.lengths)]
        ).to(device)  # (N,)
        return [partial(self._read, attend, places, *sides) for sides in zip(self.keys, self.values, strict=True)]

    def _read(
        self,
        attend: Attend,
        places: Tensor,
        keys: Tensor,
        values: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> tuple[Tensor, Tensor | None]:
        for side, read in ((keys, key), (values, value)):
            # zero the masked slots: uninitialised memory may be NaN, and NaN × 0 is NaN
            laid = read.new_zeros(len(self.lengths) * self.read, *read.shape[1:]).index_copy(0, places, read)
            rows = side.unflatten(0, (-1, self.hypotheses))[:, :, : self.read]  # (R, W, P, H, K)
            rows.copy_(laid.unflatten(0, (-1, 1, self.read)))
        return attend(query, key, value, scale=scale, dropout=dropout)

    def next_tokens(self, count: int = 1) -> list[Attend]:
        """One `Attend` per layer that stores the next tokens of each row, (Q · C, H, K), and attends to the row up to
        each of them. After all layers call `advance`; otherwise the tokens are discarded."""
        begin, end = self.length, self.length + count
        assert count <= self.room, f"the cache was made for {self.keys.size(2)} tokens; {end} would be written"
        keys, values = self.keys[:, : self.rows], self.values[:, : self.rows]
        # the views of all layers at once: for a single row, many small calls would cost as much as the products
        new = (side[:, :, begin:end].unbind() for side in (keys, values))  # (Q, C, H, K) each
        past = (side[:, :, :end].transpose(2, 3).unbind() for side in (keys, values))  # (Q, H, T, K) each
        mask = None if self._mask is None else self._mask[:, None, None, :end]  # (Q, 1, 1, T)
        if count > 1:
            before = torch.ones(count, end, dtype=torch.bool, device=keys.device).tril(begin)  # (C, T)
            mask = before if mask is None else mask & before
        return [partial(attend_new_tokens, mask, *views) for views in zip(*new, *past, strict=True)]

    def advance(self, count: int = 1) -> None:
        self.length += count

    @property
    def positions(self) -> Tensor | int:
        """The position of the next token: (Q,), or one number for all rows."""
        return self.length if self._begins is None else self.length - self._begins

    def select(self, rows: Sequence[int]) -> None:
        """Row i becomes the former row rows[i]."""
        owners = [self.owners[row] for row in rows]
        changed = [(place, row) for place, row in enumerate(rows) if place != row]
        if len(rows) > self.keys.size(1):
            index = torch.tensor(rows, device=self.keys.device)
            self.keys, self.values = self.keys.index_select(1, index), self.values.index_select(1, index)
        else:
            same = [(to, come) for to, come in changed if to < self.rows and owners[to] == self.owners[to]]
            self._move([pair for pair in changed if pair not in same], 0, same)
        if owners != self.owners:
            self.owners = owners
            self._begins, self._mask = self._seen()

    def _move(self, pairs: Sequence[tuple[int, int]], begin: int, of_one_prompt: Sequence[tuple[int, int]]) -> None:
        """Move rows to their new indices. All are read before any is written, since they may overlap."""
        device, taken = self.keys.device, []
        for some, start in ((pairs, begin), (of_one_prompt, self.read)):
            if some and start < self.length:
                to, come = torch.tensor(some, device=device).unbind(1)
                for side in (self.keys, self.values):
                    part = side[:, :, start : self.length]
                    taken.append((part, to, part.index_select(1, come)))
        for part, to, rows in taken:
            part.index_copy_(1, to, rows)

    def _seen(self) -> tuple[Tensor | None, Tensor | None]:
        """(Q,): the slot where each row's prompt starts, and (Q, T): False before it; None if all start at 0."""
        unused = [self.unused[owner] for owner in self.owners]
        if not any(unused):
            return None, None
        places = torch.arange(self.keys.size(2), device=self.keys.device)
        begins = torch.tensor(unused, device=self.keys.device)
        return begins, places >= begins[:, None]


def attend_new_tokens(
    mask: Tensor | None,
    new_key: Tensor,
    new_value: Tensor,
    keys: Tensor,
    values: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, None]:
    """Store several new tokens per row and attend to the cache under the mask."""
    assert dropout == 0, "a cache is for decoding, not for training"
    new_key.copy_(key.view(new_key.shape))
    new_value.copy_(value.view(new_key.shape))
    asked = query.view(new_key.shape).transpose(1, 2)  # (Q, H, C, K)
    answer = functional.scaled_dot_product_attention(asked, keys, values, attn_mask=mask, scale=scale)
    return answer.transpose(1, 2).flatten(0, 1), None


FIRST_CAPACITY = 64
"""Initial capacity in tokens; it doubles when full, up to the longest text."""

AttendPast = Callable[[tuple[Tensor, Tensor, Tensor], Tensor, Tensor, int, float | None], Tensor]
"""Query, key and value (Q, H, K) of a new token, cached keys and values (Q, T, H, K), their number, and the scale →
outputs (Q, H, K); appends the new key and value to the cache."""


class TokenCache:
    """The keys and values of every row's tokens; all rows have the same length."""

    def __init__(self, layers: int, rows: int, longest: int, like: Tensor, ask: AttendPast | None = None) -> None:
        """`like` (…, H, K): a key or value with the shape, dtype and device. `ask`: replaces torch's kernels."""
        self.rows, self.longest, self.ask = rows, longest, ask
        self.length = 0
        room = min(FIRST_CAPACITY, longest)
        self.keys = like.new_empty(layers, rows, room, *like.shape[-2:])  # (L, Q or more, T, H, K)
        self.values = torch.empty_like(self.keys)

    def next_token(self) -> list[Attend]:
        """One `Attend` per layer that stores the new token of each row, (Q, H, K), and attends to the row up to it.
        After all layers call `advance`."""
        keys, values = (side[:, : self.rows] for side in self.with_room())
        if self.ask is not None:
            sides = zip(keys.unbind(), values.unbind(), strict=True)
            return [partial(_attend_by, self.ask, self.length, *views) for views in sides]
        # the views of all layers at once: for a single row, many small calls would cost as much as the products
        new = (side[:, :, self.length].unbind() for side in (keys, values))  # (Q, H, K) each
        past = (side[:, :, : self.length + 1].transpose(2, 3).unbind() for side in (keys, values))  # (Q, H, T, K) each
        return [partial(_attend, *views) for views in zip(*new, *past, strict=True)]

    def next_tokens(self, count: int) -> list[Attend]:
        """The same for several new tokens per row, (Q · C, H, K). Without `advance` they are discarded."""
        keys, values = (side[:, : self.rows] for side in self.with_room(count))
        end = self.length + count
        new = (side[:, :, self.length : end].unbind() for side in (keys, values))  # (Q, C, H, K) each
        past = (side[:, :, :end].transpose(2, 3).unbind() for side in (keys, values))  # (Q, H, T, K) each
        before = torch.ones(count, end, dtype=torch.bool, device=keys.device).tril(self.length)  # (C, T)
        return [partial(attend_new_tokens, before, *views) for views in zip(*new, *past, strict=True)]

    def with_room(self, count: int = 1) -> tuple[Tensor, Tensor]:
        """Keys and values (L, Q or more, T, H, K), with capacity for `count` more tokens."""
        assert count <= self.room, f"the cache was made for {self.longest} tokens; {self.length} are written"
        while self.length + count > self.keys.size(2):
            self.keys, self.values = self._doubled(self.keys), self._doubled(self.values)
        return self.keys, self.values

    @property
    def room(self) -> int:
        """Remaining capacity in tokens."""
        return self.longest - self.length

    def advance(self) -> None:
        self.length += 1

    def select(self, rows: Sequence[int]) -> None:
        """Row i becomes the former row rows[i]."""
        changed = [place for place, row in enumerate(rows) if place != row]
        fits = len(rows) <= self.keys.size(1)
        self.rows = len(rows)
        if not fits:
            index = torch.tensor(rows, device=self.keys.device)
            self.keys, self.values = self.keys.index_select(1, index), self.values.index_select(1, index)
        elif changed and self.length:
            to = torch.tensor(changed, device=self.keys.device)
            come = torch.tensor([rows[place] for place in changed], device=self.keys.device)
            for side in (self.keys, self.values):
                written = side[:, :, : self.length]
                written.index_copy_(1, to, written.index_select(1, come))

    def _doubled(self, full: Tensor) -> Tensor:
        room = min(2 * full.size(2), self.longest)
        wider = full.new_empty(full.size(0), self.rows, room, *full.shape[3:])
        wider[:, :, : self.length] = full[:, : self.rows, : self.length]
        return wider


def _attend(
    new_key: Tensor,
    new_value: Tensor,
    keys: Tensor,
    values: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, None]:
    assert dropout == 0, "a cache is for decoding, not for training"
    new_key.copy_(key)
    new_value.copy_(value)
    return functional.scaled_dot_product_attention(query[:, :, None], keys, values, scale=scale)[:, :, 0], None


def _attend_by(
    ask: AttendPast,
    length: int,
    keys: Tensor,
    values: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, None]:
    assert dropout == 0, "a cache is for decoding, not for training"
    return ask((query, key, value), keys, values, length, scale), None


class SourceMemory:
    """Keys and values of every source, and the source of each row."""

    def __init__(
        self,
        layers: Sequence[tuple[Tensor, Tensor]],
        mask: Tensor | None,
        row_sources: Sequence[int] | SourceRows,
    ) -> None:
        """Per layer keys (R, H, K, S), the layout for products with few queries, and values (R, H, S, K); `mask` (R, S)
        is False for padding, None without padding."""
        self.layers, self.mask = tuple(layers), mask
        keys = self.layers[0][0]
        if not isinstance(row_sources, SourceRows):
            row_sources = SourceRows.of(row_sources, keys.size(0), keys.device)
        self.rows = row_sources
        # one row per source, in order: skips regrouping, which for a single row would cost as much as the products
        self._is_plain = self.rows.width == 1 and self.rows.places is None
        self._hidden = None  # (R · H, 1, S), added to scores
        if mask is not None:
            hides = torch.zeros(mask.shape, dtype=keys.dtype, device=keys.device)
            hides.masked_fill_(~mask, torch.finfo(keys.dtype).min)
            self._hidden = hides.repeat_interleave(keys.size(1), dim=0)[:, None, :]

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Queries (Q, H, K), keys and values of a layer → outputs (Q, H, K) and weights (Q, H, S), zeros beyond a
        source's end. The plain equation: for few queries no fused kernel is faster."""
        assert dropout == 0, "a memory is for decoding, not for training"
        scale = query.size(-1) ** -0.5 if scale is None else scale
        scores = torch.bmm(self._side_by_side(query * scale), key.flatten(0, 1))  # (R · H, W, S)
        if self._hidden is not None:
            scores += self._hidden
        weights = scores.softmax(dim=-1)
        heads = query.size(1)
        return self._in_rows(torch.bmm(weights, value.flatten(0, 1)), heads), self._in_rows(weights, heads)

    def several(self, count: int) -> Self:
        """Repeat each row `count` times, for several new tokens of it."""
        owners = [owner for owner in self.rows.owners for _ in range(count)]
        return type(self)(self.layers, self.mask, owners)

    def select(self, rows: Sequence[int]) -> Self:
        """Row i becomes the former row rows[i]. Unused sources are dropped once they are half of all."""
        left, kept = self.rows.select(rows)
        if left is self.rows:
            return self
        if kept is None:
            return type(self)(self.layers, self.mask, left)
        layers = [(key.index_select(0, kept), value.index_select(0, kept)) for key, value in self.layers]
        return type(self)(layers, None if self.mask is None else self.mask.index_select(0, kept), left)

    def _side_by_side(self, query: Tensor) -> Tensor:
        """(Q, H, K) → (R · H, W, K), padded with zeros."""
        if self._is_plain:
            return query.reshape(-1, 1, query.size(2))
        return self.rows.grouped(query).transpose(1, 2).flatten(0, 1)

    def _in_rows(self, values: Tensor, heads: int) -> Tensor:
        """(R · H, W, …) → (Q, H, …)"""
        if self._is_plain:
            return values.view(-1, heads, values.size(-1))
        return self.rows.flat(values.unflatten(0, (-1, heads)).transpose(1, 2))
