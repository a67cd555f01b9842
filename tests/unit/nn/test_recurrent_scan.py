import pytest
import torch

from qkv.nn.recurrent import Timeline, explicit
from qkv.nn.recurrent_scan import scan
from tests.support.recurrent_cells import CELLS, INPUTS, LENGTHS, begin_somewhere, everything, make

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("reverse", [False, True])
def test_the_same_values_and_gradients_as_the_equations(name: str, lengths: str, reverse: bool) -> None:
    cell, rows = make(name), LENGTHS[lengths]
    x = torch.randn(sum(rows), INPUTS, dtype=torch.float64, requires_grad=True)
    state = begin_somewhere(cell, len(rows))
    expected = everything(explicit, cell, x, rows, state, reverse)
    for ours, theirs in zip(everything(scan, cell, x, rows, state, reverse), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_gradients_where_only_some_outputs_are_used(name: str) -> None:
    cell, timeline = make(name), Timeline.of((2, 4))
    x = torch.randn(6, INPUTS, dtype=torch.float64, requires_grad=True)
    for part in range(2 if cell.has_memory else 1):
        found = [
            torch.autograd.grad(run(cell, x, timeline, cell.begin(2))[1][part].sum(), x) for run in (scan, explicit)
        ]
        torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["projected", "gru"])
def test_in_autocast_the_loop_stays_in_the_type_of_the_weights(name: str) -> None:
    cell, timeline = make(name).float(), Timeline.of((2, 4))
    x = torch.randn(6, INPUTS)
    with torch.autocast("cpu", torch.bfloat16):
        hidden, last = scan(cell, x, timeline, cell.begin(2))
        hidden.sum().backward()
    expected, _ = explicit(cell, x, timeline, cell.begin(2))
    assert {hidden.dtype, *(part.dtype for part in last)} == {torch.float32}
    torch.testing.assert_close(hidden, expected, rtol=0, atol=0.03)  # W x was in bfloat16
    assert cell.from_state.weight.grad is not None and cell.from_state.weight.grad.dtype == torch.float32
