"""How much of an encoder moves."""

import pytest

from qkv.errors import InputError
from qkv.tasks.model import TaskModel
from qkv.tasks.transfer import hold, layer_scale, transfer_named
from tests.folders import make_model


def held(name: str) -> tuple[TaskModel, set[str]]:
    model = TaskModel(make_model("BertForSequenceClassification"), "sequence")
    hold(model, transfer_named(name, 2))
    moving = {n.removeprefix("network.") for n, parameter in model.named_parameters() if parameter.requires_grad}
    return model, {".".join(name.split(".")[:3]) if "blocks" in name else name.split(".")[1] for name in moving}


@pytest.mark.parametrize(
    ("name", "moving"),
    [
        ("full", {"embedding", "encoder.blocks.0", "encoder.blocks.1", "pooler", "sequence"}),
        ("top:1", {"encoder.blocks.1", "pooler", "sequence"}),
        ("freeze", {"pooler", "sequence"}),
        ("features", {"pooler", "sequence"}),
    ],
)
def test_what_moves(name: str, moving: set[str]) -> None:
    assert held(name)[1] == moving


def test_what_stays_is_run_without_dropout() -> None:
    model, _ = held("top:1")
    model.train()
    blocks = list(model.network.encoder.blocks)
    assert not any(module.training for module in blocks[0].modules())
    assert all(module.training for module in blocks[1].modules())
    model.eval()
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize("name", ["ful", "top", "top:0", "top:3", "top:x", ""])
def test_unknown_ways(name: str) -> None:
    with pytest.raises(InputError, match="transfer"):
        transfer_named(name, 2)


def test_no_decay_moves_all_layers_alike() -> None:
    scale = layer_scale(1.0, 12)
    assert {scale(f"network.encoder.blocks.{layer}.x") for layer in range(12)} == {1.0}
    assert scale("extra.crf_start") > 1
