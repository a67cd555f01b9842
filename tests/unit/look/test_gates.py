"""Every cell opened is the cell itself: the same states, whichever way and from whatever numbers."""

import numpy as np
import pytest
import torch

from qkv.look.recurrence import EQUATIONS, run_cell
from qkv.nn.recurrent import Timeline, explicit
from tests.support.recurrent_cells import CELLS, INPUTS, by_hand, make


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_the_cell_itself(name: str, reverse: bool) -> None:
    cell = make(name)
    x = torch.randn(5, INPUTS, dtype=torch.float64)
    with torch.no_grad():
        found = run_cell(cell, x, reverse=reverse)
        hidden, last = explicit(cell, x, Timeline.of((5,), reverse=reverse), cell.begin(1))
    np.testing.assert_allclose(found.parts["h"], hidden, atol=1e-12)
    end = 0 if reverse else -1
    np.testing.assert_allclose(found.parts["h"][end], last[0][0], atol=1e-12)
    if cell.has_memory:
        np.testing.assert_allclose(found.parts["c"][end], last[1][0], atol=1e-12)
    row = x.flip(0) if reverse else x
    by_numpy, _ = by_hand(cell, row.numpy(), tuple(part[0].numpy() for part in cell.begin(1)))
    np.testing.assert_allclose(found.parts["h"].flip(0) if reverse else found.parts["h"], by_numpy, atol=1e-9)


@pytest.mark.parametrize("name", CELLS)
def test_what_is_told_of_a_cell(name: str) -> None:
    cell = make(name)
    equations = EQUATIONS[type(cell)]
    with torch.no_grad():
        found = run_cell(cell, torch.randn(3, INPUTS, dtype=torch.float64))
    assert len(equations.blocks) == cell.blocks and equations.gates <= set(equations.blocks)
    assert set(equations.blocks) <= set(found.parts) and ("c" in found.parts) == cell.has_memory
    assert found.given.shape == found.from_state.shape == (3, cell.blocks, cell.width)
    for letter in equations.gates:
        assert bool(((found.parts[letter] > 0) & (found.parts[letter] < 1)).all())
    assert not found.from_state[0].any() or cell.state_bias  # before the first token nothing is remembered
