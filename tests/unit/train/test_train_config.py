"""Settings of the loop: what is refused, and where the learning rate is at a step."""

from dataclasses import replace
from typing import Any

import pytest

from qkv.errors import InputError
from qkv.train.optim import TrainConfig


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": "liner"}, "Unknown schedule 'liner'. Did you mean 'linear'"),
        ({"precision": "fp61"}, "Unknown precision 'fp61'. Did you mean 'fp16'"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"warmup": 3.0}, "warmup is a share"),
        ({"minutes": -1.0}, "minutes must be more than 0"),
        ({"betas": (0.9,)}, "betas must be two numbers"),
        ({"betas": (0.9, 1.0)}, "betas must be from 0 to less than 1"),
        ({"lr": 0.0}, "lr must be a number above 0"),
        ({"clip": float("nan")}, "clip must be a number above 0"),
        ({"weight_decay": -0.1}, "weight_decay must be 0 or more"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"optimizer": "mun"}, "Unknown optimizer 'mun'. Did you mean 'muon'"),
        ({"muon_lr": 0.0}, "muon_lr must be a number above 0"),
        ({"decay": 0.0}, "decay is a share of the steps"),
    ],
)
def test_configs_are_checked(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(TrainConfig(), **change)


def test_the_rate_at_a_step() -> None:
    config = TrainConfig(steps=100, lr=0.5, warmup=0.1, schedule="wsd", decay=0.5)
    assert [config.lr_at(step) for step in (0, 9, 50, 75)] == [0.05, 0.5, 0.5, 0.25]
    assert replace(config, decay=1.0).lr_at(50) == 0.25
