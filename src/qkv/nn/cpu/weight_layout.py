"""A twin of some modules: the same computation from weights that lie otherwise, for decoding.

Every linear layer is replaced by what a function makes of it and its name (weight_layout.py, int8.py); the rest is
copied, and norms and other parameters are shared. A twin has no gradients. It is made when it is first asked for, and
again when a weight has changed.
"""

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Origin(NamedTuple):
    weight: Tensor
    memory: Tensor  # what it held
    version: int  # which change of it


ReplaceLinear = Callable[[nn.Linear, str], nn.Module]


class Twins:
    """Holds the twin of a network's modules; not a module itself, so that the twin is never saved."""

    def __init__(self, replaced: ReplaceLinear) -> None:
        self.replaced = replaced
        # the twin, once it was asked for, and what it was made from; set together, since several threads may ask
        self._made: tuple[nn.ModuleList, list[Origin]] | None = None

    def __reduce__(self) -> tuple[type["Twins"], tuple[ReplaceLinear]]:
        return Twins, (self.replaced,)  # a copy begins without

    def of(self, modules: nn.ModuleList) -> nn.ModuleList:
        """Parameters must not be inference tensors: those do not count their changes."""
        weights = list(modules.parameters())
        made = self._made
        if made is None or not _is_fresh(made[1], weights):
            made = None
            self.forget()  # before the next is made: two would not fit everywhere
            # the memory of what it is made from is held, so that no other weight can come to lie there
            origins = [Origin(weight, weight.detach(), weight._version) for weight in weights]
            made = self._made = _replace_linears(modules, self.replaced), origins
        return made[0]

    @property
    def held(self) -> nn.ModuleList | None:
        return None if self._made is None else self._made[0]

    def forget(self) -> None:
        self._made = None


def _is_fresh(origins: Sequence[Origin], weights: Sequence[Tensor]) -> bool:
    return len(weights) == len(origins) and all(
        weight is origin.weight and weight.data_ptr() == origin.memory.data_ptr() and weight._version == origin.version
        for weight, origin in zip(weights, origins, strict=True)
    )


def _replace_linears(modules: nn.ModuleList, replaced: ReplaceLinear) -> nn.ModuleList:
    twin = copy.deepcopy(modules, {id(parameter): parameter for parameter in modules.parameters()})
    for parent in list(twin.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, replaced(child, name))
    return twin


# --- Weights by columns, for products with few rows on a CPU.
#
# A linear layer stores W (out, in) row by row and computes x Wᵀ. With some hundred rows of x that is as fast as any
# order; with 4 or 8, as when a beam is searched, the library's kernels can be twice as fast when W lies column by
# column. A twin (weight_layout.py) of the layers in that order is worth its memory there. Nothing else changes: the
# same numbers,
# the same shapes, biases shared.


def store_by_columns(layer: nn.Linear, name: str = "") -> nn.Linear:
    twin = nn.Linear(layer.in_features, layer.out_features, device="meta")
    twin.weight = nn.Parameter(layer.weight.detach().t().contiguous().t(), requires_grad=False)
    twin.bias = layer.bias
    return twin


def can_store_by_columns(modules: nn.ModuleList) -> bool:
    """On a CPU, with numbers that its library has such kernels for, and that count their changes."""
    return all(
        weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64) and not weight.is_inference()
        for weight in modules.parameters()
    )


# --- Weights packed in blocks, for a CPU's product of two or more rows with a table as long as a vocabulary.
#
# weight_layout.py is as fast for short layers and for a single row. For some tens of thousands of outputs the
# library that
# torch calls (oneDNN) is faster with weights in an order of its own. Nothing else changes: the same numbers, summed
# up in
# another order. Which torch has it, and on which machine, `unavailable` tells.
#
# Shapes: … rows, I inputs, O outputs.

_ROWS = 64
"""The library is told how many rows to expect; the order that it chooses does for fewer as well."""


class PackedLinear(nn.Module):
    """What a linear layer computes. Of the layer nothing is kept but its bias."""

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
    """The layer in blocks; itself, where there is no such order for it."""
    weight = layer.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or explain_no_packing() is not None:
        return layer
    return PackedLinear(layer)


@cache
def explain_no_packing() -> str | None:
    """Why there is no such order here; None: there is."""
    layer = nn.Linear(32, 48)
    x = torch.randn(3, 32)
    try:
        with torch.no_grad():
            wrong = not torch.allclose(PackedLinear(layer)(x), layer(x), atol=1e-5)
    except (RuntimeError, AttributeError) as error:
        return f"torch {torch.__version__} has no kernels for it on this machine ({str(error).splitlines()[0]})"
    return f"the kernels of torch {torch.__version__} compute it wrongly on this machine" if wrong else None
