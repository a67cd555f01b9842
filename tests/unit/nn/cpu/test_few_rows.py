"""The compiled step gives what torch's kernels give, for any layer it knows, and leaves the others to them."""

import gc
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from qkv.data.batch import Batch
from qkv.models.transformer.decoding import TransformerState
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.nn.cpu import int8_step as module
from qkv.nn.cpu.cache import SourceMemory
from qkv.nn.cpu.int8_step import (
    FEW_ROWS,
    Int8Decoder,
    PackedSources,
    count_decoder_bytes,
    find_int8_decoder,
    has_half_precision,
    is_supported,
)
from qkv.nn.cpu.precision import explain_no_int8, set_precision

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(explain_no_int8() is not None, reason=str(explain_no_int8())),
]
SOURCE = Batch.of([[5, 6, 7, 1], [3, 1], [8, 9, 10, 11, 12, 1]])
needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")


def make(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 3, "width": 64, "heads": 4, "inner_width": 128}
    return set_precision(Transformer(TransformerConfig(40, **(sizes | changes))).eval(), "int8")


def started(model: Transformer, hypotheses: int, source: Batch = SOURCE) -> TransformerState:
    return model.start(source.ids, source.packing, hypotheses=hypotheses, longest=70)


@needs_numba
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre", "activation": "gelu"},
        {"activation": "silu"},
        {"activation": "tanh"},
        {"activation": "gelu_tanh"},
    ],
)
def test_what_torch_gives(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    """Through selections, and more tokens than there is room for at first. Each step begins from the same past: where
    a number lies between two steps of 8 bits, either may be chosen, and what follows is a little different."""
    model = make(**changes)
    plain = started(model, 2)
    assert plain.layers.few_rows is None, "too small to be worth it"
    monkeypatch.setattr(module, "_WORTH", 0)
    few = started(model, 2)
    assert few.layers.few_rows is not None
    torch.manual_seed(1)
    gaps = []
    for number in range(66):
        tokens = torch.randint(2, 40, (few.past.rows,))
        few.past.keys, few.past.values = plain.past.keys.clone(), plain.past.values.clone()
        expected, found = model.step(tokens, plain), model.step(tokens, few)
        assert found.attention is not None and expected.attention is not None
        gaps.append((found.logits - expected.logits).abs().max() / expected.logits.std())
        assert torch.allclose(found.attention, expected.attention, atol=0.02)
        plain, few = expected.state, found.state
        if number in (3, 7):
            rows = torch.tensor([0, 0, 2, 5] if number == 3 else [3, 1])
            plain, few = plain.select(rows), few.select(rows)
    assert torch.stack(gaps).median() < 1e-5
    assert max(gaps) < 0.1


@needs_numba
def test_many_rows_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORTH", 0)

    def refused(self: Int8Decoder, *_: Any) -> None:
        raise AssertionError("called")

    monkeypatch.setattr(Int8Decoder, "__call__", refused)
    model = make()
    one = Batch.of([[5, 6, 7, 1]])
    with pytest.raises(AssertionError, match="called"):
        model.step(torch.full((FEW_ROWS,), 2), started(model, FEW_ROWS, one))
    assert model.step(torch.full((FEW_ROWS + 1,), 2), started(model, FEW_ROWS + 1, one)).logits.shape == (
        FEW_ROWS + 1,
        40,
    )


@needs_numba
@pytest.mark.parametrize("precision", ["int8", "drafted"])
def test_many_rows_ask_by_compiled_kernels(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    """In 8 bits past and sources are of half precision where the CPU can; few rows that are left go on with them. What
    judges guesses is exact."""
    model = set_precision(make(), precision)
    plain = started(model, 4)
    monkeypatch.setattr(module, "_WORTH", 0)
    model.decoding._int8.forget()
    found = started(model, 4)
    assert isinstance(plain.source, SourceMemory) and isinstance(found.source, PackedSources)
    dtype = torch.float16 if precision == "int8" and has_half_precision() else torch.float32
    assert found.past.keys.dtype == found.source.memory[0].dtype == dtype
    near = 0.05 if precision == "int8" else 1e-4
    torch.manual_seed(1)
    for number in range(20):
        tokens = torch.randint(2, 40, (plain.past.rows,))
        expected, got = model.step(tokens, plain), model.step(tokens, found)
        assert got.attention is not None and expected.attention is not None
        assert (got.logits - expected.logits).std() < near * expected.logits.std()
        assert torch.allclose(got.attention, expected.attention, atol=near)
        plain, found = expected.state, got.state
        if number in (5, 12):
            rows = torch.tensor([0, 0, 2, 5, 6, 7, 8, 9, 11] if number == 5 else [3, 1])
            plain, found = plain.select(rows), found.select(rows)


def test_without_numba_and_where_it_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORTH", 0)
    odd = make(width=24)
    assert started(odd, 1).layers.few_rows is None
    monkeypatch.setattr(module, "has_numba", lambda: False)
    model = make()
    state = started(model, 1)
    assert state.layers.few_rows is None
    assert model.step(torch.full((3,), 2), state).logits.shape == (3, 40)
    assert not is_supported(model.decoder[1]), "whose layers are not in 8 bits"


@needs_numba
def test_it_is_made_once_counted_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORTH", 0)
    model = make()
    assert model.decoding._int8.held is None
    first = started(model, 1).layers.few_rows
    assert first is not None and started(model, 1).layers.few_rows is first
    assert model.decoding._int8.held is not None
    blocks = list(model.decoding._int8.held)[1:-1]
    assert find_int8_decoder(blocks, 2) is first
    n_weights = 3 * (6 * 64 * 64 + 2 * 64 * 128)
    assert n_weights < count_decoder_bytes(blocks) < 1.1 * n_weights
    both = model.decoding.int8_bytes()
    model.train()
    before = len(module._DECODERS)
    del first, blocks
    gc.collect()
    assert len(module._DECODERS) == before - 1
    model.eval()
    monkeypatch.setattr(module, "_WORTH", 1 << 40)
    started(model, 1)
    assert both - 1.1 * n_weights < model.decoding.int8_bytes() < both
