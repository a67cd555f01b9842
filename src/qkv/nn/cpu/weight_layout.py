"""Copies of modules with other weight layouts for decoding on a CPU: by columns, or packed by oneDNN.

A twin is a copy of some modules in which a function replaces every linear layer (here or precision.py); norms and other
parameters are shared. It has no gradients. It is created lazily, and again after a weight has changed.

By columns: a linear layer stores W (out, in) by rows and computes x Wᵀ. With 4 or 8 rows of x, as in beam search, the
library's kernels can be twice as fast when W is stored by columns.

Packed: for products with tens of thousands of outputs and at least two rows, oneDNN is faster with weights in its own
blocked layout. Sums are taken in a different order. `explain_no_packing` says whether this torch has it.

Shapes: … rows, I inputs, O outputs.
"""

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Origin(NamedTuple):
    weight: Tensor
    memory: Tensor  # its storage
    version: int  # its modification counter


ReplaceLinear = Callable[[nn.Linear, str], nn.Module]


class Twins:
    """Holds the twin of a network's modules; not a module itself, so that the twin is never saved."""

    def __init__(self, replaced: ReplaceLinear) -> None:
        self.replaced = replaced
        # the twin and its origins; set together, for thread safety
        self._made: tuple[nn.ModuleList, list[Origin]] | None = None

    def __reduce__(self) -> tuple[type["Twins"], tuple[ReplaceLinear]]:
        return Twins, (self.replaced,)  # a copy starts without a twin

    def of(self, modules: nn.ModuleList) -> nn.ModuleList:
        """The twin of these modules. Parameters must not be inference tensors, which have no modification counter."""
        weights = list(modules.parameters())
        made = self._made
        if made is None or not _is_fresh(made[1], weights):
            made = None
            self.forget()  # free the old twin first: memory may not suffice for two
            # keep the storage alive, so that no other weight can reuse its address
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
