"""The two matrices and their dot products, against sums written out by hand."""

import pytest
import torch

from qkv.errors import InputError
from qkv.models.word2vec.network import Word2Vec, Word2VecConfig

NEAR = torch.tensor([[1, 2, 0], [3, 0, 0]])
MASK = torch.tensor([[True, True, False], [True, False, False]])
OUTPUTS = torch.tensor([[4, 5], [2, 1]])


def model(architecture: str) -> Word2Vec:
    made = Word2Vec(Word2VecConfig(6, architecture, width=3)).double()
    torch.nn.init.normal_(made.context)
    return made


def test_skip_gram_scores_every_neighbour() -> None:
    made = model("skipgram")
    scores = made(NEAR, MASK, OUTPUTS)
    assert scores.shape == (2, 3, 2)
    for b, m, n in ((0, 0, 0), (0, 1, 1), (1, 0, 1)):
        by_hand = sum(made.embedding[NEAR[b, m]][d] * made.context[OUTPUTS[b, n]][d] for d in range(3))
        torch.testing.assert_close(scores[b, m, n], by_hand)


def test_cbow_scores_the_mean_of_those_that_are_there() -> None:
    made = model("cbow")
    scores = made(NEAR, MASK, OUTPUTS)
    assert scores.shape == (2, 1, 2)
    mean = (made.embedding[1] + made.embedding[2]) / 2
    torch.testing.assert_close(scores[0, 0, 1], mean @ made.context[5])
    torch.testing.assert_close(scores[1, 0, 0], made.embedding[3] @ made.context[2])


def test_they_begin_as_in_mikolovs_program() -> None:
    made = Word2Vec(Word2VecConfig(1000, width=50))
    assert made.embedding.abs().max() <= 0.5 / 50 and made.embedding.std() > 0.005
    assert not made.context.any()


@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
def test_both_matrices_get_a_gradient(architecture: str) -> None:
    made = model(architecture)
    made(NEAR, MASK, OUTPUTS).sum().backward()
    for matrix in (made.embedding, made.context):
        assert matrix.grad is not None and matrix.grad.any()


def test_what_cannot_be() -> None:
    with pytest.raises(InputError, match="Did you mean 'skipgram'"):
        Word2VecConfig(10, "skipgramm")
    with pytest.raises(InputError, match="width must be at least 1"):
        Word2VecConfig(10, width=0)
