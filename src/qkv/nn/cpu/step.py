"""Layers of translators and language models for new tokens, in as few Python calls as possible.

nn/block.py has the equations. When a single text is decoded, the overhead of modules, hooks and inactive dropout takes
as long as the products. Here every function and weight is bound in advance. Tests compare the two.

A step holds the weights of its block at construction: in-place changes are seen, replaced parameters are not.

Shapes: Q rows (new tokens), D width, H heads, K head width.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.nn.block import PostNormBlock, PostNormDecoderBlock, PreNormBlock, PreNormDecoderBlock, project_source_stacked
from qkv.nn.multihead import Attend

Function = Callable[[Tensor], Tensor]
AttendSource = Callable[..., tuple[Tensor, Tensor | None]]
"""Queries (Q, H, K), the source's memory, and `scale` → outputs (Q, H, K) and weights."""


class DecoderStep:
    """The common part of `PostNormStep` and `PreNormStep`."""

    def __init__(self, block: PostNormDecoderBlock | PreNormDecoderBlock) -> None:
        own, source, feed_forward = block.attention, block.cross_attention, block.feed_forward
        self.shape, self.scale = (3, own.heads, own.head_width), own.scale
        self.qkv, self.out = bind_weights(own.qkv), bind_weights(own.out)
        self.source_shape, self.source_scale = (source.heads, source.head_width), source.scale
        self.source_query, self.source_out = bind_weights(source.query), bind_weights(source.out)
        self.up, self.activation, self.down = (
            bind_weights(feed_forward.up),
            feed_forward.activation,
            bind_weights(feed_forward.down),
        )
        norms = (block.attention_norm, block.cross_attention_norm, block.feed_forward_norm)
        self.norm, self.source_norm, self.last_norm = map(bind_weights, norms)
        self.remembered = partial(project_source_stacked, block)

    def write(self, x: Tensor, attend: Attend) -> Tensor:
        """(Q, D): self-attention to the tokens so far."""
        query, key, value = self.qkv(x).view(x.size(0), *self.shape).unbind(1)  # (Q, H, K) each
        return self.out(attend(query, key, value, scale=self.scale)[0].flatten(1))

    def ask(self, x: Tensor, memory: tuple[Tensor, ...], attend: AttendSource) -> tuple[Tensor, Tensor | None]:
        """(Q, D): cross-attention to the source, and its weights."""
        query = self.source_query(x).view(x.size(0), *self.source_shape)  # (Q, H, K)
        answer, weights = attend(query, *memory, scale=self.source_scale)
        return self.source_out(answer.flatten(1)), weights

    def feed(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class PostNormStep(DecoderStep):
    def __call__(
        self, x: Tensor, memory: tuple[Tensor, ...], attend: Attend, attend_to_source: AttendSource
    ) -> tuple[Tensor, Tensor | None]:
        """x (Q, D); `memory`: the arguments of `attend_to_source` after the queries."""
        x = self.norm(x + self.write(x, attend))
        answer, weights = self.ask(x, memory, attend_to_source)
        x = self.source_norm(x + answer)
        return self.last_norm(x + self.feed(x)), weights


class PreNormStep(DecoderStep):
    def __call__(
        self, x: Tensor, memory: tuple[Tensor, ...], attend: Attend, attend_to_source: AttendSource
    ) -> tuple[Tensor, Tensor | None]:
        x = x + self.write(self.norm(x), attend)
        answer, weights = self.ask(self.source_norm(x), memory, attend_to_source)
        x = x + answer
        return x + self.feed(self.last_norm(x)), weights


def make_decoder_step(block: nn.Module) -> PostNormStep | PreNormStep:
    if isinstance(block, PostNormDecoderBlock):
        return PostNormStep(block)
    assert isinstance(block, PreNormDecoderBlock), f"{type(block).__name__} is not a decoder layer"
    return PreNormStep(block)


def bind_weights(module: nn.Module) -> Function:
    """The function of a module with its weights bound, without the module's call overhead."""
    if isinstance(module, nn.Linear):
        return partial(functional.linear, weight=module.weight, bias=module.bias)
    if isinstance(module, nn.LayerNorm):
        shape = list(module.normalized_shape)
        return partial(torch.layer_norm, normalized_shape=shape, weight=module.weight, bias=module.bias, eps=module.eps)
    function: Function = module.forward
    return function


class CausalStep:
    """The common part of `PostNormCausalStep` and `PreNormCausalStep`."""

    def __init__(self, block: PostNormBlock | PreNormBlock) -> None:
        attention, feed_forward = block.attention, block.feed_forward
        self.shape, self.scale = (3, attention.heads, attention.head_width), attention.scale
        self.qkv, self.out = bind_weights(attention.qkv), bind_weights(attention.out)
        self.up, self.activation, self.down = (
            bind_weights(feed_forward.up),
            feed_forward.activation,
            bind_weights(feed_forward.down),
        )
        self.attention_norm, self.feed_forward_norm = (
            bind_weights(block.attention_norm),
            bind_weights(block.feed_forward_norm),
        )

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


def make_causal_step(block: nn.Module) -> PostNormCausalStep | PreNormCausalStep:
    if isinstance(block, PostNormBlock):
        return PostNormCausalStep(block)
    assert isinstance(block, PreNormBlock), f"{type(block).__name__} is not a layer of a language model"
    return PreNormCausalStep(block)
