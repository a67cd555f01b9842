"""A recipe is for one model, and says so."""

from pathlib import Path

import pytest

from qkv.cli.main import main
from qkv.config import read_toml
from qkv.errors import InputError
from qkv.models.table import PRETRAINED
from tests.conftest import ROOT
from tests.support.small_run import configured

RECIPES = sorted(
    file
    for file in (ROOT / "src" / "qkv" / "zoo" / "recipes").glob("*.toml")
    if read_toml(file).get("model_type") in PRETRAINED  # others are of `qkv train`
)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_refused_by_all_models_but_its_own(recipe: Path) -> None:
    own = read_toml(recipe)["model_type"]
    assert configured(own, "shards", recipe).model_type == own
    for model in set(PRETRAINED) - {own}:
        with pytest.raises(InputError) as refused:
            configured(model, "shards", recipe)
        assert f"{recipe} is a recipe for {own}, not for {model}." in str(refused.value)
        assert f"qkv pretrain {own} --recipe {recipe} …" in str(refused.value)


def test_nothing_is_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--data",
        str(tmp_path),
        "--out",
        str(tmp_path / "run"),
        "--recipe",
        "elmo",
    ]
    assert main(["pretrain", "bert", *words]) == 2
    assert "is a recipe for elmo, not for bert. Type: qkv pretrain elmo" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_does_not_say(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text("[train]\nlr = 0.5\n")
    for model in PRETRAINED:
        assert configured(model, "shards", file).train.lr == 0.5


def test_a_model_that_is_not_known(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    for said, message in (("'emlo'", "unknown model_type 'emlo'. Did you mean 'elmo'?"), ("3", "unknown model_type 3")):
        file.write_text(f"model_type = {said}\n")
        with pytest.raises(InputError, match=message) as refused:
            configured("elmo", "shards", file)
        assert f"{file}: " in str(refused.value) and "Known: bert, word2vec, elmo" in str(refused.value)
