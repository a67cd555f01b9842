"""Engines of encoders on a CPU give what the plain blocks give, in every precision, and step aside elsewhere."""

import copy
import pickle
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.bert.network import Bert, BertConfig
from qkv.nn.block import ACTIVATION_FUNCTIONS, FeedForward, PostNormBlock, PreNormBlock
from qkv.nn.cpu import encoder as engines
from qkv.nn.cpu.encoder import choose_encoder_precision, has_engines, pad_rows, quantise_tokens, round_up, use_engines
from qkv.nn.multihead import MultiHeadSelfAttention

SMALL = BertConfig(
    vocabulary_size=50, layers=2, width=32, heads=4, inner_width=64, max_length=300, initial_std=0.3, dropout=0.1
)
KINDS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"segments": 1, "position_offset": 2},
    "distilbert": {"segments": 0},
    "electra": {"embedding_width": 16},
    "albert": {"embedding_width": 16, "groups": 1, "layers": 3, "activation": "gelu_tanh"},
    "ernie": {"task_types": 3, "adds_task_type": True, "activation": "relu"},
    "narrow heads": {"heads": 8, "inner_width": 40, "activation": "silu"},
    "tanh": {"activation": "tanh"},
}
PRECISIONS = [
    "fp32",
    pytest.param("bf16", marks=pytest.mark.skipif(engines.explain_no_bf16() is not None, reason="not on this CPU")),
    "int8",
]
NEAR = {"fp32": (2e-5, 1e-7), "bf16": (0.08, 2e-3), "int8": (0.25, 8e-3)}
"""Largest difference of a number after norms, and of a cosine from 1."""


def make(**changes: Any) -> Bert:
    torch.manual_seed(0)
    return Bert(replace(SMALL, **changes), pooler=True).eval()


def blocks(network: Bert) -> Any:
    return network.blocks


