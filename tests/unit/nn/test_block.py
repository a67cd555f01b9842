"""Blocks against torch's own Transformer layer, in both norm orders and with both activations."""

import copy
import pickle

import pytest
import torch
from torch import nn

from qkv.nn.block import ACTIVATION_FUNCTIONS, KERNELS, FeedForward, PostNormBlock, PreNormBlock
from qkv.nn.multihead import MultiHeadSelfAttention, explicit, fused


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("kind", [PostNormBlock, PreNormBlock])
def test_equals_torch(kind: type[PostNormBlock | PreNormBlock], activation: str) -> None:
    block = kind(MultiHeadSelfAttention(16, 4), FeedForward(16, 32, activation), 16)
    reference = nn.TransformerEncoderLayer(
        16, 4, 32, dropout=0.0, activation=activation, batch_first=True, norm_first=kind is PreNormBlock
    )
    for norm in (block.attention_norm, block.feed_forward_norm):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    reference.load_state_dict(
        {
            f"{theirs}{end}": block.get_parameter(f"{ours}{end.replace('_', '.')}")
            for theirs, ours, ends in (
                ("self_attn.in_proj", "attention.qkv", ("_weight", "_bias")),
                ("self_attn.out_proj", "attention.out", (".weight", ".bias")),
                ("linear1", "feed_forward.up", (".weight", ".bias")),
                ("linear2", "feed_forward.down", (".weight", ".bias")),
                ("norm1", "attention_norm", (".weight", ".bias")),
                ("norm2", "feed_forward_norm", (".weight", ".bias")),
            )
            for end in ends
        }
    )
    x = torch.randn(3, 5, 16)
    expected = reference(x)
    for attend in (explicit, fused):
        assert torch.allclose(block(x, attend)[0], expected, atol=1e-5)


def test_activations_are_what_they_are_called() -> None:
    x = torch.randn(100)
    assert torch.equal(ACTIVATION_FUNCTIONS["relu"](x), x.clamp(min=0))
    gaussian = x * 0.5 * (1 + torch.erf(x / 2**0.5))
    assert torch.allclose(ACTIVATION_FUNCTIONS["gelu"](x), gaussian, atol=1e-6)
    assert 1e-6 < (ACTIVATION_FUNCTIONS["gelu_tanh"](x) - gaussian).abs().max() < 1e-2
    assert torch.allclose(ACTIVATION_FUNCTIONS["silu"](x), x * x.sigmoid())
    assert torch.equal(ACTIVATION_FUNCTIONS["tanh"](x), x.tanh())


@pytest.mark.parametrize("name", KERNELS.values())
def test_a_copy_is_on_the_kernels_too(name: str) -> None:
    layer = FeedForward(4, 8, name)
    for other in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert KERNELS[other.activation] == name


@pytest.mark.parametrize("kind", [PostNormBlock, PreNormBlock])
def test_every_parameter_gets_a_gradient(kind: type[PostNormBlock | PreNormBlock]) -> None:
    block = kind(MultiHeadSelfAttention(16, 4), FeedForward(16, 32), 16)
    answer, _ = block(torch.randn(3, 5, 16), fused)
    (answer * torch.randn_like(answer)).sum().backward()
    for name, parameter in block.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
