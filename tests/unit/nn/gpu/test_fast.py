"""The kernels of nn/gpu/layers.py against their readable twins.

With a GPU they run on it; without one Triton's interpreter runs the same kernels on the CPU, number by number.
"""

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="Triton is a part of torch for GPUs, and of the extra dev elsewhere")

from qkv.data.batch import Batch
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.bert.objective import MaskedAndNextSentence
from qkv.nn.block import ACTIVATION_FUNCTIONS, FeedForward, PostNormBlock, is_plain
from qkv.nn.gpu import layers
from qkv.nn.gpu.kernels import Dropout, activation_backward, activation_forward, add_norm_forward
from qkv.nn.multihead import MultiHeadSelfAttention, Packed, attend_packed

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")

SMALL_NUMBERS = pytest.mark.skipif(not ON_GPU, reason="Triton's interpreter takes no products of 16-bit numbers")


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "has_kernels", lambda x: True)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator).to(DEVICE)


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def same(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    found, expected = found.detach(), expected.detach()
    torch.testing.assert_close(found, expected, atol=tolerance * max(1.0, float(expected.abs().max())), rtol=1e-4)


def gradients(out: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(out, inputs, drawn(*out.shape, seed=9).to(out.dtype))


@pytest.mark.parametrize("width", [20, 64, 300])
@pytest.mark.parametrize("rows", [1, 7, 33])
def test_add_norm_is_a_bias_a_residual_and_a_norm(rows: int, width: int) -> None:
    norm = nn.LayerNorm(width, eps=1e-12, device=DEVICE)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    ours, plain = (leaves(drawn(rows, width), drawn(width), drawn(rows, width, seed=1)) for _ in range(2))
    out, expected = layers.add_norm(ours[0], ours[1], ours[2], norm), norm(plain[2] + plain[0] + plain[1])
    same(out, expected)
    parameters: list[Tensor] = [norm.weight, norm.bias]
    for found, wanted in zip(gradients(out, ours + parameters), gradients(expected, plain + parameters), strict=True):
        same(found, wanted)


def test_add_norm_without_bias_and_residual_is_the_norm() -> None:
    norm, (x,) = nn.LayerNorm(48, device=DEVICE), leaves(drawn(5, 48))
    same(layers.add_norm(x, None, None, norm), norm(x))
    same(gradients(layers.add_norm(x, None, None, norm), [x])[0], gradients(norm(x), [x])[0])


def test_dropout_drops_its_share_and_the_same_on_the_way_back() -> None:
    width, rows = 64, 128
    norm = nn.LayerNorm(width, device=DEVICE)
    torch.manual_seed(3)
    _, total, _, _ = add_norm_forward(
        torch.ones(rows, width, device=DEVICE), None, None, norm.weight, norm.bias, norm.eps, Dropout(0.25)
    )
    kept = total != 0
    assert 0.22 < 1 - kept.float().mean().item() < 0.28
    assert total.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    shares = kept.float()
    assert shares.mean(0).std() < 0.06  # of independent draws: 0.038
    assert shares.mean(1).std() < 0.08

    (answer,), x = leaves(drawn(rows, width)), drawn(rows, width, seed=2)
    torch.manual_seed(3)  # the same seed is drawn
    out = layers.add_norm(answer, None, x, norm, 0.25)
    (plain,) = leaves(answer)
    expected = norm(x + torch.where(kept, plain / 0.75, 0.0))
    same(out, expected)
    same(gradients(out, [answer])[0], gradients(expected, [plain])[0])


def test_another_seed_drops_others() -> None:
    norm, x = nn.LayerNorm(64, device=DEVICE), drawn(16, 64)
    first, second = (layers.add_norm(x, None, None, norm, 0.5) for _ in range(2))
    assert not torch.equal(first, second)


def test_what_lies_apart_is_taken_together(kernels: None) -> None:
    norm, wide = nn.LayerNorm(16, device=DEVICE), drawn(6, 40)
    x = wide[:, :16]
    same(layers.add_norm(x, None, x, norm), norm(x + x))


@pytest.mark.parametrize("bend", ["gelu", "gelu_tanh"])
def test_bias_and_bend(bend: str) -> None:
    x, bias = plain = leaves(drawn(19, 150) * 4, drawn(150))
    expected = ACTIVATION_FUNCTIONS[bend](x + bias)
    assert (activation_forward(x.detach(), bias, bend) - expected).abs().max() < 2e-6
    towards = drawn(19, 150, seed=1)
    found = activation_backward(towards, x.detach(), bias.detach(), bend)
    for one, wanted in zip(found, torch.autograd.grad(expected, plain, towards), strict=True):
        same(one, wanted)


def test_a_projection_adds_its_gradient_to_the_residuals() -> None:
    layer = nn.Linear(24, 72, device=DEVICE)
    (x,), (plain,) = leaves(drawn(11, 24)), leaves(drawn(11, 24))
    query, key, value, passed = layers.project(x, layer, 2, 12)
    out = torch.cat([query.flatten(1), key.flatten(1), value.flatten(1)], 1)
    expected = layer(plain)
    same(out, expected)
    inputs = [layer.weight, layer.bias]
    found = gradients(torch.cat([out, 2 * passed], 1), [x, *inputs])
    for one, wanted in zip(found, gradients(torch.cat([expected, 2 * plain], 1), [plain, *inputs]), strict=True):
        same(one, wanted)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(5,), (3, 16, 1, 9), (40, 2)])
