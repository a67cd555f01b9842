"""Settings of a run: recipes say what differs, and what is said last holds."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qkv.config import merge, read_toml, to_toml
from qkv.errors import InputError
from qkv.models.bert.network import PRESETS
from qkv.models.bert.pretrain import ModelChoice, PretrainConfig
from qkv.models.elmo.pretrain import ElmoTraining
from qkv.models.gpt.pretrain import GPTTrainConfig
from qkv.models.nnlm.pretrain import LanguageModelConfig
from qkv.models.word2vec.learners import Word2VecConfiguration
from tests.conftest import ROOT
from tests.support.small_run import configured

DEFAULTS: dict[str, Any] = {
    "bert": PretrainConfig(),
    "word2vec": Word2VecConfiguration(),
    "elmo": ElmoTraining(),
    "rnnlm": LanguageModelConfig(),
    "gpt": GPTTrainConfig(),
}
RECIPES = sorted(
    file
    for file in (ROOT / "src" / "qkv" / "zoo" / "recipes").glob("*.toml")
    if read_toml(file).get("model_type") in DEFAULTS  # others are of `qkv train`
)


def test_there_is_a_recipe_for_each() -> None:
    assert {read_toml(recipe)["model_type"] for recipe in RECIPES} == set(DEFAULTS)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipes_state_differences_alone(recipe: Path) -> None:
    """But for the model that they are for."""
    table = read_toml(recipe)
    plain = DEFAULTS[table["model_type"]]
    merge(plain, table, str(recipe))
    del table["model_type"]
    defaults = dataclasses.asdict(plain)

    def same(stated: dict[str, Any], default: dict[str, Any], prefix: str = "") -> Iterator[str]:
        for key, value in stated.items():
            if isinstance(value, dict):
                yield from same(value, default[key], f"{prefix}{key}.")
            elif (tuple(value) if isinstance(value, list) else value) == default[key]:
                yield f"{prefix}{key}"

    assert list(same(table, defaults)) == [], "these are the defaults: leave them out"


def test_a_recipe_gives_way_to_flags_and_flags_to_set(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('data = "elsewhere"\nrows = 4\n[model]\nsize = "small"\n[train]\nlr = 0.5\nminutes = 3\n')
    config = configured(
        "bert", "here", recipe, {"model.size": "tiny", "train.minutes": 2.0}, ["train.minutes=1", "rows=2"]
    )
    assert (config.data, config.model.size, config.train.lr, config.train.minutes, config.rows) == (
        "here", "tiny", 0.5, 1.0, 2
    )  # fmt: skip


def test_settings_go_through_a_file(tmp_path: Path) -> None:
    settings = [
        "init=hf:a/b",
        "train.minutes=2",
        "masking.treatment=[1, 0, 0]",
        "model.layers=3",
        "train.betas=[0.8, 0.9]",
    ]
    config = configured("bert", "语料/shards", None, {}, settings)
    (tmp_path / "config.toml").write_text(to_toml(config), encoding="utf-8")
    assert merge(PretrainConfig(), read_toml(tmp_path / "config.toml"), "") == config


@pytest.mark.parametrize("size", PRESETS)
def test_a_size_and_what_changes_it(size: str) -> None:
    plain = ModelChoice(size).config(vocabulary_size=100, max_length=128)
    assert (plain.layers, plain.width, plain.max_length) == (PRESETS[size]["layers"], PRESETS[size]["width"], 512)
    changed = ModelChoice(size, layers=3, dropout=0.0).config(vocabulary_size=100, max_length=1024)
    assert (changed.layers, changed.width, changed.max_length) == (3, PRESETS[size]["width"], 1024)
    assert changed.dropout == 0.0 and changed.attention_dropout == 0.1


def test_where_a_bad_value_came_from_is_said(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[train]\nlr = -1\n")
    with pytest.raises(InputError, match="recipe.toml: lr must be a number above 0"):
        configured("bert", "shards", recipe, {}, [])
    with pytest.raises(InputError, match="^minutes must be more than 0"):
        configured("bert", "shards", None, {"train.minutes": 0.0}, [])
    with pytest.raises(InputError, match="--set rows=0: rows must be at least 1"):
        configured("bert", "shards", None, {}, ["rows=0"])
    with pytest.raises(InputError, match="the settings of model_type 'bert', not of 'elmo'"):
        configured("bert", "shards", None, {}, ["model_type=elmo"])
