"""GPT below heads: the same network as alone, read at the last token of a row."""

from typing import Any

import pytest
import torch

from qkv.data.batch import Batch
from qkv.models.gpt.encoder import GPTEncoder, GPTReaderConfig, GPTWithHeads
from qkv.models.gpt.network import GPT, GPTConfig
from tests.support.folders import randomise

ROWS = [[1, 5, 2], [1, 7, 8, 9, 2], [3], [1, 4, 4, 6, 2, 9, 9]]


def config(**changes: Any) -> GPTReaderConfig:
    return GPTReaderConfig.of(GPTConfig(12, 2, 8, 2, 16, 16, **changes), words=10)


@pytest.mark.parametrize("changes", [{}, {"order": "post"}, {"tied": False}])
def test_it_is_the_same_network(changes: dict[str, Any]) -> None:
    shape = config(**changes)
    gpt, encoder = GPT(shape.network).eval(), GPTEncoder(shape).eval()
    randomise(gpt)
    names = {"embedding.weight": "embedding.token.weight", "position.weight": "embedding.position.weight"}
    names["table"] = "table.weight"
    encoder.load_state_dict({names.get(name, name): value for name, value in gpt.state_dict().items()})
    batch = Batch.of(ROWS)
    expected = gpt(batch.ids, batch.packing)
    encoding = encoder(**batch.inputs())
    torch.testing.assert_close(encoding.hidden, expected)
    ends = torch.tensor([2, 7, 8, 15])
    torch.testing.assert_close(encoding.pooled, expected[ends])
    torch.testing.assert_close(encoder.of_rows(expected, batch.packing), expected[ends])
    vectors, table, bias = encoder.before_words(expected)
    assert bias is None and len(table) == 10  # the marks of tasks are never predicted
    torch.testing.assert_close(vectors @ table.T, gpt.scores(expected)[:, :10])


def test_what_stands_for_a_row_has_seen_all_of_it() -> None:
    encoder = GPTEncoder(config()).eval()
    randomise(encoder)

    def read(*ids: int) -> tuple[torch.Tensor, torch.Tensor]:
        batch = Batch.of([ids])
        hidden = encoder(**batch.inputs()).hidden
        return hidden[0], encoder.of_rows(hidden, batch.packing)[0]

    (first, last), (other_first, other_last) = read(1, 5, 7, 2), read(1, 5, 8, 2)
    assert torch.equal(first, other_first)
    assert not torch.allclose(last, other_last)


@pytest.mark.parametrize("order", ["pre", "post"])
def test_weights_are_asked_for_by_layer(order: str) -> None:
    encoder = GPTEncoder(config(order=order)).eval()
    randomise(encoder)
    batch = Batch.of(ROWS)
    usual, watched = encoder(**batch.inputs()), encoder(**batch.inputs(), attention=[1])
    assert usual.attention == {} and list(watched.attention) == [1]
    torch.testing.assert_close(watched.hidden, usual.hidden)  # the explicit path beside the fused one
    weights = watched.attention[1]
    assert weights.shape == (4, 2, 7, 7) and not weights.triu(1).any()
    for row, length in enumerate(batch.lengths):
        torch.testing.assert_close(weights[row, :, :length].sum(-1), torch.ones(2, length))
        assert not weights[row, :, :length, length:].any()


@pytest.mark.parametrize("tied", [True, False])
def test_everything_learns(tied: bool) -> None:
    model = GPTWithHeads(config(tied=tied), ["sequence", "token", "span", "choice"], labels=3)
    batch = Batch.of(ROWS)
    encoding, logits = model(**batch.inputs())
    assert {name: tuple(one.shape) for name, one in logits.items()} == {
        "sequence": (4, 3),
        "token": (16, 3),
        "span": (16, 2),
        "choice": (4, 1),
    }
    vectors, table, _ = model.encoder.before_words(encoding.hidden)
    sum(((one**2).sum() for one in (*logits.values(), vectors @ table.T)), start=torch.zeros(())).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
    assert "heads.sequence.linear.bias" not in model.state_dict()