def test_short_rows_attend_as_long_ones_do(lengths: tuple[int, ...], causal: bool) -> None:
    heads, width, tokens = 3, 16, sum(lengths)
    layer = nn.Linear(32, 3 * heads * width, device=DEVICE)
    (x,), (plain,) = leaves(drawn(tokens, 32)), leaves(drawn(tokens, 32))
    rows = Packed(*Batch.of([[1] * length for length in lengths]).to(DEVICE).packing, causal=causal)
    out, passed = layers.attend_short(x, layer, rows, heads)
    sides = layer(plain).unflatten(-1, (3, heads, width)).unbind(-3)
    expected = attend_packed(*sides, offsets=rows.offsets, longest=rows.longest, lengths=lengths, causal=causal)[
        0
    ].flatten(-2)
    tolerance = 1e-3 if ON_GPU else 1e-5  # the matrix units of a GPU round to 10 bits
    same(out, expected, tolerance)
    inputs = [layer.weight, layer.bias]
    found = gradients(torch.cat([out, passed], 1), [x, *inputs])
    for one, wanted in zip(found, gradients(torch.cat([expected, plain], 1), [plain, *inputs]), strict=True):
        same(one, wanted, 10 * tolerance)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(3, 7, 130, 140), (130, 129), (5, 140, 6)])  # both, long ones, out of order
def test_short_and_long_rows_in_one_batch(lengths: tuple[int, ...], causal: bool) -> None:
    heads, width, tokens = 1, 16, sum(lengths)
    layer = nn.Linear(16, 3 * heads * width, device=DEVICE)
    (x,), (plain,) = leaves(drawn(tokens, 16)), leaves(drawn(tokens, 16))
    rows = Packed(*Batch.of([[1] * length for length in lengths]).to(DEVICE).packing, causal=causal)
    answer, weights, passed = layers.project_and_attend(x, layer, rows, heads, width, None, 0.0)
    assert weights is None
    sides = layer(plain).unflatten(-1, (3, heads, width)).unbind(-3)
    expected = attend_packed(*sides, offsets=rows.offsets, longest=rows.longest, lengths=lengths, causal=causal)[
        0
    ].flatten(-2)
    tolerance = 1e-3 if ON_GPU else 1e-5
    same(answer, expected, tolerance)
    inputs = [layer.weight, layer.bias]
    found = gradients(torch.cat([answer, passed], 1), [x, *inputs])
    for one, wanted in zip(found, gradients(torch.cat([expected, plain], 1), [plain, *inputs]), strict=True):
        same(one, wanted, 10 * tolerance)


