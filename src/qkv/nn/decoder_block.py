"""One layer of a Transformer's decoder: attention to what was written, attention to the source, then feed-forward.

The orders of norm and residual are those of block.py. Who may be seen is what the caller's two `Attend`s say: in
training all target positions at once, each seeing the ones before it (fused.py); in decoding one new token a row, with
the keys and values of the others remembered (cache.py). The layer is the same for both.

Shapes: … (M,) of packed target rows or (Q,) new tokens, D width, H heads, K head width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from qkv.nn import fast, sublayer
from qkv.nn.block import FeedForward, fed_forward, is_usual
from qkv.nn.fused import Attend
from qkv.nn.multihead import MultiHeadCrossAttention, MultiHeadSelfAttention


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
        """x (…, D) and the source's keys and values (`keys_and_values`) → (…, D), and the weights on the source, if
        `attend_to_source` gives them."""
        asking = self.cross_attention
        learns = torch.is_grad_enabled() and x.dim() == 2 and fast.fits(x)
        if learns and is_usual(self.attention, self.feed_forward, asking.query, asking.out):
            return self._fused(x, memory, attend, attend_to_source)
        answer, _ = self.attention(x, attend)
        x = self.attention_norm(x + self.dropout(answer))
        answer, weights = ask(asking, x, memory, attend_to_source)
        x = self.cross_attention_norm(x + self.dropout(answer))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x, weights

    def _fused(
        self, x: Tensor, memory: tuple[Tensor, Tensor], attend: Attend, attend_to_source: Attend
    ) -> tuple[Tensor, Tensor | None]:
        """The same on the kernels of fast.py, for training on a GPU."""
        writing, asking = self.attention, self.cross_attention
        dropped = self.dropout.p if self.training else 0.0
        dropped_of = {layer: layer.dropout if self.training else 0.0 for layer in (writing, asking)}
        x = x.to(fast.compute_type(x))
        answer, _, x = fast.attended(
            x, writing.qkv, attend, writing.heads, writing.head_width, writing.scale, dropped_of[writing]
        )
        x = sublayer.out_add_norm(answer, writing.out, x, self.attention_norm, dropped)
        answer, weights, x = sublayer.asked(
            x, asking.query, memory, attend_to_source, asking.heads, asking.scale, dropped_of[asking]
        )
        x = sublayer.out_add_norm(answer, asking.out, x, self.cross_attention_norm, dropped)
        return fed_forward(x, self.feed_forward, self.feed_forward_norm, dropped), weights


class PreNormDecoderBlock(nn.Module):
    """x + f(norm(x)), three times; one more norm is wanted after the last block."""

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
        answer, weights = ask(self.cross_attention, self.cross_attention_norm(x), memory, attend_to_source)
        x = x + self.dropout(answer)
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x, weights


def keys_and_values(block: nn.Module, source: Tensor) -> tuple[Tensor, Tensor]:
    """The encoder's vectors (…, D) → keys and values (…, H, K) for this block: the same for every question."""
    key, value = keys_with_values(block, source).unbind(-3)
    return key, value


def keys_with_values(block: nn.Module, source: Tensor) -> Tensor:
    """The same as it comes, (…, 2, H, K)."""
    layer = _asked(block)
    found: Tensor = layer.key_value(source).unflatten(-1, (2, layer.heads, layer.head_width))
    return found


def memories(blocks: Sequence[nn.Module], source: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The same for all blocks of a decoder; in training on a GPU as one product, since they read the same vectors."""
    layers = [_asked(block) for block in blocks]
    usual = all(type(layer.key_value) is nn.Linear and layer.heads == layers[0].heads for layer in layers)
    if usual and torch.is_grad_enabled() and source.dim() == 2 and fast.fits(source):
        source = source.to(fast.compute_type(source))
        return sublayer.keys_and_values(source, [layer.key_value for layer in layers], layers[0].heads)
    return [keys_and_values(block, source) for block in blocks]


def _asked(block: nn.Module) -> MultiHeadCrossAttention:
    layer = block.cross_attention
    assert isinstance(layer, MultiHeadCrossAttention), f"{type(block).__name__} does not ask a source"
    return layer


def ask(
    layer: MultiHeadCrossAttention, x: Tensor, memory: tuple[Tensor, Tensor], attend: Attend
) -> tuple[Tensor, Tensor | None]:
    """The second half of `MultiHeadCrossAttention`, of keys and values that are there already."""
    query = layer.query(x).unflatten(-1, (layer.heads, layer.head_width))  # (…, H, K)
    answer, weights = attend(query, *memory, scale=layer.scale, dropout=layer.dropout if layer.training else 0.0)
    return layer.out(answer.flatten(-2)), weights
