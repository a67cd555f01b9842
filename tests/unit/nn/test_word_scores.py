import math

import torch
from torch.nn import functional

from qkv.nn.gpu.layers import word_loss
from qkv.nn.words import WordScores


def test_tied_and_with_a_table_of_its_own() -> None:
    torch.manual_seed(0)
    x, embedding, targets = torch.randn(5, 4), torch.randn(7, 4), torch.tensor([0, 1, 2, 3, 4])
    tied, own = WordScores(7, 4, tied=True), WordScores(7, 4)
    assert [name for name, _ in tied.named_parameters()] == ["bias"] and own.table is not None
    for scores, table in ((tied, embedding), (own, own.table)):
        logits = scores(x, embedding)
        torch.testing.assert_close(logits, x @ table.t() + scores.bias)
        loss, right = word_loss(x, *scores.parts(embedding), targets)
        torch.testing.assert_close(loss, functional.cross_entropy(logits, targets, reduction="sum"))
        assert int(right) == int((logits.argmax(-1) == targets).sum())


def test_one_who_knows_nothing() -> None:
    scores = WordScores(9, 2)
    loss, _ = word_loss(torch.zeros(3, 2), *scores.parts(torch.empty(0)), torch.tensor([1, 2, 3]))
    assert math.isclose(loss.item(), 3 * math.log(9), rel_tol=1e-6)