@SMALL_NUMBERS
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(200,) * 8, (5, 100, 128), (5, 100, 150, 300), (150, 300, 400), (300,)])
def test_half_precision_on_every_kernel(lengths: tuple[int, ...], causal: bool) -> None:
    """cuDNN's for a rectangle, ours for short rows, both kinds together, flash attention for long ones."""
    heads, width, tokens = 2, 64, sum(lengths)
    layer = nn.Linear(32, 3 * heads * width, device=DEVICE)
    (x,), (plain,) = leaves(drawn(tokens, 32).bfloat16()), leaves(drawn(tokens, 32).bfloat16().float())
    rows = Packed(*Batch.of([[1] * length for length in lengths]).to(DEVICE).packing, causal=causal)
    answer, _, passed = layers.project_and_attend(x, layer, rows, heads, width, None, 0.0)
    sides = layer(plain).unflatten(-1, (3, heads, width)).unbind(-3)
    expected = attend_packed(*sides, offsets=rows.offsets, longest=rows.longest, lengths=lengths, causal=causal)[
        0
    ].flatten(-2)
    inputs: list[Tensor] = [layer.weight, layer.bias]
    found = [answer, *gradients(torch.cat([answer, passed], 1), [x, *inputs])]
    wanted = [expected, *gradients(torch.cat([expected, plain], 1), [plain, *inputs])]
    for one, other in zip(found, wanted, strict=True):
        assert (one.float() - other).norm() < 0.02 * other.norm()


def test_dropped_attention_is_unbiased_and_its_gradient_is_that_of_the_same_draw() -> None:
    heads, width = 1, 16
    layer = nn.Linear(16, 3 * heads * width, device=DEVICE)
    rows = Packed(*Batch.of([[1] * 12]).to(DEVICE).packing)
    x = drawn(12, 16)

    def answer(seed: int, x: Tensor, dropout: float = 0.3) -> Tensor:
        torch.manual_seed(seed)
        return layers.attend_short(x, layer, rows, heads, dropout=dropout)[0]

    with torch.no_grad():
        mean = torch.stack([answer(seed, x) for seed in range(60)]).mean(0)
        exact = answer(0, x, 0.0)
    assert (mean - exact).abs().mean() < 0.35 * exact.abs().mean()
    (moved,) = leaves(x)
    direction, step = drawn(12, 16, seed=5), 1e-2
    slope = (answer(7, moved) * drawn(12, 16, seed=6)).sum()
    (gradient,) = torch.autograd.grad(slope, [moved])
    with torch.no_grad():
        ends = [(answer(7, x + sign * step * direction) * drawn(12, 16, seed=6)).sum() for sign in (1, -1)]
    assert float((gradient * direction).sum()) == pytest.approx(
        float((ends[0] - ends[1]) / (2 * step)), rel=0.15 if ON_GPU else 0.02
    )


