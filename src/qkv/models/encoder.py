"""What tasks ask of a network below their heads, whatever it is made of: BERT, recurrent layers, convolutions.

An encoder turns packed ids (N,) into a vector a token (N, D), and says which vector stands for a whole row. It keeps
its parts under two names, so that any encoder can be held still layer by layer: `embedding`, what looks tokens up, and
`blocks`, what mixes them, from the bottom to the top.

Shapes: … (B, T) of padded or (N,) of packed rows, R rows, D width.
"""

from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from qkv.batch import Packing, pad, unpad
from qkv.nn.fused import Attend, Packed, explicit, fused


class EncoderConfig(Protocol):
    """What a head, and the reading of texts, have to know of an encoder."""

    @property
    def vocabulary_size(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def max_length(self) -> int: ...
    @property
    def segments(self) -> int: ...
    @property
    def dropout(self) -> float: ...
    @property
    def head_dropout(self) -> float | None: ...
    @property
    def initial_std(self) -> float: ...


class Encoding(NamedTuple):
    hidden: Tensor  # (…, D)
    pooled: Tensor | None  # (B, D), what the heads of rows read; None where nobody makes it
    states: tuple[Tensor, ...] | None  # the embedding and every layer's output, (…, D) each, when asked for
    attention: dict[int, Tensor]  # by layer, as asked for: (B, H, T, T), rows padded


class Pooler(nn.Module):
    """What stands for a row, made ready for a classifier: tanh(W x + b)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, first: Tensor) -> Tensor:
        """(B, D) → (B, D)"""
        return torch.tanh(self.dense(first))


class Encoder(nn.Module):
    """`forward` takes what `Batch.inputs()` gives, and `pool`, whether to run the pooler, and returns an `Encoding`."""

    embedding: nn.Module
    blocks: nn.ModuleList
    pooler: Pooler | None

    def of_rows(self, hidden: Tensor, packing: Packing) -> Tensor:
        """(N, D) → (R, D): the vector that stands for a row; where every token has seen all others, its first."""
        return hidden.index_select(0, packing.offsets[:-1].long())


def ways_to_attend(mask: Tensor | None, packing: Packing | None, causal: bool = False) -> tuple[Attend, Attend]:
    """The fused way through the rows as they are laid out, and the explicit one that returns its weights (B, H, T, T).

    `causal`: a token sees those before it in its row, and itself."""
    if packing is None:
        seen = None if mask is None else mask[:, None, None, :]  # (B, 1, 1, T): every query sees the real keys
        return partial(fused, mask=seen, causal=causal), partial(explicit, mask=seen, causal=causal)

    def padded_explicit(
        query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        real = pad(torch.ones(query.size(0), dtype=torch.bool, device=query.device), packing, False)  # (B, T)
        query, key, value = (pad(x, packing) for x in (query, key, value))  # (B, T, H, K)
        answer, weights = explicit(
            query, key, value, mask=real[:, None, None, :], causal=causal, scale=scale, dropout=dropout
        )
        return unpad(answer, packing), weights

    return Packed(*packing, causal=causal), padded_explicit
