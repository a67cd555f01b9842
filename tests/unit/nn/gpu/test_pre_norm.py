"""The stack of pre-norm blocks on kernels against its readable twin, the way there and the way back.

With a GPU the kernels run on it; without one Triton's interpreter runs the same on the CPU, number by number.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

pytest.importorskip("triton", reason="Triton is a part of torch for GPUs, and of the extra dev elsewhere")

from qkv.data.batch import Batch
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.nn.gpu import layers
from qkv.nn.gpu.pre_norm import block_stack
from qkv.nn.gpu.sublayer import out_and_norm
from qkv.nn.multihead import Packed
from qkv.train.loop import recompute
from tests.support.folders import randomise
from tests.unit.nn.gpu.test_fast import DEVICE, ON_GPU, SMALL_NUMBERS, drawn, gradients, leaves, same

BATCH = Batch.of([[1, 7, 9], [4, 5], [*range(3, 20)], [8]]).to(DEVICE)
TARGETS = torch.arange(BATCH.n_tokens, device=DEVICE)


def make(head_width: int = 16, **changes: Any) -> GPT:
    sizes: dict[str, Any] = {"layers": 2, "width": 2 * head_width, "heads": 2, "inner_width": 40, "max_length": 20}
    dropouts: dict[str, Any] = dict.fromkeys(("dropout", "attention_dropout", "embedding_dropout"), 0.0)
    model = GPT(GPTConfig(**{"vocabulary_size": 30, **sizes, **dropouts, **changes}))
    randomise(model)
    return model.to(DEVICE)


def step(model: GPT, only: Tensor | None = None, halved: bool = False) -> dict[str, Tensor]:
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=halved):
        hidden = model(BATCH.ids, BATCH.packing, BATCH.positions, only=only)
        targets = TARGETS if only is None else TARGETS[only]
        loss, right = layers.word_loss(*model.before_words(hidden), targets)
    loss = loss / len(targets)
    names = [name for name, _ in model.named_parameters()]
    found = dict(zip(names, torch.autograd.grad(loss, list(model.parameters())), strict=True))
    return {**found, "loss": loss.detach(), "right": right.float(), "hidden": hidden.detach()}


def same_layer(width: int) -> nn.Linear:
    """What is answered goes through it as it is."""
    layer = nn.Linear(width, width, device=DEVICE)
    nn.init.eye_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


@pytest.mark.parametrize("rows", [1, 33])
@pytest.mark.parametrize("both", [True, False])
def test_a_sum_and_its_norm(rows: int, both: bool) -> None:
    norm, layer = nn.LayerNorm(20, eps=1e-5, device=DEVICE), nn.Linear(12, 20, device=DEVICE)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    ours, plain = (leaves(drawn(rows, 12), drawn(rows, 20, seed=1)) for _ in range(2))
    out, total = out_and_norm(ours[0], layer, ours[1], norm)
    expected_total = plain[1] + layer(plain[0])
    expected = norm(expected_total)
    tolerance = 1e-3 if ON_GPU else 1e-5
    same(out, expected, tolerance)
    same(total, expected_total, tolerance)
    parameters: list[Tensor] = [norm.weight, norm.bias, layer.weight, layer.bias]
    seen, wanted = (torch.cat([out, total], 1), torch.cat([expected, expected_total], 1)) if both else (out, expected)
    pairs = zip(gradients(seen, [*ours, *parameters]), gradients(wanted, [*plain, *parameters]), strict=True)
    for found, one in pairs:
        same(found, one, 10 * tolerance)


def test_dropout_drops_the_same_on_the_way_back() -> None:
    norm, layer = nn.LayerNorm(64, device=DEVICE), same_layer(64)
    (answer,), x = leaves(drawn(40, 64)), drawn(40, 64, seed=1)
    torch.manual_seed(0)
    out, total = out_and_norm(answer, layer, x, norm, dropout=0.25)
    kept = (total - x).detach().abs() > 1e-6
    assert 0.65 < kept.float().mean() < 0.85
    same((total - x)[kept], (answer / 0.75)[kept], 1e-3 if ON_GPU else 1e-5)
    same(out, norm(total))
    (to_answer,) = torch.autograd.grad(total.sum() + (out * drawn(40, 64, seed=3)).sum(), [answer])
    assert bool((to_answer[~kept] == 0).all()) and bool((to_answer[kept] != 0).all())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"head_width": 12},  # which the kernel of short rows does not take
        {"activation": "gelu"},
        {"activation": "relu", "scaled_by_layer": True, "tied": False},
        {"order": "post"},
    ],
)
def test_a_model_learns_the_same(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(**changes)
    only = torch.tensor([2, 22, 5], device=DEVICE)
    for chosen in (None, only) if not changes else (None,):
        monkeypatch.setattr(layers, "has_kernels", lambda x: False)
        expected = step(model, chosen)
        monkeypatch.setattr(layers, "has_kernels", lambda x: True)
        for name, found in step(model, chosen).items():
            same(found, expected[name], 1e-3 if ON_GPU else 1e-5)


@SMALL_NUMBERS
@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_model_learns_nearly_the_same_in_half_precision(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(32, order=order)
    monkeypatch.setattr(layers, "has_kernels", lambda x: False)
    expected = step(model, halved=True)
    monkeypatch.setattr(layers, "has_kernels", lambda x: True)
    for name, found in step(model, halved=True).items():
        if name != "right":
            assert (found - expected[name]).norm() <= 0.05 * expected[name].norm() + 1e-4, name


def test_the_sum_keeps_its_type() -> None:
    """Products may be of 16 bits; what all layers are added to is not."""
    norm, layer = nn.LayerNorm(8, device=DEVICE), same_layer(8)
    answer, x = drawn(5, 8).bfloat16().requires_grad_(), drawn(5, 8, seed=1).requires_grad_()
    out, total = out_and_norm(answer, layer, x, norm)
    assert (out.dtype, total.dtype) == (torch.bfloat16, torch.float32)
    to_answer, to_x = torch.autograd.grad(out.float().sum() + total.sum(), [answer, x])
    assert (to_answer.dtype, to_x.dtype) == (torch.bfloat16, torch.float32)
    same(total, x + answer.float(), 1e-6)
    same(out.float(), functional.layer_norm(total, (8,)), 1e-2)


def test_a_block_that_is_computed_again_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    expected = step(model)
    again = copy.deepcopy(model)
    recompute(again.blocks[1])
    monkeypatch.setattr("qkv.nn.gpu.pre_norm._run_fused", None)  # not called
    monkeypatch.setattr(layers, "has_kernels", lambda x: True)
    hidden = block_stack(
        list(again.blocks),
        again.norm,
        again.embed(BATCH.ids, BATCH.positions),
        Packed(*BATCH.packing, causal=True),
    )
    same(hidden, expected["hidden"])
