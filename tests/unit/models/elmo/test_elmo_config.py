from pathlib import Path

import pytest

from qkv.config import merge, read_toml, to_toml
from qkv.errors import InputError
from qkv.models.elmo.pretrain import ElmoTraining
from tests.support.small_run import configured


def test_defaults_recipe_flags_settings_in_this_order(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('rows = 8\n[model]\nsize = "paper"\nclip = 2.0\n[text]\nlength = 50\n')
    config = configured("elmo", "shards", recipe, {"model.size": "mini", "train.minutes": 2.0}, ["text.length=70"])
    assert (config.rows, config.text.length, config.train.minutes) == (8, 70, 2.0)
    network = config.model.config(1000)
    assert (network.width, network.clip, network.vocabulary_size) == (64, 2.0, 1000)


def test_written_and_read_again(tmp_path: Path) -> None:
    config = configured("elmo", "shards", None, {}, ["model.filters=[4, 5]", "model.width=300", "model.cell_width=400"])
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert merge(ElmoTraining(), read_toml(tmp_path / "config.toml"), "") == config
    assert config.model.config(9).filters == (4, 5)


def test_a_vocabulary_that_is_small_is_scored_whole() -> None:
    config = configured("elmo", "shards", None, {}, ["negatives=100"])
    assert [config.samples(size) for size in (100, 199, 200)] == [False, False, True]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.size=tiny"], "Unknown size 'tiny'"),
        (["model.filters=[4, 0]"], "filters must all be at least 1"),
        (["model.width=2000"], "must be more than width (2000)"),
        (["model.widht=20"], "Did you mean 'width'"),
        (["model_type=rnnlm"], "These are the settings of model_type 'elmo'"),
        (["train.compile=true"], "train.compile does nothing for elmo"),
        (["negatives=0"], "negatives must be at least 1"),
        (["rows=0"], "rows must be at least 1"),
    ],
)
def test_settings_that_cannot_be(settings: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        configured("elmo", "shards", None, {}, settings)
    assert message in str(caught.value)


def test_time_and_steps() -> None:
    with pytest.raises(InputError, match="Give one of them"):
        configured("elmo", "shards", None, {"train.minutes": 1.0}, ["train.steps=5"])
