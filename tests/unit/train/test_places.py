"""What is named is found, or it is said what to do."""

from pathlib import Path

import pytest
import torch

from qkv.errors import InputError
from qkv.models.folders.hub import locate
from qkv.train.device import device_named, seed_draws


def test_the_model_of_a_run(tmp_path: Path) -> None:
    assert locate(tmp_path) == tmp_path, "what is no run is left as it is"
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    assert locate(tmp_path) == tmp_path / "model"
    assert locate(tmp_path / "model") == tmp_path / "model"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("", "is not finished. Go on with it: qkv pretrain --resume"),
        ('task = "tag"', "qkv finetune --resume"),
        ("[bitext]", "qkv train translate --resume"),
        ("[finetune]", "a learning curve, which has no model"),
        ('# job: finetune\nnote = "[finetune] and [bitext] are words here"', "qkv finetune --resume"),
    ],
)
def test_a_run_without_a_model(tmp_path: Path, settings: str, message: str) -> None:
    (tmp_path / "config.toml").write_text(settings)
    with pytest.raises(InputError, match=message):
        locate(tmp_path)


def test_a_device_that_is_there() -> None:
    assert device_named("cpu") == torch.device("cpu")


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "", "xpu", "meta", "cup"])
def test_a_device_that_is_not_there(device: str) -> None:
    with pytest.raises(InputError, match=r"(Unknown|Cannot use) device .* Use (device 'cpu'|auto, cpu, )"):
        device_named(device)


def test_seeded_as_by_torch() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    seed_draws(torch.device("cpu"), 7)
    assert torch.rand(3).equal(expected)
