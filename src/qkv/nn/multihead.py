"""Multi-head attention (Vaswani et al. 2017, §3.2.2).

The heads' projections are one matrix, because one large product is faster than many small ones; the rows of
`qkv.weight` are the queries of all heads, then the keys, then the values. Mask and kernel are the caller's `attend`
(fused.py): these classes serve padded and packed rows, with and without weights.

Shapes: … (B, T) of padded or (N,) of packed rows, D width, H heads, K head width.
"""

from torch import Tensor, nn

from qkv.nn.fused import Attend


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
