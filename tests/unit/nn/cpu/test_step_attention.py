"""The compiled ways to ask the past and the sources give what the equations give, in single and in half precision."""

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from qkv.nn.attention import attention
from qkv.nn.cpu.cache import TokenCache
from qkv.nn.cpu.compiled import LARGEST_HALF
from qkv.nn.cpu.int8_step import PackedSources, attend_to_past, has_half_precision, has_numba, to_half

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed"),
]
H, K = 3, 32
LENGTHS = (4, 1, 5)
half = pytest.mark.skipif(not has_half_precision(), reason="this CPU has no instruction for half precision")
PRECISIONS = [pytest.param(torch.float32, 1e-5, id="single"), pytest.param(torch.float16, 2e-3, id="half", marks=half)]


def sources(dtype: torch.dtype, owners: list[int], layers: int = 1) -> PackedSources:
    torch.manual_seed(0)
    return PackedSources([torch.randn(sum(LENGTHS), 2, H, K).to(dtype) for _ in range(layers)], LENGTHS, owners)


def asked_one_by_one(memory: Tensor, query: Tensor, owners: list[int], scale: float | None) -> tuple[Tensor, Tensor]:
    parts = memory.float().split(LENGTHS)
    query = query if scale is None else query * (scale * K**0.5)
    answers, looks = torch.zeros(len(owners), H, K), torch.zeros(len(owners), H, max(LENGTHS))
    for row, owner in enumerate(owners):
        key, value = parts[owner].permute(1, 2, 0, 3)  # (H, S, K) each
        answer, weights = attention(query[row, :, None], key, value)
        answers[row], looks[row, :, : LENGTHS[owner]] = answer[:, 0], weights[:, 0]
    return answers, looks


@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize(("dtype", "near"), PRECISIONS)
@pytest.mark.parametrize("owners", [[0, 1, 2], [2, 0, 0, 2], [1], []])
def test_every_row_asks_its_own_source(dtype: torch.dtype, near: float, owners: list[int], scale: float | None) -> None:
    memory = sources(dtype, owners)
    query = torch.randn(3, H, len(owners), K).permute(2, 1, 0, 3)[:, :, 1]  # strided, as a view of a product is
    (layer,) = memory.layers[0]
    answer, looks = memory.attend(query, layer, scale=scale)
    expected, expected_looks = asked_one_by_one(layer, query, owners, scale)
    assert torch.allclose(answer, expected, atol=near) and torch.allclose(looks, expected_looks, atol=near)
    assert (looks[expected_looks == 0] == 0).all(), "nothing beyond a source's end"


def test_rows_are_chosen_and_sources_are_copied_when_half_are_done_with() -> None:
    memory = sources(torch.float32, [0, 0, 1, 2], layers=2)
    together = memory.together
    assert torch.equal(together, torch.stack(memory.memory))
    for changed, owners in ((memory.select([3, 2]), (2, 1)), (memory.several(2), (0, 0, 0, 0, 1, 1, 2, 2))):
        assert changed.owners == owners
        assert changed.memory == memory.memory and changed.together is together
    assert memory.select([0, 1, 2, 3]) is memory
    assert memory.select([0, 0, 2, 3]) is memory, "rows of one source are alike"
    left, whole, query = memory.select([3, 3]), memory._of([2, 2]), torch.randn(2, H, K)
    assert left.lengths == (5,) and left.owners == (0, 0)
    assert all(torch.equal(now, before[5:]) for now, before in zip(left.memory, memory.memory, strict=True))
    found, expected = left.attend(query, *left.layers[1]), whole.attend(query, *whole.layers[1])
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    short = memory.select([2])
    assert short.attend(query[:1], *short.layers[0])[1].shape == (1, H, max(LENGTHS)), "as wide as before"
    assert memory.select([]).owners == ()


@pytest.mark.parametrize(("dtype", "near"), PRECISIONS)
def test_the_past_is_written_and_asked(dtype: torch.dtype, near: float) -> None:
    """Beside the equation on all that was written, row by row; more rows lie behind those that are left."""
    torch.manual_seed(0)
    cache = TokenCache(layers=1, rows=4, longest=9, like=torch.empty(H, K, dtype=dtype), ask=attend_to_past)
    plain = TokenCache(layers=1, rows=4, longest=9, like=torch.empty(H, K))
    for number in range(9):
        if number == 5:
            for one in (cache, plain):
                one.select([2, 0, 0])
        new = torch.randn(cache.rows, 3, H, K).unbind(1)
        found, expected = (one.next_token()[0](*new, scale=0.3)[0] for one in (cache, plain))
        assert torch.allclose(found, expected, atol=near)
        for one in (cache, plain):
            one.advance()
    assert torch.allclose(cache.keys[:, :3].float(), plain.keys[:, :3], atol=near)


@half
def test_half_precision_ends_where_it_ends() -> None:
    """What is larger becomes its largest number, not infinity; what is no number shows."""
    keys, values = torch.zeros(1, 2, H, K, dtype=torch.float16), torch.zeros(1, 2, H, K, dtype=torch.float16)
    query, key, value = torch.zeros(1, H, K), torch.full((1, H, K), -1e9), torch.full((1, H, K), 1e9)
    answer = attend_to_past((query, key, value), keys, values, 0, None)
    assert (keys[0, 0] == -LARGEST_HALF).all() and (answer == LARGEST_HALF).all()
    value[0, 1, 2] = torch.nan
    answer = attend_to_past((query, key, value), keys, values, 1, None)
    assert answer[0, 1, 2].isnan() and answer.isnan().sum() == 1
    small = torch.randn(5, 2, H, K)
    (half_of_it,) = to_half([small])
    assert half_of_it.dtype == torch.float16 and torch.allclose(half_of_it.float(), small, atol=2e-3)
    assert [one.dtype for one in to_half([torch.empty(0, 2, H, K)])] == [torch.float16]
    for wrong in (1e5, -1e5, torch.inf, torch.nan):
        large = small.clone()
        large[3, 1, 0, 0] = wrong
        assert [one.dtype for one in to_half([small, large])] == [torch.float32] * 2, "all or none"


def test_only_for_decoding() -> None:
    memory = sources(torch.float32, [0])
    with pytest.raises(AssertionError, match="not for training"):
        memory.attend(torch.zeros(1, H, K), memory.memory[0], dropout=0.1)
    cache = TokenCache(layers=1, rows=1, longest=2, like=torch.empty(H, K), ask=attend_to_past)
    attend: Callable[..., object] = cache.next_token()[0]
    with pytest.raises(AssertionError, match="not for training"):
        attend(*torch.zeros(3, 1, H, K), dropout=0.1)


def test_whatever_torchs_usual_type_is() -> None:
    memory, query = sources(torch.float32, [0, 2]), torch.randn(2, H, K)
    expected = memory.attend(query, memory.memory[0])
    torch.set_default_dtype(torch.float64)
    try:
        found = memory.attend(query, memory.memory[0])
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_numba_is_imported_when_it_is_worth_it() -> None:
    program = "import sys, qkv.models.transformer.network; print('numba' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize("name", ["NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_DISABLE_JIT"])
def test_no_half_precision_for_another_cpu(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    assert not has_half_precision.__wrapped__()
    assert has_numba() == (name != "NUMBA_DISABLE_JIT")
    monkeypatch.setitem(sys.modules, "numba", None)
    assert not has_numba()
