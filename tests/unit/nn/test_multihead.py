"""Multi-head attention against torch.nn, and its gradients."""

from functools import partial

import pytest
import torch
from torch import nn

from qkv.nn.attention import causal_mask
from qkv.nn.multihead import MultiHeadCrossAttention, MultiHeadSelfAttention, explicit, fused


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_equals_torch(causal: bool) -> None:
    layer, reference = MultiHeadSelfAttention(24, 4), nn.MultiheadAttention(24, 4, batch_first=True)
    reference.load_state_dict(
        {
            "in_proj_weight": layer.qkv.weight,
            "in_proj_bias": layer.qkv.bias,
            "out_proj.weight": layer.out.weight,
            "out_proj.bias": layer.out.bias,
        }
    )
    x = torch.randn(2, 6, 24)
    hidden = ~causal_mask(6) if causal else None  # torch's masks are True where a key is hidden
    expected, expected_weights = reference(x, x, x, attn_mask=hidden, average_attn_weights=False)
    answer, weights = layer(x, partial(explicit, causal=causal))
    assert torch.allclose(answer, expected, atol=1e-6)
    assert torch.allclose(weights, expected_weights, atol=1e-6)
    assert torch.allclose(layer(x, partial(fused, causal=causal))[0], expected, atol=1e-6)


def test_cross_attention_equals_torch() -> None:
    layer, reference = MultiHeadCrossAttention(24, 4), nn.MultiheadAttention(24, 4, batch_first=True)
    reference.load_state_dict(
        {
            "in_proj_weight": torch.cat([layer.query.weight, layer.key_value.weight]),
            "in_proj_bias": torch.cat([layer.query.bias, layer.key_value.bias]),
            "out_proj.weight": layer.out.weight,
            "out_proj.bias": layer.out.bias,
        }
    )
    x, memory = torch.randn(2, 3, 24), torch.randn(2, 6, 24)
    expected, expected_weights = reference(x, memory, memory, average_attn_weights=False)
    answer, weights = layer(x, memory, explicit)
    assert torch.allclose(answer, expected, atol=1e-6)
    assert torch.allclose(weights, expected_weights, atol=1e-6)


def test_head_width_and_memory_width_are_free() -> None:
    """The notes: head width 64 at width 512 is a choice, not a law."""
    layer = MultiHeadCrossAttention(24, heads=3, head_width=5, memory_width=10)
    answer, weights = layer(torch.randn(2, 4, 24), torch.randn(2, 6, 10), explicit)
    assert answer.shape == (2, 4, 24)
    assert weights.shape == (2, 3, 4, 6)
    with pytest.raises(AssertionError, match="is not divisible by 5 heads"):
        MultiHeadSelfAttention(24, 5)


def test_heads_look_for_different_things() -> None:
    _, weights = MultiHeadSelfAttention(24, 4)(torch.randn(1, 5, 24), explicit)
    assert not torch.allclose(weights[:, 0], weights[:, 1])


def test_dropout_works_in_training_only() -> None:
    layer = MultiHeadSelfAttention(24, 4, dropout=0.5)
    x = torch.randn(1, 5, 24)
    assert not torch.equal(layer(x, fused)[0], layer(x, fused)[0])
    assert not torch.equal(layer(x, explicit)[0], layer(x, explicit)[0])
    layer.eval()
    assert torch.equal(layer(x, fused)[0], layer(x, fused)[0])


@pytest.mark.parametrize("attend", [explicit, fused])
def test_every_parameter_gets_a_gradient(attend: object) -> None:
    x, memory = torch.randn(2, 5, 24), torch.randn(2, 6, 24)
    for layer, inputs in ((MultiHeadSelfAttention(24, 4), (x,)), (MultiHeadCrossAttention(24, 4), (x, memory))):
        layer(*inputs, attend)[0].square().sum().backward()
        for name, parameter in layer.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name
