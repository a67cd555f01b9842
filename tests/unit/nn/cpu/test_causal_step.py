"""A layer in straight lines: the same as the readable one."""

import pytest
import torch
from torch import nn

from qkv.nn.block import FeedForward, PostNormBlock, PreNormBlock
from qkv.nn.cpu.step import make_causal_step
from qkv.nn.multihead import MultiHeadSelfAttention, Packed
from tests.support.folders import randomise


@pytest.mark.parametrize("kind", [PostNormBlock, PreNormBlock])
@pytest.mark.parametrize("activation", ["gelu_tanh", "relu"])
def test_the_same_as_a_block(kind: type[PostNormBlock] | type[PreNormBlock], activation: str) -> None:
    attention = MultiHeadSelfAttention(16, 4, scale=0.3)
    block = kind(attention, FeedForward(16, 24, activation), 16, dropout=0.5, norm_epsilon=1e-3).double().eval()
    randomise(block)
    x = torch.randn(5, 16, dtype=torch.float64)
    attend = Packed(torch.tensor([0, 5], dtype=torch.int32), 5, (5,), causal=True)
    expected, _ = block(x, attend)
    assert torch.allclose(make_causal_step(block)(x, attend), expected, atol=1e-12)


def test_another_module_is_refused() -> None:
    with pytest.raises(AssertionError, match="Linear is not a layer of a language model"):
        make_causal_step(nn.Linear(2, 2))
