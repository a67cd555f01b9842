from pathlib import Path

import pytest

from qkv.config import merge, read_toml, to_toml
from qkv.errors import InputError
from qkv.models.nnlm.pretrain import LanguageModelConfig
from tests.support.small_run import configured


def test_defaults_recipe_flags_settings_in_this_order(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('rows = 8\n[rnnlm]\nsize = "large"\ncell = "gru"\n[text]\nlength = 50\n')
    config = configured("rnnlm", "shards", recipe, {"size": "medium", "train.minutes": 2.0}, ["text.length=70"])
    assert (config.rows, config.text.length, config.train.minutes) == (8, 70, 2.0)
    network = config.rnnlm.config(1000)
    assert (network.cell, network.width, network.dropout, network.vocabulary_size) == ("gru", 650, 0.5, 1000)


def test_written_and_read_again(tmp_path: Path) -> None:
    for model_type in ("nnlm", "rnnlm"):
        config = configured(model_type, "shards", None, {}, [f"{model_type}.width=64", f"{model_type}.dropout=0.0"])
        (tmp_path / "config.toml").write_text(to_toml(config))
        assert merge(LanguageModelConfig(), read_toml(tmp_path / "config.toml"), "") == config


def test_presets_and_what_changes_them() -> None:
    network = configured("nnlm", "shards", None, {"size": "paper"}, ["nnlm.direct=false"]).nnlm.config(10, 2)
    assert (network.context, network.direct, network.begin_id) == (4, False, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["rnnlm.cell=lstmm"], "--set rnnlm.cell=lstmm: Unknown cell 'lstmm'. Did you mean 'lstm'"),
        (["rnnlm.cell_width=300"], "must be as wide as a word"),
        (["rnnlm.projection=300", "rnnlm.cell=gru"], "projection is for the cell lstm"),
        (["rnnlm.size=tiny"], "Unknown size 'tiny'"),
        (["nnlm.context=3"], "The settings nnlm.… do nothing for rnnlm"),
        (["model_type=elm"], "Unknown model_type 'elm'"),
        (["train.compile=true"], "train.compile does nothing for rnnlm"),
        (["rows=0"], "rows must be at least 1"),
        (["text.lenght=3"], "Did you mean 'length'"),
    ],
)
def test_settings_that_cannot_be(settings: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        configured("rnnlm", "shards", None, {}, settings)
    assert message in str(caught.value)


def test_time_and_steps() -> None:
    with pytest.raises(InputError, match="Give one of them"):
        configured("rnnlm", "shards", None, {"train.minutes": 1.0}, ["train.steps=5"])
