import pytest
import torch

from qkv.nn.attention import AdditiveAttention
from qkv.nn.source_attention import AdditiveScore, BilinearScore, DotScore, Score, Source, SourceRows

pytestmark = pytest.mark.usefixtures("one_thread")


def source(score: Score) -> Source:
    """Two texts, the first of three tokens, the second of two and a place that is nobody's."""
    torch.manual_seed(1)
    states = torch.randn(2, 3, 4).double()
    mask = torch.tensor([[True, True, True], [True, True, False]])
    return Source(states[:, 0], states, mask, score.keys(states))


def test_additive_is_the_attention_of_the_equations() -> None:
    score = AdditiveScore(5, 4).double()
    whole = AdditiveAttention(5, 4, 5).double()
    whole.load_state_dict(score.state_dict())
    query, read = torch.randn(2, 6, 5).double(), source(score)
    answer, weights = whole(query, read.states, read.states, read.mask[:, None])
    context, found = score.look(query, read)
    torch.testing.assert_close((context, found), (answer, weights))


@pytest.mark.parametrize(("kind", "width"), [(DotScore, 4), (BilinearScore, 5)])
def test_products_written_out(kind: type[Score], width: int) -> None:
    score = kind(width, 4).double()
    read, query = source(score), torch.randn(2, 1, width).double()
    context, weights = score.look(query, read)
    for row, length in enumerate((3, 2)):
        h = read.states[row, :length]
        fit = torch.stack([score.key.weight @ state for state in h]) if isinstance(score, BilinearScore) else h
        alpha = torch.exp(fit @ query[row, 0])
        alpha = alpha / alpha.sum()
        torch.testing.assert_close(weights[row, 0, :length], alpha)
        torch.testing.assert_close(context[row, 0], sum(a * state for a, state in zip(alpha, h, strict=True)))
    assert not bool(weights[1, 0, 2])


def test_rows_of_a_source_share_it() -> None:
    """Whatever rows are left: each sees its own source, as if it were alone."""
    score = AdditiveScore(5, 4).double()
    read = source(score)
    for owners in ([0, 0, 1, 1], [1, 0, 0], [1], [0, 1, 0, 1, 1]):
        rows, query = SourceRows.of(owners, 2), torch.randn(len(owners), 5).double()
        context, weights = (rows.flat(part) for part in score.look(rows.grouped(query), read))
        for row, owner in enumerate(owners):
            alone, seen = score.look(query[row][None, None], read.take(torch.tensor([owner])))
            torch.testing.assert_close((context[row], weights[row]), (alone[0, 0], seen[0, 0]))


def test_a_dot_product_needs_one_width() -> None:
    with pytest.raises(AssertionError, match="has no dot product"):
        DotScore(3, 4)
