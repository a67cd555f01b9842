"""Where a token stands. Attention alone does not know: to it 他欠我100万 and 我欠他100万 are one bag of words.

Three answers: fixed waves that are added to the input (sinusoidal), a table that is learned and added (as BERT has),
and rotation of queries and keys by an angle that grows with the position (rotary), which makes a score depend on the
distance of two tokens only.

Shapes: … any, T positions, D width, H heads, K head width.
"""

import torch
from torch import Tensor, nn

from qkv.nn.fused import Attend


def sinusoidal_table(length: int, width: int, base: float = 10_000.0) -> Tensor:
    """(T, D): sine and cosine interleaved, each pair a wave slower than the one before (Vaswani et al. 2017, §3.5).

    >>> sinusoidal_table(2, 4)[0].tolist()   # at position 0 every sine is 0 and every cosine 1
    [0.0, 1.0, 0.0, 1.0]
    """
    assert width % 2 == 0, f"sine and cosine come in pairs: the width {width} must be even"
    angles = _angles(torch.arange(length), width, base)  # (T, D/2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


class SinusoidalPositions(nn.Module):
    """Adds the fixed waves; works for any position, so there is no longest text."""

    frequencies: Tensor

    def __init__(self, width: int, base: float = 10_000.0) -> None:
        super().__init__()
        assert width % 2 == 0, f"sine and cosine come in pairs: the width {width} must be even"
        self.register_buffer("frequencies", _frequencies(width, base), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """(…,) → (…, D)"""
        angles = positions[..., None] * self.frequencies
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


class LearnedPositions(nn.Embedding):
    """One learned vector a position, and none beyond the last (Devlin et al. 2019, §3)."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__(length, width)


class RotaryPositions(nn.Module):
    """Turns neighbouring pairs of a query or key by position × frequency (Su et al. 2021, §3.2).

    The dot product of a query turned by m and a key turned by n depends on m − n alone. It is put around an attention
    rather than into it: `rotary.around(attend, positions)` is again something a layer can be handed.
    """

    frequencies: Tensor

    def __init__(self, head_width: int, base: float = 10_000.0) -> None:
        super().__init__()
        assert head_width % 2 == 0, f"rotation is in planes: the head width {head_width} must be even"
        self.register_buffer("frequencies", _frequencies(head_width, base), persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (…, T, H, K) at positions (…, T) → the same, turned."""
        angles = positions[..., None, None] * self.frequencies  # (…, T, 1, K/2)
        cosine, sine = angles.cos(), angles.sin()
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1).flatten(-2)

    def around(self, attend: Attend, positions: Tensor, key_positions: Tensor | None = None) -> Attend:
        key_positions = positions if key_positions is None else key_positions

        def turned(
            query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, dropout: float = 0.0
        ) -> tuple[Tensor, Tensor | None]:
            return attend(self(query, positions), self(key, key_positions), value, scale=scale, dropout=dropout)

        return turned


def _frequencies(width: int, base: float) -> Tensor:
    """(D/2,): 1, then ever slower, down to nearly 1 / base."""
    return base ** (-torch.arange(0, width, 2) / width)


def _angles(positions: Tensor, width: int, base: float) -> Tensor:
    return positions[..., None] * _frequencies(width, base)
