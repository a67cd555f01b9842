"""Layers of a Transformer's encoder and decoder: attention, cross-attention and feed-forward, each with a residual
connection and layer norm; and the list of a network's weight matrices (`find_matrices`).

Post-norm is the paper's and BERT's order, norm(x + f(x)). Pre-norm, x + f(norm(x)), keeps the residual path free of
norms, so that deep stacks train without warm-up (Xiong et al. 2020); it needs one more norm after the last block.

Masks and caches are the caller's `Attend` functions. Training computes all target positions at once (multihead.py),
decoding one new token per row with cached keys and values (nn/cpu/cache.py); the layers are the same for both.

Shapes: … (B, T) of padded rows, (N,) of packed rows or (Q,) new tokens, D width, H heads, K head width.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.nn.gpu import layers as fast
from qkv.nn.gpu import sublayer
from qkv.nn.multihead import Attend, MultiHeadCrossAttention, MultiHeadSelfAttention


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU with the tanh approximation of OpenAI's and Google's first code. A named function, so that copies of a layer
    share it."""
    return functional.gelu(x, approximate="tanh")


ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": functional.silu,
    "tanh": functional.tanh,
}
KERNELS: dict[Callable[[Tensor], Tensor], str] = {
    functional.relu: "relu",
    functional.gelu: "gelu",
    gelu_tanh: "gelu_tanh",
}
"""Activations that nn/gpu/kernels.py implements."""


class FeedForward(nn.Module):
    """Two linear maps with an activation between them (Vaswani et al. 2017, §3.3).

    All positions share the weights, and each position is computed independently. (The notes say that weights are not
    shared; docs/errata.md shows the test.)
    """

    def __init__(self, width: int, inner_width: int, activation: str = "relu") -> None:
        super().__init__()
        self.up = nn.Linear(width, inner_width)
        self.down = nn.Linear(inner_width, width)
        self.activation = ACTIVATION_FUNCTIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class BlockEngine(Protocol):
    """Computes a block in another way (nn/cpu/encoder.py)."""

    def run(
        self, block: "PostNormBlock", x: Tensor, attend: Attend, only: Tensor | None
    ) -> tuple[Tensor, Tensor | None] | None:
        """What the block's `forward` returns, or None if it is to compute it itself."""
        ...