def make_rows(*lengths: int, pairs: bool = False) -> Batch:
    draw = torch.Generator().manual_seed(sum(lengths))
    rows = [torch.randint(0, SMALL.vocabulary_size, (length,), generator=draw).tolist() for length in lengths]
    segments = [[0] * (length // 2) + [1] * (length - length // 2) for length in lengths] if pairs else None
    return Batch.of(rows, segments=segments)


def run(network: Bert, batch: Batch, **options: Any) -> Tensor:
    with torch.inference_mode():
        return network(**batch.inputs(), **options).hidden.clone()


def assert_close(found: Tensor, expected: Tensor, precision: str) -> None:
    most, turned = NEAR[precision]
    assert (found - expected).abs().max() < most
    assert torch.cosine_similarity(found.double(), expected.double(), dim=-1).min() > 1 - turned


@pytest.fixture(params=[False, True], ids=["torch", "compiled"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        pytest.importorskip("numba")
    monkeypatch.setattr(engines, "COMPILED_AFTER", 0 if request.param else 1 << 60)
    return bool(request.param)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_network(kind: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "COMPILED_AFTER", 1 << 60)
    network = make(**KINDS[kind])
    batch = make_rows(3, 40, 1, 17, pairs=network.config.segments == 2)
    expected = run(network, batch)
    assert use_engines(network.blocks, precision)
    found = run(network, batch)
    assert found.dtype == torch.float32
    assert_close(found, expected, precision)
    if precision != "fp32":
        assert not torch.equal(found, expected)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("activation", ACTIVATION_FUNCTIONS)
def test_kernels_of_numba_round_as_torch(activation: str) -> None:
    network = make(activation=activation)
    batch = make_rows(5, 30)
    expected = run(network, batch)
    use_engines(network.blocks, "int8")
    assert_close(run(network, batch), expected, "int8")


def test_numba_and_torch_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    network, batch = make(), make_rows(5, 30, 64)
    use_engines(network.blocks, "int8")
    found = []
    for after in (0, 1 << 60):
        monkeypatch.setattr(engines, "COMPILED_AFTER", after)
        found.append(run(network, batch))
    # a number between two levels may be rounded to either
    assert torch.cosine_similarity(found[0], found[1], dim=-1).min() > 0.9995
    assert (found[0] - found[1]).abs().mean() < 5e-3


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("lengths", [(1,), (7,), (8,), (200,), (3, 3, 3), (250, 2, 2, 31)])
def test_rows_of_any_length(lengths: tuple[int, ...], precision: str) -> None:
    network, batch = make(), make_rows(*lengths)
    expected = run(network, batch)
    use_engines(network.blocks, precision)
    assert_close(run(network, batch), expected, precision)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_does_not_depend_on_its_neighbours(precision: str) -> None:
    network = make()
    use_engines(network.blocks, precision)
    batch = make_rows(9, 60, 33)
    together = batch.rows(run(network, batch))
    for part, found in zip(batch.parts(1, 3), together, strict=True):
        assert torch.allclose(run(network, part), found, atol=1e-5 if precision == "fp32" else 0.03)


def test_named_tokens_states_and_weights() -> None:
    network, batch = make(), make_rows(9, 4, 30)
    only, ways = torch.tensor([0, 5, 42]), {"attention": [0, 1], "states": True}
    with torch.inference_mode():
        plain, plain_only = network(**batch.inputs(), **ways), network(**batch.inputs(), only=only)
        use_engines(network.blocks)
        found, found_only = network(**batch.inputs(), **ways), network(**batch.inputs(), only=only)
        for expected, state in zip(plain.states, found.states, strict=True):
            assert torch.allclose(state, expected, atol=2e-5)
        for number in (0, 1):
            assert torch.allclose(found.attention[number], plain.attention[number], atol=1e-5)
        assert torch.allclose(found.pooled, plain.pooled, atol=2e-5)
        assert torch.allclose(found_only.hidden, plain_only.hidden, atol=2e-5)
        assert torch.allclose(found_only.pooled, plain_only.pooled, atol=2e-5)
        layers = list(network.layers(batch))
        assert torch.equal(layers[-1].left, network(**batch.inputs()).hidden)
        padded = batch.padded()
        assert torch.allclose(batch.unpad(network(**padded.inputs()).hidden), plain.hidden, atol=2e-5)


def test_training_and_other_cases_are_computed_by_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    network, batch = make(dropout=0.0, attention_dropout=0.0), make_rows(9, 4)
    use_engines(network.blocks, "int8")
    expected = run(make(), batch)
    monkeypatch.setattr(engines, "pad_rows", lambda *_: pytest.fail("the engine ran"))
    hidden = network(**batch.inputs()).hidden  # with gradients
    hidden.sum().backward()
    assert torch.allclose(hidden, expected, atol=1e-5) and blocks(network)[0].attention.qkv.weight.grad is not None
    with torch.no_grad():
        network.train()(**batch.inputs())
        with torch.autocast("cpu", torch.bfloat16):
            network.eval()(**batch.inputs())
        assert not has_engines(network.double().blocks, batch.ids)
        network(**batch.inputs())
        blocks(network.float())[0].feed_forward.up = nn.Sequential(blocks(network)[0].feed_forward.up)
        with pytest.raises(pytest.fail.Exception):  # the second block is as it was
            network(**batch.inputs())


def test_other_blocks_have_no_engine() -> None:
    mixed = nn.ModuleList([PreNormBlock(MultiHeadSelfAttention(8, 2), FeedForward(8, 16), 8)])
    assert not use_engines(mixed) and not use_engines(nn.ModuleList())
    mixed.append(PostNormBlock(MultiHeadSelfAttention(8, 2), FeedForward(8, 16), 8))
    assert not use_engines(mixed) and mixed[1].engine is None


@pytest.mark.parametrize("precision", PRECISIONS)
def test_changed_weights_are_noticed(precision: str) -> None:
    network, batch = make(), make_rows(9, 40)
    use_engines(network.blocks, precision)
    before = run(network, batch)
    other = make(initial_std=0.2)
    for change in (
        lambda: network.load_state_dict(other.state_dict()),
        lambda: blocks(network)[1].feed_forward.down.weight.data.mul_(2.0),
        lambda: blocks(network)[0].attention.out.bias.detach().add_(0.5),
        lambda: setattr(blocks(network)[0].attention.qkv, "weight", nn.Parameter(torch.randn(96, 32))),
        lambda: blocks(network)[0].attention_norm.weight.detach().mul_(0.5),
    ):
        if precision == "fp32":
            change()
        else:
            with torch.no_grad():
                change()
        # a write through .data leaves no trace but in the storage's version, which the same tensor shares
        blocks(network)[1].feed_forward.down.weight.detach().add_(0)
        after = run(network, batch)
        plain = copy.deepcopy(network)
        for block in blocks(plain):
            block.engine = None
        assert_close(after, run(plain, batch), precision)
        assert not torch.equal(after, before)
        before = after


def test_copies_pack_their_own_weights() -> None:
    network, batch = make(), make_rows(9, 40)
    names = set(network.state_dict())
    use_engines(network.blocks, "int8")
    expected = run(network, batch)
    packed = blocks(network)[0].engine.n_bytes
    weights = sum(layer.weight.numel() for layer in engines._linears(blocks(network)[0]))
    assert weights <= packed < 2 * weights  # scales count where layers are so narrow
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert blocks(other)[0].engine is not blocks(network)[0].engine
        assert blocks(other)[0].engine.precision == "int8" and blocks(other)[0].engine.n_bytes == 0
        assert torch.equal(run(other, batch), expected)
    assert set(network.state_dict()) == names


def test_several_threads_pack_once(monkeypatch: pytest.MonkeyPatch) -> None:
    network, batch = make(), make_rows(9, 40)
    expected = run(network, batch)
    use_engines(network.blocks)
    made: list[Any] = []

    def make_packed(block: Any) -> Any:
        made.append(block)
        return engines._SingleLayers(block)

    found: list[Tensor] = []
    for block in blocks(network):
        monkeypatch.setattr(block.engine._packed, "make", make_packed)
    workers = [threading.Thread(target=lambda: found.append(run(network, batch))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 4 and len(made) == 2
    for one in found:
        assert torch.allclose(one, expected, atol=2e-5)


@pytest.mark.usefixtures("compiled")
def test_a_damaged_weight_reaches_the_output() -> None:
    network, batch = make(), make_rows(9, 40)
    with torch.no_grad():
        network.embedding.token.weight[batch.ids[12]] = float("nan")  # in the second row
    use_engines(network.blocks, "int8")
    first, second = batch.rows(run(network, batch))
    assert second.isnan().any() and first.isfinite().all() == bool(batch.ids[12] not in batch.ids[:9])
    with torch.no_grad():
        blocks(network)[0].feed_forward.up.weight[3, 5] = float("inf")
    assert not run(network, batch).isfinite().all()


def test_sizes_are_few_and_padding_is_not_copied_twice() -> None:
    sizes = {round_up(n) for n in range(1, 4097)}
    assert len(sizes) <= 60 and all(n <= round_up(n) <= max(n + 7, 1.125 * n) for n in range(1, 4097))
    x = torch.randn(13, 4)
    padded = pad_rows(x)
    assert padded.shape == (16, 4) and torch.equal(padded[:13], x) and not padded[13:].any()
    assert pad_rows(padded[:13]).data_ptr() == padded.data_ptr()
    assert pad_rows(padded) is padded
    assert torch.equal(pad_rows(x.T.contiguous().T)[:13], x)


def test_levels_hold_every_row() -> None:
    x = torch.randn(6, 40) * torch.tensor([1e-3, 1.0, 30.0, 1.0, 0.0, 1.0])[:, None]
    x[3], x[5] = x[3].abs(), -x[5].abs()
    for top in (255, 127):
        levels, step, zero = quantise_tokens(x, top)
        assert int(levels.max()) <= top
        near = (levels.float() - zero[:, None]) * step[:, None]
        assert ((near - x).abs() <= 0.5001 * step[:, None]).all()


def test_seven_bits_where_sums_saturate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_saturates_rows", lambda: True)
    monkeypatch.setattr(engines, "COMPILED_AFTER", 1 << 60)
    network, batch = make(), make_rows(9, 40)
    expected = run(network, batch)
    use_engines(network.blocks, "int8")
    found = run(network, batch)
    assert blocks(network)[0].engine._packed.held.top == 127
    assert torch.cosine_similarity(found, expected, dim=-1).min() > 0.98


def test_the_choice_of_a_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"Unknown precision 'in8'. Did you mean 'int8'"):
        choose_encoder_precision("in8")
    monkeypatch.setattr(engines, "explain_no_bf16", lambda: None)
    assert choose_encoder_precision("auto") == "bf16"
    monkeypatch.setattr(engines, "explain_no_bf16", lambda: "this CPU is old")
    assert choose_encoder_precision("auto") == "fp32" == choose_encoder_precision("fp32")
    with pytest.raises(InputError, match="bf16 is not available: this CPU is old. Use fp32"):
        choose_encoder_precision("bf16")


def test_hooks_see_the_whole_batch_once() -> None:
    network, batch, seen = make(), make_rows(5, 6, 7), list[int]()
    use_engines(network.blocks)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch.inference_mode():
            hook = network.blocks[0].register_forward_hook(lambda block, given, found: seen.append(len(found[0])))
            network.token_vectors(batch)
            hook.remove()
            network.token_vectors(batch)
    finally:
        torch.set_num_threads(threads)
    assert seen == [18]


def test_parts_of_a_batch_on_several_threads() -> None:
    network, batch = make(), make_rows(*np.random.default_rng(0).integers(1, 60, 40).tolist())
    with torch.inference_mode():
        expected = network.token_vectors(batch)
        use_engines(network.blocks)
        threads = torch.get_num_threads()
        try:
            for number in (1, 2, 3):
                torch.set_num_threads(number)
                assert torch.allclose(network.token_vectors(batch), expected, atol=2e-5)
                assert torch.get_num_threads() == number
        finally:
            torch.set_num_threads(threads)
