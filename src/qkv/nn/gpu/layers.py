"""The layers of a post-norm block for training on a GPU: the maths of nn/block.py with less memory traffic.

    query, key, value, x = project(x, …)      one product; its gradient is added to the residual's in place
    answer = attend(query, key, value)
    x = add_norm(answer W, bias, x, …)        bias, dropout, residual and norm in one pass
    inner, x = widen(x, …)
    x = add_norm(activation(inner + bias) W, bias, x, …)

The residual is read by the layer and by the sum after it, so that two gradients meet. `project` and `widen` therefore
return x too: their products add to the gradient of the residual in place, where autograd would add two tensors. Rows of
up to 128 tokens are projected and attended in one function (`attend_short`).

Weights are trained in 32 bits and multiplied in 16. Casting them one by one, as autocast does, costs a launch each.
Inside of

    with casts:                               # a WeightCasts
        loss = …

`cast_weight` returns 16-bit copies that were refreshed together on entry; the first step registers which are needed.
Weights must not change inside the block.

Nothing is compiled ahead and shapes may change at every step. Tests compare every function with its readable version.

Not here: the kernels (kernels.py); the choice of when to use them, by `has_kernels` (nn/block.py).

Shapes: N tokens of all rows, D width, H heads, K head width, I inner width, M predicted tokens, V vocabulary.
"""

import math
import threading
import warnings
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self, TypeGuard

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from qkv.nn.multihead import SHORT, Attend, Packed

if TYPE_CHECKING:
    from qkv.nn.gpu.short_attention import Short


_HERE = threading.local()  # per thread: each may train a model


class WeightCasts:
    """16-bit copies of weights, reused between steps."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}  # by id; the reference keeps the id valid

    def __enter__(self) -> Self:
        if self._copies:
            weights, copies = zip(*self._copies.values(), strict=True)
            with torch.no_grad():
                torch._foreach_copy_(copies, weights)
        _HERE.halves = self
        return self

    def __exit__(self, *problem: object) -> None:
        _HERE.halves = None

    def of(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        found = self._copies.get(id(weight))
        if found is None or found[1].dtype != dtype:
            found = self._copies[id(weight)] = weight, weight.detach().to(dtype)
        return found[1]


def cast_weight(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight in the dtype of products, without gradient: for use inside a `torch.autograd.Function`."""
    if weight.dtype == dtype:
        return weight
    halves: WeightCasts | None = getattr(_HERE, "halves", None)
    # a tensor that is not a parameter differs in every step
    return weight.to(dtype) if halves is None or not isinstance(weight, nn.Parameter) else halves.of(weight, dtype)


_KNOWN = (torch.float32, torch.bfloat16, torch.float16)
ALIGNED = 64
"""Product widths are padded to a multiple of this, e.g. the vocabulary's: odd widths are much slower."""


def has_kernels(x: Tensor) -> bool:
    """Whether the kernels support this tensor: its dtype, and a GPU that Triton compiles for."""
    return x.is_cuda and x.dtype in _KNOWN and x.size(0) > 0 and _compiles_for(x.device)


@cache
def _compiles_for(device: torch.device) -> bool:
    if find_spec("triton") is None or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    from qkv.nn.gpu.kernels import explain_no_kernels

    if reason := explain_no_kernels(device):
        warnings.warn(
            f"qkv's GPU kernels cannot be built here ({reason}); using slower ones. They need a C compiler and "
            "Python's headers (on Debian: gcc and python3-dev).",
            stacklevel=2,
        )
    return reason is None


def compute_type(x: Tensor) -> torch.dtype:
    """The dtype of products: autocast's, if enabled."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def project_and_attend(
    x: Tensor, layer: nn.Linear, attend: Attend, heads: int, width: int, scale: float | None, dropout: float
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Project x (N, D) to queries, keys and values and apply `attend` → outputs (N, H · K), weights, and x itself.

    Short rows go through their own kernel, also in a batch with longer rows.
    """
    if can_attend_short(attend, x, width):
        if attend.longest <= SHORT:
            answer, x = attend_short(x, layer, attend, heads, scale, dropout)
            return answer, None, x
        if parts := attend.short_and_long:
            answer, x = attend_mixed(x, layer, parts, heads, scale, dropout)
            return answer, None, x
    query, key, value, x = project(x, layer, heads, width)
    answer, weights = attend(query, key, value, scale=scale, dropout=dropout)
    return answer.flatten(-2), weights, x


