"""Numbers: what is folded into a head comes out of it again, and "near" means the same before and after."""

from typing import Any

import pytest
import torch

from qkv.data.labelled.examples import TextExample
from qkv.models.bert.network import BertWithHeads
from qkv.tasks.classify import PredictedNumber, Regression, learn, restore_task
from qkv.tasks.task import ClassifySettings
from qkv.tasks.transfer import TaskModel
from tests.support.folders import make_model, make_tokenizer

NUMBERS = [TextExample("the cat", label=label) for label in ("100.5", "300", "-200", "900")]


def learned() -> Regression:
    task = learn(NUMBERS, ClassifySettings(), make_tokenizer())
    assert isinstance(task, Regression)
    return task


def network() -> TaskModel:
    model = make_model("BertForSequenceClassification", labels=1)
    assert isinstance(model, BertWithHeads)
    return TaskModel(model, "sequence")


def test_unfolding_undoes_folding() -> None:
    task, model = learned(), network()
    before = {name: value.clone() for name, value in model.network.heads["sequence"].state_dict().items()}
    task.folded(model)
    after = model.network.heads["sequence"].state_dict()
    assert not torch.allclose(after["linear.bias"], before["linear.bias"])
    for name, value in task.unfolded(after).items():
        torch.testing.assert_close(value, before[name])


@pytest.mark.parametrize(("value", "right"), [(250.0, True), (600.0, False)])
def test_near_is_half_the_spread_of_training_before_and_after_saving(value: float, right: bool) -> None:
    task = learned()
    assert task.spread == task.deviation > 390
    folded = task.folded(network())
    again: Any = restore_task(folded.labels, folded.record())
    for one in (task, folded, again):
        assert one.judge(NUMBERS[0], PredictedNumber(value, 3, 1)).right is right
    assert again.spread == task.spread and (again.mean, again.deviation) == (0.0, 1.0)
