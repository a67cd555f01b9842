"""Settings of a translation training: recipes say what differs, and what is said last holds."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from qkv.config import Requested, merge, read_toml, to_toml
from qkv.errors import InputError
from qkv.jobs.translate.settings import TRANSLATION_MODELS, TranslateConfig, model_config, resolve_translation_settings
from qkv.models.seq2seq.network import Seq2SeqConfig
from qkv.models.transformer.network import TransformerConfig
from qkv.search.options import GenerateConfig
from tests.conftest import ROOT

RECIPES = sorted(
    file
    for file in (ROOT / "src" / "qkv" / "zoo" / "recipes").glob("*.toml")
    if read_toml(file).get("model_type") in TRANSLATION_MODELS
)


def configured(
    recipe: Path | None,
    flags: Mapping[str, Any],
    settings: Sequence[str],
    model: str | None = None,
    start: TranslateConfig | None = None,
) -> TranslateConfig:
    return resolve_translation_settings(Requested(recipe, {"model_type": model, **flags}, settings), start)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipes_state_differences_alone(recipe: Path) -> None:
    table = read_toml(recipe)
    config = configured(recipe, {}, [])
    assert config.model_type == table.pop("model_type") and (config.epochs or config.train.steps)
    defaults = dataclasses.asdict(TranslateConfig())

    def same(stated: dict[str, Any], default: dict[str, Any], prefix: str = "") -> Iterator[str]:
        for key, value in stated.items():
            if isinstance(value, dict):
                yield from same(value, default[key], f"{prefix}{key}.")
            elif value == default[key]:
                yield f"{prefix}{key}"

    assert list(same(table, defaults)) == [], "these are the defaults: leave them out"


def test_there_are_recipes_for_both() -> None:
    assert {read_toml(recipe)["model_type"] for recipe in RECIPES} == {"transformer", "seq2seq"}


def test_what_is_said_last_holds(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('model_type = "seq2seq"\nepochs = 3.0\nsmoothing = 0.2\n[seq2seq]\ncell = "lstm"\n')
    config = configured(recipe, {"size": "small", "bitext.train": ("a", "b")}, ["seq2seq.cell=rnn", "train.steps=5"])
    assert config.seq2seq.size == "small" and config.seq2seq.cell == "rnn" and config.bitext.train == ("a", "b")
    assert config.epochs is None and config.train.steps == 5 and config.smoothing == 0.2
    assert configured(recipe, {"epochs": 2.0}, []).epochs == 2.0


def test_what_does_not_decide_how_long_is_not_written(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("epochs = 3.0\n")
    for flags, assignments in (({}, ["train.minutes = 2"]), ({"train.minutes": 2.0}, []), ({}, ["train.minutes=2.0"])):
        config = configured(recipe, flags, assignments)
        assert config.epochs is None and config.train.minutes == 2 and "epochs" not in to_toml(config)
    assert configured(recipe, {}, ["epochs=none", "train.steps=7"]).epochs is None
    recipe.write_text("[train]\nminutes = 3.0\n")
    for assignment in ("train.steps=4", "epochs=4"):
        assert configured(recipe, {}, [assignment]).train.minutes is None
    assert configured(recipe, {}, [], start=TranslateConfig(epochs=2.0)).epochs is None
    recipe.write_text("epochs = 2.0\n[train]\nminutes = 3.0\n")
    with pytest.raises(InputError, match=r"recipe.toml: epochs and train.minutes both"):
        configured(recipe, {}, [])
    assert configured(recipe, {}, ["train.minutes=1"]).epochs is None


def test_translations_may_be_as_long_as_texts(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("max_length = 40\n[decoding]\nmax_length = 50\n")
    assert configured(None, {}, ["max_length=128"]).decoding.max_length == 128
    assert configured(None, {}, ["max_length=512"]).decoding.max_length == 512
    assert configured(None, {}, ["decoding.max_length=30", "max_length=128"]).decoding.max_length == 30
    assert configured(recipe, {}, []).decoding.max_length == 50
    started = TranslateConfig(max_length=20, decoding=GenerateConfig(max_length=24))
    assert configured(None, {}, [], start=started).decoding.max_length == 24
    assert configured(None, {}, [], start=TranslateConfig(max_length=20)).decoding.max_length == 20


def test_a_tokenizer_that_is_given_has_its_size(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--vocab-size"):
        configured(None, {"tokenizer.size": 500}, ["tokenizer.source=x"])
    recipe = tmp_path / "config.toml"  # of a run: all defaults are in it
    recipe.write_text(to_toml(configured(None, {}, ["tokenizer.source=x"])))
    assert configured(recipe, {}, []).tokenizer.source == "x"
    recipe.write_text('[tokenizer]\nsize = 500\nsource = "x"\n')
    with pytest.raises(InputError, match="tokenizer.size"):
        configured(recipe, {}, [])


def test_settings_go_through_a_file(tmp_path: Path) -> None:
    config = configured(None, {"bitext.train": ("a", "b"), "epochs": 2.5}, ["decoding.beams=2"])
    file = tmp_path / "config.toml"
    file.write_text(to_toml(config))
    assert merge(TranslateConfig(), read_toml(file), str(file)) == config


def test_sizes_of_the_network() -> None:
    config = configured(None, {"size": "base"}, ["max_length=99", "transformer.norm=pre"])
    sizes = model_config(config, 30, 20, joint=False)
    assert isinstance(sizes, TransformerConfig)
    assert (sizes.source_vocabulary_size, sizes.vocabulary_size, sizes.max_length, sizes.norm) == (30, 20, 99, "pre")
    assert sizes.width == 512 and sizes.encoder_layers == 6
    other = model_config(configured(None, {}, ["seq2seq.context=fixed"], "seq2seq"), 30, 30, joint=True)
    assert isinstance(other, Seq2SeqConfig) and other.context == "fixed" and other.source_vocabulary_size is None


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("transformer", ["model_type=transfromer"], "Did you mean 'transformer'"),
        ("transformer", ["select=blue"], "Did you mean 'bleu'"),
        ("transformer", ["seq2seq.cell=rnn"], "do nothing for transformer"),
        ("seq2seq", ["transformer.width=8"], "do nothing for seq2seq"),
        ("transformer", ["transformer.size=smal"], "Did you mean 'small'"),
        ("transformer", ["transformer.width=30"], "not divisible"),
        ("seq2seq", ["seq2seq.context=atention"], "Did you mean 'attention'"),
        ("transformer", ["smoothing=1.0"], "smoothing is a share"),
        ("transformer", ["average=0"], "average must be at least 1"),
        ("transformer", ["bitext.dev_share=1.5"], "bitext.dev_share is a share"),
        ("transformer", ["bitext.dev_share=0.5", "bitext.test_share=0.5"], "leave nothing to train on"),
        ("transformer", ["tokenizer.size=0"], "tokenizer.size must be at least 1"),
        ("transformer", ["evaluation_pairs=0", "select=exact"], "must be translated"),
        ("transformer", ["train.compile=true"], "train.compile does nothing"),
        ("transformer", ["decoding.sample=true", "decoding.beams=1"], "Choose one|draws by chance"),
        ("transformer", ["epochs=0"], "epochs must be more than 0"),
        ("transformer", ["epochs=2", "train.steps=3"], "both say how long to train"),
        ("transformer", ["epochs=2", "train.minutes = 3"], "--minutes and --epochs both say how long to train"),
        ("transformer", ["train.minutes=2", "train.steps=3"], "both say how long to train"),
        ("transformer", ["tokenizer.source=x", "tokenizer.size=8000"], "tokenizer.size .* a tokenizer was given: x"),
        ("transformer", ["tokenizer.source=x", "tokenizer.min_frequency=3"], "tokenizer.min_frequency is for"),
        ("transformer", ["max_length=64", "decoding.min_length=100"], "leaves no room for the end"),
        ("transformer", ["bitext.colums=1"], "unknown key 'bitext.colums'. Did you mean 'columns'"),
    ],
)
def test_what_is_refused(model: str, settings: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configured(None, {}, settings, model)


def test_a_recipe_for_something_else() -> None:
    with pytest.raises(InputError, match="recipe for seq2seq, not for transformer"):
        configured(ROOT / "src" / "qkv" / "zoo" / "recipes" / "translate-seq2seq.toml", {}, [], "transformer")
    for name in ("elmo", "qkv-mini", "rnnlm", "word2vec"):
        with pytest.raises(InputError, match="elmo|bert|rnnlm|word2vec|qkv pretrain"):
            configured(ROOT / "src" / "qkv" / "zoo" / "recipes" / f"{name}.toml", {}, [])