def project(x: Tensor, layer: nn.Linear, heads: int, head_width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x (N, D) → query, key and value (N, H, K) each, and x itself."""
    query, key, value, x = _Project.apply(x, layer.weight, layer.bias)
    shape = (x.size(0), heads, head_width)
    return query.view(shape), key.view(shape), value.view(shape), x


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        weight = cast_weight(weight, x.dtype)
        ctx.save_for_backward(x, weight)
        out = functional.linear(x, weight, cast_weight(bias, x.dtype))  # (N, 3 · H · K)
        return *out.chunk(3, dim=1), x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, to_query: Tensor, to_key: Tensor, to_value: Tensor, to_x: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        from qkv.nn.gpu.kernels import join_columns

        x, weight = ctx.saved_tensors
        gradient, to_bias = join_columns(*(part.contiguous() for part in (to_query, to_key, to_value)))
        return add_product(to_x, gradient, weight), weight_gradient(gradient, x), to_bias


def attend_short(
    x: Tensor, layer: nn.Linear, rows: Packed, heads: int, scale: float | None = None, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Projection and attention of short rows in one autograd step: x (N, D) → outputs (N, H · K), and x itself."""
    return _AttendShort.apply(x, layer.weight, layer.bias, _self_rows(rows, layer, heads, scale), dropout)


def attend_mixed(
    x: Tensor, layer: nn.Linear, parts: tuple[Packed, Packed], heads: int, scale: float | None, dropout: float
) -> tuple[Tensor, Tensor]:
    """`attend_short` for a batch of short rows followed by longer rows."""
    width = layer.out_features // (3 * heads)
    qkv, x = widen(x, layer, biased=True)
    short, long = qkv.split([part.n_tokens for part in parts])
    answer = _Short.apply(short, _self_rows(parts[0], layer, heads, scale), dropout)
    others, _ = parts[1](*long.unflatten(-1, (3, heads, width)).unbind(-3), scale=scale, dropout=dropout)
    return torch.cat([answer, others.flatten(-2)]), x


def can_attend_short(attend: Attend, x: Tensor, head_width: int) -> TypeGuard[Packed]:
    """Whether the short-row kernel supports this attention."""
    return isinstance(attend, Packed) and has_short_kernel(x, head_width)


def has_short_kernel(x: Tensor, head_width: int) -> bool:
    from qkv.nn.gpu.short_attention import WIDTHS

    return head_width in WIDTHS and not (x.is_cuda and x.element_size() != 2)  # on a GPU it would round fp32 to TF32


def _self_rows(rows: Packed, layer: nn.Linear, heads: int, scale: float | None) -> "Short":
    """Rows that attend to themselves."""
    from qkv.nn.gpu.short_attention import Short

    scale = 1 / math.sqrt(layer.out_features // (3 * heads)) if scale is None else scale
    return Short(rows.offsets, rows.offsets, rows.longest, rows.causal, heads, scale)


class _Short(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, rows: "Short", dropout: float) -> Tensor:
        from qkv.nn.gpu.kernels import Dropout
        from qkv.nn.gpu.short_attention import short_forward

        ctx.rows, ctx.dropout = rows, Dropout(dropout)
        ctx.save_for_backward(qkv)
        return short_forward(qkv, qkv, rows, ctx.dropout)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from qkv.nn.gpu.short_attention import short_backward

        (qkv,) = ctx.saved_tensors
        return short_backward(gradient.contiguous(), qkv, qkv, ctx.rows, ctx.dropout)[0], None, None


class _AttendShort(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rows: "Short", dropout: float
    ) -> tuple[Tensor, Tensor]:
        from qkv.nn.gpu.kernels import Dropout
        from qkv.nn.gpu.short_attention import short_forward

        ctx.set_materialize_grads(False)
        weight = cast_weight(weight, x.dtype)
        qkv = functional.linear(x, weight, cast_weight(bias, x.dtype))  # (N, 3 · H · K)
        ctx.rows, ctx.dropout = rows, Dropout(dropout)
        ctx.save_for_backward(x, weight, qkv)
        return short_forward(qkv, qkv, rows, ctx.dropout), x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, to_x: Tensor | None) -> tuple[Tensor | None, ...]:
        from qkv.nn.gpu.short_attention import short_backward

        x, weight, qkv = ctx.saved_tensors
        to_qkv, _, to_bias = short_backward(gradient.contiguous(), qkv, qkv, ctx.rows, ctx.dropout)
        return add_product(to_x, to_qkv, weight), weight_gradient(to_qkv, x), to_bias, None, None


def widen(x: Tensor, layer: nn.Linear, biased: bool = False) -> tuple[Tensor, Tensor]:
    """x (N, D) → x W (N, I), with or without the bias, and x itself."""
    return _Widen.apply(x, layer.weight, layer.bias if biased else None)


class _Widen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        weight = cast_weight(weight, x.dtype)
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return functional.linear(x, weight, None if bias is None else cast_weight(bias, x.dtype)), x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, to_x: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        to_bias = gradient.sum(0, dtype=torch.float32) if ctx.has_bias else None
        return add_product(to_x, gradient, weight), weight_gradient(gradient, x), to_bias


def add_product(residual: Tensor | None, gradient: Tensor, weight: Tensor) -> Tensor:
    """residual + gradient W, in place of the residual; without a residual, the product.

    `add_norm` may have returned the same tensor to another branch, but all its readers ran before this gradient, which
    was computed from theirs.
    """
    return gradient @ weight if residual is None else residual.addmm_(gradient, weight)


def weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """(N, O) and (N, D) → (O, D) in 32 bits, the dtype of the weights and of the GPU's accumulator."""
    if gradient.is_cuda and gradient.element_size() == 2:
        return torch.mm(gradient.t(), x, out_dtype=torch.float32)
    return gradient.t() @ x


def add_norm(answer: Tensor, bias: Tensor | None, x: Tensor | None, norm: nn.LayerNorm, dropout: float = 0.0) -> Tensor:
    """norm(x + dropout(answer + bias)), (N, D) each."""
    return _AddNorm.apply(answer, bias, x, norm.weight, norm.bias, norm.eps, dropout)


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        answer: Tensor,
        bias: Tensor | None,
        x: Tensor | None,
        gamma: Tensor,
        beta: Tensor,
        epsilon: float,
        dropout: float,
    ) -> Tensor:
        from qkv.nn.gpu.kernels import Dropout, add_norm_forward

        drawn = Dropout(dropout)
        x = None if x is None else x.contiguous()
        out, *saved = add_norm_forward(answer.contiguous(), bias, x, gamma, beta, epsilon, drawn)
        ctx.save_for_backward(*saved, gamma)
        ctx.dropout, ctx.has_bias, ctx.has_x = drawn, bias is not None, x is not None
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from qkv.nn.gpu.kernels import add_norm_backward

        total, means, deviations, gamma = ctx.saved_tensors
        to_x, to_answer, to_gamma, to_beta, to_bias = add_norm_backward(
            gradient.contiguous(), total, gamma, means, deviations, ctx.has_bias, ctx.dropout
        )
        return to_answer, to_bias, to_x if ctx.has_x else None, to_gamma, to_beta, None, None


