"""Linear layers in 8 bits, for a CPU: a quarter of the memory to read, and products of bytes.

    W ≈ s_o · Q        one scale for every output o, Q whole numbers from -127 to 127, as near to W as they come
    x ≈ t · (P - z)    made anew in every call, P from 0 to 255

The sum of products P Qᵀ is exact; what is lost is the rounding, of W once and of x in every call. A few rows of x share
t and z, and so do any number that are about as large. Of other rows, where there are many, some would be much larger
than the rest, which would have to do with few of the 255 steps: each is first brought to the same size, and the answer
back.

torch calls its kernels for this "quantized". Which there are depends on the CPU and on how torch was built, and
`unavailable` tells.

What this file does NOT do: training, GPUs, calibration with example texts (the scale of x comes from x itself).

Shapes: … rows, I inputs, O outputs.
"""

import warnings
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

LARGEST = 127
MANY = 16
"""From so many rows on, each has a scale of its own. With fewer, the product is too short for the time that takes."""
WIDE = 8
"""With more outputs for an input than these, bringing the answers back to size would take as long as the product."""
ALIKE = frozenset({"qkv", "query", "key_value", "up", "out"})
"""What layers are called (nn/multihead.py, nn/block.py) whose inputs are all about as large: they come from a norm, or
are means of values that were made from one. (A post-norm stack's very first layer reads embeddings, which differ a
little more.) "down" is none of them: of what an activation lets pass, a row may have far more than others."""
CHUNK = 256
"""Rows that are computed at a time where there are many: what comes between stays in the CPU's cache."""
_SMALLEST = 1e-30
PROBE = 64
_LONG = "onednn"
"""The library for layers with WIDE outputs or more: its products are faster there, with some hundred rows by far."""


class _Parts(NamedTuple):
    """W ≈ scale · weight, and what is added."""

    weight: Tensor  # (O, I), whole numbers
    scale: Tensor  # (O,)
    bias: Tensor  # (O,)


class Int8Linear(nn.Module):
    """What a linear layer computes, nearly. Of the layer nothing is kept but its bias."""

    def __init__(self, layer: nn.Linear, *, alike: bool = False) -> None:
        """`alike`: all rows of x are about as large."""
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
        """Each with a scale of its own."""
        sizes = rows.abs().amax(dim=1, keepdim=True).clamp_(min=_SMALLEST)  # (rows, 1)
        near: Tensor = self._product(rows / sizes, self._packed, self.is_narrow)
        return torch.lerp(self._bias, near, sizes, out=near if answers is None else answers)  # b + sizes · (near - b)

    def parts(self) -> _Parts:
        """What it was packed from."""
        weight, _ = torch.ops.quantized.linear_unpack(self._packed)
        return _Parts(weight.int_repr(), weight.q_per_channel_scales().float(), self._bias)


def quantise(layer: nn.Linear, name: str = "", *, alike: bool = False) -> nn.Module:
    """The layer in 8 bits; itself, where its weights are not numbers: whoever looks at the answer shall see that."""
    return Int8Linear(layer, alike=alike or name in ALIKE) if bool(layer.weight.isfinite().all()) else layer


def quantise_alike(layer: nn.Linear, name: str = "") -> nn.Module:
    """The same for networks whose rows are about as large in every layer: those of a translator are, and a scale for
    each costs more time than it is worth (docs/translation.md has the scores). Those of a language model are not: the
    first token of a text may have a hundred times what others have."""
    return quantise(layer, name, alike=True)


def count_int8_bytes(modules: nn.Module) -> int:
    """Memory of the weights of the 8-bit layers, a scale for each output included."""
    layers = [module for module in modules.modules() if isinstance(module, Int8Linear)]
    return sum((layer.in_features + 4) * layer.out_features for layer in layers)


@cache
def explain_no_int8() -> str | None:
    """Why there are no products of 8 bits here; None: there are."""
    try:
        found = _probe(narrow=_saturates())
    except (RuntimeError, AttributeError) as error:
        return f"torch {torch.__version__} has no kernels for it on this machine ({str(error).splitlines()[0]})"
    if abs(found / PROBE - 1) > 0.02:
        return f"the kernels of torch {torch.__version__} compute it wrongly on this machine"
    return None


@cache
def _saturates() -> bool:
    """Whether the kernels cut off sums of two products at 16 bits, as on CPUs without instructions for bytes (VNNI).
    Then 7 bits have to do for x."""
    return abs(_probe(narrow=False) / PROBE - 1) > 0.02


def _probe(*, narrow: bool) -> float:
    """A sum of ones, each of them the largest number there is: PROBE, if nothing is cut off."""
    packed = _pack(torch.ones(8, PROBE), torch.zeros(8))
    found: Tensor = torch.ops.quantized.linear_dynamic(torch.ones(1, PROBE), packed, narrow)
    return found[0, 0].item()


def _pack(weight: Tensor, bias: Tensor, library: str | None = None) -> Any:
    """(O, I) and (O,), in the order that the kernels want; those of a library, if torch has it here."""
    scales = (weight.abs().amax(dim=1).double() / LARGEST).clamp_(min=_SMALLEST)  # (O,)
    with warnings.catch_warnings():
        # torch 2.13 gives notice that tensors of this kind will go; `unavailable` will say when they have gone
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
