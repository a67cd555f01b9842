"""A stack of pre-norm blocks, x + f(norm(x)), and the final norm, for training on a GPU.

The residual sum after one layer and the norm before the next are one pass over memory. This pass crosses the border of
two blocks, so the stack is run as a whole. In the backward pass the gradient of the sum that bypasses the norm is added
in the same kernel.

The sum keeps its dtype (32 bits in training), while products are computed in autocast's. Tests compare it with the
plain blocks.

Not here: the equations (nn/block.py); the kernels (kernels.py).

Shapes: N tokens of all rows, M selected tokens, D width, H heads, K head width.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from qkv.nn.block import KERNELS, FeedForward, PreNormBlock, activate, is_plain
from qkv.nn.gpu import layers
from qkv.nn.gpu.layers import cast_weight
from qkv.nn.gpu.sublayer import norm_backward, out_and_norm
from qkv.nn.multihead import Attend


def block_stack(
    blocks: Sequence[nn.Module], norm: nn.Module, x: Tensor, attend: Attend, only: Tensor | None = None
) -> Tensor:
    """(N, D) → norm(all blocks(x)), (N, D), or (M, D) for the packed tokens `only` (M,). On a CPU, and for blocks that
    are not plain pre-norm, the blocks are run one by one."""
    usual = [block for block in blocks if isinstance(block, PreNormBlock) and _is_usual(block)]
    if len(usual) == len(blocks) and isinstance(norm, nn.LayerNorm) and x.dim() == 2 and layers.has_kernels(x):
        return _run_fused(usual, norm, x, attend, only)
    for number, block in enumerate(blocks):
        x, _ = block(x, attend, only if number == len(blocks) - 1 else None)
    return norm(x)


def _is_usual(block: PreNormBlock) -> bool:
    """Whether no layer of the block is replaced, nor its forward (as for activation checkpointing), nor its class (by
    FSDP2, whose blocks have to be called)."""
    return (
        type(block) is PreNormBlock and "forward" not in vars(block) and is_plain(block.attention, block.feed_forward)
    )


def _run_fused(
    blocks: Sequence[PreNormBlock], norm: nn.LayerNorm, x: Tensor, attend: Attend, only: Tensor | None
) -> Tensor:
    """`block_stack` on the kernels of layers.py."""
    read = layers.add_norm(x, None, None, blocks[0].attention_norm).to(layers.compute_type(x))
    for number, block in enumerate(blocks):
        is_last = number == len(blocks) - 1
        attention, feed_forward = block.attention, block.feed_forward
        dropped, attention_dropped = (block.dropout.p, attention.dropout) if block.training else (0.0, 0.0)
        answer, _, _ = layers.project_and_attend(
            read, attention.qkv, attend, attention.heads, attention.head_width, attention.scale, attention_dropped
        )
        if only is not None and is_last:
            answer, x = answer.index_select(0, only), x.index_select(0, only)
        read, x = out_and_norm(answer, attention.out, x, block.feed_forward_norm, dropped)
        next_norm = norm if is_last else blocks[number + 1].attention_norm
        read, x = feed_forward_and_norm(read, x, feed_forward, next_norm, dropped)
    return read


def feed_forward_and_norm(
    read: Tensor, x: Tensor, feed_forward: FeedForward, norm: nn.LayerNorm, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """s = x + dropout(feed-forward(read)), (N, D) → norm(s) and s, as `out_and_norm`."""
    up, down = feed_forward.up, feed_forward.down
    if (bend := KERNELS.get(feed_forward.activation)) is None:
        inner, _ = layers.widen(read, up)
        return out_and_norm(activate(inner, feed_forward), down, x, norm, dropout)
    weights = (up.weight, up.bias, down.weight, down.bias, norm.weight, norm.bias)
    return _FeedForwardAndNorm.apply(read, x, *weights, norm.eps, bend, dropout)


class _FeedForwardAndNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        read: Tensor,
        x: Tensor,
        up: Tensor,
        up_bias: Tensor,
        down: Tensor,
        down_bias: Tensor,
        gamma: Tensor,
        beta: Tensor,
        epsilon: float,
        bend: str,
        dropout: float,
    ) -> tuple[Tensor, Tensor]:
        from qkv.nn.gpu.kernels import Dropout, activation_forward, add_norm_forward

        ctx.set_materialize_grads(False)
        up, down = cast_weight(up, read.dtype), cast_weight(down, read.dtype)
        ctx.bend, ctx.dropout = bend, Dropout(dropout)
        before = functional.linear(read, up)  # (N, I)
        inner = activation_forward(before, up_bias, bend)
        product = functional.linear(inner, down)
        out, *saved = add_norm_forward(product, down_bias, x.contiguous(), gamma, beta, epsilon, ctx.dropout)
        ctx.save_for_backward(read, up, up_bias, down, before, inner, *saved, gamma)
        return out, saved[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, to_total: Tensor | None) -> tuple[Tensor | None, ...]:
        from qkv.nn.gpu.kernels import activation_backward

        read, up, up_bias, down, before, inner, *saved = ctx.saved_tensors
        to_x, to_product, to_gamma, to_beta, to_down_bias = norm_backward(gradient, to_total, saved, ctx.dropout)
        to_down = layers.weight_gradient(to_product, inner)
        to_before, to_up_bias = activation_backward(to_product @ down, before, up_bias, ctx.bend)
        to_up = layers.weight_gradient(to_before, read)
        parameters = (to_up, to_up_bias, to_down, to_down_bias, to_gamma, to_beta)
        return to_before @ up, to_x, *parameters, None, None, None
