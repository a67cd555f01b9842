import pytest
import torch
from torch import Tensor

from qkv.models.elmo.objective import Unigram, sampled_loss
from qkv.nn.gpu.layers import word_loss

pytestmark = pytest.mark.usefixtures("one_thread")

M, D, V = 6, 8, 60


def parts() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(M, D), torch.randn(V, D) / 3, torch.randn(V) / 3, torch.randint(V, (M,))


def counts() -> Tensor:
    return 10_000 // torch.arange(1, V + 1)


def test_words_are_drawn_with_the_chances_it_says() -> None:
    sampler, times = Unigram(counts(), 30), torch.zeros(V)
    torch.manual_seed(0)
    for _ in range(2000):
        words, again = sampler.draw()
        assert len(words) == 30
        times[words[~again]] += 1
        assert len(words[~again].unique()) == int((~again).sum())
    chances = sampler.log_chances.exp()
    assert bool(((times / 2000 - chances).abs() < 5 * (chances * (1 - chances) / 2000).sqrt() + 1e-3).all())
    assert chances[0] > 0.99 > 0.2 > chances[-1] > 0
    assert bool((Unigram(torch.zeros(4), 2).log_chances.exp() - (1 - 0.75**2)).abs().max() < 1e-6)


def test_with_all_words_drawn_it_is_the_whole_softmax() -> None:
    x, table, bias, targets = parts()
    table.requires_grad_()
    bias.requires_grad_()
    whole, right = word_loss(x, table, bias, targets)
    sampled, among_drawn = sampled_loss(x, table, bias, targets, Unigram(counts(), 20_000))
    torch.testing.assert_close(sampled, whole)
    assert int(among_drawn) == int(right)
    for ours, theirs in zip(*(torch.autograd.grad(loss, (table, bias)) for loss in (sampled, whole)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_true_scores_are_the_best_ones_however_few_are_drawn() -> None:
    """Targets come as the scores say; then the mean gradient is nothing, as that of the whole softmax is."""
    torch.manual_seed(1)
    chances = torch.randn(V).softmax(0)
    bias, table = chances.log().requires_grad_(), torch.zeros(V, 1)
    sampler = Unigram(torch.rand(V) * 1000, 12)  # other frequencies than those
    total, squares, times = torch.zeros(V), torch.zeros(V), 400
    for _ in range(times):
        targets = torch.multinomial(chances, 500, replacement=True)
        (gradient,) = torch.autograd.grad(sampled_loss(torch.zeros(500, 1), table, bias, targets, sampler)[0], bias)
        total, squares = total + gradient, squares + gradient**2
    error = (squares / times - (total / times) ** 2).sqrt() / times**0.5
    assert bool(((total / times).abs() < 4.5 * error).all())
    wrong = (chances.log() + torch.randn(V) / 2).requires_grad_()  # and of others it is not
    targets = torch.multinomial(chances, 500, replacement=True)
    gradients = [
        torch.autograd.grad(sampled_loss(torch.zeros(500, 1), table, wrong, targets, sampler)[0], wrong)[0]
        for _ in range(100)
    ]
    assert bool((torch.stack(gradients).mean(0).abs() > 8 * error).any())


def test_a_target_that_is_drawn_does_not_count_against_itself() -> None:
    x, table, bias, _ = parts()
    only = torch.zeros(V)
    only[7] = 1e12
    loss, right = sampled_loss(x, table, bias, torch.full((M,), 7), Unigram(only, 20))
    assert abs(float(loss)) < 1e-4 and int(right) == M


def test_draws_are_those_of_the_seed() -> None:
    sampler = Unigram(counts(), 20)
    torch.manual_seed(3)
    first = sampler.draw()[0]
    torch.manual_seed(3)
    assert first.equal(sampler.draw()[0]) and not first.equal(sampler.draw()[0])
