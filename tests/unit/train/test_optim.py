"""Schedules on paper, decay groups, and the optimizer's state by name."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from qkv.errors import InputError
from qkv.train.optim import SCHEDULES, adamw, optimizer_tensors, restore_optimizer, schedule


@pytest.mark.parametrize("name", SCHEDULES)
def test_all_warm_up_and_stay_in_bounds(name: str) -> None:
    factors = [SCHEDULES[name](step, 100, 10) for step in range(100)]
    assert factors[0] == pytest.approx(0.1)
    assert factors[9] == pytest.approx(1.0)
    assert all(0 <= factor <= 1 for factor in factors)
    assert all(a <= b for a, b in pairwise(factors[:10]))
    assert all(a >= b for a, b in pairwise(factors[10:]))


def test_where_each_one_ends() -> None:
    at = {name: factor(99, 100, 10) for name, factor in SCHEDULES.items()}
    assert at["constant"] == 1.0
    assert at["linear"] == pytest.approx(1 / 90)
    assert at["cosine"] < 1e-3
    assert at["wsd"] == pytest.approx(1 / 20)
    assert SCHEDULES["wsd"](79, 100, 10) == 1.0
    assert SCHEDULES["cosine"](55, 100, 10) == pytest.approx(0.5)
    assert SCHEDULES["inverse_sqrt"](39, 100, 10) == pytest.approx(0.5)  # four times as far as the warm-up
    assert at["inverse_sqrt"] == pytest.approx(0.1**0.5)


def test_how_long_it_goes_down() -> None:
    assert [SCHEDULES["wsd"](step, 100, 0, 0.4) for step in (0, 60, 80)] == [1.0, 1.0, 0.5]


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_warmup_and_one_step(name: str) -> None:
    assert SCHEDULES[name](0, 1, 0) == 1.0


def test_unknown_schedule() -> None:
    with pytest.raises(InputError, match="Did you mean 'cosine'"):
        schedule("cosin")


def test_matrices_decay_and_the_rest_does_not() -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.LayerNorm(4))
    groups = adamw(model, lr=0.1, betas=(0.9, 0.98), epsilon=1e-6, weight_decay=0.5).param_groups
    assert [(len(group["params"]), group["weight_decay"]) for group in groups] == [(2, 0.5), (3, 0.0)]


def test_state_goes_there_and_back() -> None:
    def build() -> tuple[nn.Linear, torch.optim.AdamW]:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        return model, adamw(model, lr=0.1, betas=(0.9, 0.98), epsilon=1e-6, weight_decay=0.1)

    def step(model: nn.Linear, optimizer: torch.optim.AdamW) -> None:
        optimizer.zero_grad()
        model(torch.ones(1, 3)).square().sum().backward()
        optimizer.step()

    one, optimizer = build()
    step(one, optimizer)
    tensors = optimizer_tensors(one, optimizer)
    assert set(tensors) == {f"{p}.{k}" for p in ("weight", "bias") for k in ("step", "exp_avg", "exp_avg_sq")}
    other, fresh = build()
    other.load_state_dict(one.state_dict())
    restore_optimizer(other, fresh, {name: value.clone() for name, value in tensors.items()})
    step(one, optimizer)
    step(other, fresh)
    torch.testing.assert_close(one.weight, other.weight)
