"""Attention as equations: hand-worked examples first, then references."""

import math

import pytest
import torch
from torch import nn

from qkv.nn.attention import (
    AdditiveAttention,
    KernelPooling,
    SelfAttention,
    attention,
    attention_pooling,
    causal_mask,
    dot_scores,
    masked_softmax,
)


def test_worked_on_paper() -> None:
    """Two keys, head width 4: scores 2 and 0 over √4 are 1 and 0, so the weights are e/(e+1) and 1/(e+1)."""
    query = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    key = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    answer, weights = attention(query, key, torch.tensor([[10.0], [20.0]]))
    e = math.e
    assert weights[0].tolist() == pytest.approx([e / (e + 1), 1 / (e + 1)])
    assert answer.item() == pytest.approx((10 * e + 20) / (e + 1))


def test_scale_and_plain_dot_product() -> None:
    query, key, value = torch.randn(3, 8), torch.randn(5, 8), torch.randn(5, 2)
    _, scaled = attention(query, key, value)
    assert torch.allclose(scaled, (query @ key.T / math.sqrt(8)).softmax(-1))
    _, plain = attention(query, key, value, scale=1.0)
    assert torch.allclose(plain, dot_scores(query, key).softmax(-1))


def test_mask_hides_and_a_fully_masked_row_is_zero() -> None:
    mask = torch.tensor([[True, True, False], [False, False, False]])
    value = torch.randn(3, 4)
    answer, weights = attention(torch.randn(2, 4), torch.randn(3, 4), value, mask)
    assert weights[0, 2] == 0
    assert weights[0].sum().item() == pytest.approx(1.0)
    assert weights[1].tolist() == [0, 0, 0]
    assert answer[1].tolist() == [0, 0, 0, 0]


def test_a_fully_masked_row_has_a_finite_gradient() -> None:
    scores = torch.randn(1, 3, requires_grad=True)
    masked_softmax(scores, torch.zeros(1, 3, dtype=torch.bool)).sum().backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_masking_survives_every_precision(dtype: torch.dtype) -> None:
    weights = masked_softmax(torch.tensor([[3.0, 60000.0]], dtype=dtype), torch.tensor([[True, False]]))
    assert weights.tolist() == [[1.0, 0.0]]


def test_nobody_sees_the_future() -> None:
    query, key, value = torch.randn(3, 6, 4).unbind(0)
    before, _ = attention(query, key, value, causal_mask(6))
    key[4:], value[4:] = torch.randn(2, 4), torch.randn(2, 4)
    after, _ = attention(query, key, value, causal_mask(6))
    assert torch.equal(before[:4], after[:4])
    assert not torch.allclose(before[4:], after[4:])


def test_pooling_is_between_the_mean_and_the_nearest_neighbour() -> None:
    x, y = torch.linspace(0, 5, 20), torch.randn(20)
    query = torch.tensor([2.51])
    mean, _ = attention_pooling(query, x, y, width=0.0)
    assert mean.item() == pytest.approx(y.mean().item(), abs=1e-6)
    nearest, _ = attention_pooling(query, x, y, width=1000.0)
    assert nearest.item() == pytest.approx(y[(x - query).abs().argmin()].item())


def test_learned_kernel_width_fits_a_curve_better() -> None:
    """Nadaraya–Watson regression of y = 2 sin x + x^0.8, each point predicted from all the others."""
    generator = torch.Generator().manual_seed(0)
    x = torch.sort(torch.rand(50, generator=generator) * 5).values
    truth = 2 * x.sin() + x**0.8
    y = truth + 0.5 * torch.randn(50, generator=generator)
    others = ~torch.eye(50, dtype=torch.bool)
    grid = torch.linspace(0.2, 4.8, 100)
    curve = 2 * grid.sin() + grid**0.8

    pooling = KernelPooling(width=1.0)
    untrained = (pooling(grid, x, y)[0] - curve).square().mean().item()
    optimiser = torch.optim.Adam(pooling.parameters(), lr=0.1)
    losses = []
    for _ in range(100):
        loss = (pooling(x, x, y, others)[0] - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    trained = (pooling(grid, x, y)[0] - curve).square().mean().item()
    assert losses[-1] < 0.6 * losses[0]
    assert trained < 0.5 * untrained
    assert pooling.width.item() > 1.5  # a narrower kernel than the one it began with


def test_additive_attention_is_bahdanau() -> None:
    layer = AdditiveAttention(query_width=3, key_width=5, hidden_width=7)
    query, key, value = torch.randn(2, 4, 3), torch.randn(2, 6, 5), torch.randn(2, 6, 8)
    mask = torch.rand(2, 4, 6) > 0.3
    answer, weights = layer(query, key, value, mask)
    for b in range(2):
        for q in range(4):
            scores = torch.stack(
                [
                    layer.score.weight[0] @ torch.tanh(layer.query.weight @ query[b, q] + layer.key.weight @ key[b, t])
                    for t in range(6)
                ]
            )
            expected = scores.masked_fill(~mask[b, q], -torch.inf).softmax(0)
            if mask[b, q].any():
                assert torch.allclose(weights[b, q], expected, atol=1e-6)
                assert torch.allclose(answer[b, q], expected @ value[b], atol=1e-6)


def test_self_attention_equals_torch_with_one_head() -> None:
    layer, reference = SelfAttention(8, 8), nn.MultiheadAttention(8, 1, batch_first=True)
    projections = (layer.query, layer.key, layer.value)
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        reference.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        reference.out_proj.weight.copy_(torch.eye(8))
        reference.out_proj.bias.zero_()
    x = torch.randn(2, 5, 8)
    answer, weights = layer(x)
    expected, expected_weights = reference(x, x, x)
    assert torch.allclose(answer, expected, atol=1e-6)
    assert torch.allclose(weights, expected_weights, atol=1e-6)


def test_every_parameter_gets_a_gradient() -> None:
    x, y = torch.randn(2, 5), torch.randn(2, 5)
    h = torch.randn(2, 5, 8)
    for layer, inputs in (
        (KernelPooling(), (x, x, y)),
        (AdditiveAttention(8, 8, 4), (h, h, h)),
        (SelfAttention(8, 4), (h,)),
    ):
        (layer(*inputs)[0] * torch.randn(1)).square().sum().backward()
        for name, parameter in layer.named_parameters():
            assert parameter.grad is not None, name
            # a key's bias moves all scores of a query alike, which a softmax does not see
            if not (isinstance(layer, SelfAttention) and name == "key.bias"):
                assert parameter.grad.abs().sum() > 0, name
