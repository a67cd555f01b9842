"""Weights in 8 bits: close to what they were, and never so large that a CPU without VNNI overflows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.api.export.int8 import LARGEST_PAIR, describe_cpu, quantise_columns, quantise_rows


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 9), st.sampled_from([1e-6, 1.0, 1e4]))
def test_no_pair_of_neighbours_overflows_16_bits(seed: int, rows: int, columns: int, scale: float) -> None:
    draw = np.random.default_rng(seed)
    weight = (scale * draw.standard_t(2, (rows, columns))).astype(np.float32)
    weight[:, 0] = 0
    whole, of_column = quantise_columns(weight)
    pairs = np.concatenate([whole, np.zeros((rows % 2, columns), np.int8)]).astype(np.int64).reshape(-1, 2, columns)
    for sign in (1, -1):
        assert np.maximum(sign * pairs, 0).sum(1).max() <= LARGEST_PAIR
    assert np.iinfo(np.int16).max >= 255 * LARGEST_PAIR
    assert np.abs(whole * of_column - weight).max() <= 0.51 * of_column.max()


def test_what_a_cpu_without_vnni_computes() -> None:
    """The instruction adds two products into 16 bits and saturates; here that changes nothing."""
    draw = np.random.default_rng(0)
    weight = draw.standard_normal((256, 16)).astype(np.float32)
    whole = quantise_columns(weight)[0].astype(np.int64)
    x = draw.integers(0, 256, (8, 256))
    x[0], x[1] = 255, 0
    products = x[:, :, None] * whole  # (rows, 256, columns)
    pairs = products.reshape(8, -1, 2, 16).sum(2)
    assert np.array_equal(np.clip(pairs, -(2**15), 2**15 - 1).sum(1), x @ whole)
    plain = np.rint(weight / (np.abs(weight).max(0) / 127)).astype(np.int64)  # 8 bits without care do saturate
    pairs = (x[:, :, None] * plain).reshape(8, -1, 2, 16).sum(2)
    assert not np.array_equal(np.clip(pairs, -(2**15), 2**15 - 1).sum(1), x @ plain)


def test_rows_of_a_table() -> None:
    table = np.array([[1.0, -2.0], [0.0, 0.0]], np.float32)
    whole, scale = quantise_rows(table)
    assert np.abs(whole * scale - table).max() < 0.01 and whole.dtype == np.int8


def test_the_cpu_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    found = describe_cpu()
    assert set(found) == {"machine", "flags", "vnni"}
    monkeypatch.setattr("pathlib.Path.is_file", lambda self: False)
    assert describe_cpu()["vnni"] is None
