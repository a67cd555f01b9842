"""Fused kernels against the explicit maths: every variant, masks and packed rows included, dropout off."""

import pytest
import torch
from torch import Tensor

from qkv.data.batch import Batch
from qkv.nn.multihead import attend_packed, explicit, fused

B, T, H, K = 3, 7, 4, 8


def heads(*leading: int) -> Tensor:
    return torch.randn(*leading, H, K)


def masks() -> dict[str, Tensor | None]:
    keys = torch.tensor([7, 4, 1])[:, None] > torch.arange(T)
    some = torch.rand(B, 1, T, T) > 0.5
    nothing_seen = some.clone()
    nothing_seen[1, :, 3] = False
    return {
        "none": None,
        "keys": keys[:, None, None, :],
        "any pair": some | torch.eye(T, dtype=torch.bool),
        "a row that sees nothing": nothing_seen,
    }


@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["none", "keys", "any pair", "a row that sees nothing"])
def test_padded(name: str, causal: bool, scale: float | None) -> None:
    mask = masks()[name]
    inputs = [heads(B, T).requires_grad_() for _ in range(3)]
    slow, weights = explicit(*inputs, mask=mask, causal=causal, scale=scale)
    fast, nothing = fused(*inputs, mask=mask, causal=causal, scale=scale)
    assert nothing is None
    assert weights.shape == (B, H, T, T)
    assert torch.allclose(slow, fast, atol=1e-6)
    if name == "a row that sees nothing":
        assert slow[1, 3].abs().sum() == 0
        assert fast[1, 3].abs().sum() == 0
    factor = torch.randn_like(slow)
    for one, other in zip(
        torch.autograd.grad((slow * factor).sum(), inputs),
        torch.autograd.grad((fast * factor).sum(), inputs),
        strict=True,
    ):
        assert torch.isfinite(other).all()
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_more_keys_than_queries(causal: bool) -> None:
    """Cross attention, and a decoder whose past is cached: the queries are the last tokens."""
    query, key, value = heads(B, 2), heads(B, T), heads(B, T)
    slow, weights = explicit(query, key, value, causal=causal)
    fast, _ = fused(query, key, value, causal=causal)
    assert torch.allclose(slow, fast, atol=1e-6)
    assert (weights[:, :, 0, -1] == 0).all() == causal


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [[5, 5, 5], [3, 7, 1, 1, 4], [2]])
def test_packed_rows_see_themselves_alone(lengths: list[int], causal: bool) -> None:
    batch = Batch.of([[0] * length for length in lengths])
    inputs = [heads(batch.n_tokens).requires_grad_() for _ in range(3)]
    fast, _ = attend_packed(*inputs, **batch.packing._asdict(), causal=causal)
    slow = torch.cat(
        [explicit(*(x[None] for x in row), causal=causal)[0][0] for row in zip(*map(batch.rows, inputs), strict=True)]
    )
    assert torch.allclose(slow, fast, atol=1e-6)
    factor = torch.randn_like(slow)
    for one, other in zip(
        torch.autograd.grad((slow * factor).sum(), inputs),
        torch.autograd.grad((fast * factor).sum(), inputs),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-5)


def test_packed_cross_attention() -> None:
    asking, asked = Batch.of([[0] * n for n in (2, 2, 5)]), Batch.of([[0] * n for n in (4, 3, 6)])
    query, key, value = heads(asking.n_tokens), heads(asked.n_tokens), heads(asked.n_tokens)
    other_side = {f"key_{name}": value for name, value in asked.packing._asdict().items()}
    fast, _ = attend_packed(query, key, value, **asking.packing._asdict(), **other_side)
    slow = torch.cat(
        [
            explicit(q[None], k[None], v[None])[0][0]
            for q, k, v in zip(asking.rows(query), asked.rows(key), asked.rows(value), strict=True)
        ]
    )
    assert torch.allclose(slow, fast, atol=1e-6)


def test_order_made_in_an_evaluation_serves_training() -> None:
    """Rows of two lengths in turn are put in order, and the order is cached."""
    batch = Batch.of([[0] * length for length in (2, 9, 2, 9, 2, 9)])
    inputs = [heads(batch.n_tokens).requires_grad_() for _ in range(3)]
    with torch.inference_mode():
        attend_packed(*inputs, **batch.packing._asdict())
    attend_packed(*inputs, **batch.packing._asdict())[0].sum().backward()
    assert all(one.grad is not None for one in inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_order_follows_the_device_of_the_rows(dtype: torch.dtype) -> None:
    batch = Batch.of([[0] * length for length in (2, 9, 2, 9, 2, 9)])
    inputs = [heads(batch.n_tokens).to("meta", dtype).requires_grad_() for _ in range(3)]
    answer, _ = attend_packed(*inputs, **batch.packing._asdict())
    assert (answer.device.type, answer.shape) == ("meta", inputs[0].shape)


@pytest.mark.parametrize(("length", "keeps_weights"), [(128, True), (129, False)])
def test_long_rows_keep_no_weights_for_training(length: int, keeps_weights: bool) -> None:
    """In 16 bits on a CPU the equation is used, whose memory grows with the square of the length."""
    batch = Batch.of([[0] * length])
    inputs = [heads(length).to(torch.bfloat16).requires_grad_() for _ in range(3)]
    kept: list[tuple[int, ...]] = []

    def keep(saved: Tensor) -> Tensor:
        kept.append(tuple(saved.shape))
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        attend_packed(*inputs, **batch.packing._asdict())
    assert any(shape[-2:] == (length, length) for shape in kept) == keeps_weights


@pytest.mark.skipif(not torch.cuda.is_available(), reason="variable-length attention has no CPU kernel")
@pytest.mark.parametrize("causal", [False, True])
def test_variable_length_kernel(causal: bool) -> None:
    batch = Batch.of([[0] * length for length in (3, 70, 1, 128)]).to("cuda")
    inputs = [heads(batch.n_tokens).to("cuda", torch.bfloat16).requires_grad_() for _ in range(3)]
    fast, _ = attend_packed(*inputs, **batch.packing._asdict(), causal=causal)
    rows = zip(*(batch.rows(x.float()) for x in inputs), strict=True)
    slow = torch.cat([explicit(*(x[None] for x in row), causal=causal)[0][0] for row in rows])
    assert torch.allclose(slow, fast.float(), atol=2e-2)
    factor = torch.randn_like(slow)
    for one, other in zip(
        torch.autograd.grad((slow * factor).sum(), inputs),
        torch.autograd.grad((fast.float() * factor).sum(), inputs),
        strict=True,
    ):
        assert torch.allclose(one.float(), other.float(), atol=1e-1)
