"""Encoders of post-norm blocks (BERT and its relatives) on a CPU: packed rows, no gradients, another precision.

fp32    weights packed by oneDNN, with bias, activation and residual sum inside the products: the same to rounding
bf16    products in 16 bits, attention, sums and norms in 32; fast on CPUs with AVX512-BF16 or AMX
int8    products in 8 bits: W ≈ s_o · Q with one scale per output, x ≈ t_r · (P - z_r) with a scale and a zero point per
        row (token), computed in every call. So a text's vector does not depend on the texts beside it.

torch's own products use MKL, which takes AVX2 kernels on CPUs that are not Intel's: half of what AVX-512 gives.

oneDNN compiles a kernel for every number of rows (a millisecond, 0.7 MB), so rows are padded to few sizes (`round_up`).
The padding follows the rows in memory and is handed from block to block.

An engine belongs to a block (`use_engines`) and packs its weights on first use, and again after a change. What it does
not serve (gradients, training, a GPU, padded rows, layers that are replaced or have hooks) the block computes itself.

Shapes: N tokens, P with padding, M tokens that are needed, D width, F inner width, H heads, K head width, I inputs, O
outputs.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.errors import InputError, did_you_mean
from qkv.nn.block import ACTIVATION_FUNCTIONS, PostNormBlock, gelu_tanh, is_plain
from qkv.nn.cpu.precision import Derived, explain_no_packing
from qkv.nn.multihead import Attend

ENCODER_PRECISIONS = ("fp32", "bf16", "int8", "auto")
_FUSED: dict[Callable[[Tensor], Tensor], tuple[str, str]] = {
    functional.gelu: ("gelu", "none"),
    gelu_tanh: ("gelu", "tanh"),
    functional.relu: ("relu", "none"),
    functional.silu: ("swish", "none"),
    functional.tanh: ("tanh", "none"),
}
"""Activations and oneDNN's names for them."""


def choose_encoder_precision(precision: str) -> str:
    """The precision, or for "auto" bf16 where the CPU computes it natively and fp32 elsewhere; an InputError if it is
    unknown or unavailable here."""
    if precision not in ENCODER_PRECISIONS:
        hint = did_you_mean(precision, ENCODER_PRECISIONS)
        raise InputError(f"Unknown precision '{precision}'.{hint} Known: {', '.join(ENCODER_PRECISIONS)}.")
    if precision == "auto":
        return "fp32" if explain_no_bf16() is not None else "bf16"
    reason = {"bf16": explain_no_bf16, "int8": explain_no_int8_rows}.get(precision, lambda: None)()
    if reason is not None:
        raise InputError(f"{precision} is not available: {reason}. Use fp32.")
    return precision


def use_engines(blocks: nn.ModuleList, precision: str = "fp32") -> bool:
    """Give every block an engine; False, and nothing is changed, if they are not all post-norm blocks."""
    found = [block for block in blocks if isinstance(block, PostNormBlock)]
    if not found or len(found) != len(blocks):
        return False
    for block in found:
        block.engine = EncoderEngine(precision)
    return True


def has_engines(blocks: nn.ModuleList, x: Tensor) -> bool:
    """Whether engines will compute x (N, …), the input of the first block or its ids."""
    first = blocks[0] if len(blocks) else None
    if not isinstance(first, PostNormBlock) or not isinstance(first.engine, EncoderEngine):
        return False
    return (linears := _find_linears(first, x.device)) is not None and _can_pack(linears)


class EncoderEngine:
    """A `BlockEngine` (nn/block.py)."""

    def __init__(self, precision: str = "fp32") -> None:
        self.precision = precision
        self._packed: Derived[_Layers] = Derived(_LAYERS[precision])

    def __reduce__(self) -> tuple[Any, ...]:
        return EncoderEngine, (self.precision,)  # a copy packs its own weights

    def run(
        self, block: PostNormBlock, x: Tensor, attend: Attend, only: Tensor | None
    ) -> tuple[Tensor, Tensor | None] | None:
        """(N, D) → (N, D), or (M, D) of the tokens `only`; and the weights if `attend` returns them"""
        linears = _find_linears(block, x.device) if x.dim() == 2 and x.dtype == torch.float32 else None
        if linears is None:
            return None
        weights = [one for layer in linears for one in layer._parameters.values() if one is not None]
        layers = self._packed.fresh(weights)
        if layers is None:
            if not _can_pack(linears):
                return None
            layers = self._packed.of(block, weights)
        attention, n = block.attention, x.size(0)
        x = pad_rows(x)
        query, key, value = (
            layers.project(x)[:n].unflatten(-1, (3, attention.heads, attention.head_width)).unbind(-3)
        )  # (N, H, K) each
        answer, looked = attend(query, key, value, scale=attention.scale)
        answer = answer.flatten(1)
        if only is not None:
            answer, x, n = answer.index_select(0, only), pad_rows(x.index_select(0, only)), only.numel()
        x = layers.add_attention(x, pad_rows(answer), block.attention_norm)
        return layers.add_feed_forward(x, block.feed_forward_norm)[:n], looked

    @property
    def n_bytes(self) -> int:
        """Memory of the packed weights."""
        return 0 if self._packed.held is None else self._packed.held.n_bytes


