"""Sub-layers of a block as single autograd functions, for training on a GPU.

    out_add_norm               norm(x + dropout(answer W + b)), after an attention
    out_and_norm               the same and the sum itself, for pre-norm blocks
    feed_forward_add_norm      norm(x + dropout(activation(x W + b) V + c))
    project_keys_and_values    keys and values of the source for all layers of a decoder, one product
    query_source               the cross-attention of a layer

With small batches the GPU is faster than Python, and every autograd step costs host time: hence few, large steps. They
compute what layers.py and nn/block.py compute, on the same kernels.

Not here: the kernels (kernels.py, short_attention.py); the choice of when to use them (nn/block.py).

Shapes: N tokens, S of the source, L layers, D width, H heads, K head width, I inner width.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from qkv.nn.gpu.layers import add_product, cast_weight, has_short_kernel, weight_gradient, widen
from qkv.nn.multihead import SHORT, Across, Attend

if TYPE_CHECKING:
    from qkv.nn.gpu.kernels import Dropout
    from qkv.nn.gpu.short_attention import Short


def out_add_norm(answer: Tensor, layer: nn.Linear, x: Tensor, norm: nn.LayerNorm, dropout: float = 0.0) -> Tensor:
    """(N, H · K) and x (N, D) → (N, D)"""
    return out_and_norm(answer, layer, x, norm, dropout)[0]


def out_and_norm(
    answer: Tensor, layer: nn.Linear, x: Tensor, norm: nn.LayerNorm, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """s = x + dropout(answer W + b), (N, D) → norm(s) in the dtype of the answer, and s in the dtype of x."""
    return _OutAndNorm.apply(answer, layer.weight, layer.bias, x, norm.weight, norm.bias, norm.eps, dropout)


class _OutAndNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        answer: Tensor,
        weight: Tensor,
        bias: Tensor,
        x: Tensor,
        gamma: Tensor,
        beta: Tensor,
        epsilon: float,
        dropout: float,
    ) -> tuple[Tensor, Tensor]:
        from qkv.nn.gpu.kernels import Dropout, add_norm_forward

        ctx.set_materialize_grads(False)
        weight, ctx.dropout = cast_weight(weight, answer.dtype), Dropout(dropout)
        product = functional.linear(answer, weight)
        out, *saved = add_norm_forward(product, bias, x.contiguous(), gamma, beta, epsilon, ctx.dropout)
        ctx.save_for_backward(answer, weight, *saved, gamma)
        return out, saved[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, to_total: Tensor | None) -> tuple[Tensor | None, ...]:
        answer, weight, *saved = ctx.saved_tensors
        to_x, to_product, to_gamma, to_beta, to_bias = norm_backward(gradient, to_total, saved, ctx.dropout)
        to_weight = weight_gradient(to_product, answer)
        return to_product @ weight, to_weight, to_bias, to_x, to_gamma, to_beta, None, None


def norm_backward(
    gradient: Tensor, to_total: Tensor | None, saved: Sequence[Tensor], dropout: "Dropout"
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of the norm's output and of the sum → of x, the product, gamma, beta and the bias."""
    from qkv.nn.gpu.kernels import add_norm_backward

    total, means, deviations, gamma = saved
    to_total = None if to_total is None else to_total.contiguous()
    return add_norm_backward(gradient.contiguous(), total, gamma, means, deviations, True, dropout, to_total)


def feed_forward_add_norm(
    x: Tensor, up: nn.Linear, down: nn.Linear, norm: nn.LayerNorm, bend: str, dropout: float = 0.0
) -> Tensor:
    """(N, D) → (N, D); `bend` is a value of nn/block.py KERNELS"""
    weights = (up.weight, up.bias, down.weight, down.bias, norm.weight, norm.bias)
    return _FeedForwardAddNorm.apply(x, *weights, norm.eps, bend, dropout)


class _FeedForwardAddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
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
    ) -> Tensor:
        from qkv.nn.gpu.kernels import Dropout, activation_forward, add_norm_forward

        x, up, down = x.contiguous(), cast_weight(up, x.dtype), cast_weight(down, x.dtype)
        ctx.bend, ctx.dropout = bend, Dropout(dropout)
        before = functional.linear(x, up)  # (N, I)
        bent = activation_forward(before, up_bias, bend)
        out, *saved = add_norm_forward(functional.linear(bent, down), down_bias, x, gamma, beta, epsilon, ctx.dropout)
        ctx.save_for_backward(x, up, up_bias, down, before, bent, *saved, gamma)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from qkv.nn.gpu.kernels import activation_backward, add_norm_backward

        x, up, up_bias, down, before, bent, total, means, deviations, gamma = ctx.saved_tensors
        to_x, to_product, to_gamma, to_beta, to_down_bias = add_norm_backward(
            gradient.contiguous(), total, gamma, means, deviations, True, ctx.dropout
        )
        to_down, to_bent = weight_gradient(to_product, bent), to_product @ down
        to_before, to_up_bias = activation_backward(to_bent, before, up_bias, ctx.bend)
        to_up = weight_gradient(to_before, x)
        to_x.addmm_(to_before, up)  # to_product may be the same tensor, but is not read again
        return to_x, to_up, to_up_bias, to_down, to_down_bias, to_gamma, to_beta, None, None, None


