"""What the machine can do at most, measured with nothing in the way: the ceilings that a training step is held against.

A large square product, the products of one BERT block alone, and how fast memory is copied: whatever of a step is not
a product moves bytes, at the last of these. Numbers are random, since a chip that multiplies zeros runs faster.
"""

from dataclasses import dataclass

import torch
from gpu_sides import Step, timed
from torch import Tensor

from qkv.models.bert.network import BertConfig


@dataclass(frozen=True)
class Limits:
    square: float  # TFLOP/s of a square product
    block: float  # TFLOP/s of a block's products, forward and backward
    copy: float  # GB/s, read and written

    def text(self, side: int) -> str:
        return (
            f"limits: {side}³ product {self.square:,.0f} TFLOP/s; a block's products, forward and backward, "
            f"{self.block:,.0f} TFLOP/s; copies {self.copy:,.0f} GB/s"
        )


def limits(config: BertConfig, tokens: int, side: int, device: torch.device) -> Limits:
    return Limits(_square(side, device), _block(config, tokens, device), _copy(device))


def _square(side: int, device: torch.device) -> float:
    a, b = (_random(side, side, device) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * side**3 / _seconds(lambda _: torch.mm(a, b, out=out), device) / 1e12


def _block(config: BertConfig, tokens: int, device: torch.device) -> float:
    """Queries, keys and values at once, the way out of attention, up and down; y = x W, dx = dy Wᵀ, dW = xᵀ dy."""
    width, inner = config.width, config.inner_width
    maps = [
        (_random(tokens, inputs, device), _random(inputs, outputs, device), _random(tokens, outputs, device))
        for inputs, outputs in ((width, 3 * width), (width, width), (width, inner), (inner, width))
    ]

    def products(_: int) -> None:
        for x, weight, gradient in maps:
            torch.mm(x, weight)
            torch.mm(gradient, weight.t())
            torch.mm(x.t(), gradient)

    flops = sum(6 * tokens * weight.numel() for _, weight, _ in maps)
    return flops / _seconds(products, device) / 1e12


def _copy(device: torch.device) -> float:
    size = 2**31 if device.type == "cuda" else 2**22  # far beyond any cache
    source = torch.empty(size, dtype=torch.uint8, device=device).random_()
    target = torch.empty_like(source)
    return 2 * size / _seconds(lambda _: target.copy_(source), device) / 1e9


def _seconds(work: Step, device: torch.device, aim: float = 0.5) -> float:
    """Of one repetition, from about half a second of them."""
    timed(work, 3, device)
    repetitions = max(3, int(aim / max(1e-6, timed(work, 3, device) / 3)))
    return timed(work, repetitions, device) / repetitions


def _random(rows: int, columns: int, device: torch.device) -> Tensor:
    return torch.randn(rows, columns, device=device, dtype=torch.bfloat16)
