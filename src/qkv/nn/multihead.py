"""Multi-head attention, on the equations of attention.py or on fused kernels, for padded and for packed rows.

Each function here is an `Attend`: the layers call the one they are given. `explicit` is the readable maths and the only
one that returns its weights.

On a GPU packed rows go through variable-length flash attention, which needs bf16 or fp16 (rows of up to 128 tokens have
their own kernel, nn/gpu/short_attention.py). Elsewhere (a CPU, fp32) rows of equal length go through SDPA together,
without mask and padding.

Shapes: tokens come before heads, the layout of a linear layer's output and of packed rows: (B, T, H, K) padded,
(N, H, K) packed. B rows, T tokens, N tokens of all rows, H heads, K head width.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from typing import ClassVar, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.nn.attention import causal_mask, dot_scores, masked_softmax

SHORT = 128
"""Longest rows of the short-row kernel (nn/gpu/short_attention.py)."""


class Attend(Protocol):
    """Queries, keys and values of all heads → the outputs, and the weights (B, H, Q, T) or None."""

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor | None]: ...


@dataclass(frozen=True)
class Packed:
    """`attend_packed` for these rows: every row attends to itself."""

    offsets: Tensor
    longest: int
    lengths: tuple[int, ...]
    part: bool = False  # of a batch; its number of rows changes between batches
    causal: bool = False

    @cached_property
    def short_and_long(self) -> tuple[Self, Self] | None:
        """The rows of up to 128 tokens and the longer rows after them; None unless rows are so ordered."""
        short = sum(one <= SHORT for one in self.lengths)
        if not 0 < short < len(self.lengths) or max(self.lengths[:short]) > SHORT:
            return None
        before, after = self.lengths[:short], self.lengths[short:]
        rest = self.offsets[short:] - sum(before)
        front = type(self)(self.offsets[: short + 1], max(before), before, True, self.causal)
        return front, type(self)(rest, max(after), after, True, self.causal)

    @property
    def n_tokens(self) -> int:
        return sum(self.lengths)

    @property
    def key_lengths(self) -> tuple[int, ...]:
        return self.lengths

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor | None]:
        return attend_packed(
            query,
            key,
            value,
            offsets=self.offsets,
            longest=self.longest,
            lengths=self.lengths,
            causal=self.causal,
            scale=scale,
            dropout=dropout,
            steady=not self.part,
        )


@dataclass(frozen=True)
class Across:
    """`attend_packed` across two sides: row i attends to row i of the others."""

    own: Packed
    others: Packed
    causal: ClassVar[bool] = False

    @property
    def lengths(self) -> tuple[int, ...]:
        return self.own.lengths

    @property
    def key_lengths(self) -> tuple[int, ...]:
        return self.others.lengths

    @property
    def longest(self) -> int:
        return max(self.own.longest, self.others.longest)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor | None]:
        return attend_packed(
            query,
            key,
            value,
            offsets=self.own.offsets,
            longest=self.own.longest,
            lengths=self.own.lengths,
            key_offsets=self.others.offsets,
            key_longest=self.others.longest,
            key_lengths=self.others.lengths,
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
    """The equation itself, (B, T, H, K); the returned weights are those before dropout."""
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
        # SDPA's causal flag excludes a mask, and aligns to the first key when there are more keys than queries
        past = causal_mask(query.size(-2), key.size(-2), query.device)
        mask, causal = (past if mask is None else mask & past), False
    answer = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale
    )
    return answer.transpose(-3, -2), None


def attend_packed(
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
    steady: bool = False,
) -> tuple[Tensor, None]:
    """Every row attends to itself or, in cross-attention, to the row of the same index on the key side.

    `offsets` (R + 1,) int32 and `longest` are for the GPU kernel, `lengths` for the CPU's groups; the `key_…` arguments
    describe the key side of cross-attention. `steady`: later calls will have the same number of rows.
    """
    if _has_flash_kernel(query):
        if steady and key_offsets is None and _is_learned_rectangle(query, lengths):
            return _attend_rectangle(query, key, value, longest, causal=causal, scale=scale, dropout=dropout), None
        key_offsets = offsets if key_offsets is None else key_offsets
        key_longest = longest if key_longest is None else key_longest
        # the operator below torch.nn.attention.varlen, which has no dropout and more Python overhead
        sides = (query, key, value, offsets, key_offsets, longest, key_longest)
        return torch.ops.aten._flash_attention_forward(*sides, dropout, causal, False, scale=scale)[0], None

    shapes = tuple(zip(lengths, lengths if key_lengths is None else key_lengths, strict=True))
    runs, order = _grouping(shapes)
    if order is not None:
        order = _Order(*(index.to(query.device) for index in order))
        query = query.index_select(0, order.own)
        key, value = key.index_select(0, order.others), value.index_select(0, order.others)
    # split, not slices: the gradient of a slice is a zero tensor as long as the whole batch
    queries = query.split([rows * length for rows, length, _ in runs])
    keys, values = (x.split([rows * key_length for rows, _, key_length in runs]) for x in (key, value))
    # on a CPU SDPA's backward pass in 16 bits is slower than the equation, which keeps weights as long as rows squared
    is_learned = query.requires_grad and query.dtype != torch.float32 and query.device.type == "cpu"
    answers = []
    for (rows, length, key_length), q, k, v in zip(runs, queries, keys, values, strict=True):
        attend = explicit if is_learned and max(length, key_length) <= SHORT else fused
        answer, _ = attend(
            q.view(rows, length, *query.shape[1:]),
            k.view(rows, key_length, *key.shape[1:]),
            v.view(rows, key_length, *value.shape[1:]),
            causal=causal,
            scale=scale,
            dropout=dropout,
        )
        answers.append(answer.flatten(0, 1))  # (rows · length, H, K)
    together = torch.cat(answers)
    return together if order is None else together.index_select(0, order.back), None


def _has_flash_kernel(query: Tensor) -> bool:
    """Whether flash attention has a kernel: half precision, Ampere or newer, these head widths."""
    if not query.is_cuda or query.dtype not in (torch.bfloat16, torch.float16):
        return False
    return (
        query.size(-1) % 8 == 0 and query.size(-1) <= 256 and torch.cuda.get_device_capability(query.device) >= (8, 0)
    )


def _is_learned_rectangle(query: Tensor, lengths: tuple[int, ...]) -> bool:
    """Whether many equally long rows are trained on: cuDNN makes a plan per shape, so the shape must recur."""
    return (
        query.requires_grad
        and len(lengths) >= 8
        and min(lengths) == max(lengths)
        and query.size(-1) <= 128
        and torch.cuda.get_device_capability(query.device) >= (9, 0)
        and torch.backends.cuda.cudnn_sdp_enabled()
    )


def _attend_rectangle(
    query: Tensor, key: Tensor, value: Tensor, length: int, *, causal: bool, scale: float | None, dropout: float
) -> Tensor:
    """Equally long rows through cuDNN's kernel, 1.5 × as fast on Hopper.

    The operator and not `sdpa_kernel` around SDPA, which sets process-wide switches and is not thread-safe.
    """
    rows = (x.unflatten(0, (-1, length)).transpose(1, 2) for x in (query, key, value))  # (B, H, T, K) each
    attended = torch.ops.aten._scaled_dot_product_cudnn_attention
    return attended(*rows, None, True, dropout, causal, False, scale=scale)[0].transpose(1, 2).flatten(0, 1)


class _Order(NamedTuple):
    """Tokens by rows of equal shape."""

    own: Tensor  # (N,) of queries
    others: Tensor  # (M,) of keys and values
    back: Tensor  # (N,) where each query's answer is


_Shapes = tuple[tuple[int, int], ...]
_Runs = tuple[tuple[int, int, int], ...]


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # an order cached in an evaluation must also serve training
def _grouping(shapes: _Shapes) -> tuple[_Runs, _Order | None]:
    """How rows of (query tokens, key tokens) go through SDPA, as (rows, query tokens, key tokens) each; and the order
    that makes them neighbours, where moving tokens is cheaper than more calls.

    >>> _grouping(((3, 3), (3, 3), (5, 5)))
    (((2, 3, 3), (1, 5, 5)), None)
    """
    runs = _neighbours(shapes)
    if len(runs) < 2 * len(set(shapes)):
        return runs, None
    rows = sorted(range(len(shapes)), key=shapes.__getitem__)
    own, others = (_tokens([shape[side] for shape in shapes], rows) for side in (0, 1))
    return _neighbours(tuple(shapes[row] for row in rows)), _Order(own, others, torch.argsort(own))


def _neighbours(shapes: _Shapes) -> _Runs:
    return tuple((len(list(same)), *shape) for shape, same in groupby(shapes))


def _tokens(lengths: list[int], rows: list[int]) -> Tensor:
    """Indices of the tokens of these rows, in their order."""
    tokens = torch.arange(sum(lengths)).split(lengths)
    return torch.cat([tokens[row] for row in rows])


# --- Multi-head attention (Vaswani et al. 2017, §3.2.2).
#
# The heads' projections are one matrix, because one large product is faster than many small ones; the rows of
# `qkv.weight` are the queries of all heads, then the keys, then the values. Mask and kernel are the caller's `attend`:
# these classes serve padded and packed rows, with and without weights.
#
# Shapes: … (B, T) of padded or (N,) of packed rows, D width, H heads, K head width.


class MultiHeadSelfAttention(nn.Module):
    """Every token attends to every token of its own row."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.head_width = _head_width(width, heads, head_width)
        self.scale = scale
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * heads * self.head_width)
        self.out = nn.Linear(heads * self.head_width, width)

    def forward(self, x: Tensor, attend: Attend, only: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """(…, D) → (…, D), and the weights if `attend` returns them; `only` (M,): packed tokens to return."""
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, self.head_width)).unbind(-3)  # (…, H, K) each
        answer, weights = attend(query, key, value, scale=self.scale, dropout=self.dropout if self.training else 0.0)
        answer = answer.flatten(-2)
        return self.out(answer if only is None else answer.index_select(0, only)), weights


class MultiHeadCrossAttention(nn.Module):
    """Every token of one sequence attends to every token of another: the decoder to the encoder."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int | None = None,
        memory_width: int | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.head_width = _head_width(width, heads, head_width)
        self.scale = scale
        self.dropout = dropout
        inner = heads * self.head_width
        self.query = nn.Linear(width, inner)
        self.key_value = nn.Linear(width if memory_width is None else memory_width, 2 * inner)
        self.out = nn.Linear(inner, width)

    def forward(self, x: Tensor, memory: Tensor, attend: Attend) -> tuple[Tensor, Tensor | None]:
        """Queries from x (…, D), keys and values from memory (…, D of the encoder)."""
        query = self.query(x).unflatten(-1, (self.heads, self.head_width))  # (…, H, K)
        key, value = self.key_value(memory).unflatten(-1, (2, self.heads, self.head_width)).unbind(-3)
        answer, weights = attend(query, key, value, scale=self.scale, dropout=self.dropout if self.training else 0.0)
        return self.out(answer.flatten(-2)), weights


def _head_width(width: int, heads: int, head_width: int | None) -> int:
    if head_width is not None:
        return head_width
    assert width % heads == 0, f"a width of {width} is not divisible by {heads} heads; give head_width"
    return width // heads
