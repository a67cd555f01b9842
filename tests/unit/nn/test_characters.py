import torch
from torch.nn import functional

from qkv.nn.words import BEGIN_BYTE, END_BYTE, PADDING_BYTE, CharacterCNN, Highway, group_by_length, spell

TOKENS = ("a", "##ing", "猫", "[CLS]", "Donaudampfschifffahrt", "")
FILTERS = (3, 4, 5, 2, 2, 3, 6)


def network() -> CharacterCNN:
    torch.manual_seed(0)
    return CharacterCNN(FILTERS, 9, byte_width=5)


def test_as_a_convolution_of_torch_over_each_token_by_itself() -> None:
    """Its bytes alone, zeros after them so that a window begins at every one."""
    cnn = network()
    for token, vector in zip(TOKENS, cnn(spell(TOKENS)), strict=True):
        x = cnn.embedding(torch.tensor([BEGIN_BYTE, *token.encode(), END_BYTE])).T  # (C, L)
        found = []
        for kernel, ours in enumerate(cnn.convolutions, start=1):
            theirs = torch.nn.Conv1d(5, FILTERS[kernel - 1], kernel)
            theirs.load_state_dict(ours.state_dict())
            found.append(theirs(functional.pad(x, (0, kernel - 1))).amax(-1))
        mixed = torch.cat(found).relu()
        for highway in cnn.highways:
            mixed = highway(mixed)
        torch.testing.assert_close(vector, cnn.project(mixed))


def test_how_long_others_are_does_nothing() -> None:
    cnn, spelled = network(), spell(TOKENS)
    torch.testing.assert_close(cnn(spelled)[:3], cnn(spelled[:3]))
    torch.testing.assert_close(cnn(functional.pad(spelled, (0, 9), value=PADDING_BYTE)), cnn(spelled))


def test_long_tokens_are_cut() -> None:
    spelled = spell(["猫" * 40, "ab"], longest=10)
    assert spelled.shape == (2, 10) and spelled[0].tolist() == [
        BEGIN_BYTE,
        *"猫".encode() * 2,
        *"猫".encode()[:2],
        END_BYTE,
    ]
    assert spelled[1].tolist() == [BEGIN_BYTE, 97, 98, END_BYTE] + [PADDING_BYTE] * 6


def test_every_parameter_gets_a_gradient_and_no_byte_stays_zero() -> None:
    cnn = network()
    cnn(spell(TOKENS)).square().sum().backward()
    for name, parameter in cnn.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.any()), name
    assert cnn.embedding.weight.grad is not None
    assert not cnn.embedding.weight[PADDING_BYTE].any() and not cnn.embedding.weight.grad[PADDING_BYTE].any()


def test_a_highway_that_is_shut_lets_everything_pass() -> None:
    highway, x = Highway(4), torch.randn(3, 4)
    torch.nn.init.zeros_(highway.gate.weight)
    torch.nn.init.constant_(highway.gate.bias, -100.0)
    torch.testing.assert_close(highway(x), x)
    torch.nn.init.constant_(highway.gate.bias, 100.0)
    torch.testing.assert_close(highway(x), highway.change(x).relu())


def test_in_parts_of_their_own_length() -> None:
    cnn = network()
    tokens = sorted(TOKENS, key=lambda token: len(token.encode()))
    groups = group_by_length([len(token.encode()) + 2 for token in tokens])
    assert groups == ((3, 5), (2, 7), (1, 23))
    spelled, begin, parts = spell(tokens), 0, []
    for count, longest in groups:
        parts.append(spelled[begin : begin + count, :longest])
        begin += count
    torch.testing.assert_close(cnn(*parts), cnn(spelled))
    assert group_by_length([4]) == ((1, 4),) and group_by_length([3, 9]) == ((1, 3), (1, 9))
