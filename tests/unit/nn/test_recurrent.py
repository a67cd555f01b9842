import numpy as np
import pytest
import torch

from qkv.nn.recurrent import CELLS, LSTM, CoupledLSTM, PeepholeLSTM, Timeline, explicit
from tests.support import recurrent_cells
from tests.support.recurrent_cells import LENGTHS, begin_somewhere, by_hand, make

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", recurrent_cells.CELLS)
@pytest.mark.parametrize("reverse", [False, True])
def test_every_cell_as_computed_by_hand(name: str, reverse: bool) -> None:
    """Each row by itself: whoever shares a batch with it, and however long they are, changes nothing."""
    cell, lengths = make(name), LENGTHS["uneven"]
    x, state = torch.randn(sum(lengths), recurrent_cells.INPUTS).double(), begin_somewhere(cell, len(lengths))
    hidden, last = explicit(cell, x, Timeline.of(lengths, reverse=reverse), state)
    for number, (row, found) in enumerate(zip(x.split(lengths), hidden.split(lengths), strict=True)):
        row, found = (row.flip(0), found.flip(0)) if reverse else (row, found)
        values, end = by_hand(cell, row.numpy(), tuple(part[number].detach().numpy() for part in state))
        np.testing.assert_allclose(found.detach().numpy(), values, rtol=0, atol=1e-14)
        for ours, theirs in zip(last, end, strict=True):
            np.testing.assert_allclose(ours[number].detach().numpy(), theirs, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", recurrent_cells.CELLS)
def test_gradients_of_the_equations(name: str) -> None:
    """By differences: step by step they are what they should be, so the fast ways may be held against them."""
    cell, timeline = make(name), Timeline.of((1, 2))
    state = begin_somewhere(cell, 2)
    x = torch.randn(3, recurrent_cells.INPUTS, dtype=torch.float64, requires_grad=True)

    def run(*_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden, last = explicit(cell, x, timeline, state)
        return hidden, *last

    assert torch.autograd.gradcheck(run, (x, *state, *cell.parameters()))


@pytest.mark.parametrize("name", CELLS)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    cell = CELLS[name](3, 4)
    hidden, _ = explicit(cell, torch.randn(5, 3), Timeline.of((3, 2)), cell.begin(2))
    hidden.square().sum().backward()
    for parameter in cell.parameters():
        assert parameter.grad is not None and bool((parameter.grad != 0).all())


def test_a_state_that_is_carried_on() -> None:
    """Half of a row, then the other half from where it was left, is the whole row."""
    for name in recurrent_cells.CELLS:
        cell, x = make(name), torch.randn(6, 3).double()
        whole, end = explicit(cell, x, Timeline.of((6,)), cell.begin(1))
        first, between = explicit(cell, x[:2], Timeline.of((2,)), cell.begin(1))
        second, after = explicit(cell, x[2:], Timeline.of((4,)), between)
        torch.testing.assert_close(torch.cat([first, second]), whole)
        torch.testing.assert_close(after, end)


def test_memory_begins_by_not_forgetting() -> None:
    for cell, block in ((LSTM(2, 3), 1), (PeepholeLSTM(2, 3), 1), (CoupledLSTM(2, 3), 0)):
        assert cell.from_input.bias.view(-1, 3)[block].tolist() == [1.0] * 3


def test_clipping_keeps_within_bounds() -> None:
    cell = make("clipped")
    hidden, last = explicit(cell, 50 * torch.randn(20, 3).double(), Timeline.of((20,)), cell.begin(1))
    assert hidden.abs().max() == 0.1 and last[1].abs().max() == 0.3
