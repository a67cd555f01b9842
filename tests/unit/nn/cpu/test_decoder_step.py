"""The short way through a decoder's layer is the layer itself."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qkv.nn.block import FeedForward, PostNormDecoderBlock, PreNormDecoderBlock, project_source
from qkv.nn.cpu.cache import SourceMemory, TokenCache
from qkv.nn.cpu.step import bind_weights, make_decoder_step
from qkv.nn.multihead import MultiHeadCrossAttention, MultiHeadSelfAttention
from tests.support.folders import randomise


def make(kind: Any) -> Any:
    block = kind(
        MultiHeadSelfAttention(16, 4, dropout=0.5),
        MultiHeadCrossAttention(16, 4, dropout=0.5),
        FeedForward(16, 24, "gelu"),
        16,
        dropout=0.5,
    )
    randomise(block)
    return block.double().eval()


@pytest.mark.parametrize("kind", [PostNormDecoderBlock, PreNormDecoderBlock])
@pytest.mark.parametrize("hypotheses", [1, 2])
@torch.no_grad()
def test_the_same_as_the_block(kind: Any, hypotheses: int) -> None:
    block = make(kind)
    step = make_decoder_step(block)
    source = torch.randn(2, 5, 16, dtype=torch.float64)
    key, value = step.remembered(source).unbind(-3)
    assert torch.equal(key, project_source(block, source)[0])
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    rows = [number for number in range(2) for _ in range(hypotheses)]
    memory = SourceMemory([(key.permute(0, 2, 3, 1), value.transpose(1, 2))], mask, rows)
    pasts = [TokenCache(1, len(rows), 8, like=key) for _ in range(2)]
    for _ in range(4):
        x = torch.randn(len(rows), 16, dtype=torch.float64)
        found: list[tuple[Tensor, Tensor]] = []
        for way, past in zip((block, step), pasts, strict=True):
            found.append(way(x, memory.layers[0], past.next_token()[0], memory.attend))
            past.advance()
        for one, other in zip(*found, strict=True):
            assert torch.allclose(one, other, atol=1e-12)


def test_no_layer_of_a_decoder() -> None:
    with pytest.raises(AssertionError, match="Linear is not a decoder layer"):
        make_decoder_step(nn.Linear(2, 2))


def test_modules_without_the_way_there() -> None:
    x = torch.randn(3, 4)
    for module in (nn.Linear(4, 2), nn.LayerNorm(4, eps=0.1), nn.Identity(), nn.Linear(4, 2, bias=False)):
        assert torch.equal(bind_weights(module)(x), module(x))
