"""The instruction and the loop are the same whole sums, the largest ones too."""

import math
from typing import Any

import numpy as np
import pytest

from qkv.nn.cpu.compiled import PRODUCT_BYTES, choose_sums, has_instruction, numba, sum_products, sum_products_of_one
from qkv.nn.cpu.step_kernels import compile_log_totals


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("extreme", [False, True])
def test_sums_by_hand(compiled: bool, extreme: bool) -> None:
    chance = np.random.default_rng(0)
    width, at = 3 * PRODUCT_BYTES, 2 * PRODUCT_BYTES
    x = np.full(4 * width, 255) if extreme else chance.integers(0, 256, 4 * width)
    w = np.full(at + width, -128) if extreme else chance.integers(-128, 128, at + width)
    rows, weight = x.astype(np.uint8), w.astype(np.int8)
    expected = x.reshape(4, width) @ w[at:]
    if compiled:
        pytest.importorskip("numba")
        four, single = (numba.njit(one) for one in (_call_of(choose_sums()[0], 4), _call_of(choose_sums()[1], 1)))
        found, alone = four(rows, weight, at, width), single(rows, weight, at, width)
    else:
        found = sum_products(rows, 0, width, 2 * width, 3 * width, weight, at, width)
        alone = sum_products_of_one(rows, width, weight, at, width)
    assert list(found) == expected.tolist()
    assert alone == expected[1]


def _call_of(function: Any, rows: int) -> Any:
    if rows == 1:
        return lambda x, w, at, width: function(x, width, w, at, width)
    return lambda x, w, at, width: function(x, 0, width, 2 * width, 3 * width, w, at, width)


def test_kernels_where_no_folder_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    compile_one = numba.njit

    def refuse(*given: Any, **settings: Any) -> Any:
        if settings.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return compile_one(*given, **settings)

    monkeypatch.setattr(numba, "njit", refuse)
    run = compile_log_totals.__wrapped__()
    scores, totals = np.zeros((2, 4), np.float32), np.zeros(2, np.float32)
    run(scores, totals)
    assert totals == pytest.approx([math.log(4)] * 2)


def test_a_loop_takes_any_width() -> None:
    x, w = np.array([1, 2, 3], np.uint8), np.array([-4, 5, 6], np.int8)
    assert sum_products_of_one(x, 0, w, 0, 3) == -4 + 10 + 18
    assert [int(one) for one in sum_products(x, 0, 0, 0, 0, w, 0, 3)] == [24] * 4


def test_what_the_cpu_has_is_known() -> None:
    assert isinstance(has_instruction(), bool)
