"""The attention of attention.py on fused kernels, for rows padded to a rectangle and for rows packed end to end.

Each function here is one way to answer "who sees whom"; the layers above call whichever they are handed and do not
know which it is (see `Attend`). `explicit` is the readable maths and the only one that returns its weights.

On a GPU packed rows go through variable-length flash attention, which wants bf16 or fp16 (rows of up to 128 tokens have
a kernel of their own, short_attention.py, where a block can use it). It has no CPU kernel, so a CPU takes neighbours of
equal length together through SDPA, with no mask and no padding: sort rows by length and the groups are large.

Shapes: tokens come before heads, because that is how a linear layer leaves them and how packed rows lie in memory:
(B, T, H, K) padded, (N, H, K) packed. B rows, T tokens, N tokens of all rows, H heads, K head width.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from qkv.nn.attention import causal_mask, dot_scores, masked_softmax


class Attend(Protocol):
    """Queries, keys and values of all heads → the answers, and the weights (B, H, Q, T) if this way knows them."""

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor | None]: ...


@dataclass(frozen=True)
class Packed:
    """`packed` for these rows: every row attends to itself."""

    offsets: Tensor
    longest: int
    lengths: tuple[int, ...]

    def split(self, length: int) -> tuple[Self, Self] | None:
        """The rows of up to this length and those after them, if they lie so and there are both."""
        short = sum(one <= length for one in self.lengths)
        if not 0 < short < len(self.lengths) or max(self.lengths[:short]) > length:
            return None
        before, after = self.lengths[:short], self.lengths[short:]
        rest = self.offsets[short:] - sum(before)
        return type(self)(self.offsets[: short + 1], max(before), before), type(self)(rest, max(after), after)

    @property
    def n_tokens(self) -> int:
        return sum(self.lengths)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor | None]:
        return packed(
            query,
            key,
            value,
            offsets=self.offsets,
            longest=self.longest,
            lengths=self.lengths,
            scale=scale,
            dropout=dropout,
        )


def explicit(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The equation itself, (B, T, H, K); the weights come before dropout, as they would be looked at."""
    query, key, value = (x.transpose(-3, -2) for x in (query, key, value))  # (B, H, T, K)
    if causal:
        past = causal_mask(query.size(-2), key.size(-2), query.device)
        mask = past if mask is None else mask & past
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    weights = masked_softmax(dot_scores(query, key, scale), mask)
    answer = functional.dropout(weights, dropout) @ value
    return answer.transpose(-3, -2), weights


def fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, None]:
    """Scaled dot-product attention in one kernel, (B, T, H, K); `mask` broadcasts against (B, H, Q, T)."""
    query, key, value = (x.transpose(-3, -2) for x in (query, key, value))
    if causal and (mask is not None or query.size(-2) != key.size(-2)):
        # SDPA's own causal flag excludes a mask, and counts from the first key when there are more keys than queries
        past = causal_mask(query.size(-2), key.size(-2), query.device)
        mask, causal = (past if mask is None else mask & past), False
    answer = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale
    )
    return answer.transpose(-3, -2), None


def packed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    offsets: Tensor,
    longest: int,
    lengths: tuple[int, ...],
    key_offsets: Tensor | None = None,
    key_longest: int | None = None,
    key_lengths: tuple[int, ...] | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, None]:
    """Every row attends to itself, or, in cross attention, to the row of the same number on the key side.

    `offsets` (R + 1,) int32 and `longest` serve the GPU kernel, `lengths` the CPU's groups; the `key_…` arguments
    describe the other side of cross attention.
    """
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        if key_offsets is None and len(set(lengths)) == 1:
            return _rectangle(query, key, value, longest, causal=causal, scale=scale, dropout=dropout), None
        key_offsets = offsets if key_offsets is None else key_offsets
        key_longest = longest if key_longest is None else key_longest
        # the operator beneath torch.nn.attention.varlen: that one has no dropout, and takes 0.3 ms of Python a layer
        sides = (query, key, value, offsets, key_offsets, longest, key_longest)
        return torch.ops.aten._flash_attention_forward(*sides, dropout, causal, False, scale=scale)[0], None

    runs = _runs(lengths, lengths if key_lengths is None else key_lengths)
    # split and not slices: the gradient of a slice is a tensor of zeros as long as the whole batch
    queries = query.split([rows * length for rows, length, _ in runs])
    keys, values = (x.split([rows * key_length for rows, _, key_length in runs]) for x in (key, value))
    answers = []
    for (rows, length, key_length), q, k, v in zip(runs, queries, keys, values, strict=True):
        answer, _ = fused(
            q.view(rows, length, *query.shape[1:]),
            k.view(rows, key_length, *key.shape[1:]),
            v.view(rows, key_length, *value.shape[1:]),
            causal=causal,
            scale=scale,
            dropout=dropout,
        )
        answers.append(answer.flatten(0, 1))  # (rows · length, H, K)
    return torch.cat(answers), None


def _rectangle(
    query: Tensor, key: Tensor, value: Tensor, length: int, *, causal: bool, scale: float | None, dropout: float
) -> Tensor:
    """Rows that happen to be equally long need no offsets, and cuDNN's kernel is half as fast again for them."""
    rows = (x.unflatten(0, (-1, length)) for x in (query, key, value))  # (B, T, H, K) each
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
        return fused(*rows, causal=causal, scale=scale, dropout=dropout)[0].flatten(0, 1)


@lru_cache(maxsize=64)
def _runs(lengths: tuple[int, ...], key_lengths: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """Neighbouring rows of equal shape, as (rows, tokens of a query row, tokens of a key row).

    >>> _runs((3, 3, 5), (3, 3, 5))
    ((2, 3, 3), (1, 5, 5))
    """
    return tuple((len(list(same)), *shape) for shape, same in groupby(zip(lengths, key_lengths, strict=True)))
