"""Convolution over packed rows against torch's over each row by itself."""

import pytest
import torch
from torch import nn

from qkv.data.batch import Batch
from qkv.nn.convolution import Convolution, ConvolutionBlock, max_over_rows, mean_over_rows, neighbour_places, reach
from qkv.nn.multihead import Packed

LENGTHS = (1, 4, 9, 2)
ROWS = Packed(*Batch.of([[1] * length for length in LENGTHS]).packing)


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (3, 1), (5, 1), (3, 2), (7, 3)])
def test_rows_are_convolved_as_if_alone(kernel: int, dilation: int) -> None:
    ours = Convolution(6, 5, kernel, dilation).double()
    nn.init.normal_(ours.bias)
    theirs = nn.Conv1d(6, 5, kernel, padding=dilation * (kernel // 2), dilation=dilation).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(sum(LENGTHS), 6, dtype=torch.float64, requires_grad=True)
    plain = x.detach().clone().requires_grad_()
    out = ours(x, ROWS)
    expected = torch.cat([theirs(row.t()[None])[0].t() for row in plain.split(LENGTHS)])
    torch.testing.assert_close(out, expected)
    gradient = torch.randn_like(out)
    out.backward(gradient)
    expected.backward(gradient)
    torch.testing.assert_close(x.grad, plain.grad)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    assert theirs.bias is not None
    torch.testing.assert_close(ours.bias.grad, theirs.bias.grad)


def test_neighbours_stay_in_the_row() -> None:
    found = neighbour_places(Packed(*Batch.of([[1], [1, 1]]).packing), 3)
    assert found.tolist() == [[3, 0, 3], [3, 1, 2], [1, 2, 3]]  # 3 is nobody


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_distance_needs_depth(layers: int) -> None:
    """A token moves what its reach covers and nothing beyond."""
    blocks = [ConvolutionBlock(8, 3).double() for _ in range(layers)]
    length, middle = 21, 10
    rows = Packed(*Batch.of([[1] * length]).packing)

    def run(x: torch.Tensor) -> torch.Tensor:
        for block in blocks:
            x = block(x, rows)
        return x

    x = torch.randn(length, 8, dtype=torch.float64)
    other = x.clone()
    other[middle] += 1.0
    moved = (run(x) - run(other)).abs().amax(1) > 1e-12
    away = (torch.arange(length) - middle).abs()
    assert moved.tolist() == (away <= reach(3, layers)).tolist()


def test_what_is_made_of_rows() -> None:
    x = torch.randn(sum(LENGTHS), 3)
    alone = x.split(LENGTHS)
    torch.testing.assert_close(max_over_rows(x, ROWS), torch.stack([row.amax(0) for row in alone]))
    torch.testing.assert_close(mean_over_rows(x, ROWS), torch.stack([row.mean(0) for row in alone]))


def test_an_even_kernel_has_no_middle() -> None:
    with pytest.raises(AssertionError, match="middle"):
        Convolution(2, 2, 4)
