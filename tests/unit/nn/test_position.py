"""Positions: the first row of the notes, distances under rotation, gradients of what is learned."""

from functools import partial

import pytest
import torch

from qkv.data.batch import Batch
from qkv.nn.multihead import attend_packed, explicit
from qkv.nn.position import (
    HalvedSinusoidalPositions,
    LearnedPositions,
    RotaryPositions,
    SinusoidalPositions,
    sinusoidal_table,
)


def test_sine_and_cosine_are_interleaved() -> None:
    table = sinusoidal_table(50, 16)
    assert table[0].tolist() == [0.0, 1.0] * 8
    for position in (1, 7, 49):
        for pair in range(8):
            angle = torch.tensor(position / 10_000 ** (2 * pair / 16))
            assert table[position, 2 * pair].item() == pytest.approx(angle.sin().item(), abs=1e-5)
            assert table[position, 2 * pair + 1].item() == pytest.approx(angle.cos().item(), abs=1e-5)


def test_every_position_has_its_own_code() -> None:
    table = sinusoidal_table(512, 64)
    assert (torch.cdist(table, table) + torch.eye(512)).min() > 1e-2


def test_module_equals_table_and_has_no_last_position() -> None:
    module = SinusoidalPositions(16)
    assert torch.allclose(module(torch.arange(50)), sinusoidal_table(50, 16))
    assert module(torch.tensor([[100_000]])).shape == (1, 1, 16)
    assert module.state_dict() == {}


def test_halved_positions_are_the_same_waves_in_another_order() -> None:
    waves, halved = sinusoidal_table(50, 16), HalvedSinusoidalPositions(16)(torch.arange(50))
    assert torch.allclose(halved, torch.cat([waves[:, 0::2], waves[:, 1::2]], dim=1), atol=1e-5)
    assert HalvedSinusoidalPositions(16)(torch.tensor([3]), torch.bfloat16).dtype == torch.bfloat16


def test_learned_positions_are_learned() -> None:
    """A known textbook table is cut off from its gradient by `.data`; this one is not."""
    positions = LearnedPositions(8, 4)
    positions(torch.arange(8)).square().sum().backward()
    assert positions.weight.grad is not None
    assert (positions.weight.grad.abs().sum(-1) > 0).all()


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    rotary = RotaryPositions(8)
    query, key = torch.randn(1, 1, 8), torch.randn(1, 1, 8)

    def score(at: int, other: int) -> float:
        return (rotary(query, torch.tensor([at])) * rotary(key, torch.tensor([other]))).sum().item()

    assert score(3, 1) == pytest.approx(score(103, 101), abs=1e-4)
    assert score(3, 1) != pytest.approx(score(1, 3), abs=1e-4)
    assert rotary(query, torch.tensor([5])).norm().item() == pytest.approx(query.norm().item(), rel=1e-5)
    assert torch.equal(rotary(query, torch.tensor([0])), query)


def test_rotary_around_packed_rows_equals_each_row_by_itself() -> None:
    rotary = RotaryPositions(8)
    batch = Batch.of([[0] * 3, [0] * 5])
    query, key, value = torch.randn(3, batch.n_tokens, 4, 8).unbind(0)
    together, _ = rotary.around(partial(attend_packed, **batch.packing._asdict()), batch.positions)(query, key, value)
    for row, answer in enumerate(batch.rows(together)):
        q, k, v = (batch.rows(x)[row][None] for x in (query, key, value))
        alone, _ = rotary.around(explicit, torch.arange(q.size(1))[None])(q, k, v)
        assert torch.allclose(alone[0], answer, atol=1e-6)


HALF = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.float64])
def test_waves_are_rounded_once_and_only_at_the_end(dtype: torch.dtype) -> None:
    positions = torch.tensor([0, 1, 257, 4095, 100_000])
    found = SinusoidalPositions(16).to(dtype)(positions, dtype)
    assert found.dtype == dtype
    assert torch.equal(found, SinusoidalPositions(16)(positions).to(dtype))


@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.float64])
def test_rotation_has_float32_angles_in_every_dtype(dtype: torch.dtype) -> None:
    x, positions = torch.randn(1, 4, 2, 16), torch.tensor([[0, 257, 258, 4095]])
    found = RotaryPositions(16).to(dtype)(x.to(dtype), positions)
    assert found.dtype == dtype
    exact = RotaryPositions(16)(x.to(dtype).float(), positions)
    assert torch.equal(found.float(), exact.to(dtype).float()) or dtype == torch.float64
    assert torch.allclose(found.float(), exact, atol=1e-6 if dtype.itemsize > 2 else 0.02)


def test_neighbours_far_out_are_told_apart_in_bfloat16() -> None:
    first, second = SinusoidalPositions(16).to(torch.bfloat16)(torch.tensor([4094, 4095]), torch.bfloat16)
    assert (first - second).abs().max() > 0.1


@pytest.mark.parametrize("build", [partial(sinusoidal_table, 4), SinusoidalPositions, RotaryPositions])
def test_odd_widths_are_refused(build: object) -> None:
    assert callable(build)
    with pytest.raises(AssertionError, match="must be even"):
        build(7)
