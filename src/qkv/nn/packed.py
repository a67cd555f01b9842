"""Weights packed in blocks, for a CPU's product of two or more rows with a table as long as a vocabulary.

by_columns.py is as fast for short layers and for a single row. For some tens of thousands of outputs the library that
torch calls (oneDNN) is faster with weights in an order of its own. Nothing else changes: the same numbers, summed up in
another order. Which torch has it, and on which machine, `unavailable` tells.

Shapes: … rows, I inputs, O outputs.
"""

from functools import cache

import torch
from torch import Tensor, nn

ROWS = 64
"""The library is told how many rows to expect; the order that it chooses does for fewer as well."""


class PackedLinear(nn.Module):
    """What a linear layer computes. Of the layer nothing is kept but its bias."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self._bias = None if layer.bias is None else layer.bias.detach()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), ROWS)
        self._product = torch.ops.mkldnn._linear_pointwise.default

    def forward(self, x: Tensor) -> Tensor:
        """(…, I) → (…, O)"""
        found: Tensor = self._product(x, self._weight, self._bias, "none", [], "")
        return found


def packed(layer: nn.Linear, name: str = "") -> nn.Module:
    """The layer in blocks; itself, where there is no such order for it."""
    weight = layer.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or unavailable() is not None:
        return layer
    return PackedLinear(layer)


@cache
def unavailable() -> str | None:
    """Why there is no such order here; None: there is."""
    layer = nn.Linear(32, 48)
    x = torch.randn(3, 32)
    try:
        with torch.no_grad():
            wrong = not torch.allclose(PackedLinear(layer)(x), layer(x), atol=1e-5)
    except (RuntimeError, AttributeError) as error:
        return f"torch {torch.__version__} has no kernels for it on this machine ({str(error).splitlines()[0]})"
    return f"the kernels of torch {torch.__version__} compute it wrongly on this machine" if wrong else None
