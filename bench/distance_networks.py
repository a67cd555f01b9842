"""Networks that read a row and answer at its last token, all of about the same number of parameters.

The recurrent cells in one layer, stacks of convolutions, and two blocks of self-attention, with and without positions.
Each takes input vectors and not tokens: the gradient that reaches them is what distance.py measures.

Shapes: R rows, T tokens of a row, D width, S symbols to choose from.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from qkv.nn.block import FeedForward, PostNormBlock
from qkv.nn.convolution import ConvolutionBlock, reach
from qkv.nn.multihead import MultiHeadSelfAttention, Packed, fused
from qkv.nn.position import RotaryPositions
from qkv.nn.recurrent import CELLS
from qkv.nn.recurrent_stack import Stack

HEADS = 2
ATTENTION = "attention"
CONVOLUTIONS = ((2, 3), (8, 3), (4, 17))
"""Layers and kernel."""


class Body(nn.Module, ABC):
    width: int

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """(R, T, D) → (R, D), what comes out at the last token"""


class Recurrent(Body):
    def __init__(self, width: int, cell: str) -> None:
        super().__init__()
        self.width = width
        self.stack = Stack([CELLS[cell](width, width)])

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        (hidden,), _ = self.stack(x.flatten(0, 1), (length,) * rows)
        return hidden.unflatten(0, (rows, length))[:, -1]


class Convolutions(Body):
    def __init__(self, width: int, layers: int, kernel: int) -> None:
        super().__init__()
        self.width = width
        self.blocks = nn.ModuleList(ConvolutionBlock(width, kernel) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        offsets = torch.arange(0, rows * length + 1, length, dtype=torch.int32, device=x.device)
        packed = Packed(offsets, length, (length,) * rows)
        flat = x.flatten(0, 1)
        for block in self.blocks:
            flat = block(flat, packed)
        return flat.unflatten(0, (rows, length))[:, -1]


class Attention(Body):
    def __init__(self, width: int, layers: int, positions: bool) -> None:
        super().__init__()
        self.width = width
        self.blocks = nn.ModuleList(
            PostNormBlock(MultiHeadSelfAttention(width, HEADS), FeedForward(width, 2 * width), width)
            for _ in range(layers)
        )
        self.rotary = RotaryPositions(width // HEADS) if positions else None

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.size(1), device=x.device)
        attend = fused if self.rotary is None else self.rotary.around(fused, places)
        for block in self.blocks:
            x, _ = block(x, attend)
        return x[:, -1]


class Network(nn.Module):
    """Tokens to vectors, a body, and the scores of the symbols."""

    def __init__(self, body: Body, vocabulary: int, symbols: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, body.width)
        self.body = body
        self.scores = nn.Linear(body.width, symbols)

    def forward(self, tokens: Tensor) -> Tensor:
        """(R, T) → (R, S)"""
        return self.scores(self.body(self.embedding(tokens)))


Build = Callable[[int], Body]
"""A body of a width."""


def convolution_name(layers: int, kernel: int) -> str:
    return f"conv {layers}x{kernel}"


BODIES: dict[str, Build] = {
    **{name: partial(Recurrent, cell=name) for name in CELLS},
    **{convolution_name(*shape): partial(Convolutions, layers=shape[0], kernel=shape[1]) for shape in CONVOLUTIONS},
    ATTENTION: partial(Attention, layers=2, positions=True),
    f"{ATTENTION}, no positions": partial(Attention, layers=2, positions=False),
}
REACH = {convolution_name(*shape): reach(shape[1], shape[0]) for shape in CONVOLUTIONS}
"""How many tokens back a stack of convolutions sees."""


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def network(name: str, budget: int, vocabulary: int, symbols: int) -> Network:
    """One of this kind, of the width whose number of parameters is nearest to `budget`."""
    build = BODIES[name]
    step = 2 * HEADS if name.startswith(ATTENTION) else 1  # rotation wants heads of an even width
    width, sizes = step, {0: 0}
    with torch.device("meta"):
        while sizes[width - step] < budget:
            sizes[width] = parameters(Network(build(width), vocabulary, symbols))
            width += step
    nearest = min(list(sizes)[1:], key=lambda width: abs(sizes[width] - budget))
    return Network(build(nearest), vocabulary, symbols)