_Linears = tuple[nn.Linear, nn.Linear, nn.Linear, nn.Linear]


def _find_linears(block: PostNormBlock, device: torch.device) -> _Linears | None:
    """The layers of a block that is to be computed here; None if it is trained, elsewhere, or not a usual one."""
    if device.type != "cpu" or torch.is_grad_enabled() or block.training or torch.is_autocast_enabled("cpu"):
        return None
    attention, feed_forward = block.attention, block.feed_forward
    if feed_forward.activation not in _FUSED or not is_plain(attention, feed_forward):
        return None
    linears = _linears(block)
    return None if any(layer._forward_hooks or layer._forward_pre_hooks for layer in linears) else linears


def _can_pack(linears: _Linears) -> bool:
    return explain_no_packing() is None and all(
        layer.bias is not None and layer.weight.dtype == torch.float32 and not layer.weight.is_inference()
        for layer in linears
    )


def _linears(block: PostNormBlock) -> _Linears:
    return block.attention.qkv, block.attention.out, block.feed_forward.up, block.feed_forward.down


def round_up(n: int) -> int:
    """A number of rows that kernels are compiled for: eight of them between two powers of 2.

    >>> [round_up(n) for n in (1, 8, 57, 100, 130, 900, 1024)]
    [8, 8, 64, 104, 144, 960, 1024]
    """
    step = max(8, 1 << max(0, (n - 1).bit_length() - 4))
    return -(-n // step) * step


def pad_rows(x: Tensor) -> Tensor:
    """(N, I) → (P, I), the rows and any others; without a copy if they already lie in such a memory."""
    n, width = x.shape
    if (size := round_up(n)) == n:
        return x
    if x.is_contiguous() and not x.storage_offset() and x.untyped_storage().nbytes() >= size * width * x.itemsize:
        return x.as_strided((size, width), (width, 1))
    padded = x.new_empty(size, width)
    padded[:n] = x
    padded[n:] = 0
    return padded


def _norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    return functional.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


# --- The layers of a block in each precision


class _Layers(Protocol):
    n_bytes: int

    def project(self, x: Tensor) -> Tensor:
        """(P, D) → queries, keys and values (P, 3 · H · K)"""
        ...

    def add_attention(self, x: Tensor, answer: Tensor, norm: nn.LayerNorm) -> Tensor:
        """norm(x + out(answer)), (P, D)"""
        ...

    def add_feed_forward(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        """norm(x + down(activation(up(x)))), (P, D)"""
        ...


_EXPECTED = 512
"""Expected number of rows, a hint for oneDNN; the layout serves others, too."""


class _Packed:
    """Weights packed by oneDNN, and the bias."""

    def __init__(self, layer: nn.Linear, dtype: torch.dtype = torch.float32) -> None:
        weight = layer.weight.detach().to(dtype)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, _EXPECTED)
        self.bias = layer.bias.detach().to(dtype)
        self.n_bytes = weight.numel() * weight.itemsize

    def __call__(self, x: Tensor, activation: tuple[str, str] = ("none", "none")) -> Tensor:
        """activation(x Wᵀ + b), (P, I) → (P, O)"""
        found: Tensor = torch.ops.mkldnn._linear_pointwise.default(
            x, self.weight, self.bias, activation[0], [], activation[1]
        )
        return found

    def onto(self, x: Tensor, onto: Tensor) -> Tensor:
        """onto + x Wᵀ + b"""
        found: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, onto, self.weight, self.bias, "add")
        return found


