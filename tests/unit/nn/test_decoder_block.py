"""The decoder's layer against its equations written out, and one token at a time against all at once."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.data.batch import Batch
from qkv.nn.attention import causal_mask, masked_softmax
from qkv.nn.block import FeedForward, PostNormDecoderBlock, PreNormDecoderBlock, project_source, query_memory
from qkv.nn.cpu.cache import SourceMemory, TokenCache
from qkv.nn.gpu import layers
from qkv.nn.multihead import MultiHeadCrossAttention, MultiHeadSelfAttention, attend_packed, explicit
from tests.support.folders import randomise

D, H, K = 12, 3, 4
Block = PostNormDecoderBlock | PreNormDecoderBlock
BLOCKS = (PostNormDecoderBlock, PreNormDecoderBlock)
SOURCE = Batch.of([[0] * 4, [0] * 2, [0] * 5])
TARGET = Batch.of([[0] * 3, [0] * 3, [0] * 3])


def make(kind: type[Block]) -> Block:
    block = kind(MultiHeadSelfAttention(D, H), MultiHeadCrossAttention(D, H), FeedForward(D, 20), D)
    randomise(block)
    return block.double().eval()


def all_at_once(block: Block, x: Tensor, source: Tensor) -> Tensor:
    rows = partial(attend_packed, **TARGET.packing._asdict())
    sides = {f"key_{name}": value for name, value in SOURCE.packing._asdict().items()}
    answer, _ = block(x, project_source(block, source), partial(rows, causal=True), partial(rows, **sides))
    return answer


def by_hand(block: Block, x: Tensor, source: Tensor) -> Tensor:
    """One row, head by head: x (T, D), source (S, D)."""

    def heads(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        answers = []
        for head in range(H):
            part = slice(head * K, (head + 1) * K)
            scores = query[:, part] @ key[:, part].T / K**0.5
            answers.append(masked_softmax(scores, mask) @ value[:, part])
        return torch.cat(answers, dim=-1)

    def written(x: Tensor) -> Tensor:
        query, key, value = functional.linear(x, block.attention.qkv.weight, block.attention.qkv.bias).chunk(3, dim=-1)
        return block.attention.out(heads(query, key, value, causal_mask(len(x))))

    def read(x: Tensor) -> Tensor:
        layer = block.cross_attention
        key, value = layer.key_value(source).chunk(2, dim=-1)
        return layer.out(heads(layer.query(x), key, value, None))

    def inner(x: Tensor) -> Tensor:
        return block.feed_forward.down(functional.relu(block.feed_forward.up(x)))

    norms = (block.attention_norm, block.cross_attention_norm, block.feed_forward_norm)
    for layer, norm in zip((written, read, inner), norms, strict=True):
        x = norm(x + layer(x)) if isinstance(block, PostNormDecoderBlock) else x + layer(norm(x))
    return x


@pytest.mark.parametrize("kind", BLOCKS)
def test_the_layer_is_its_equations(kind: type[Block]) -> None:
    block = make(kind)
    x = torch.randn(TARGET.n_tokens, D, dtype=torch.float64)
    source = torch.randn(SOURCE.n_tokens, D, dtype=torch.float64)
    found = TARGET.rows(all_at_once(block, x, source))
    for row, one, other in zip(found, TARGET.rows(x), SOURCE.rows(source), strict=True):
        assert torch.allclose(row, by_hand(block, one, other), atol=1e-12)


@pytest.mark.parametrize("kind", BLOCKS)
def test_one_token_at_a_time_is_all_at_once(kind: type[Block]) -> None:
    block = make(kind)
    x = torch.randn(TARGET.n_tokens, D, dtype=torch.float64)
    source = torch.randn(SOURCE.n_tokens, D, dtype=torch.float64)
    expected = TARGET.pad(all_at_once(block, x, source))  # (R, T, D)

    key, value = project_source(block, SOURCE.pad(source))  # (R, S, H, K)
    memory = SourceMemory([(key.permute(0, 2, 3, 1), value.transpose(1, 2))], SOURCE.padded().mask, range(3))
    cache = TokenCache(layers=1, rows=3, longest=3, like=key)
    with torch.no_grad():
        for number, new in enumerate(TARGET.pad(x).unbind(1)):
            found, weights = block(new, memory.layers[0], cache.next_token()[0], memory.attend)
            assert torch.allclose(found, expected[:, number], atol=1e-12)
            assert weights.shape == (3, H, 5)
            assert torch.allclose(weights.sum(-1), torch.ones(3, H, dtype=torch.float64))
            assert (weights[1, :, 2:] == 0).all()
            cache.advance()


def test_asking_in_halves_is_cross_attention() -> None:
    layer = MultiHeadCrossAttention(D, H)
    block = PostNormDecoderBlock(MultiHeadSelfAttention(D, H), layer, FeedForward(D, 20), D)
    x, source = torch.randn(TARGET.n_tokens, D), torch.randn(TARGET.n_tokens, D)
    attend = partial(attend_packed, **TARGET.packing._asdict())
    assert torch.equal(query_memory(layer, x, project_source(block, source), attend)[0], layer(x, source, attend)[0])


@pytest.mark.parametrize("kind", BLOCKS)
def test_every_parameter_gets_a_gradient(kind: type[Block]) -> None:
    block = make(kind)
    x = torch.randn(TARGET.n_tokens, D, dtype=torch.float64)
    source = torch.randn(SOURCE.n_tokens, D, dtype=torch.float64, requires_grad=True)
    answer = all_at_once(block, x, source)
    (answer * torch.randn_like(answer)).sum().backward()
    assert source.grad is not None
    for name, parameter in block.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_kernels_compute_the_same(monkeypatch: pytest.MonkeyPatch, activation: str) -> None:
    """Without a GPU Triton's interpreter runs them."""
    pytest.importorskip("triton", reason="Triton is a part of torch for GPUs, and of the extra dev elsewhere")
    feed_forward = FeedForward(D, 20, activation)
    block = PostNormDecoderBlock(MultiHeadSelfAttention(D, H), MultiHeadCrossAttention(D, H), feed_forward, D)
    randomise(block)
    x, source = torch.randn(TARGET.n_tokens, D), torch.randn(SOURCE.n_tokens, D)
    towards = torch.randn(TARGET.n_tokens, D)
    found = []
    for fits in (False, True):
        monkeypatch.setattr(layers, "has_kernels", lambda x, fits=fits: fits)
        inputs = [side.clone().requires_grad_() for side in (x, source)]
        answer = all_at_once(block, inputs[0], inputs[1])
        found.append([answer, *torch.autograd.grad(answer, [*inputs, *block.parameters()], towards)])
    for plain, on_kernels in zip(*found, strict=True):
        assert torch.allclose(plain, on_kernels, atol=1e-4, rtol=1e-4)