def project_keys_and_values(source: Tensor, layers: Sequence[nn.Linear], heads: int) -> list[tuple[Tensor, Tensor]]:
    """The encoder's vectors (S, D) → keys and values (S, H, K) for every layer."""
    weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
    sides = _KeysAndValues.apply(source, heads, *weights, *biases)
    return list(zip(sides[::2], sides[1::2], strict=True))


class _KeysAndValues(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: Tensor, heads: int, *parameters: Tensor) -> tuple[Tensor, ...]:
        layers = len(parameters) // 2
        cast = [cast_weight(one, source.dtype) for one in parameters]
        weight, bias = torch.cat(cast[:layers]), torch.cat(cast[layers:])  # (L · 2 · H · K, D)
        ctx.save_for_backward(source, weight)
        sides = functional.linear(source, weight, bias).view(source.size(0), 2 * layers, heads, -1)
        return sides.unbind(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        source, weight = ctx.saved_tensors
        layers = len(gradients) // 2
        pairs = [join_sides(key, value) for key, value in zip(gradients[::2], gradients[1::2], strict=True)]
        gradient = torch.cat(pairs, dim=1)  # (S, L · 2 · H · K)
        to_weights = weight_gradient(gradient, source).chunk(layers)
        to_biases = gradient.sum(0, dtype=torch.float32).chunk(layers)
        return gradient @ weight, None, *to_weights, *to_biases


def join_sides(key: Tensor, value: Tensor) -> Tensor:
    """(S, H, K) each → (S, 2 · H · K), without a copy if they are adjacent in memory."""
    tokens, inner, stride = key.size(0), key.size(1) * key.size(2), key.stride(0)
    adjacent = key.data_ptr() + inner * key.element_size() == value.data_ptr()
    whole = key.stride() == value.stride() == (stride, key.size(2), 1) and stride >= 2 * inner
    if adjacent and whole and key.untyped_storage().data_ptr() == value.untyped_storage().data_ptr():
        return key.as_strided((tokens, 2 * inner), (stride, 1))
    return torch.cat([key.reshape(tokens, inner), value.reshape(tokens, inner)], dim=1)


def query_source(
    x: Tensor,
    layer: nn.Linear,
    memory: tuple[Tensor, Tensor],
    attend: Attend,
    heads: int,
    scale: float | None,
    dropout: float,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Project x (N, D) to queries and attend to keys and values (S, H, K) → (N, H · K), weights, and x itself. Short
    rows go through their own kernel."""
    width = layer.out_features // heads
    if isinstance(attend, Across) and attend.longest <= SHORT and has_short_kernel(x, width):
        answer, x = query_source_short(x, layer, memory, attend, heads, scale, dropout)
        return answer, None, x
    query, x = widen(x, layer, biased=True)
    answer, weights = attend(query.unflatten(-1, (heads, width)), *memory, scale=scale, dropout=dropout)
    return answer.flatten(-2), weights, x


def query_source_short(
    x: Tensor,
    layer: nn.Linear,
    memory: tuple[Tensor, Tensor],
    rows: Across,
    heads: int,
    scale: float | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """`query_source` for short rows, in one autograd step → (N, H · K), and x itself."""
    from qkv.nn.gpu.short_attention import Short

    scale = 1 / math.sqrt(layer.out_features // heads) if scale is None else scale
    settings = Short(rows.own.offsets, rows.others.offsets, rows.longest, False, heads, scale)
    return _QueryShort.apply(x, layer.weight, layer.bias, *memory, settings, dropout)


class _QueryShort(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, key: Tensor, value: Tensor, rows: "Short", dropout: float
    ) -> tuple[Tensor, Tensor]:
        from qkv.nn.gpu.kernels import Dropout
        from qkv.nn.gpu.short_attention import short_forward

        ctx.set_materialize_grads(False)
        weight = cast_weight(weight, x.dtype)
        queries = functional.linear(x, weight, cast_weight(bias, x.dtype))  # (N, H · K)
        keys = join_sides(key, value)  # (S, 2 · H · K)
        ctx.rows, ctx.dropout = rows, Dropout(dropout)
        ctx.save_for_backward(x, weight, queries, keys)
        return short_forward(queries, keys, rows, ctx.dropout), x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, to_x: Tensor | None) -> tuple[Tensor | None, ...]:
        from qkv.nn.gpu.short_attention import short_backward

        x, weight, queries, keys = ctx.saved_tensors
        to_queries, to_keys, sums = short_backward(gradient.contiguous(), queries, keys, ctx.rows, ctx.dropout)
        to_key, to_value = to_keys.view(keys.size(0), 2, ctx.rows.heads, -1).unbind(1)
        to_weight, to_bias = weight_gradient(to_queries, x), sums[: queries.size(1)]
        return add_product(to_x, to_queries, weight), to_weight, to_bias, to_key, to_value, None, None
