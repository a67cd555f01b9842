"""A recipe is for one model, and says so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qkv.cli.main import main
from qkv.cli.pretrain import begin
from qkv.config import read_toml
from qkv.errors import InputError
from qkv.models import language_model
from qkv.models.bert import pretrain as pretrain_config
from qkv.models.elmo import pretrain
from qkv.models.gpt import pretrain as gpt_config
from qkv.models.table import MODELS, read_recipe
from qkv.models.word2vec import learners
from tests.conftest import ROOT

RECIPES = sorted(set((ROOT / "recipes").glob("*.toml")) - set((ROOT / "recipes").glob("translate-*")))
CONFIGURED: dict[str, Callable[[Path], Any]] = {
    "bert": lambda recipe: pretrain_config.configured("shards", recipe, {}, []),
    "word2vec": lambda recipe: learners.configured("shards", recipe, {}, []),
    "elmo": lambda recipe: pretrain.configured("shards", recipe, {}, []),
    "nnlm": lambda recipe: language_model.configured("nnlm", "shards", recipe, {}, []),
    "rnnlm": lambda recipe: language_model.configured("rnnlm", "shards", recipe, {}, []),
    "gpt": lambda recipe: gpt_config.configured("shards", recipe, {}, []),
}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_refused_by_all_models_but_its_own(recipe: Path) -> None:
    own = read_toml(recipe)["model_type"]
    assert tuple(CONFIGURED) == MODELS
    assert CONFIGURED[own](recipe).model_type == own
    for model in set(MODELS) - {own}:
        with pytest.raises(InputError) as refused:
            CONFIGURED[model](recipe)
        assert f"{recipe} is a recipe for {own}, not for {model}." in str(refused.value)
        assert f"qkv pretrain {own} --recipe {recipe} …" in str(refused.value)


def test_nothing_is_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--data", str(tmp_path), "--out", str(tmp_path / "run"), "--recipe", str(ROOT / "recipes" / "elmo.toml")]
    assert main(["pretrain", "bert", *words]) == 2
    assert "is a recipe for elmo, not for bert. Type: qkv pretrain elmo" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_does_not_say(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text("[train]\nlr = 0.5\n")
    for model in MODELS:
        assert read_recipe(file, model) == {"train": {"lr": 0.5}} and CONFIGURED[model](file).train.lr == 0.5
        assert read_recipe(None, model) == {}


def test_a_model_that_is_not_known(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    for said, message in (("'emlo'", "unknown model_type 'emlo'. Did you mean 'elmo'?"), ("3", "unknown model_type 3")):
        file.write_text(f"model_type = {said}\n")
        with pytest.raises(InputError, match=message) as refused:
            begin("elmo", "shards", tmp_path / "run", file)
        assert f"{file}: " in str(refused.value) and "Known: bert, word2vec, elmo" in str(refused.value)
