"""The weights of decoding on a CPU: their precision and their layout. Training is not affected.

fp32       exact (the dtype of the weights)
int8       8 bits: faster, nearly the same
drafted    speculative: an 8-bit draft verified by the weights (nn/cpu/speculative.py): exact, faster for a single text

A twin is a copy of some modules in which a function replaces every linear layer; norms and other parameters are shared.
It has no gradients. It is created lazily, and again after a weight has changed. The functions: 8 bits (`quantise`), by
columns (`store_by_columns`), packed by oneDNN (`pack_linear`).

Shapes: … rows, I inputs, O outputs.
"""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from threading import Lock
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from qkv.errors import InputError, did_you_mean

DECODING_PRECISIONS = ("fp32", "int8", "drafted")


class DecodingSettings(Protocol):
    precision: str


class Decodes(Protocol):
    @property
    def decoding(self) -> DecodingSettings: ...


DecodingNetwork = TypeVar("DecodingNetwork", bound=Decodes)


def set_precision(network: DecodingNetwork, precision: str) -> DecodingNetwork:
    """Set the decoding precision and return the network."""
    check_precision(precision)
    network.decoding.precision = precision
    return network


def check_precision(precision: str) -> None:
    """Raise InputError if the precision is unknown or unavailable here."""
    if precision not in DECODING_PRECISIONS:
        hint = did_you_mean(precision, DECODING_PRECISIONS)
        raise InputError(f"Unknown precision '{precision}'.{hint} Known: {', '.join(DECODING_PRECISIONS)}.")
    if precision != "fp32" and (reason := explain_no_int8()) is not None:
        raise InputError(f"{precision} is not available: {reason}. Use fp32.")


class HasParameters(Protocol):
    def parameters(self) -> Iterator[Tensor]: ...


def check_weights(network: HasParameters) -> None:
    """Raise InputError unless the weights can be quantised: float32, on a CPU."""
    for weight in network.parameters():
        if weight.device.type != "cpu" or weight.dtype != torch.float32 or weight.is_inference():
            raise InputError(
                f"int8 is made from fp32 weights on a CPU; these are {weight.dtype} on {weight.device}. "
                "Use --device cpu, or fp32."
            )


# --- Twins


class Origin(NamedTuple):
    weight: Tensor
    memory: Tensor  # its storage, kept alive so that no other weight can reuse its address
    address: int
    version: int  # its modification counter


Made = TypeVar("Made")


class Derived(Generic[Made]):
    """What is made from weights: lazily, again after a weight has changed, once if several threads ask. It is never
    saved, and a copy starts without it."""

    def __init__(self, make: Callable[[Any], Made]) -> None:
        self.make = make
        self._lock = Lock()
        # what was made and its origins; set together, for thread safety
        self._made: tuple[Made, list[Origin]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.make,)

    def of(self, source: Any, weights: Sequence[Tensor]) -> Made:
        """What `make` makes of `source`, whose parameters are `weights`: no inference tensors, which have no
        modification counter."""
        found = self.fresh(weights)
        if found is not None:
            return found
        with self._lock:
            found = self.fresh(weights)
            if found is None:
                self.forget()  # free the old one first: memory may not suffice for two
                origins = [Origin(weight, weight.detach(), weight.data_ptr(), weight._version) for weight in weights]
                found = self.make(source)
                self._made = found, origins
            return found

    def fresh(self, weights: Sequence[Tensor]) -> Made | None:
        """What was made of exactly these weights as they are now; None if they or another was changed."""
        made = self._made
        return made[0] if made is not None and _is_fresh(made[1], weights) else None

    @property
    def held(self) -> Made | None:
        return None if self._made is None else self._made[0]

    def forget(self) -> None:
        self._made = None


ReplaceLinear = Callable[[nn.Linear, str], nn.Module]


class Twins:
    """Holds the twin of a network's modules; not a module itself, so that the twin is never saved."""

    def __init__(self, replaced: ReplaceLinear) -> None:
        self._derived = Derived(partial(_replace_linears, replaced=replaced))

    def of(self, modules: nn.ModuleList) -> nn.ModuleList:
        """The twin of these modules."""
        return self._derived.of(modules, list(modules.parameters()))

    @property
    def held(self) -> nn.ModuleList | None:
        return self._derived.held

    def forget(self) -> None:
        self._derived.forget()


def _is_fresh(origins: Sequence[Origin], weights: Sequence[Tensor]) -> bool:
    if len(weights) != len(origins):
        return False
    for weight, (known, _, address, version) in zip(weights, origins, strict=True):  # a loop: all() is slower
        if weight is not known or weight.data_ptr() != address or weight._version != version:
            return False
    return True


