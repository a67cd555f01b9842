"""The loop keeps its best weights, gives up when nothing gets better, and does both the same after a resume."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from qkv.errors import InputError
from qkv.models.bert.network import BertWithHeads
from qkv.train.log import Silent
from qkv.train.loop import TrainConfig, Trainer
from qkv.train.optim import adamw
from tests.unit.train.test_loop import CONFIG, StopAt, contents, job

pytestmark = pytest.mark.usefixtures("one_thread")
FIGURES = {4: 0.1, 8: 0.5, 12: 0.4, 16: 0.5, 20: 0.3, 24: 0.9}
LONG = replace(CONFIG, steps=24, save_every=4)


def trainer(out: Path, config: TrainConfig, stop: int | None = None) -> Trainer[Any]:
    the_job = job(out, best_by="figure")
    made = Trainer(the_job, config, Silent())
    # the figure is a function of the step, as it would be of the weights
    judge = replace(the_job, evaluate=lambda network: {"figure": FIGURES[made.step]})
    if stop is not None:
        judge = replace(judge, batches=StopAt(the_job.batches, stop))
    made.job = judge
    return made


def test_the_best_weights_are_kept_and_taken(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "run", replace(LONG, steps=20))
    assert whole.run().finished
    assert (whole.best.step, whole.best.value, whole.best.waited) == (8, 0.5, 3)  # an equal one is not better
    at_eight = trainer(tmp_path / "eight", replace(LONG, steps=20), stop=8)
    with pytest.raises(KeyboardInterrupt):
        at_eight.run()
    whole.take_best()
    for name, parameter in whole.trained().items():
        torch.testing.assert_close(parameter, at_eight.trained()[name], rtol=0, atol=0)


def test_it_gives_up(tmp_path: Path) -> None:
    made = trainer(tmp_path / "run", replace(LONG, patience=2))
    outcome = made.run()
    assert outcome.finished and outcome.step == 16
    again = trainer(tmp_path / "run", replace(LONG, patience=2))
    assert again.run().finished and again.step == 16  # a run that gave up stays where it is
    assert again.best.step == 8 and again.best.weights


@pytest.mark.parametrize("stop", [3, 9, 13, 15])
def test_a_broken_run_knows_its_best(tmp_path: Path, stop: int) -> None:
    config = replace(LONG, patience=2)
    whole = trainer(tmp_path / "whole", config)
    whole.run()
    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path / "broken", config, stop).run()
    broken = trainer(tmp_path / "broken", config)
    broken.run()
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")
    for name, weights in whole.best.weights.items():
        torch.testing.assert_close(broken.best.weights[name], weights, rtol=0, atol=0)


def test_a_fixed_part_is_not_in_the_checkpoint(tmp_path: Path) -> None:
    made = trainer(tmp_path / "run", LONG)
    model = made.job.model
    assert isinstance(model, BertWithHeads)
    model.encoder.blocks[0].requires_grad_(False)
    made._begin()
    made.run()
    assert not any(name.startswith("encoder.blocks.0.") for name in made.trained())
    other = trainer(tmp_path / "run", LONG)
    with pytest.raises(InputError, match="holds another model"):
        other.restore()


def test_parameters_have_their_own_rates() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = adamw(
        model,
        lr=1.0,
        betas=(0.9, 0.999),
        epsilon=1e-8,
        weight_decay=0.1,
        scale=lambda name: 0.5 if name.startswith("0") else 1.0,
    )
    assert sorted((group["scale"], group["weight_decay"]) for group in optimizer.param_groups) == [
        (0.5, 0.0),
        (0.5, 0.1),
        (1.0, 0.0),
        (1.0, 0.1),
    ]


def test_patience_is_checked() -> None:
    with pytest.raises(InputError, match="patience"):
        TrainConfig(patience=0)


def test_patience_waits_until_something_was_learned(tmp_path: Path) -> None:
    """The trivial answer reaches 0.5: the run that gave up at step 16 goes on to the end."""
    made = trainer(tmp_path / "run", replace(LONG, patience=2, least=0.5))
    assert made.run().step == 24 and made.best.value == 0.9


def renewed(out: Path, config: TrainConfig, stop: int | None = None) -> Trainer[Any]:
    """A run that learns nothing before step 16, and can start again."""
    made = trainer(out, config, stop)
    initial = {name: parameter.detach().clone() for name, parameter in made.job.model.named_parameters()}

    def renew() -> None:
        with torch.no_grad():
            for name, parameter in made.job.model.named_parameters():
                parameter.copy_(initial[name])

    figures = {4: 0.0, 8: 0.0, 12: 0.0, 16: 0.4, 20: 0.3, 24: 0.3}
    made.job = replace(made.job, renew=renew, evaluate=lambda network: {"figure": figures.get(made.step, 0.2)})
    return made


AGAIN = replace(LONG, patience=2, least=0.0, retry=0.5)


def test_a_run_that_learned_nothing_starts_again_once(tmp_path: Path) -> None:
    made = renewed(tmp_path / "run", AGAIN)
    outcome = made.run()
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line for line in log if "restart" in line] == [{"step": 12, "restart": {"lr": 1.5e-3}}]
    assert made.origin == 12 and made.best.step == 16
    assert outcome.finished and outcome.step == 24  # by its patience; 36 steps at most
    rates = {line["step"]: line["lr"] for line in log if "lr" in line}
    whole = renewed(tmp_path / "slow", replace(AGAIN, retry=None, lr=1.5e-3))
    assert rates[15] == whole.config.lr_at(14 - 12) < rates[5]


def test_the_second_attempt_begins_from_the_initial_weights(tmp_path: Path) -> None:
    made = renewed(tmp_path / "run", replace(AGAIN, lr=1e-30))  # so that the steps after it change nothing
    before = {name: parameter.detach().clone() for name, parameter in made.trained().items()}
    with torch.no_grad():
        made.job.model.get_parameter(next(iter(before))).add_(1.0)
    made.run()
    for name, parameter in made.trained().items():
        torch.testing.assert_close(parameter.detach(), before[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("stop", [11, 12, 13, 17, 21])
def test_a_second_attempt_that_was_killed_ends_like_a_whole_one(tmp_path: Path, stop: int) -> None:
    renewed(tmp_path / "whole", AGAIN).run()
    with pytest.raises(KeyboardInterrupt):
        renewed(tmp_path / "broken", AGAIN, stop).run()
    renewed(tmp_path / "broken", AGAIN).run()
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


def test_no_second_attempt_after_success_or_without_the_setting(tmp_path: Path) -> None:
    assert trainer(tmp_path / "one", AGAIN).run().step == 16  # no initial weights to return to
    made = renewed(tmp_path / "two", replace(AGAIN, retry=None))
    assert made.run().step == 24 and made.origin == 0
