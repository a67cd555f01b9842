"""Weights that are cast together."""

import ast
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from qkv.nn.gpu.layers import WeightCasts, cast_weight

ROOT = Path(__file__).resolve().parents[4]
SOURCES = sorted((ROOT / "src" / "qkv").rglob("*.py"))


def test_copies_are_made_once_and_refreshed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [nn.Parameter(torch.randn(3, 5)), nn.Parameter(torch.randn(7))]
    halves, together = WeightCasts(), []
    copy_all = torch._foreach_copy_

    def counted(to: list[torch.Tensor], of: list[torch.Tensor]) -> None:
        together.append(len(to))
        copy_all(to, of)

    monkeypatch.setattr(torch, "_foreach_copy_", counted)
    with halves:
        first = [cast_weight(weight, torch.bfloat16) for weight in weights]
        assert cast_weight(weights[0], torch.bfloat16) is first[0]
    assert together == []
    with torch.no_grad():
        for weight in weights:
            weight.add_(1)
    with halves:
        again = [cast_weight(weight, torch.bfloat16) for weight in weights]
    assert together == [2]
    for one, other, weight in zip(first, again, weights, strict=True):
        assert one is other
        assert torch.equal(other, weight.detach().bfloat16())
        assert not other.requires_grad


def test_outside_of_a_step_nothing_is_kept() -> None:
    weight, halves = nn.Parameter(torch.randn(4)), WeightCasts()
    with halves:
        kept = cast_weight(weight, torch.bfloat16)
    with torch.no_grad():
        weight.zero_()
    assert not cast_weight(weight, torch.bfloat16).any()
    assert kept.any()


def test_what_needs_no_copy_and_what_is_no_parameter() -> None:
    weight = nn.Parameter(torch.randn(4))
    with WeightCasts() as halves:
        assert cast_weight(weight, torch.float32) is weight
        passing = weight * 2
        assert cast_weight(passing, torch.bfloat16) is not cast_weight(passing, torch.bfloat16)
        assert not halves._copies
        assert cast_weight(weight, torch.bfloat16).dtype == torch.bfloat16
        assert cast_weight(weight, torch.float16).dtype == torch.float16


def test_a_way_back_after_the_next_step_began_is_refused() -> None:
    """Its weights are not there any more, and it must not be computed with others."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            assert isinstance(weight, nn.Parameter)  # what was handed in, and no view of it
            cast = cast_weight(weight, torch.bfloat16)
            ctx.save_for_backward(cast)
            return x * cast

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
            return gradient * ctx.saved_tensors[0], None

    apply: Any = Product.apply
    weight, halves = nn.Parameter(torch.ones(2)), WeightCasts()
    x = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    with halves:
        late = apply(x, weight).sum()
    with halves, pytest.raises(RuntimeError, match="modified by an inplace operation"):
        late.backward()


def test_another_thread_has_its_own() -> None:
    weight, found = nn.Parameter(torch.randn(2)), []
    with WeightCasts():
        kept = cast_weight(weight, torch.bfloat16)
        other = threading.Thread(target=lambda: found.append(cast_weight(weight, torch.bfloat16)))
        other.start()
        other.join()
    assert found[0] is not kept


def test_every_run_casts_its_weights_together() -> None:
    """The loop is independent of networks: a job passes `WeightCasts`, and one without it would only be slower."""
    found = {}
    for path in [*SOURCES, ROOT / "bench" / "train_translate.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Job":
                given = {word.arg: ast.unparse(word.value) for word in node.keywords}
                found[f"{path.parent.name}/{path.stem}"] = given.get("around")
    jobs = {"elmo/pretrain", "gpt/pretrain", "bert/pretrain", "nnlm/pretrain", "bench/train_translate"}
    assert set(found) >= jobs | {"finetune/training", "translate/training"}
    assert set(found.values()) == {"WeightCasts"}, found
