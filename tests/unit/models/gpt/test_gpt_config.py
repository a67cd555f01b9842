from pathlib import Path

import pytest

from qkv.config import merge, read_toml, to_toml
from qkv.errors import InputError
from qkv.models.gpt.network import PRESETS
from qkv.models.gpt.pretrain import GPTChoice, GPTTrainConfig
from tests.support.small_run import configured


def test_defaults_recipe_flags_settings_in_this_order(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('model_type = "gpt"\nrows = 8\nlength = 64\n[model]\nsize = "small"\nlayers = 3\n')
    config = configured("gpt", "shards", recipe, {"model.size": "tiny", "train.minutes": 2.0}, ["length=70"])
    assert (config.rows, config.length, config.train.minutes) == (8, 70, 2.0)
    model = config.model.config(1000, config.length)
    assert (model.layers, model.width, model.max_length, model.vocabulary_size) == (3, 128, 70, 1000)


@pytest.mark.parametrize("size", PRESETS)
def test_a_size_has_as_many_positions_as_are_trained(size: str) -> None:
    model = GPTChoice(size).config(100, 128)
    assert (model.layers, model.width, model.max_length) == (PRESETS[size]["layers"], PRESETS[size]["width"], 128)
    changed = GPTChoice(size, order="post", max_length=512, embedding_dropout=0.0).config(100, 128)
    assert (changed.order, changed.max_length, changed.dropout, changed.embedding_dropout) == ("post", 512, 0.1, 0.0)


def test_written_and_read_again(tmp_path: Path) -> None:
    config = configured(
        "gpt", "语料/shards", None, {"init": "run/model"}, ["model.dropout=0.0", "train.betas=[0.9, 0.99]"]
    )
    (tmp_path / "config.toml").write_text(to_toml(config), encoding="utf-8")
    assert merge(GPTTrainConfig(), read_toml(tmp_path / "config.toml"), "") == config


def test_settings_that_belong_together_come_one_after_the_other() -> None:
    model = configured("gpt", "shards", None, {}, ["model.width=96", "model.heads=6", "model.inner_width=384"]).model
    assert model.config(10, 8).heads == 6


@pytest.mark.parametrize(
    ("flags", "settings", "message"),
    [
        ({"model.size": "huge"}, [], "Unknown size 'huge'"),
        ({"train.minutes": 1.0}, ["train.steps=5"], "Give one of them"),
        ({"init": "folder", "size": "tiny"}, [], "folder has its own shape: leave out --size"),
        ({}, ["model.order=middle"], "--set model.order=middle: Unknown order 'middle'"),
        ({}, ["model.dropout=1"], "dropout is a share from 0 to less than 1"),
        ({}, ["model.layers=0"], "layers must be at least 1"),
        ({}, ["model.heads=7"], "width 256 is not divisible by 7 heads"),
        ({}, ["model.max_length=64"], "Rows of 128 tokens do not fit a model of 64 positions"),
        ({}, ["model.order=post", "model.inner_width=512"], "width 256 inner_width must be 1024, not 512"),
        ({"model.size": "gpt"}, ["model.width=384"], "width 384 inner_width must be 1536, not 3072"),
        ({}, ["rows=0"], "rows must be at least 1"),
        ({}, ["lenght=3"], "Did you mean 'length'"),
        ({}, ["model_type=bert"], "the settings of model_type 'gpt', not of 'bert'"),
    ],
)
def test_settings_that_cannot_be(flags: dict[str, object], settings: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        configured("gpt", "shards", None, flags, settings)
    assert message in str(caught.value)
