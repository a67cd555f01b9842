"""A layer of a language model for the next tokens of texts, in as few calls as will do.

block.py has the equations, for training and for reading. When one token is written after another, and for one text
alone, the way through modules, hooks and dropouts that do nothing takes long. Here the same stands in straight lines,
with every function and weight looked up beforehand, as decoder_step.py has it for layers that ask a source as well.
Tests hold the two equal.

Whoever makes a step out of a block has its weights as they are then: changes in place are seen, others are not.

Shapes: Q tokens, D width, H heads, K head width.
"""

from torch import Tensor, nn

from qkv.nn.block import PostNormBlock, PreNormBlock
from qkv.nn.decoder_step import direct
from qkv.nn.fused import Attend


class CausalStep:
    """What the two orders of norm and residual have in common."""

    def __init__(self, block: PostNormBlock | PreNormBlock) -> None:
        attention, feed_forward = block.attention, block.feed_forward
        self.shape, self.scale = (3, attention.heads, attention.head_width), attention.scale
        self.qkv, self.out = direct(attention.qkv), direct(attention.out)
        self.up, self.activation, self.down = (
            direct(feed_forward.up),
            feed_forward.activation,
            direct(feed_forward.down),
        )
        self.attention_norm, self.feed_forward_norm = direct(block.attention_norm), direct(block.feed_forward_norm)

    def attended(self, x: Tensor, attend: Attend) -> Tensor:
        """(Q, D)"""
        query, key, value = self.qkv(x).view(x.size(0), *self.shape).unbind(1)  # (Q, H, K) each
        return self.out(attend(query, key, value, scale=self.scale)[0].flatten(1))

    def fed(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class PostNormCausalStep(CausalStep):
    def __call__(self, x: Tensor, attend: Attend) -> Tensor:
        x = self.attention_norm(x + self.attended(x, attend))
        return self.feed_forward_norm(x + self.fed(x))


class PreNormCausalStep(CausalStep):
    def __call__(self, x: Tensor, attend: Attend) -> Tensor:
        x = x + self.attended(self.attention_norm(x), attend)
        return x + self.fed(self.feed_forward_norm(x))


def causal_step(block: nn.Module) -> PostNormCausalStep | PreNormCausalStep:
    if isinstance(block, PostNormBlock):
        return PostNormCausalStep(block)
    assert isinstance(block, PreNormBlock), f"{type(block).__name__} is no layer of a language model"
    return PreNormCausalStep(block)