def _replace_linears(modules: nn.ModuleList, replaced: ReplaceLinear) -> nn.ModuleList:
    twin = copy.deepcopy(modules, {id(parameter): parameter for parameter in modules.parameters()})
    for parent in list(twin.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, replaced(child, name))
    return twin


# --- Linear layers in 8 bits on a CPU: dynamic quantization, a quarter of the memory traffic.
#
#     W ≈ s_o · Q        one scale per output o, Q integers from -127 to 127
#     x ≈ t · (P - z)    quantised in every call, P from 0 to 255
#
# The sum P Qᵀ is exact; only W (once) and x (per call) are rounded. Few rows of x, or rows of similar magnitude, share
# t and z. With many rows of different magnitude the small ones would use few of the 255 steps, so each row is first
# scaled to the same magnitude, and its output scaled back.
#
# These are torch's "quantized" kernels. Their availability depends on the CPU and the torch build (`explain_no_int8`).
#
# Not here: calibration on example texts (the scale of x comes from x itself).

LARGEST = 127
MANY = 16
"""Minimum number of rows with one scale each. With fewer rows the scaling costs more than the product."""
WIDE = 8
"""Above this ratio of outputs to inputs, scaling the outputs back would cost as much as the product."""
ALIKE = frozenset({"qkv", "query", "key_value", "up", "out"})
"""Names of the layers (nn/multihead.py, nn/block.py) whose input rows have similar magnitude: outputs of a norm, or
means of values projected from one. (The first layer of a post-norm stack reads embeddings, which vary a little more.)
"down" is excluded: rows after an activation differ widely."""
CHUNK = 256
"""Rows computed at a time, so that intermediate results stay in the CPU cache."""
_SMALLEST = 1e-30
PROBE = 64
_LONG = "onednn"
"""The library for WIDE layers, where its products are faster, especially with hundreds of rows."""


class _Parts(NamedTuple):
    """W ≈ scale · weight, and the bias."""

    weight: Tensor  # (O, I), integers
    scale: Tensor  # (O,)
    bias: Tensor  # (O,)


class Int8Linear(nn.Module):
    """A linear layer in 8 bits. Keeps only the bias of the original layer."""

    def __init__(self, layer: nn.Linear, *, alike: bool = False) -> None:
        """`alike`: all rows of x have similar magnitude."""
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self._bias = torch.zeros(layer.out_features) if layer.bias is None else layer.bias.detach()
        is_wide = layer.out_features > WIDE * layer.in_features
        self._packed = _pack(layer.weight.detach(), self._bias, _LONG if is_wide else None)
        self.is_narrow = _saturates()
        self._shared = layer.in_features * (1 << 62 if is_wide or alike else MANY)
        self._product = torch.ops.quantized.linear_dynamic.default

    def forward(self, x: Tensor) -> Tensor:
        """(…, I) → (…, O)"""
        found: Tensor
        if x.numel() < self._shared:
            found = self._product(x, self._packed, self.is_narrow)
            return found
        flat = x.reshape(-1, self.in_features)
        if flat.size(0) <= CHUNK:
            found = self._of_their_own(flat)
        else:
            found = x.new_empty(flat.size(0), self.out_features)
            for rows, answers in zip(flat.split(CHUNK), found.split(CHUNK), strict=True):
                self._of_their_own(rows, answers)
        return found.view(*x.shape[:-1], self.out_features)

    def _of_their_own(self, rows: Tensor, answers: Tensor | None = None) -> Tensor:
        """Multiply rows with one scale each."""
        sizes = rows.abs().amax(dim=1, keepdim=True).clamp_(min=_SMALLEST)  # (rows, 1)
        near: Tensor = self._product(rows / sizes, self._packed, self.is_narrow)
        return torch.lerp(self._bias, near, sizes, out=near if answers is None else answers)  # b + sizes · (near - b)

    def parts(self) -> _Parts:
        """The quantised weight, its scales and the bias."""
        weight, _ = torch.ops.quantized.linear_unpack(self._packed)
        return _Parts(weight.int_repr(), weight.q_per_channel_scales().float(), self._bias)


def quantise(layer: nn.Linear, name: str = "", *, alike: bool = False) -> nn.Module:
    """The layer in 8 bits; unchanged if a weight is NaN or infinite, so that this reaches the output."""
    return Int8Linear(layer, alike=alike or name in ALIKE) if bool(layer.weight.isfinite().all()) else layer


def quantise_alike(layer: nn.Linear, name: str = "") -> nn.Module:
    """`quantise` for networks whose rows have similar magnitude in every layer. True of translators, where one scale
    per row costs more time than it is worth (docs/translation.md has the scores), but not of language models, where the
    first token of a text can be a hundred times as large as others."""
    return quantise(layer, name, alike=True)


