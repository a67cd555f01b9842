from typing import Any

import pytest
import torch

from qkv.errors import InputError
from qkv.models.elmo.network import Elmo, ElmoConfig, ScalarMix
from qkv.nn.recurrent_stack import DIRECTIONS

pytestmark = pytest.mark.usefixtures("one_thread")

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "he", "got", "bit", "by", "python", "is", "a", "language", "蟒", "蛇"]
SNAKE, LANGUAGE = [2, 4, 5, 6, 7, 8, 3], [2, 8, 9, 10, 11, 3]  # python is the sixth of one and the second of the other


def small(**changes: Any) -> Elmo:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"filters": (4, 4, 4), "width": 6, "cell_width": 10, "dropout": 0.0}
    return Elmo(ElmoConfig(len(TOKENS), **(settings | changes)), TOKENS).eval()


def test_a_word_in_two_sentences_has_one_spelling_and_two_meanings() -> None:
    found = small()(torch.tensor(SNAKE + LANGUAGE), (len(SNAKE), len(LANGUAGE)))
    assert found.shape == (13, 3, 12)
    snake, language = found[5], found[7 + 1]
    assert snake[0].equal(language[0]) and snake[0, :6].equal(snake[0, 6:])
    for layer in (1, 2):
        for side in (slice(6), slice(6, 12)):
            assert (snake[layer, side] - language[layer, side]).abs().max() > 1e-3


def test_no_direction_sees_what_it_is_to_predict() -> None:
    network = small()
    before = network(torch.tensor(SNAKE), (7,))
    after = network(torch.tensor([*SNAKE[:4], 12, 13, 3]), (7,))  # other tokens at 4 and 5
    ways = {direction: slice(6 * number, 6 * number + 6) for number, direction in enumerate(DIRECTIONS)}
    for layer in (1, 2):
        changed = {way: (before - after)[:, layer, side].abs().amax(-1) > 1e-6 for way, side in ways.items()}
        assert changed["forward"].tolist() == [False] * 4 + [True] * 3
        assert changed["backward"].tolist() == [True] * 6 + [False]


def test_rows_do_not_see_each_other_and_begin_with_nothing_seen() -> None:
    network = small(clip=3.0)
    both = network(torch.tensor(SNAKE + LANGUAGE), (7, 6))
    torch.testing.assert_close(both[:7], network(torch.tensor(SNAKE), (7,)))
    torch.testing.assert_close(both[7:], network(torch.tensor(LANGUAGE), (6,)))


def test_the_second_layer_adds_to_the_first() -> None:
    network = small()
    for stack in (network.forward_stack, network.backward_stack):
        assert stack.residual
        for name, parameter in stack.cells[1].named_parameters():
            torch.nn.init.zeros_(parameter) if name == "project.weight" else None
    found = network(torch.tensor(SNAKE), (7,))
    torch.testing.assert_close(found[:, 1], found[:, 2])


def test_every_parameter_gets_a_gradient() -> None:
    network, mix = small(highways=2), ScalarMix(3)
    vectors = mix(network(torch.tensor(SNAKE), (7,)))
    hidden, table, bias = network.before_words(vectors[:, :6])
    ((hidden @ table.T + bias).square().sum() + vectors.square().sum()).backward()
    for part in (network, mix):
        for name, parameter in part.named_parameters():
            assert parameter.grad is not None and bool(parameter.grad.any()), name


def test_mix() -> None:
    mix, x = ScalarMix(3), torch.randn(4, 3, 5)
    torch.testing.assert_close(mix(x), x.mean(1))
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, 100.0, 0.0]))
        mix.gamma.fill_(2.0)
    torch.testing.assert_close(mix(x), 2 * x[:, 1])


def test_settings_that_cannot_be() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"filters": ()}, "there must be one at least"),
        ({"filters": (4, 0)}, "filters must all be at least 1, not 0"),
        ({"longest": 2}, "longest must be at least 3"),
        ({"cell_width": 128}, "must be more than width"),
        ({"clip": 0.0}, "clip must be a number above 0"),
        ({"dropout": 1.0}, "dropout is a share"),
    ]
    for settings, message in cases:
        with pytest.raises(InputError, match=message):
            ElmoConfig(10, **settings)
    with pytest.raises(InputError, match="Known: mini, small, paper"):
        ElmoConfig.preset("large")
    paper = ElmoConfig.preset("paper", vocabulary_size=5)
    assert (paper.width, paper.cell_width, sum(paper.filters), paper.clip) == (512, 4096, 2048, 3.0)