class _SingleLayers:
    def __init__(self, block: PostNormBlock) -> None:
        self.project, self.out, self.up, self.down = map(_Packed, _linears(block))
        self.activation = _FUSED[block.feed_forward.activation]
        self.n_bytes = sum(layer.n_bytes for layer in (self.project, self.out, self.up, self.down))

    def add_attention(self, x: Tensor, answer: Tensor, norm: nn.LayerNorm) -> Tensor:
        return _norm(self.out.onto(answer, x), norm)

    def add_feed_forward(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        return _norm(self.down.onto(self.up(x, self.activation), x), norm)


class _HalfLayers:
    """Products in bf16; the residual path, which adds up what all blocks find, stays in 32 bits."""

    def __init__(self, block: PostNormBlock) -> None:
        layers = [_Packed(layer, torch.bfloat16) for layer in _linears(block)]
        self.qkv, self.out, self.up, self.down = layers
        self.activation = _FUSED[block.feed_forward.activation]
        self.n_bytes = sum(layer.n_bytes for layer in layers)

    def project(self, x: Tensor) -> Tensor:
        return self.qkv(x.bfloat16()).float()  # attention of short rows is slower in 16 bits

    def add_attention(self, x: Tensor, answer: Tensor, norm: nn.LayerNorm) -> Tensor:
        return _norm(x + self.out(answer.bfloat16()), norm)

    def add_feed_forward(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        return _norm(x + self.down(self.up(x.bfloat16(), self.activation)), norm)


@cache
def explain_no_bf16() -> str | None:
    """Why products in bf16 are not faster here; None if they are."""
    # the flags of the CPU; elsewhere the kernels convert every number first
    if not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        return "this CPU has neither AVX512-BF16 nor AMX"
    layer, x = nn.Linear(64, 48), torch.randn(8, 64)
    try:
        with torch.no_grad():
            wrong = not torch.allclose(_Packed(layer, torch.bfloat16)(x.bfloat16()).float(), layer(x), atol=0.05)
    except (RuntimeError, AttributeError) as error:
        return f"torch {torch.__version__} has no kernels for it on this machine ({str(error).splitlines()[0]})"
    return f"the kernels of torch {torch.__version__} compute it wrongly on this machine" if wrong else None


# --- 8 bits
#
#     (x Wᵀ)_ro ≈ t_r s_o Σ_i (P_ri - z_r) Q_oi = t_r (Σ_i P_ri s_o Q_oi - z_r s_o Σ_i Q_oi)
#
# oneDNN computes s_o Σ P Q; the rest is done while the numbers are read for what follows (the norm, the activation, the
# next rounding), by torch, or after some work by numba in one pass (encoder_kernels.py). Both round alike.

LARGEST_WEIGHT = 127
_PROBE = 64
_SMALLEST_STEP = 1e-30
COMPILED_AFTER = 300_000
"""Tokens, counted in every layer, after which numba is worth loading (a second, or some seconds when it compiles)."""


class QuantisedTokens(NamedTuple):
    """x ≈ step · (levels - zero)"""

    levels: Tensor  # (P, I) uint8
    step: Tensor  # (P,)
    zero: Tensor  # (P,) integers, in float32


class _Int8:
    def __init__(self, layer: nn.Linear) -> None:
        weight = layer.weight.detach()
        self.scale = (weight.abs().amax(1) / LARGEST_WEIGHT).clamp_(min=_SMALLEST_STEP)  # (O,)
        levels = (weight / self.scale[:, None]).round_().clamp_(-LARGEST_WEIGHT, LARGEST_WEIGHT).to(torch.int8)
        self.total = levels.sum(1, dtype=torch.int32).float() * self.scale  # (O,): s_o Σ Q
        self.bias = layer.bias.detach()
        self.weight = torch.ops.onednn.qlinear_prepack(levels, None)
        self.zeros = torch.zeros(len(self.scale), dtype=torch.int32)
        self.n_bytes = levels.numel() + 16 * len(self.scale)
        self.is_finite = bool(weight.isfinite().all())

    def __call__(self, x: QuantisedTokens) -> Tensor:
        """s_o Σ P Q, (P, O)"""
        found: Tensor = torch.ops.onednn.qlinear_pointwise(
            x.levels, 1.0, 0, self.weight, self.scale, self.zeros, None, 1.0, 0, torch.float32, "none", [], "none"
        )
        return found

    def arrays(self, sums: Tensor, x: QuantisedTokens) -> Any:
        """The same for the kernels: `Sums` of encoder_kernels.py."""
        makes = import_module("qkv.nn.cpu.encoder_kernels").Sums
        return makes(*(one.numpy() for one in (sums, x.step, x.zero, self.total, self.bias)))

    def restore(self, sums: Tensor, x: QuantisedTokens) -> Tensor:
        """x Wᵀ + b of the sums, which are overwritten"""
        sums.addr_(x.zero, self.total, alpha=-1)
        return torch.addcmul(self.bias, sums, x.step[:, None], out=sums)


def quantise_tokens(x: Tensor, top: int) -> QuantisedTokens:
    """Round rows (P, I) to 0 … `top`; 0.0 is a level."""
    low, high = x.amin(1).clamp_(max=0), x.amax(1).clamp_(min=0)  # aminmax is slower
    step = ((high - low) / top).clamp_(min=_SMALLEST_STEP)
    zero = (-low / step).round_()
    levels = torch.addcmul(zero[:, None], x, (1 / step)[:, None]).round_().clamp_(0, top)
    return QuantisedTokens(levels.to(torch.uint8), step, zero)


class _Int8Layers:
    def __init__(self, block: PostNormBlock) -> None:
        layers = [_Int8(layer) for layer in _linears(block)]
        self.qkv, self.out, self.up, self.down = layers
        self.activation = block.feed_forward.activation
        self.activation_number = list(ACTIVATION_FUNCTIONS.values()).index(self.activation)
        self.n_bytes = sum(layer.n_bytes for layer in layers)
        self.top = 127 if _saturates_rows() else 255

    def project(self, x: Tensor) -> Tensor:
        levels = self._quantised(x)
        sums = self.qkv(levels)
        if (kernels := _kernels(len(x))) is None:
            return self.qkv.restore(sums, levels)
        kernels.restore(self.qkv.arrays(sums, levels))
        return sums

    def add_attention(self, x: Tensor, answer: Tensor, norm: nn.LayerNorm) -> Tensor:
        return self._add_norm(self.out, self._quantised(answer), x, norm)

    def add_feed_forward(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        levels = self._quantised(x)
        sums = self.up(levels)
        if (kernels := _kernels()) is None:
            inner = self._quantised(self.activation(self.up.restore(sums, levels)))
        else:
            inner = _empty_levels(sums)
            arrays = self.up.arrays(sums, levels)
            kernels.activate(arrays, self.activation_number, self.top, *(one.numpy() for one in inner))
        return self._add_norm(self.down, inner, x, norm)

    def _quantised(self, x: Tensor) -> QuantisedTokens:
        if (kernels := _kernels()) is None:
            return quantise_tokens(x, self.top)
        found = _empty_levels(x)
        kernels.quantise(x.numpy(), self.top, *(one.numpy() for one in found))
        return found

    def _add_norm(self, layer: _Int8, levels: QuantisedTokens, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        """norm(x + layer(levels))"""
        sums = layer(levels)
        if (kernels := _kernels()) is None:
            return _norm(layer.restore(sums, levels).add_(x), norm)
        found, gain, shift = torch.empty_like(x), norm.weight.detach(), norm.bias.detach()
        kernels.add_norm(
            layer.arrays(sums, levels), x.numpy(), gain.numpy(), shift.numpy(), float(norm.eps), found.numpy()
        )
        return found


def _empty_levels(like: Tensor) -> QuantisedTokens:
    return QuantisedTokens(
        torch.empty(like.shape, dtype=torch.uint8), like.new_empty(len(like)), like.new_empty(len(like))
    )


_tokens_read = [0]


def _kernels(n: int = 0) -> Any:
    """The numba kernels, if they are installed and worth loading, else None; `n` more tokens will be computed."""
    _tokens_read[0] += n
    if _tokens_read[0] < COMPILED_AFTER or not _has_numba():
        return None
    return import_module("qkv.nn.cpu.encoder_kernels").compile_encoder()


@cache
def _has_numba() -> bool:
    return find_spec("numba") is not None


_LAYERS: dict[str, Callable[[Any], _Layers]] = {"fp32": _SingleLayers, "bf16": _HalfLayers, "int8": _Int8Layers}


@cache
def explain_no_int8_rows() -> str | None:
    """Why products of 8-bit rows are unavailable here; None if they are available."""
    try:
        right = _probe_rows(127 if _saturates_rows() else 255)
    except (RuntimeError, AttributeError) as error:
        return f"torch {torch.__version__} has no kernels for it on this machine ({str(error).splitlines()[0]})"
    return None if right else f"the kernels of torch {torch.__version__} compute it wrongly on this machine"


@cache
def _saturates_rows() -> bool:
    """Whether sums of two products saturate at 16 bits, as on CPUs without VNNI. Then x uses 7 bits."""
    return not _probe_rows(255)


def _probe_rows(top: int) -> bool:
    """Whether products of the largest values are added correctly."""
    layer = nn.Linear(_PROBE, 16)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    levels = torch.full((8, _PROBE), top, dtype=torch.uint8)
    found = _Int8(layer)(QuantisedTokens(levels, torch.ones(8), torch.zeros(8)))
    return bool((found - top * _PROBE).abs().max() < 0.01 * top * _PROBE)
