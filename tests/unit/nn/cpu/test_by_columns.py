"""By columns the same is computed from the same numbers, and where that is of no use it is not done."""

import pytest
import torch
from torch import nn

from qkv.nn.cpu.precision import can_store_by_columns, store_by_columns


@pytest.mark.parametrize("bias", [True, False])
def test_the_same_from_the_other_order(bias: bool) -> None:
    layer, x = nn.Linear(6, 20, bias=bias), torch.randn(4, 6)
    twin = store_by_columns(layer)
    assert torch.allclose(twin(x), layer(x), atol=1e-6)
    assert torch.equal(twin.weight, layer.weight)
    assert twin.weight.stride() == (1, 20) and layer.weight.stride() == (6, 1)
    assert twin.bias is layer.bias
    assert not twin.weight.requires_grad


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_for_which_numbers(kind: torch.dtype) -> None:
    assert can_store_by_columns(nn.ModuleList([nn.Linear(2, 2)]).to(kind)) == (kind in (torch.float32, torch.float64))
    with torch.inference_mode():
        assert not can_store_by_columns(nn.ModuleList([nn.Linear(2, 2)]))  # which does not count its changes
    with torch.device("meta"):
        assert not can_store_by_columns(nn.ModuleList([nn.Linear(2, 2)]))
