"""Windows, negatives and the step, each against what can be counted or worked out by hand."""

import numpy as np
import pytest
import torch

from qkv.errors import InputError
from qkv.models.word2vec.network import Word2Vec, Word2VecConfig
from qkv.models.word2vec.objective import (
    Sampled,
    Sampler,
    SamplingConfig,
    Windows,
    alias_table,
    keep_chances,
    noise,
    train_on,
)

CPU = torch.device("cpu")


def drawn(counts: list[int], tokens: list[int], sentences: list[int], window: int = 5, negatives: int = 5) -> Windows:
    config = SamplingConfig(window, negatives, subsample=0.0)
    sampler = Sampler(np.array(counts), config, CPU)
    return sampler.windows(torch.tensor(tokens), torch.tensor(sentences), torch.Generator().manual_seed(1))


def test_an_alias_table_has_the_chances_it_was_made_from() -> None:
    weights = np.random.default_rng(0).random(200) ** 6
    weights[7] = 0
    table = alias_table(weights)
    found = table.chances.copy()
    np.add.at(found, table.aliases, 1 - table.chances)
    np.testing.assert_allclose(found / len(weights), weights / weights.sum(), atol=1e-12)


def test_negatives_are_words_by_their_frequency_to_the_power() -> None:
    table = noise(np.array([0, 16, 1]), 0.75)
    chances = table.chances.copy()
    np.add.at(chances, table.aliases, 1 - table.chances)
    np.testing.assert_allclose(chances / 3, [0, 8 / 9, 1 / 9], atol=1e-12)


def test_frequent_words_are_thinned_out() -> None:
    chances = keep_chances(np.array([10_000, 100, 1, 0]), 1e-3)
    assert chances[0] < 0.04 < chances[1] <= chances[2] == 1 and chances[3] == 0
    assert keep_chances(np.array([5, 0]), 0).tolist() == [1, 0]


def test_a_window_ends_with_its_sentence_and_unknown_words_are_not_there() -> None:
    # 0 is unknown; two sentences: 1 _ 2 3, and 4 5
    windows = drawn([0, 1, 1, 1, 1, 1], [1, 0, 2, 3, 4, 5], [0, 0, 0, 0, 1, 1], window=1, negatives=3)
    found = {
        int(outputs[0]): sorted(near[mask].tolist())
        for near, mask, outputs in zip(windows.near, windows.mask, windows.outputs, strict=True)
    }
    assert found == {1: [2], 2: [1, 3], 3: [2], 4: [5], 5: [4]}
    assert windows.outputs.shape == (5, 4) and not (windows.outputs == 0).any()
    assert windows.told_apart[:, 0].all()
    assert torch.equal(windows.told_apart[:, 1:], windows.outputs[:, 1:] != windows.outputs[:, :1])


def test_a_word_by_itself_has_no_window() -> None:
    assert len(drawn([1, 1], [0, 1], [0, 1]).near) == 0
    assert len(drawn([0, 1], [0, 0, 1], [0, 0, 0]).near) == 0


def test_near_words_are_seen_more_often() -> None:
    """A word at distance d is in the window when the reach is d or more: (5 − d + 1) / 5 of the time."""
    size = 20_000
    windows = drawn([1, 1], [0, 1] * (size // 2), [0] * size)
    shares = windows.mask[10:-10].float().mean(0)
    expected = torch.tensor([0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2])
    torch.testing.assert_close(shares, expected, atol=0.02, rtol=0)


def some_windows() -> Windows:
    near = torch.tensor([[1, 2], [2, 3], [5, 1]])
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    outputs = torch.tensor([[4, 5, 1], [4, 4, 2], [1, 2, 2]])
    return Windows(near, mask, outputs, torch.tensor([[True, True, True], [True, False, True], [True, True, True]]))


def made(architecture: str) -> Word2Vec:
    model = Word2Vec(Word2VecConfig(6, architecture, width=4)).double()
    torch.nn.init.normal_(model.embedding)
    torch.nn.init.normal_(model.context)
    return model


def test_the_loss_by_hand() -> None:
    model, windows = made("skipgram"), some_windows()
    expected, inputs = torch.zeros((), dtype=torch.float64), 0
    for b in range(3):
        for m in range(2):
            if windows.mask[b, m]:
                inputs += 1
                for n in range(3):
                    score = model.embedding[windows.near[b, m]] @ model.context[windows.outputs[b, n]]
                    if windows.told_apart[b, n]:
                        expected = expected - torch.sigmoid(score if n == 0 else -score).log()
    term = Sampled()(model, windows)
    torch.testing.assert_close(term.loss, expected)
    assert term.inputs == inputs == 5
    assert Sampled()(made("cbow"), windows).inputs == 3


@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
def test_a_step_is_gradient_descent(architecture: str) -> None:
    model, windows = made(architecture), some_windows()
    Sampled()(model, windows).loss.backward()
    assert model.embedding.grad is not None and model.context.grad is not None
    expected = [model.embedding.detach().clone(), model.context.detach() - 0.1 * model.context.grad]
    for number in range(3):  # in CBOW a neighbour takes the gradient of the whole mean
        model.embedding.grad = None
        part = Windows(*(tensor[number : number + 1] for tensor in windows))
        Sampled()(model, part).loss.backward()
        assert model.embedding.grad is not None
        expected[0] -= 0.1 * model.embedding.grad * (part.mask.sum() if architecture == "cbow" else 1)
    loss = Sampled()(model, windows).loss.item()
    term = train_on(model, windows, lr=0.1, most=100)
    assert term.loss.item() == pytest.approx(loss)
    torch.testing.assert_close([model.embedding.data, model.context.data], expected)


def test_a_word_that_takes_part_too_often_is_held_back() -> None:
    model, windows = made("skipgram"), some_windows()
    before = model.embedding.detach().clone()
    Sampled()(model, windows).loss.backward()
    train_on(model, windows, lr=0.1, most=1)
    assert model.embedding.grad is not None
    moved = before - model.embedding.detach()
    torch.testing.assert_close(moved[2], 0.05 * model.embedding.grad[2])  # two neighbours
    torch.testing.assert_close(moved[5], 0.1 * model.embedding.grad[5])  # one


def test_what_cannot_be() -> None:
    with pytest.raises(InputError, match="window must be at least 1"):
        SamplingConfig(window=0)
    with pytest.raises(InputError, match="subsample lies between 0 and 1"):
        SamplingConfig(subsample=2.0)
