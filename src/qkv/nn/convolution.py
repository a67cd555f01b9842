"""Convolution over packed rows, with max and mean pooling. Tokens of different rows are never mixed.

A neighbour outside the row counts as zero. The neighbours of all tokens are gathered and go through one matrix product.

The receptive field grows with depth only: L layers of kernel k reach L · (k − 1) / 2 tokens to each side (`reach`),
whereas one layer of attention reaches every token (Vaswani et al. 2017, table 1).

Shapes: N tokens of all rows, D width in, F width out, k kernel.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.nn.multihead import Packed


def reach(kernel: int, layers: int, dilation: int = 1) -> int:
    """How many tokens to each side a stack of convolutions sees.

    >>> reach(kernel=3, layers=4), reach(kernel=3, layers=4, dilation=2)
    (4, 8)
    """
    return layers * dilation * (kernel - 1) // 2


class Convolution(nn.Module):
    """Weights in the layout of torch.nn.Conv1d, (F, D, k) and (F,); the kernel size is odd."""

    def __init__(self, width: int, filters: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        assert kernel % 2 == 1, f"a kernel of {kernel} has no middle"
        self.kernel, self.dilation = kernel, dilation
        self.weight = nn.Parameter(torch.empty(filters, width, kernel))
        self.bias = nn.Parameter(torch.zeros(filters))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))  # as torch does

    def forward(self, x: Tensor, rows: Packed) -> Tensor:
        """(N, D) → (N, F)"""
        near = neighbour_places(rows, self.kernel, self.dilation)  # (N, k)
        padded = torch.cat([x, x.new_zeros(1, x.size(1))])  # the last row is the zero neighbour
        weight = self.weight.movedim(1, 2).flatten(1)  # (F, k · D)
        return functional.linear(padded[near].flatten(1), weight, self.bias)


def neighbour_places(rows: Packed, kernel: int, dilation: int = 1) -> Tensor:
    """(N, k) indices of the tokens around every token, left to right; N where the row has none."""
    offsets = rows.offsets.long()
    total = sum(rows.lengths)
    row = torch.repeat_interleave(offsets.diff(), output_size=total)  # (N,)
    steps = dilation * (torch.arange(kernel, device=offsets.device) - kernel // 2)
    places = torch.arange(total, device=offsets.device)[:, None] + steps  # (N, k)
    inside = (places >= offsets[row, None]) & (places < offsets[row + 1, None])
    return places.masked_fill(~inside, total)


class ConvolutionBlock(nn.Module):
    """norm(x + dropout(relu(convolution(x)))): a residual block that keeps the width."""

    def __init__(self, width: int, kernel: int, dilation: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.convolution = Convolution(width, width, kernel, dilation)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, rows: Packed) -> Tensor:
        """(N, D) → (N, D)"""
        return self.norm(x + self.dropout(functional.relu(self.convolution(x, rows))))


def max_over_rows(x: Tensor, rows: Packed) -> Tensor:
    """(N, F) → (R, F), the largest value of every feature in each row: max pooling over time (Kim 2014)."""
    of_token = torch.repeat_interleave(rows.offsets.long().diff(), output_size=x.size(0))  # (N,)
    lowest = x.new_full((len(rows.lengths), x.size(1)), float("-inf"))
    return lowest.scatter_reduce(0, of_token[:, None].expand_as(x), x, "amax")


def mean_over_rows(x: Tensor, rows: Packed) -> Tensor:
    """(N, F) → (R, F), the mean of each row."""
    places = torch.arange(x.size(0), device=x.device)
    return functional.embedding_bag(places, x, rows.offsets[:-1].long(), mode="mean")
