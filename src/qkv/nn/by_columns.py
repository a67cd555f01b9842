"""Weights by columns, for products with few rows on a CPU.

A linear layer stores W (out, in) row by row and computes x Wᵀ. With some hundred rows of x that is as fast as any
order; with 4 or 8, as when a beam is searched, the library's kernels can be twice as fast when W lies column by
column. A twin (twin.py) of the layers in that order is worth its memory there. Nothing else changes: the same numbers,
the same shapes, biases shared.
"""

import torch
from torch import nn


def by_columns(layer: nn.Linear, name: str = "") -> nn.Linear:
    twin = nn.Linear(layer.in_features, layer.out_features, device="meta")
    twin.weight = nn.Parameter(layer.weight.detach().t().contiguous().t(), requires_grad=False)
    twin.bias = layer.bias
    return twin


def is_of_use(modules: nn.ModuleList) -> bool:
    """On a CPU, with numbers that its library has such kernels for, and that count their changes."""
    return all(
        weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64) and not weight.is_inference()
        for weight in modules.parameters()
    )
