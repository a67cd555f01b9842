"""Settings of a word2vec run."""

from pathlib import Path

import pytest

from qkv.config import merge, read_toml, to_toml
from qkv.errors import InputError
from qkv.models.word2vec.learners import RATES, Word2VecConfiguration
from tests.support.small_run import configured


def test_settings_go_through_a_file(tmp_path: Path) -> None:
    settings = ["model.architecture=cbow", "train.steps=7", "train.threads=2", "sampling.power=0.5"]
    config = configured("word2vec", "语料/shards", None, {"device": "cpu"}, settings)
    (tmp_path / "config.toml").write_text(to_toml(config), encoding="utf-8")
    assert merge(Word2VecConfiguration(), read_toml(tmp_path / "config.toml"), "") == config


def test_the_learning_rate_falls_in_a_straight_line() -> None:
    for architecture, lr in RATES.items():
        config = configured("word2vec", "x", None, {"model.architecture": architecture}, ["train.steps=10"])
        assert config.lr_at(0) == lr
        assert config.lr_at(5) == pytest.approx(lr * (1 + 1e-4) / 2)
        assert config.lr_at(10) == pytest.approx(lr * 1e-4)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("train.kernel=nubma", "Did you mean 'numba'"),
        ("train.threads=0", "threads must be at least 1"),
        ("train.epochs=0", "epochs must be a number above 0"),
        ("train.lr_end=2", "lr_end is a share"),
        ("train.seed=-1", "seed must be 0 or more"),
        ("sampling.negatives=0", "negatives must be at least 1"),
        ("model.width=0", "width must be at least 1"),
        ("model.architecture=sg", "Unknown architecture 'sg'"),
        ("model_type=bert", "settings of model_type 'word2vec', not of 'bert'"),
        ("words=hole", "Did you mean 'whole'"),
        ("min_count=0", "min_count must be at least 1"),
        ("vocabulary_size=5", "vocabulary_size must be at least 10"),
    ],
)
def test_what_cannot_be(assignment: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        configured("word2vec", "x", None, {}, [assignment])
    assert assignment in str(caught.value)


def test_only_settings_that_are_in_force_are_kept() -> None:
    tokens = configured("word2vec", "x", None, {}, []).with_words()
    assert (tokens.min_count, tokens.vocabulary_size) == (1, None) and "vocabulary_size" not in to_toml(tokens)
    whole = configured("word2vec", "x", None, {}, ["words=whole", "min_count=2"]).with_words()
    assert (whole.min_count, whole.vocabulary_size) == (2, 200_000)


@pytest.mark.parametrize(("steps", "every"), [(1, 1), (3, 1), (12, 3), (1000, 200), (1_000_000, 2048)])
def test_a_short_run_is_looked_at_several_times_too(steps: int, every: int) -> None:
    assert configured("word2vec", "x", None, {}, []).with_steps(steps).train.evaluate_every == every
    assert configured("word2vec", "x", None, {}, ["train.evaluate_every=7"]).with_steps(steps).train.evaluate_every == 7


def test_one_word_on_how_long() -> None:
    with pytest.raises(InputError, match="--minutes and train.epochs both"):
        configured("word2vec", "x", None, {"train.minutes": 1.0}, ["train.epochs=3"])
