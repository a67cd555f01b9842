"""Token + segment + position."""

import torch

from qkv.models.bert.network import InputEmbedding


def test_the_three_are_added_and_normalised() -> None:
    layer = InputEmbedding(vocabulary=20, width=8, max_length=10)
    assert layer.segment is not None
    ids, segments, positions = torch.tensor([3, 4]), torch.tensor([0, 1]), torch.tensor([0, 1])
    assert layer.segment is not None
    summed = layer.token.weight[ids] + layer.segment.weight[segments] + layer.position.weight[positions]
    expected = torch.nn.functional.layer_norm(summed, (8,), eps=1e-12)
    assert torch.allclose(layer(ids, segments, positions), expected, atol=1e-6)


def test_every_parameter_gets_a_gradient() -> None:
    layer = InputEmbedding(vocabulary=4, width=8, max_length=4)
    out = layer(torch.arange(4), torch.tensor([0, 0, 1, 1]), torch.arange(4))
    (out * torch.randn_like(out)).sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad.abs().reshape(len(parameter), -1).sum(-1) > 0).all(), name
