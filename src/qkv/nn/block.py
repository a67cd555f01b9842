"""One layer of a Transformer: attention, then feed-forward, each with a residual connection and layer norm.

Post-norm is the paper's and BERT's order, norm(x + f(x)). Pre-norm, x + f(norm(x)), keeps the residual path free of
norms, so that deep stacks train without warm-up (Xiong et al. 2020); it wants one more norm after the last block.

Shapes: … (B, T) of padded or (N,) of packed rows, D width.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from qkv.nn import fast, sublayer
from qkv.nn.fused import Attend
from qkv.nn.multihead import MultiHeadSelfAttention


def gelu_tanh(x: Tensor) -> Tensor:
    """OpenAI's and Google's first code approximated the Gaussian's integral by a tanh. A function with a name, so that
    copies of a layer have the same one."""
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": functional.silu,
    "tanh": functional.tanh,
}
KERNELS = {ACTIVATIONS[name]: name for name in ("relu", "gelu", "gelu_tanh")}
"""What kernels.py knows by itself."""


class FeedForward(nn.Module):
    """Two linear maps with a bend between them, applied to every position alike (Vaswani et al. 2017, §3.3).

    All positions share the weights; each position is computed by itself. (The notes say the opposite of the first
    half; docs/errata.md shows the test.)
    """

    def __init__(self, width: int, inner_width: int, activation: str = "relu") -> None:
        super().__init__()
        self.up = nn.Linear(width, inner_width)
        self.down = nn.Linear(inner_width, width)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class PostNormBlock(nn.Module):
    def __init__(
        self,
        attention: MultiHeadSelfAttention,
        feed_forward: FeedForward,
        width: int,
        dropout: float = 0.0,
        norm_epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.feed_forward = feed_forward
        self.feed_forward_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, attend: Attend, only: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """`only` (M,) are the packed tokens to go on with after the attention: what nobody reads is not computed."""
        if x.dim() == 2 and fast.fits(x) and is_usual(self.attention, self.feed_forward):
            return self._fused(x, attend, only)
        answer, weights = self.attention(x, attend, only)
        x = self.attention_norm((x if only is None else x.index_select(0, only)) + self.dropout(answer))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x, weights

    def _fused(self, x: Tensor, attend: Attend, only: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The same on the kernels of fast.py."""
        attention = self.attention
        dropped, attention_dropped = (self.dropout.p, attention.dropout) if self.training else (0.0, 0.0)
        x = x.to(fast.compute_type(x))
        answer, weights, x = fast.attended(
            x, attention.qkv, attend, attention.heads, attention.head_width, attention.scale, attention_dropped
        )
        if only is not None:
            answer, x = answer.index_select(0, only), x.index_select(0, only)
        x = sublayer.out_add_norm(answer, attention.out, x, self.attention_norm, dropped)
        return fed_forward(x, self.feed_forward, self.feed_forward_norm, dropped), weights


def is_usual(attention: MultiHeadSelfAttention, feed_forward: FeedForward, *others: nn.Module) -> bool:
    """Plain linear layers, the others of a block too, and nothing that torch.compile took over. (Hooks inside of a
    block are not run.)"""
    layers = (attention.qkv, attention.out, feed_forward.up, feed_forward.down, *others)
    plain = all(type(layer) is nn.Linear for layer in layers)  # and not something that stands in for one
    return plain and feed_forward._compiled_call_impl is None


def fed_forward(x: Tensor, feed_forward: FeedForward, norm: nn.LayerNorm, dropped: float) -> Tensor:
    """norm(x + feed-forward(x)) on the kernels of fast.py, (N, D) → (N, D)."""
    up, down = feed_forward.up, feed_forward.down
    if (bend := KERNELS.get(feed_forward.activation)) is not None:
        return sublayer.fed_forward(x, up, down, norm, bend, dropped)
    inner, x = fast.widen(x, up)
    return fast.add_norm(functional.linear(bent(inner, feed_forward), down.weight), down.bias, x, norm, dropped)


def bent(inner: Tensor, feed_forward: FeedForward) -> Tensor:
    """What a product (N, I) becomes between the two linear maps: a bias and a bend that is not among KERNELS."""
    return feed_forward.activation(inner + feed_forward.up.bias.to(inner.dtype))


class PreNormBlock(nn.Module):
    def __init__(
        self,
        attention: MultiHeadSelfAttention,
        feed_forward: FeedForward,
        width: int,
        dropout: float = 0.0,
        norm_epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.attention = attention
        self.feed_forward_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.feed_forward = feed_forward
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, attend: Attend, only: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """`only` as in `PostNormBlock`."""
        answer, weights = self.attention(self.attention_norm(x), attend, only)
        x = (x if only is None else x.index_select(0, only)) + self.dropout(answer)
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x, weights
