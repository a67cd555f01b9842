"""Layers as one step of autograd, against block.py and multihead.py; Triton's interpreter runs their kernels."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="Triton is a part of torch for GPUs, and of the extra dev elsewhere")

from qkv.data.batch import Batch
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.nn.block import ACTIVATION_FUNCTIONS, KERNELS
from qkv.nn.gpu import layers as fast
from qkv.nn.gpu import sublayer
from qkv.nn.multihead import Across, Packed
from tests.unit.nn.gpu.test_fast import DEVICE, ON_GPU, drawn, gradients, leaves, same

TOLERANCE = 1e-3 if ON_GPU else 1e-5  # the matrix units of a GPU round to 10 bits


def norm_of(width: int) -> nn.LayerNorm:
    norm = nn.LayerNorm(width, device=DEVICE)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def rows_of(*lengths: int, causal: bool = False) -> Packed:
    return Packed(*Batch.of([[1] * length for length in lengths]).to(DEVICE).packing, part=True, causal=causal)


def agree(ours: Tensor, plain: Tensor, of_ours: list[Tensor], of_plain: list[Tensor], shared: Sequence[Tensor]) -> None:
    same(ours, plain, TOLERANCE)
    found, expected = gradients(ours, [*of_ours, *shared]), gradients(plain, [*of_plain, *shared])
    for one, other in zip(found, expected, strict=True):
        same(one, other, 10 * TOLERANCE)


def test_a_product_a_residual_and_a_norm() -> None:
    layer, norm = nn.Linear(12, 20, device=DEVICE), norm_of(20)
    ours, plain = (leaves(drawn(9, 12), drawn(9, 20)) for _ in range(2))
    expected = norm(plain[1] + layer(plain[0]))
    shared = [*layer.parameters(), *norm.parameters()]
    agree(sublayer.out_add_norm(ours[0], layer, ours[1], norm), expected, ours, plain, shared)


@pytest.mark.parametrize("bend", KERNELS.values())
def test_feed_forward(bend: str) -> None:
    up, down, norm = nn.Linear(20, 50, device=DEVICE), nn.Linear(50, 20, device=DEVICE), norm_of(20)
    ours, plain = (leaves(drawn(9, 20)) for _ in range(2))
    expected = norm(plain[0] + down(ACTIVATION_FUNCTIONS[bend](up(plain[0]))))
    shared = [*up.parameters(), *down.parameters(), *norm.parameters()]
    agree(sublayer.feed_forward_add_norm(ours[0], up, down, norm, bend), expected, ours, plain, shared)


def test_what_is_not_a_number_is_not_bent_away() -> None:
    up, down, norm = nn.Linear(4, 4, device=DEVICE), nn.Linear(4, 4, device=DEVICE), norm_of(4)
    x = torch.tensor([[1.0, 2, 3, 4], [1, 2, float("nan"), 4]], device=DEVICE)
    assert sublayer.feed_forward_add_norm(x, up, down, norm, "relu").isnan().all(1).tolist() == [False, True]


@pytest.mark.parametrize("bend", KERNELS.values())
def test_dropout_goes_back_as_it_came(bend: str) -> None:
    """The slope of the same draw, against two points on either side."""
    up, down, norm = nn.Linear(8, 16, device=DEVICE), nn.Linear(16, 8, device=DEVICE), norm_of(8)
    (x,), direction, towards = leaves(drawn(6, 8)), drawn(6, 8, seed=3), drawn(6, 8, seed=4)

    def at(x: Tensor) -> Tensor:
        torch.manual_seed(5)
        return (sublayer.feed_forward_add_norm(x, up, down, norm, bend, dropout=0.4) * towards).sum()

    (gradient,) = torch.autograd.grad(at(x), [x])
    with torch.no_grad():
        slope = (at(x + 1e-3 * direction) - at(x - 1e-3 * direction)) / 2e-3
    assert float((gradient * direction).sum()) == pytest.approx(float(slope), rel=0.05, abs=0.05)


def memory_of(source: Tensor, layers: list[nn.Linear], heads: int) -> list[tuple[Tensor, ...]]:
    return [layer(source).unflatten(-1, (2, heads, -1)).unbind(-3) for layer in layers]


def test_keys_and_values_of_all_layers_at_once() -> None:
    layers = [nn.Linear(12, 2 * 3 * 4, device=DEVICE) for _ in range(3)]
    ours, plain = (leaves(drawn(7, 12)) for _ in range(2))
    found = sublayer.project_keys_and_values(ours[0], layers, heads=3)
    assert [key.shape for key, _ in found] == [(7, 3, 4)] * 3
    sides = (
        torch.stack([torch.cat(pair, -1) for pair in memory]) for memory in (found, memory_of(plain[0], layers, 3))
    )
    shared = [one for layer in layers for one in layer.parameters()]
    agree(next(sides), next(sides), ours, plain, shared)


@pytest.mark.parametrize(
    ("lengths", "others"), [((5,), (3,)), ((3, 16, 1, 9), (1, 4, 30, 2)), ((40, 2), (3, 20)), ((1,), (1,))]
)
@pytest.mark.parametrize("layers", [1, 2])
def test_short_rows_ask_a_source(lengths: tuple[int, ...], others: tuple[int, ...], layers: int) -> None:
    heads, width = 2, 16
    query = nn.Linear(20, heads * width, device=DEVICE)
    sources = [nn.Linear(12, 2 * heads * width, device=DEVICE) for _ in range(layers)]
    attend = Across(rows_of(*lengths), rows_of(*others))
    ours, plain = (leaves(drawn(sum(lengths), 20), drawn(sum(others), 12)) for _ in range(2))
    x, found = ours[0], []
    for memory in sublayer.project_keys_and_values(ours[1], sources, heads):
        answer, weights, x = sublayer.query_source(x, query, memory, attend, heads, None, 0.0)
        assert weights is None
        found.append(answer)
    expected = [
        attend(query(plain[0]).unflatten(-1, (heads, width)), *memory)[0].flatten(-2)
        for memory in memory_of(plain[1], sources, heads)
    ]
    shared = [one for layer in (query, *sources) for one in layer.parameters()]
    agree(torch.cat([*found, x], 1), torch.cat([*expected, plain[0]], 1), ours, plain, shared)


@pytest.mark.parametrize("width", [12, 16])
def test_long_rows_and_other_widths_ask_in_the_usual_way(width: int) -> None:
    lengths, others = (2, 3), (4, 140 if width == 16 else 5)
    query, source = nn.Linear(8, width, device=DEVICE), nn.Linear(8, 2 * width, device=DEVICE)
    attend = Across(rows_of(*lengths), rows_of(*others))
    ours, plain = (leaves(drawn(5, 8), drawn(sum(others), 8)) for _ in range(2))
    (memory,) = sublayer.project_keys_and_values(ours[1], [source], 1)
    answer, _, x = sublayer.query_source(ours[0], query, memory, attend, 1, 0.3, 0.0)
    (other,) = memory_of(plain[1], [source], 1)
    expected, _ = attend(query(plain[0]).unflatten(-1, (1, width)), other[0], other[1], scale=0.3)
    shared = [*query.parameters(), *source.parameters()]
    agree(torch.cat([answer, x], 1), torch.cat([expected.flatten(-2), plain[0]], 1), ours, plain, shared)


def test_a_dropped_question_is_unbiased_and_goes_back_as_it_came() -> None:
    query = nn.Linear(16, 16, device=DEVICE)
    attend = Across(rows_of(7), rows_of(12))
    (x,), direction, towards = leaves(drawn(7, 16)), drawn(7, 16, seed=3), drawn(7, 16, seed=4)
    key, value = leaves(drawn(12, 1, 16), drawn(12, 1, 16, seed=1))

    def answer(seed: int, x: Tensor, dropout: float = 0.3) -> Tensor:
        torch.manual_seed(seed)
        return sublayer.query_source(x, query, (key, value), attend, 1, None, dropout)[0]

    with torch.no_grad():
        mean = torch.stack([answer(seed, x) for seed in range(30)]).mean(0)
        assert (mean - answer(0, x, 0.0)).abs().mean() < 0.35 * answer(0, x, 0.0).abs().mean()
    (gradient,) = torch.autograd.grad((answer(7, x) * towards).sum(), [x])
    with torch.no_grad():
        ends = [(answer(7, x + sign * 1e-2 * direction) * towards).sum() for sign in (1, -1)]
    slope = float((ends[0] - ends[1]) / 2e-2)
    assert float((gradient * direction).sum()) == pytest.approx(slope, rel=0.15 if ON_GPU else 0.02)


def test_halves_that_lie_side_by_side_are_not_copied() -> None:
    both = drawn(3, 2, 2, 4)
    key, value = both.unbind(1)
    assert sublayer.join_sides(key, value).data_ptr() == both.data_ptr()
    assert torch.equal(sublayer.join_sides(key, value), both.flatten(1))
    wide = drawn(3, 5, 2, 4)  # columns of something wider
    assert torch.equal(sublayer.join_sides(wide[:, 1], wide[:, 2]), wide[:, 1:3].flatten(1))
    for one, other in ((value, key), (key, value.contiguous()), (key.contiguous(), value.contiguous())):
        expected = torch.cat([one.flatten(1), other.flatten(1)], 1)
        assert torch.equal(sublayer.join_sides(one, other), expected)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_transformer_learns_the_same(monkeypatch: pytest.MonkeyPatch, norm: str) -> None:
    torch.manual_seed(0)
    config = TransformerConfig(
        11, encoder_layers=1, decoder_layers=2, width=32, heads=2, inner_width=24, dropout=0.0, norm=norm
    )
    model = Transformer(config).to(DEVICE)
    source, target = (Batch.of(rows).to(DEVICE) for rows in ([[1, 2, 3, 4], [5], [6, 7, 8]], [[2], [3, 4, 9], [1, 1]]))
    found = []
    for fits in (False, True):
        monkeypatch.setattr(fast, "has_kernels", lambda x, fits=fits: fits)
        out = model(source.ids, source.packing, target.ids, target.packing)
        parameters = {name: one for name, one in model.named_parameters() if not name.startswith("words")}
        found.append([out, *gradients(out, list(parameters.values()))])
    for expected, ours in zip(*found, strict=True):
        same(ours, expected, 10 * TOLERANCE)
