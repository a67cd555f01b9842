"""Position encodings. Attention alone ignores order: to it 他欠我100万 and 我欠他100万 are the same bag of words.

Three kinds: fixed sinusoids added to the input, a learned table added to the input (BERT), and rotation of queries and
keys by an angle proportional to the position (rotary), so that a score depends only on the distance of two tokens.

Angles are float32 whatever the dtype of the model: above 256 bfloat16 represents only even integers, so that two
neighbours would share a position. The frequencies are therefore not a buffer, which `model.to(torch.bfloat16)` would
round; they are recomputed at each use.

Shapes: … any, T positions, D width, H heads, K head width.
"""

from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from qkv.nn.multihead import Attend


class PositionEncoding(Protocol):
    """One vector per position, added to the input."""

    kind: ClassVar[str]  # "learned", "interleaved" (sine, cosine, sine, …) or "halved" (all sines first)

    @property
    def length(self) -> int | None:
        """Number of positions; None: unlimited."""
        ...

    def __call__(self, positions: Tensor, /) -> Tensor:
        """(…,) → (…, D)"""
        ...


def sinusoidal_table(length: int, width: int, base: float = 10_000.0) -> Tensor:
    """(T, D): sine and cosine interleaved, each pair with a longer wavelength (Vaswani et al. 2017, §3.5).

    >>> sinusoidal_table(2, 4)[0].tolist()   # at position 0 every sine is 0 and every cosine 1
    [0.0, 1.0, 0.0, 1.0]
    """
    return SinusoidalPositions(width, base)(torch.arange(length))


class SinusoidalPositions(nn.Module):
    """Fixed sinusoids for any position, added to the input; text length is unlimited."""

    kind: ClassVar[str] = "interleaved"
    length: int | None = None

    def __init__(self, width: int, base: float = 10_000.0) -> None:
        super().__init__()
        assert width % 2 == 0, f"sine and cosine come in pairs: the width {width} must be even"
        self.width, self.base = width, base

    def forward(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """(…,) → (…, D) in `dtype`, that of the input; rounded once, at the end."""
        angles = _angles(positions, self.width, self.base)  # (…, D/2)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).to(dtype)


class HalvedSinusoidalPositions(nn.Module):
    """The same sinusoids in Marian's order: all sines, then all cosines.

    Angles are computed in double precision where the device has it, as in Marian: at position 1,000 the error of
    float32 angles would exceed that of the rest of the network.
    """

    kind: ClassVar[str] = "halved"
    length: int | None = None

    def __init__(self, width: int, base: float = 10_000.0) -> None:
        super().__init__()
        assert width % 2 == 0, f"sine and cosine come in pairs: the width {width} must be even"
        self.width, self.base = width, base

    def forward(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """(…,) → (…, D) of `dtype`"""
        known = torch.float32 if positions.device.type == "mps" else torch.float64
        angles = _angles(positions, self.width, self.base, known)  # (…, D/2)
        return torch.cat([angles.sin(), angles.cos()], dim=-1).to(dtype)


class LearnedPositions(nn.Embedding):
    """One learned vector per position, up to `length` (Devlin et al. 2019, §3). The first is row `offset` of the
    table."""

    kind: ClassVar[str] = "learned"

    def __init__(self, length: int, width: int, offset: int = 0) -> None:
        super().__init__(length + offset, width)
        self.offset = offset

    @property
    def length(self) -> int | None:
        return self.num_embeddings - self.offset

    def forward(self, positions: Tensor) -> Tensor:
        """(…,) → (…, D)"""
        return super().forward(self.rows(positions))

    def rows(self, positions: Tensor) -> Tensor:
        return positions + self.offset if self.offset else positions


class RotaryPositions(nn.Module):
    """Rotates neighbouring pairs of a query or key by position × frequency (Su et al. 2021, §3.2).

    The dot product of a query rotated by m and a key rotated by n depends on m − n only. It wraps an attention:
    `rotary.around(attend, positions)` is again an `Attend`.
    """

    def __init__(self, head_width: int, base: float = 10_000.0) -> None:
        super().__init__()
        assert head_width % 2 == 0, f"rotation is in planes: the head width {head_width} must be even"
        self.head_width, self.base = head_width, base

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (…, T, H, K) at positions (…, T) → x rotated; rounded to x's dtype once, at the end."""
        angles = _angles(positions, self.head_width, self.base)[..., None, :]  # (…, T, 1, K/2)
        cosine, sine = angles.cos(), angles.sin()
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1)
        return turned.flatten(-2).to(x.dtype)

    def around(self, attend: Attend, positions: Tensor, key_positions: Tensor | None = None) -> Attend:
        key_positions = positions if key_positions is None else key_positions

        def turned(
            query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, dropout: float = 0.0
        ) -> tuple[Tensor, Tensor | None]:
            return attend(self(query, positions), self(key, key_positions), value, scale=scale, dropout=dropout)

        return turned


def _angles(positions: Tensor, width: int, base: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """(…,) → (…, D/2): position × frequency; frequencies fall from 1 to nearly 1 / base."""
    pairs = torch.arange(0, width, 2, dtype=dtype, device=positions.device)
    return positions[..., None] * base ** (-pairs / width)