class PostNormBlock(nn.Module):
    engine: BlockEngine | None = None

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
        """`only` (M,): packed tokens to compute after the attention; unread positions are skipped."""
        if x.dim() == 2 and fast.has_kernels(x) and is_plain(self.attention, self.feed_forward):
            return self._fused(x, attend, only)
        if self.engine is not None and (found := self.engine.run(self, x, attend, only)) is not None:
            return found
        answer, weights = self.attention(x, attend, only)
        x = self.attention_norm((x if only is None else x.index_select(0, only)) + self.dropout(answer))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x, weights

    def _fused(self, x: Tensor, attend: Attend, only: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """`forward` on the kernels of nn/gpu/layers.py."""
        attention = self.attention
        dropped, attention_dropped = (self.dropout.p, attention.dropout) if self.training else (0.0, 0.0)
        x = x.to(fast.compute_type(x))
        answer, weights, x = fast.project_and_attend(
            x, attention.qkv, attend, attention.heads, attention.head_width, attention.scale, attention_dropped
        )
        if only is not None:
            answer, x = answer.index_select(0, only), x.index_select(0, only)
        x = sublayer.out_add_norm(answer, attention.out, x, self.attention_norm, dropped)
        return _run_feed_forward(x, self.feed_forward, self.feed_forward_norm, dropped), weights


def is_plain(attention: MultiHeadSelfAttention, feed_forward: FeedForward, *others: nn.Module) -> bool:
    """Whether all linear layers, `others` included, are plain nn.Linear and nothing was compiled by torch.compile.
    (Hooks inside a block are not run.)"""
    layers = (attention.qkv, attention.out, feed_forward.up, feed_forward.down, *others)
    plain = all(type(layer) is nn.Linear for layer in layers)  # not a subclass or a replacement
    return plain and feed_forward._compiled_call_impl is None


def _run_feed_forward(x: Tensor, feed_forward: FeedForward, norm: nn.LayerNorm, dropped: float) -> Tensor:
    """norm(x + feed-forward(x)) on the kernels of nn/gpu/layers.py, (N, D) → (N, D)."""
    up, down = feed_forward.up, feed_forward.down
    if (bend := KERNELS.get(feed_forward.activation)) is not None:
        return sublayer.feed_forward_add_norm(x, up, down, norm, bend, dropped)
    inner, x = fast.widen(x, up)
    return fast.add_norm(functional.linear(activate(inner, feed_forward), down.weight), down.bias, x, norm, dropped)


def activate(inner: Tensor, feed_forward: FeedForward) -> Tensor:
    """Bias and activation between the two linear maps (N, I), for an activation not in KERNELS."""
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


# Decoder layers: self-attention, cross-attention to the source, feed-forward.


class PostNormDecoderBlock(nn.Module):
    """norm(x + f(x)), three times (Vaswani et al. 2017, §3.1)."""

    def __init__(
        self,
        attention: MultiHeadSelfAttention,
        cross_attention: MultiHeadCrossAttention,
        feed_forward: FeedForward,
        width: int,
        dropout: float = 0.0,
        norm_epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.cross_attention = cross_attention
        self.cross_attention_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.feed_forward = feed_forward
        self.feed_forward_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, memory: tuple[Tensor, Tensor], attend: Attend, attend_to_source: Attend
    ) -> tuple[Tensor, Tensor | None]:
        """x (…, D) and the source's keys and values (`project_source`) → (…, D), and the weights on the source if
        `attend_to_source` returns them."""
        asking = self.cross_attention
        learns = torch.is_grad_enabled() and x.dim() == 2 and fast.has_kernels(x)
        if learns and is_plain(self.attention, self.feed_forward, asking.query, asking.out):
            return self._fused(x, memory, attend, attend_to_source)
        answer, _ = self.attention(x, attend)
        x = self.attention_norm(x + self.dropout(answer))
        answer, weights = query_memory(asking, x, memory, attend_to_source)
        x = self.cross_attention_norm(x + self.dropout(answer))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x, weights

    def _fused(
        self, x: Tensor, memory: tuple[Tensor, Tensor], attend: Attend, attend_to_source: Attend
    ) -> tuple[Tensor, Tensor | None]:
        """`forward` on the kernels of nn/gpu/layers.py, for training on a GPU."""
        writing, asking = self.attention, self.cross_attention
        dropped = self.dropout.p if self.training else 0.0
        dropped_of = {layer: layer.dropout if self.training else 0.0 for layer in (writing, asking)}
        x = x.to(fast.compute_type(x))
        answer, _, x = fast.project_and_attend(
            x, writing.qkv, attend, writing.heads, writing.head_width, writing.scale, dropped_of[writing]
        )
        x = sublayer.out_add_norm(answer, writing.out, x, self.attention_norm, dropped)
        answer, weights, x = sublayer.query_source(
            x, asking.query, memory, attend_to_source, asking.heads, asking.scale, dropped_of[asking]
        )
        x = sublayer.out_add_norm(answer, asking.out, x, self.cross_attention_norm, dropped)
        return _run_feed_forward(x, self.feed_forward, self.feed_forward_norm, dropped), weights


class PreNormDecoderBlock(nn.Module):
    """x + f(norm(x)), three times; the stack needs one more norm after the last block."""

    def __init__(
        self,
        attention: MultiHeadSelfAttention,
        cross_attention: MultiHeadCrossAttention,
        feed_forward: FeedForward,
        width: int,
        dropout: float = 0.0,
        norm_epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.attention = attention
        self.cross_attention_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.cross_attention = cross_attention
        self.feed_forward_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.feed_forward = feed_forward
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, memory: tuple[Tensor, Tensor], attend: Attend, attend_to_source: Attend
    ) -> tuple[Tensor, Tensor | None]:
        answer, _ = self.attention(self.attention_norm(x), attend)
        x = x + self.dropout(answer)
        answer, weights = query_memory(self.cross_attention, self.cross_attention_norm(x), memory, attend_to_source)
        x = x + self.dropout(answer)
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x, weights


def project_source(block: nn.Module, source: Tensor) -> tuple[Tensor, Tensor]:
    """The encoder's vectors (…, D) → keys and values (…, H, K) of this block, the same for every query."""
    key, value = project_source_stacked(block, source).unbind(-3)
    return key, value


def project_source_stacked(block: nn.Module, source: Tensor) -> Tensor:
    """The encoder's vectors (…, D) → keys and values in one tensor (…, 2, H, K)."""
    layer = _cross_attention(block)
    found: Tensor = layer.key_value(source).unflatten(-1, (2, layer.heads, layer.head_width))
    return found


def project_source_for_all(blocks: Sequence[nn.Module], source: Tensor) -> list[tuple[Tensor, Tensor]]:
    """`project_source` for all blocks of a decoder; in training on a GPU as one product."""
    layers = [_cross_attention(block) for block in blocks]
    usual = all(type(layer.key_value) is nn.Linear and layer.heads == layers[0].heads for layer in layers)
    if usual and torch.is_grad_enabled() and source.dim() == 2 and fast.has_kernels(source):
        source = source.to(fast.compute_type(source))
        return sublayer.project_keys_and_values(source, [layer.key_value for layer in layers], layers[0].heads)
    return [project_source(block, source) for block in blocks]


def _cross_attention(block: nn.Module) -> MultiHeadCrossAttention:
    layer = block.cross_attention
    assert isinstance(layer, MultiHeadCrossAttention), f"{type(block).__name__} has no cross-attention"
    return layer


def query_memory(
    layer: MultiHeadCrossAttention, x: Tensor, memory: tuple[Tensor, Tensor], attend: Attend
) -> tuple[Tensor, Tensor | None]:
    """`MultiHeadCrossAttention` with keys and values already projected."""
    query = layer.query(x).unflatten(-1, (layer.heads, layer.head_width))  # (…, H, K)
    answer, weights = attend(query, *memory, scale=layer.scale, dropout=layer.dropout if layer.training else 0.0)
    return layer.out(answer.flatten(-2)), weights


def find_matrices(model: nn.Module) -> dict[str, int]:
    """The matrices between hidden layers, which Muon trains (train/optim.py): weight name → number of matrices stacked
    in it (queries, keys and values: 3). Embeddings and heads are excluded: each of their rows is trained on its own.

    >>> find_matrices(nn.ModuleDict({"attend": MultiHeadSelfAttention(4, 2), "head": nn.Linear(4, 2)}))
    {'attend.qkv.weight': 3, 'attend.out.weight': 1}
    """
    found: dict[str, int] = {}
    for name, module in model.named_modules():
        inside: dict[str, int] = {}
        if isinstance(module, MultiHeadSelfAttention):
            inside = {"qkv": 3, "out": 1}
        elif isinstance(module, MultiHeadCrossAttention):
            inside = {"query": 1, "key_value": 2, "out": 1}
        elif isinstance(module, FeedForward):
            inside = {"up": 1, "down": 1}
        found |= {f"{name}.{part}.weight".lstrip("."): number for part, number in inside.items()}
    return found