def test_padded_rows_and_adapters_stay_with_the_readable_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels are for packed rows and for plain layers."""
    taken = []

    class Adapted(nn.Linear):
        """As a low-rank adapter would be."""

    def noted(block: PostNormDecoderBlock, x: Tensor, *others: object) -> tuple[Tensor, None]:
        taken.append(x.shape)
        return x, None

    block = make(PostNormDecoderBlock)
    monkeypatch.setattr(PostNormDecoderBlock, "_fused", noted)
    x, source = torch.randn(2, 3, D, dtype=torch.float64), torch.randn(2, 4, D, dtype=torch.float64)
    found = []
    for fits in (False, True):
        monkeypatch.setattr(layers, "has_kernels", lambda x, fits=fits: fits)
        found.append(block(x, project_source(block, source), partial(explicit, mask=causal_mask(3)), explicit)[0])
    assert torch.equal(*found)
    assert taken == []

    packed_rows = torch.randn(TARGET.n_tokens, D, dtype=torch.float64), torch.randn(SOURCE.n_tokens, D).double()
    all_at_once(block, *packed_rows)
    assert taken == [(TARGET.n_tokens, D)]
    for name in ("query", "out"):
        plain = getattr(block.cross_attention, name)
        setattr(block.cross_attention, name, Adapted(D, D, dtype=torch.float64))
        all_at_once(block, *packed_rows)
        setattr(block.cross_attention, name, plain)
    assert len(taken) == 1
