import pytest
import torch
from torch import nn

from qkv.nn.recurrent import GRU, LSTM, Timeline, explicit
from qkv.nn.recurrent_stack import Bidirectional, Stack

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = (3, 1, 4)


def copy_from_torch(cells: list[LSTM], reference: nn.LSTM, direction: str = "") -> None:
    weights = dict(reference.named_parameters())
    with torch.no_grad():
        for layer, cell in enumerate(cells):
            end = f"_l{layer}{direction}"
            cell.from_input.weight.copy_(weights[f"weight_ih{end}"])
            cell.from_state.weight.copy_(weights[f"weight_hh{end}"])
            cell.from_input.bias.copy_(weights[f"bias_ih{end}"] + weights[f"bias_hh{end}"])


def packed_by_torch(reference: nn.LSTM, x: torch.Tensor) -> torch.Tensor:
    """Rows end to end in and out, through torch's own packing."""
    rows = nn.utils.rnn.pack_sequence(x.split(LENGTHS), enforce_sorted=False)
    padded, lengths = nn.utils.rnn.pad_packed_sequence(reference(rows)[0], batch_first=True)
    return torch.cat([row[:length] for row, length in zip(padded, lengths.tolist(), strict=True)])


def test_layers_as_in_torch() -> None:
    torch.manual_seed(0)
    x = torch.randn(sum(LENGTHS), 3)
    reference = nn.LSTM(3, 4, num_layers=2)
    cells = [LSTM(3, 4), LSTM(4, 4)]
    copy_from_torch(cells, reference)
    outputs, states = Stack(cells)(x, LENGTHS)
    torch.testing.assert_close(outputs[-1], packed_by_torch(reference, x))
    assert len(outputs) == len(states) == 2 and outputs[0].shape == (8, 4)


def test_both_directions_as_in_torch() -> None:
    torch.manual_seed(0)
    x = torch.randn(sum(LENGTHS), 3)
    reference = nn.LSTM(3, 4, num_layers=2, bidirectional=True)
    there, back = ([LSTM(3, 4), LSTM(8, 4)] for _ in range(2))
    copy_from_torch(there, reference)
    copy_from_torch(back, reference, "_reverse")
    network = Bidirectional(there, back)
    outputs, states = network(x, LENGTHS)
    torch.testing.assert_close(outputs[-1], packed_by_torch(reference, x))
    assert network.output_width == 8 and len(states) == len(network.begin(3)) == 4
    again, _ = network(x, LENGTHS, network.begin(3), explicit)
    torch.testing.assert_close(again[-1], outputs[-1])


def test_a_row_never_sees_another_row() -> None:
    """Nor what is behind a token, of a language model."""
    torch.manual_seed(0)
    x = torch.randn(sum(LENGTHS), 3, requires_grad=True)
    for stack, seen in (
        (Stack([GRU(3, 4), GRU(4, 4)]), [4, 5]),
        (Stack([GRU(3, 4), GRU(4, 4)], reverse=True), [5, 6, 7]),
        (Bidirectional([GRU(3, 4), GRU(8, 4)], [GRU(3, 4), GRU(8, 4)]), [4, 5, 6, 7]),
    ):
        outputs, _ = stack(x, LENGTHS)
        (gradient,) = torch.autograd.grad(outputs[-1][5].sum(), x)  # the second token of the last row
        assert gradient.abs().sum(1).nonzero().flatten().tolist() == seen


def test_reading_in_reverse() -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 3)
    forward, backward = Stack([LSTM(3, 4)]), Stack([LSTM(3, 4)], reverse=True)
    backward.load_state_dict(forward.state_dict())
    torch.testing.assert_close(backward(x, (5,))[0][0], forward(x.flip(0), (5,))[0][0].flip(0))


def test_residual_and_what_a_layer_has_read() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3)
    cells = [LSTM(3, 6, projection=2), LSTM(2, 6, projection=2)]
    outputs, _ = Stack(cells, residual=True)(x, (4,))
    alone, _ = explicit(cells[1], outputs[0], Timeline.of((4,)), cells[1].begin(1))
    torch.testing.assert_close(outputs[1], outputs[0] + alone)
    with pytest.raises(AssertionError, match="one width"):
        Stack([LSTM(3, 4), LSTM(4, 5)], residual=True)
    with pytest.raises(AssertionError, match="reads 4"):
        Stack([LSTM(3, 4), LSTM(3, 4)])


def test_dropout_is_between_layers() -> None:
    x = torch.randn(4, 3)
    single, double = Stack([GRU(3, 4)], dropout=0.9), Stack([GRU(3, 4), GRU(4, 4)], dropout=0.9)
    assert single(x, (4,))[0][-1].equal(single(x, (4,))[0][-1])
    assert not double(x, (4,))[0][-1].equal(double(x, (4,))[0][-1])
    double.eval()
    assert double(x, (4,))[0][-1].equal(double(x, (4,))[0][-1])
