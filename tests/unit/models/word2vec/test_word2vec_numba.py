"""The compiled kernel against the same steps through torch, one window after the other."""

import numpy as np
import pytest
import torch

from qkv.models.word2vec.network import Word2Vec, Word2VecConfig
from qkv.models.word2vec.objective import Windows, train_on

pytest.importorskip("numba")

from qkv.models.word2vec.kernel import Tables, compile_kernel

SIZE, WIDTH = 12, 10
ALWAYS = np.uint64(1 << 32)
NEGATIVE = 11  # the only one there is
SETTINGS = [("skipgram", 2), ("cbow", 7)]  # one group of outputs, and two


def tables(unknown: int = 0) -> Tables:
    keep = np.full(SIZE, ALWAYS)
    keep[unknown] = 0
    return Tables(keep, np.zeros(SIZE, np.uint64), np.full(SIZE, NEGATIVE))


def as_mapped(values: list[int], kind: type[np.generic]) -> "np.ndarray[tuple[int], np.dtype[np.generic]]":
    """As from a shard: it cannot be written. (Another type to the compiler.)"""
    array = np.array(values, kind)
    array.flags.writeable = False
    return array


def made(architecture: str) -> Word2Vec:
    model = Word2Vec(Word2VecConfig(SIZE, architecture, WIDTH))
    torch.nn.init.normal_(model.embedding)
    torch.nn.init.normal_(model.context)
    return model


def learn(
    model: Word2Vec, negatives: int, tokens: list[int], sentences: list[int], seed: int = 0, lr: float = 0.1
) -> tuple[float, int]:
    return compile_kernel(WIDTH, negatives, model.config.architecture == "cbow")(
        as_mapped(tokens, np.uint16),
        as_mapped(sentences, np.int64),
        tables(),
        model.embedding.data.numpy(),
        model.context.data.numpy(),
        1,
        lr,
        lr,
        seed,
    )


@pytest.mark.parametrize(("architecture", "negatives"), SETTINGS)
def test_it_takes_the_steps_that_torch_takes(architecture: str, negatives: int) -> None:
    """A sentence with an unknown word in it, 1 2 _ 3, another of one word, and one that holds the negative, 5 11."""
    model, reference = made(architecture), made(architecture)
    reference.load_state_dict(model.state_dict())
    loss, observed = learn(model, negatives, [1, 2, 0, 3, 4, 5, NEGATIVE], [0, 4, 5, 7])

    first = None
    for word, near in ((1, [2]), (2, [1, 3]), (3, [2]), (5, [NEGATIVE]), (NEGATIVE, [5])):
        mask = torch.tensor([[True] * len(near)])
        outputs = torch.tensor([[word] + [NEGATIVE] * negatives])
        told_apart = torch.cat([torch.tensor([[True]]), outputs[:, 1:] != word], 1)
        term = train_on(reference, Windows(torch.tensor([near]), mask, outputs, told_apart), lr=0.1, most=1000)
        first = term if first is None else first
    torch.testing.assert_close(dict(model.state_dict()), dict(reference.state_dict()), atol=2e-6, rtol=1e-5)
    assert first is not None and observed == first.inputs == 1  # of sixteen windows one is looked at
    assert loss == pytest.approx(float(first.loss), rel=1e-5)


def test_the_seed_decides() -> None:
    results = []
    for seed in (1, 1, 2):
        model = Word2Vec(Word2VecConfig(SIZE, "skipgram", WIDTH))
        model.embedding.data.copy_(torch.arange(SIZE * WIDTH).view(SIZE, WIDTH) / 100)
        drawn = tables()._replace(thresholds=np.full(SIZE, ALWAYS))  # each word as often as any other
        text = as_mapped([1, 2, 3, 4, 5, 6] * 20, np.uint16), as_mapped([0, 60, 120], np.int64)
        matrices = model.embedding.data.numpy(), model.context.data.numpy()
        compile_kernel(WIDTH, 2, False)(*text, drawn, *matrices, 1, 0.1, 0.05, seed)
        results.append(model.embedding.data.numpy().tobytes())
    assert results[0] == results[1] != results[2]


def test_without_a_neighbour_nothing_moves() -> None:
    model = made("skipgram")
    before = model.embedding.data.numpy().copy()
    assert learn(model, 2, [1, 0, 0, 2], [0, 3, 4]) == (0.0, 0)
    assert (model.embedding.data.numpy() == before).all()


def test_at_learning_rate_0_nothing_moves() -> None:
    model = made("skipgram")
    before = [matrix.data.numpy().copy() for matrix in (model.embedding, model.context)]
    assert learn(model, 2, [1, 2, 3], [0, 3], lr=0.0)[1] == 1
    for matrix, was in zip((model.embedding, model.context), before, strict=True):
        assert (matrix.data.numpy() == was).all()


def test_the_loss_of_a_score_that_overflows_is_finite() -> None:
    """A run must not end with "the loss is NaN" because one window fits very badly: −log σ(−100) is 100."""
    model = made("skipgram")
    model.embedding.data.fill_(10.0)
    model.context.data.fill_(-1.0)  # scores of −100
    model.context.data[NEGATIVE] = 1.0  # and of 100, for the negatives
    loss, observed = learn(model, 2, [1, 2], [0, 2], lr=0.0)
    assert observed and loss == pytest.approx(300.0 * observed, rel=1e-5)