def count_int8_bytes(modules: nn.Module) -> int:
    """Memory of the 8-bit weights in bytes, scales included."""
    layers = [module for module in modules.modules() if isinstance(module, Int8Linear)]
    return sum((layer.in_features + 4) * layer.out_features for layer in layers)


@cache
def explain_no_int8() -> str | None:
    """Why 8-bit products are unavailable here; None if they are available."""
    try:
        found = _probe(narrow=_saturates())
    except (RuntimeError, AttributeError) as error:
        return f"torch {torch.__version__} has no kernels for it on this machine ({str(error).splitlines()[0]})"
    if abs(found / PROBE - 1) > 0.02:
        return f"the kernels of torch {torch.__version__} compute it wrongly on this machine"
    return None


@cache
def _saturates() -> bool:
    """Whether the kernels saturate sums of two products at 16 bits, as on CPUs without VNNI. Then x uses 7 bits."""
    return abs(_probe(narrow=False) / PROBE - 1) > 0.02


def _probe(*, narrow: bool) -> float:
    """A sum of PROBE products of the largest values: PROBE, unless it saturates."""
    packed = _pack(torch.ones(8, PROBE), torch.zeros(8))
    found: Tensor = torch.ops.quantized.linear_dynamic(torch.ones(1, PROBE), packed, narrow)
    return found[0, 0].item()


def _pack(weight: Tensor, bias: Tensor, library: str | None = None) -> Any:
    """Quantise and pack (O, I) and (O,) for the kernels, of `library` if torch has it here."""
    scales = (weight.abs().amax(dim=1).double() / LARGEST).clamp_(min=_SMALLEST)  # (O,)
    with warnings.catch_warnings():
        # torch 2.13 deprecates these tensors; `explain_no_int8` reports when they are gone
        warnings.filterwarnings("ignore", message=".*quantize")
        whole = torch.quantize_per_channel(weight, scales, torch.zeros_like(scales, dtype=torch.int64), 0, torch.qint8)
        usual = torch.backends.quantized.engine
        if library is None or library not in torch.backends.quantized.supported_engines or _saturates():
            return torch.ops.quantized.linear_prepack(whole, bias)
        try:
            torch.backends.quantized.engine = library
            return torch.ops.quantized.linear_prepack(whole, bias)
        finally:
            torch.backends.quantized.engine = usual


# --- Other layouts of the same weights.
#
# By columns: a linear layer stores W (out, in) by rows and computes x Wᵀ. With 4 or 8 rows of x, as in beam search, the
# library's kernels can be twice as fast when W is stored by columns.
#
# Packed: for products with tens of thousands of outputs and at least two rows, oneDNN is faster with weights in its own
# blocked layout. Sums are taken in a different order. `explain_no_packing` says whether this torch has it.


def store_by_columns(layer: nn.Linear, name: str = "") -> nn.Linear:
    twin = nn.Linear(layer.in_features, layer.out_features, device="meta")
    twin.weight = nn.Parameter(layer.weight.detach().t().contiguous().t(), requires_grad=False)
    twin.bias = layer.bias
    return twin


def can_store_by_columns(modules: nn.ModuleList) -> bool:
    """Whether all weights are float32 or float64 on a CPU and not inference tensors."""
    return all(
        weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64) and not weight.is_inference()
        for weight in modules.parameters()
    )


_ROWS = 64
"""Expected number of rows, a hint for oneDNN; the layout also serves fewer rows."""


class PackedLinear(nn.Module):
    """A linear layer with packed weights. Keeps only the bias of the original layer."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self._bias = None if layer.bias is None else layer.bias.detach()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), _ROWS)
        self._product = torch.ops.mkldnn._linear_pointwise.default

    def forward(self, x: Tensor) -> Tensor:
        """(…, I) → (…, O)"""
        found: Tensor = self._product(x, self._weight, self._bias, "none", [], "")
        return found


def pack_linear(layer: nn.Linear, name: str = "") -> nn.Module:
    """The layer with packed weights; unchanged if packing is unavailable for it."""
    weight = layer.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or explain_no_packing() is not None:
        return layer
    return PackedLinear(layer)


@cache
def explain_no_packing() -> str | None:
    """Why packing is unavailable here; None if it is available."""
    layer = nn.Linear(32, 48)
    x = torch.randn(3, 32)
    try:
        with torch.no_grad():
            wrong = not torch.allclose(PackedLinear(layer)(x), layer(x), atol=1e-5)
    except (RuntimeError, AttributeError) as error:
        return f"torch {torch.__version__} has no kernels for it on this machine ({str(error).splitlines()[0]})"
    return f"the kernels of torch {torch.__version__} compute it wrongly on this machine" if wrong else None
