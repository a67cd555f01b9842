from typing import Any

import pytest
import torch

from qkv.errors import InputError
from qkv.models.nnlm.network import NNLM, NNLMConfig, contexts
from qkv.nn.gpu.layers import word_loss

pytestmark = pytest.mark.usefixtures("one_thread")


def small(**changes: Any) -> NNLM:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"context": 3, "width": 4, "hidden_width": 5, "dropout": 0.0, "begin_id": 0} | changes
    return NNLM(NNLMConfig(vocabulary_size=11, **settings))


def test_contexts_stay_in_their_row() -> None:
    ids, positions = torch.tensor([5, 6, 7, 8, 9]), torch.tensor([0, 1, 2, 0, 1])
    expected = [[0, 0, 5], [0, 5, 6], [5, 6, 7], [0, 0, 8], [0, 8, 9]]
    assert contexts(ids, positions, 3, begin_id=0).tolist() == expected
    assert contexts(ids, positions, 1, begin_id=0).tolist() == [[5], [6], [7], [8], [9]]


@pytest.mark.parametrize("direct", [False, True])
def test_equation_1(direct: bool) -> None:
    """y = b + W x + U tanh(d + H x), a window at a time."""
    model = small(direct=direct)
    ids = torch.tensor([5, 6, 7, 8])
    logits = model.predict(model(ids, torch.arange(4)))
    table, embedding = model.scores.table, model.embedding.weight
    assert table is not None
    for place, window in enumerate([[0, 0, 5], [0, 5, 6], [5, 6, 7], [6, 7, 8]]):
        x = torch.cat([embedding[word] for word in window])
        hidden = torch.tanh(model.hidden.bias + model.hidden.weight @ x)
        y = model.scores.bias + table[:, :5] @ hidden
        if direct:
            y = y + table[:, 5:] @ x
        torch.testing.assert_close(logits[place], y)


def test_every_parameter_gets_a_gradient() -> None:
    model = small(direct=True)
    loss, _ = word_loss(*model.before_words(model(torch.arange(11), torch.arange(11))), torch.arange(11).flip(0))
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.any()), name


def test_sizes() -> None:
    paper = NNLMConfig.preset("paper", vocabulary_size=10)
    assert (paper.context, paper.width, paper.hidden_width, paper.direct) == (4, 60, 50, True)
    with pytest.raises(InputError, match="Did you mean 'paper'"):
        NNLMConfig.preset("papr")
    wrongs: list[dict[str, Any]] = [{"context": 0}, {"dropout": 1.0}]
    for wrong in wrongs:
        with pytest.raises(InputError, match=next(iter(wrong))):
            NNLMConfig(10, **wrong)
