"""8 bits: as near as rounding allows, exact where nothing is rounded, and refused where there are no kernels."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from qkv.nn.cpu import precision as module
from qkv.nn.cpu.precision import CHUNK, LARGEST, MANY, WIDE, Int8Linear, count_int8_bytes, explain_no_int8, quantise

pytestmark = pytest.mark.skipif(explain_no_int8() is not None, reason=str(explain_no_int8()))


@pytest.fixture
def asked_anew() -> Iterator[None]:
    """What the machine can do is asked again, here and afterwards."""
    explain_no_int8.cache_clear()
    module._saturates.cache_clear()
    yield
    explain_no_int8.cache_clear()
    module._saturates.cache_clear()


def whole(n_out: int, n_in: int) -> nn.Linear:
    """A layer whose weights are whole numbers, each output's largest 127: nothing of them is rounded."""
    layer = nn.Linear(n_in, n_out)
    weight = torch.randint(-LARGEST, LARGEST + 1, (n_out, n_in)).float()
    weight[:, 0] = LARGEST
    layer.weight.data, layer.bias.data = weight, torch.randint(-9, 10, (n_out,)).float()
    return layer


def steps(rows: int, n_in: int) -> Tensor:
    """Rows of whole numbers from 0 to 255 with both: 8 bits hold them."""
    x = torch.randint(0, 256, (rows, n_in)).float()
    x[:, 0], x[:, 1] = 0, 255
    return x


@pytest.mark.parametrize("rows", [1, 3, MANY + 1])
def test_exact_where_nothing_is_rounded(rows: int) -> None:
    if module._saturates():
        pytest.skip("7 bits on this CPU")
    torch.manual_seed(0)
    layer, x = whole(16, 32), steps(rows, 32)
    assert torch.allclose(Int8Linear(layer)(x), layer(x), rtol=1e-5, atol=0.01)


@pytest.mark.parametrize("shape", [(1, 64), (5, 64), (MANY + 5, 64), (3, 9, 64)])
def test_nearly_what_the_layer_computes(shape: tuple[int, ...]) -> None:
    """Steps of 1/127 of a row's and of an output's largest number: an error of about a hundredth."""
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 48), torch.randn(shape)
    found, expected = Int8Linear(layer)(x), layer(x)
    assert found.shape == expected.shape
    assert (found - expected).std() < 0.015 * expected.std()


def test_each_output_has_its_own_scale() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 2, bias=False), torch.randn(1, 64)
    layer.weight.data[1] *= 1e-4
    error = (Int8Linear(layer)(x) - layer(x)).abs() / layer(x).abs()
    assert (error < 0.05).all()


def test_a_small_row_is_not_lost_among_many_and_large_ones() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 48), torch.randn(MANY, 64)
    layer.bias.data.zero_()
    x[3] *= 1e-4
    x[4] = 0
    expected, found = layer(x), Int8Linear(layer)(x)
    assert (found[3] - expected[3]).std() < 0.02 * expected[3].std()
    assert found[4].abs().max() == 0
    wide = nn.Linear(4, 4 * WIDE + 1)  # where rows share a scale, however many there are
    assert (Int8Linear(wide)(x[:, :4])[3] - wide(x[:, :4])[3]).abs().max() < 0.1


def test_rows_that_are_alike_share_a_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which layers those are is known by their names: one product, and nothing else, whatever the number of rows."""
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 48), nn.functional.layer_norm(torch.randn(3 * MANY, 64), [64])
    expected = layer(x)
    for name in sorted(module.ALIKE):
        found = quantise(layer, name)
        assert isinstance(found, Int8Linear)
        monkeypatch.setattr(Int8Linear, "_of_their_own", None)
        assert (found(x) - expected).std() < 0.02 * expected.std()
    with pytest.raises(TypeError, match="not callable"):
        quantise(layer, "down")(x)


def test_many_rows_with_scales_of_their_own_are_computed_in_parts() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 48), torch.randn(2 * CHUNK + 3, 64) * torch.logspace(-3, 3, 2 * CHUNK + 3)[:, None]
    expected, found = layer(x) - layer.bias, Int8Linear(layer)(x) - layer.bias
    assert ((found - expected).std(dim=1) < 0.03 * expected.std(dim=1)).all()


def test_an_output_of_zeros_is_the_bias() -> None:
    layer = nn.Linear(8, 3)
    layer.weight.data[1] = 0
    assert Int8Linear(layer)(torch.randn(2, 8))[:, 1].tolist() == pytest.approx([layer.bias[1].item()] * 2)


def test_without_bias() -> None:
    layer, x = nn.Linear(8, 3, bias=False), torch.zeros(2, 8)
    assert Int8Linear(layer)(x).abs().max() == 0


def test_what_is_no_number_stays_so() -> None:
    layer = nn.Linear(4, 4)
    assert isinstance(quantise(layer), Int8Linear)
    layer.weight.data[0, 0] = torch.nan
    assert quantise(layer) is layer


def test_memory_is_a_quarter() -> None:
    layers = [nn.Linear(512, 512), nn.Linear(512, 2_048)]
    eight = nn.Sequential(nn.LayerNorm(512), *map(Int8Linear, layers))
    assert count_int8_bytes(nn.ModuleList(layers)) == 0
    assert count_int8_bytes(eight) == pytest.approx((512 * 512 + 512 * 2_048), rel=0.01)
    assert sum(parameter.numel() for parameter in eight.parameters()) == 2 * 512  # the norm's alone


@pytest.mark.usefixtures("asked_anew")
def test_a_machine_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(weight: Tensor, bias: Tensor, library: str | None = None) -> None:
        raise RuntimeError("Didn't find engine for operation quantized::linear_prepack NoQEngine\nand a long trace")

    monkeypatch.setattr(module, "_pack", missing)
    reason = explain_no_int8()
    assert reason is not None
    assert "no kernels" in reason and "NoQEngine" in reason and "trace" not in reason


@pytest.mark.usefixtures("asked_anew")
def test_a_machine_that_computes_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_probe", lambda *, narrow: 40.0)
    assert "wrongly" in str(explain_no_int8())


@pytest.mark.usefixtures("asked_anew")
def test_a_machine_that_cuts_off_sums_has_7_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one without VNNI would: twice 255 · 127 is more than 16 bits hold."""
    monkeypatch.setattr(module, "_probe", lambda *, narrow: 64.0 if narrow else 32.4)
    assert explain_no_int8() is None
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 48), torch.randn(3, 64)
    found, expected = Int8Linear(layer)(x), layer(x)
    assert module._saturates()
    assert (found - expected).std() < 0.03 * expected.std()
