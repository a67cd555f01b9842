from typing import Any

import pytest
import torch

from qkv.errors import InputError
from qkv.models.rnnlm.network import RNNLM, RNNLMConfig
from qkv.nn.gpu.layers import word_loss
from qkv.nn.recurrent import CELLS

pytestmark = pytest.mark.usefixtures("one_thread")


def small(cell: str = "lstm", projection: int | None = None, tied: bool = True) -> RNNLM:
    torch.manual_seed(0)
    wide = None if projection is None else 9
    return RNNLM(RNNLMConfig(11, cell, 2, 6, cell_width=wide, projection=projection, dropout=0.0, tied=tied))


@pytest.mark.parametrize("cell", CELLS)
def test_in_pieces_as_in_one(cell: str) -> None:
    """Rows of different lengths, cut anywhere, gone on with from the state they were left in."""
    model, ids = small(cell), torch.arange(11)
    whole, end = model(ids, (7, 4))
    first, state = model(torch.cat([ids[:3], ids[7:8]]), (3, 1))
    second, after = model(torch.cat([ids[3:7], ids[8:]]), (4, 3), state)
    torch.testing.assert_close(torch.cat([first[:3], second[:4], first[3:], second[4:]]), whole)
    for ours, theirs in zip(after, end, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("projection", "tied"), [(None, True), (6, True), (4, False)])
def test_every_parameter_gets_a_gradient(projection: int | None, tied: bool) -> None:
    model = small(projection=projection, tied=tied)
    hidden, _ = model(torch.arange(11), (7, 4))
    assert model.predict(hidden).shape == (11, 11)
    word_loss(*model.before_words(hidden), torch.arange(11).flip(0))[0].backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.any()), name


def test_what_comes_next_is_not_seen() -> None:
    model = small()
    before, _ = model(torch.tensor([1, 2, 3, 4]), (4,))
    after, _ = model(torch.tensor([1, 2, 9, 4]), (4,))
    assert before[:2].equal(after[:2]) and not before[2:].equal(after[2:])


def test_settings_that_cannot_be() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"cell": "lstn"}, "Did you mean 'lstm'"),
        ({"cell": "gru", "projection": 3}, "projection is for the cell lstm"),
        ({"cell_width": 8}, "tied = false, or for an lstm projection = 200"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"dropout": -0.1}, "dropout is a share"),
    ]
    for settings, message in cases:
        with pytest.raises(InputError, match=message):
            RNNLMConfig(10, **settings)
    with pytest.raises(InputError, match="Known: small, medium, large"):
        RNNLMConfig.preset("tiny")
    assert RNNLMConfig.preset("medium", vocabulary_size=5).width == 650