def embed_inputs(ids: Tensor, segments: Tensor, positions: Tensor, tables: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """token + segment + position, (N,) each → (N, D) in the dtype of products."""
    return _Embed.apply(ids, segments, positions, *tables, compute_type(tables[0]))


def embed_without_segments(ids: Tensor, positions: Tensor, token: Tensor, position: Tensor) -> Tensor:
    """token + position → (N, D) in the dtype of the tables, for pre-norm stacks, whose sum is not rounded."""
    first, zeros = torch.zeros_like(ids), token.new_zeros(1, token.size(1))
    return _Embed.apply(ids, first, positions, token, zeros, position, token.dtype)


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        ids: Tensor,
        segments: Tensor,
        positions: Tensor,
        token: Tensor,
        segment: Tensor,
        position: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        from qkv.nn.gpu.kernels import embed_forward

        ids, segments, positions = ids.contiguous(), segments.contiguous(), positions.contiguous()
        ctx.save_for_backward(ids, segments, positions)
        ctx.sizes, ctx.type = (token.size(0), segment.size(0), position.size(0)), compute_type(token)
        return embed_forward(ids, segments, positions, (token, segment, position), dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        ids, segments, positions = ctx.saved_tensors
        words, kinds, places = ctx.sizes
        to_token = torch.ops.aten.embedding_dense_backward(gradient, ids, words, -1, False)
        # few distinct segments and positions, each in many tokens: their sums are a matrix product
        gradient = gradient.to(ctx.type)
        columns = places + kinds + -(places + kinds) % ALIGNED
        where = torch.zeros(ids.numel(), columns, dtype=gradient.dtype, device=gradient.device)
        where.scatter_(1, torch.stack([positions, segments + places], dim=1), 1.0)
        to_others = where.t() @ gradient  # (columns, D)
        return None, None, None, to_token, to_others[places : places + kinds], to_others[:places], None


def word_loss(x: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors (M, D) scored against all rows of the table (V, D) → the summed loss, and the number correct."""
    if has_kernels(x):
        return linear_cross_entropy(x, table, bias, targets)
    scores = functional.linear(x, table, bias).float()
    right = (scores.detach().argmax(-1) == targets).sum()
    return functional.cross_entropy(scores, targets, reduction="sum"), right


def linear_cross_entropy(x: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor) -> tuple[Tensor, Tensor]:
    """`word_loss` on kernels. The scores, the largest tensor of pretraining, exist once, in the dtype of products, and
    are overwritten by their gradient. Targets of −100 are ignored, as in torch's cross entropy.
    """
    loss, _, right = smoothed_cross_entropy(x, table, bias, targets, 0.0)
    return loss, right


def smoothed_cross_entropy(
    x: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """With label smoothing (models/transformer/objective.py) → the loss, the loss without smoothing (no gradient), and
    the number correct."""
    return _LinearCrossEntropy.apply(x.to(compute_type(x)), table, bias, targets, smoothing)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        from qkv.nn.gpu.kernels import cross_entropy_forward

        words = table.size(0)
        padding = -words % ALIGNED
        table = functional.pad(cast_weight(table, x.dtype), (0, 0, 0, padding))
        bias = None if bias is None else functional.pad(cast_weight(bias, x.dtype), (0, padding))
        scores = functional.linear(x, table, bias)  # (M, V and padding)
        losses, without, normalizers, hits = cross_entropy_forward(scores, targets, words, smoothing)
        plain, right = without.sum(), hits.sum()
        ctx.save_for_backward(x, table, targets, normalizers)
        ctx.scores, ctx.words, ctx.has_bias, ctx.smoothing = scores, words, bias is not None, smoothing
        ctx.mark_non_differentiable(plain, right)
        return losses.sum(), plain, right

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        from qkv.nn.gpu.kernels import cross_entropy_backward

        x, table, targets, normalizers = ctx.saved_tensors
        if ctx.scores is None:
            raise RuntimeError(
                "the scores were overwritten by their gradients: this loss supports a single backward pass"
            )
        scores = cross_entropy_backward(ctx.scores, targets, normalizers, gradient, ctx.words, ctx.smoothing)
        ctx.scores = None
        to_bias = scores.sum(0, dtype=torch.float32)[: ctx.words] if ctx.has_bias else None
        return scores @ table, weight_gradient(scores, x)[: ctx.words], to_bias, None, None
