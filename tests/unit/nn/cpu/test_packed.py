"""Packed weights give what the layer gives, and a layer that cannot be packed stays as it is."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from qkv.nn.cpu import precision as module
from qkv.nn.cpu.precision import PackedLinear, explain_no_packing, pack_linear


@pytest.fixture
def asked_anew() -> Iterator[None]:
    explain_no_packing.cache_clear()
    yield
    explain_no_packing.cache_clear()


@pytest.mark.skipif(explain_no_packing() is not None, reason=str(explain_no_packing()))
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 7, 65])
def test_what_the_layer_computes(rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(24, 131, bias=bias), torch.randn(rows, 24)
    found = pack_linear(layer)
    assert isinstance(found, PackedLinear) and not list(found.parameters())
    with torch.inference_mode():
        assert torch.allclose(found(x), layer(x), rtol=1e-5, atol=1e-6)
        assert found(x.view(1, rows, 24)).shape == (1, rows, 131)


def test_other_numbers_stay_as_they_are() -> None:
    layer = nn.Linear(4, 4).double()
    assert pack_linear(layer) is layer
    layer = nn.Linear(4, 4, device="meta")
    assert pack_linear(layer) is layer


@pytest.mark.usefixtures("asked_anew")
def test_a_machine_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing(PackedLinear):
        def __init__(self, layer: nn.Linear) -> None:
            raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_reorder_linear_weight'")

    monkeypatch.setattr(module, "PackedLinear", Missing)
    assert "_reorder_linear_weight" in str(explain_no_packing())
    layer = nn.Linear(4, 4)
    assert pack_linear(layer) is layer
