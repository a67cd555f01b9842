from collections.abc import Callable

import pytest
import torch
from torch import nn

from qkv.nn.recurrent import GRU, LSTM, RNN, Cell, Timeline, explicit
from qkv.nn.recurrent_stack import fastest, has_kernel, run_fused
from tests.support.recurrent_cells import CELLS, INPUTS, LENGTHS, WIDTH, begin_somewhere, everything, make

pytestmark = pytest.mark.usefixtures("one_thread")

STANDARD = [name for name in CELLS if has_kernel(make(name))]


def test_what_torch_has_kernels_for() -> None:
    assert STANDARD == ["rnn", "lstm", "projected", "gru"]
    with pytest.raises(AssertionError, match="no kernel for this PeepholeLSTM"):
        run_fused(make("peephole"), torch.randn(1, INPUTS).double(), Timeline.of((1,)), make("peephole").begin(1))


@pytest.mark.parametrize("name", STANDARD)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("reverse", [False, True])
def test_the_same_values_and_gradients_as_the_equations(name: str, lengths: str, reverse: bool) -> None:
    cell, rows = make(name), LENGTHS[lengths]
    x = torch.randn(sum(rows), INPUTS, dtype=torch.float64, requires_grad=True)
    state = begin_somewhere(cell, len(rows))
    expected = everything(explicit, cell, x, rows, state, reverse)
    for ours, theirs in zip(everything(run_fused, cell, x, rows, state, reverse), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_the_fastest_way_in_float32(name: str, lengths: str) -> None:
    """Here oneDNN comes in."""
    cell, rows = make(name).float(), LENGTHS[lengths]
    x = torch.randn(sum(rows), INPUTS, requires_grad=True)
    state = tuple(part.detach().float().requires_grad_() for part in begin_somewhere(cell, len(rows)))
    expected = everything(explicit, cell, x, rows, state, reverse=False)
    for ours, theirs in zip(everything(fastest, cell, x, rows, state, reverse=False), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_the_fastest_way_where_nothing_is_learned(name: str, lengths: str) -> None:
    """torch takes other kernels then."""
    cell, rows = make(name).float(), LENGTHS[lengths]
    x, state = torch.randn(sum(rows), INPUTS), begin_somewhere(cell, len(rows))
    with torch.inference_mode():
        (ours, end), (theirs, expected) = (run(cell, x, Timeline.of(rows), state) for run in (fastest, explicit))
    for one, other in zip((ours, *end), (theirs, *expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


TORCH: dict[str, tuple[Callable[[], Cell], Callable[[], nn.RNNBase]]] = {
    "rnn": (lambda: RNN(INPUTS, WIDTH), lambda: nn.RNN(INPUTS, WIDTH)),
    "lstm": (lambda: LSTM(INPUTS, WIDTH), lambda: nn.LSTM(INPUTS, WIDTH)),
    "projected": (lambda: LSTM(INPUTS, WIDTH, projection=2), lambda: nn.LSTM(INPUTS, WIDTH, proj_size=2)),
    "gru": (lambda: GRU(INPUTS, WIDTH), lambda: nn.GRU(INPUTS, WIDTH)),
}


@pytest.mark.parametrize("name", TORCH)
def test_the_equations_are_those_of_torch(name: str) -> None:
    """torch's own modules, with their weights put into ours."""
    torch.manual_seed(0)
    cell, reference = (build().double() for build in TORCH[name])
    theirs = {key.removesuffix("_l0"): value.data for key, value in reference.named_parameters()}
    both = theirs["bias_ih"], theirs["bias_hh"]
    assert isinstance(cell, Cell)
    with torch.no_grad():
        cell.from_input.weight.copy_(theirs["weight_ih"])
        cell.from_state.weight.copy_(theirs["weight_hh"])
        cell.from_input.bias.copy_(both[0] if name == "gru" else both[0] + both[1])
        if name == "gru":
            cell.from_state.bias.copy_(both[1])
        if isinstance(cell, LSTM) and cell.project is not None:
            cell.project.weight.copy_(theirs["weight_hr"])
    x = torch.randn(5, 2, INPUTS).double()  # (T, R, D)
    expected, _ = reference(x)
    hidden, _ = explicit(cell, x.transpose(0, 1).flatten(0, 1), Timeline.of((5, 5)), cell.begin(2))
    torch.testing.assert_close(hidden.view(2, 5, -1).transpose(0, 1), expected, rtol=0, atol=1e-13)