@pytest.mark.parametrize(
    ("head_width", "recomputed", "halved"),
    [
        (16, False, False),
        (16, True, False),
        (12, False, False),  # not for the short kernel
        (12, False, True),
        pytest.param(16, False, True, marks=SMALL_NUMBERS),
        pytest.param(32, False, True, marks=SMALL_NUMBERS),
    ],
)
def test_a_model_learns_the_same(
    head_width: int, recomputed: bool, halved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    config = BertConfig(
        vocabulary_size=101, layers=2, width=2 * head_width, heads=2, inner_width=40, max_length=16, dropout=0.0,
        attention_dropout=0.0,
    )  # fmt: skip
    model = BertWithHeads(config, ["masked", "next_sentence"]).to(DEVICE)
    labels = {
        "masked_at": torch.tensor([1, 6, 9, 10]),
        "masked": torch.tensor([9, 77, 3, 100]),
        "next_sentence": torch.tensor([0, 1, 1]),
    }
    rows, segments = [[1, 7, 9, 3, 2], [1, 8, 2], [1, 4, 5, 6, 2]], [[0] * 5, [0, 0, 1], [0, 0, 0, 1, 1]]
    batch = Batch.of(rows, segments=segments, labels=labels).to(DEVICE)

    def step() -> dict[str, Tensor]:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=halved):
            terms = MaskedAndNextSentence().terms(model, batch)
        loss = terms["masked"].loss / 4 + terms["next_sentence"].loss / 3
        found = dict(zip(names, torch.autograd.grad(loss, list(model.parameters())), strict=True))
        return {**found, "loss": loss.detach(), "right": terms["masked"].correct.float()}

    names = [name for name, _ in model.named_parameters()]
    monkeypatch.setattr(layers, "has_kernels", lambda x: False)
    expected = step()
    monkeypatch.setattr(layers, "has_kernels", lambda x: True)
    if recomputed:
        from qkv.train.loop import recompute

        for block in model.encoder.blocks:
            recompute(block)
    for name, found in step().items():
        if halved and name != "right":
            assert (found - expected[name]).norm() <= 0.05 * expected[name].norm() + 1e-4, name
        elif not halved:
            same(found, expected[name], 1e-3 if ON_GPU else 1e-5)


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_a_block_with_another_bend(monkeypatch: pytest.MonkeyPatch, activation: str) -> None:
    """The Transformer's and Marian's: the kernels around the feed-forward layer serve them too."""
    torch.manual_seed(0)
    attention, feed_forward = MultiHeadSelfAttention(32, 2), FeedForward(32, 48, activation)
    block = PostNormBlock(attention, feed_forward, 32).to(DEVICE)
    lengths, x = (3, 5), torch.randn(8, 32, device=DEVICE, requires_grad=True)
    attend = Packed(torch.tensor([0, 3, 8], dtype=torch.int32, device=DEVICE), 5, lengths)

    def step() -> tuple[Tensor, ...]:
        out, _ = block(x, attend)
        return out, *torch.autograd.grad(out.square().sum(), [x, *block.parameters()])

    monkeypatch.setattr(layers, "has_kernels", lambda x: False)
    expected = step()
    monkeypatch.setattr(layers, "has_kernels", lambda x: True)
    for found, wanted in zip(step(), expected, strict=True):
        same(found, wanted, 1e-3 if ON_GPU else 1e-5)


def test_what_is_not_plain_stays_with_the_readable_way() -> None:
    config = BertConfig(vocabulary_size=11, layers=1, width=8, heads=1, inner_width=8, max_length=8)
    block = BertWithHeads(config).encoder.blocks[0]
    assert isinstance(block, PostNormBlock)
    assert is_plain(block.attention, block.feed_forward)
    block.feed_forward._compiled_call_impl = block.feed_forward._call_impl  # what `compile()` leaves behind
    assert not is_plain(block.attention, block.feed_forward)
    block.feed_forward._compiled_call_impl = None
    assert is_plain(block.attention, block.feed_forward)
    assert is_plain(block.attention, block.feed_forward, nn.Linear(8, 8))

    class Adapted(nn.Linear):
        """As a low-rank adapter would be."""

    assert not is_plain(block.attention, block.feed_forward, nn.Linear(8, 8), Adapted(8, 8))
    block.attention.out = Adapted(8, 8)
    assert not is_plain(block.attention, block.feed_forward)


def test_where_nothing_can_be_built_the_readable_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(*arguments: object) -> None:
        raise RuntimeError("Failed to find C compiler.")

    monkeypatch.setattr("qkv.nn.gpu.kernels.launch", no_compiler)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    layers._compiles_for.cache_clear()
    with pytest.warns(UserWarning, match="cannot be built here .*C compiler"):
        assert not layers._compiles_for(DEVICE)
    layers._compiles_for.cache_clear()
