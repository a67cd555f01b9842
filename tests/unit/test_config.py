"""Configs: there and back through TOML, overrides, and messages that name the key as it was typed."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from qkv.config import JobSettings, Requested, merge, override, read_toml, to_toml
from qkv.errors import InputError
from qkv.jobs.embed import resolve_embed_settings


@dataclass(frozen=True)
class Train:
    lr: float = 1e-3
    steps: int = 100
    compile: bool = False
    schedule: str = "linear"
    minutes: float | None = None
    betas: tuple[float, ...] = (0.9, 0.98)
    clip: float | None = 1.0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps must be at least 1, not {self.steps}.")


@dataclass(frozen=True)
class Run:
    name: str = '给"我"一个名字\n'
    train: Train = field(default_factory=Train)


def test_there_and_back() -> None:
    config = override(Run(), ["train.minutes=2.5", "train.betas=[0.5, 1]", "train.lr=1e-5"])
    text = to_toml(config)
    assert merge(Run(), tomllib.loads(text), "file") == config
    assert to_toml(merge(Run(), tomllib.loads(text), "file")) == text
    assert "minutes" not in to_toml(Run())


def test_none_where_the_default_is_something_else() -> None:
    config = override(Run(), ["train.clip=none"])
    assert config.train.clip is None
    assert 'clip = "none"' in to_toml(config)
    assert merge(Run(), tomllib.loads(to_toml(config)), "file") == config


@pytest.mark.parametrize("written", ["none", "None", "NONE"])
def test_none_in_any_case_is_not_a_length(written: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'train.minutes = "{written}"\ntrain.steps = 7\n')
    given = Requested(recipe, {"train.steps": 9}, [f"train.minutes={written}"])
    assert given.typed == {"train.steps": 9} and given.written == {"train.steps": 7}
    assert JobSettings(Run()).resolve(given).train == Train(steps=9)


def test_steps_of_a_recipe_are_not_overruled_by_default_epochs(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("train.steps = 7\n")
    assert (found := resolve_embed_settings(Requested(recipe))).epochs is None and found.train.steps == 7
    assert resolve_embed_settings(Requested(recipe, {"epochs": 2.0})).epochs == 2.0
    recipe.write_text("epochs = 3.0\ntrain.steps = 7\n")  # as in the config of a run, in which the epochs decide
    assert resolve_embed_settings(Requested(recipe)).epochs == 3.0


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("train.lr=1e-4", "lr", 1e-4),
        ("train.lr=1", "lr", 1.0),
        ("train.steps=1e5", "steps", 100_000),
        ("train.compile=true", "compile", True),
        ("train.schedule=cosine", "schedule", "cosine"),
        ("train.schedule='cosine'", "schedule", "cosine"),
        ("train.minutes=3", "minutes", 3.0),
        ("train.minutes=none", "minutes", None),
    ],
)
def test_override(assignment: str, path: str, value: object) -> None:
    assert getattr(override(Run(), [assignment]).train, path) == value


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (
            "train.lrr=1",
            r"--set train.lrr=1: unknown key 'train.lrr'. Did you mean 'lr'\? Known: train.lr, train.steps",
        ),
        ("trian.lr=1", r"unknown key 'trian'. Did you mean 'train'\?"),
        ("train.steps=many", r"--set train.steps=many: train.steps takes a whole number, not 'many'"),
        ("train.steps=1.5", "takes a whole number, not 1.5"),
        ("train.compile=1", "takes true or false, not 1"),
        ("train=3", "'train' is a table of settings, not 3"),
        ("train.betas=3", "takes a list"),
        ("train.lr", "write key=value"),
        ("train.steps=0", "--set train.steps=0: steps must be at least 1, not 0"),
    ],
)
def test_override_says_what_is_wrong(assignment: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        override(Run(), [assignment])


def test_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "mini.toml").write_text("[train]\nlr = 0.1\n")
    assert merge(Run(), read_toml(tmp_path / "mini.toml"), "mini.toml").train.lr == 0.1
    with pytest.raises(InputError, match=r"mni.toml: no such file. Did you mean 'mini.toml'\?"):
        read_toml(tmp_path / "mni.toml")
    (tmp_path / "bad.toml").write_text("[train\n")
    with pytest.raises(InputError, match=r"bad.toml: not valid TOML"):
        read_toml(tmp_path / "bad.toml")
    (tmp_path / "gbk.toml").write_bytes("name = '中'".encode("gbk"))
    with pytest.raises(InputError, match=r"gbk.toml: not UTF-8 at byte 8"):
        read_toml(tmp_path / "gbk.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match=r"folder.toml cannot be read: Is a directory"):
        read_toml(tmp_path / "folder.toml")


def test_a_byte_order_mark_and_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "windows.toml").write_bytes("name = '中'\r\n".encode("utf-8-sig"))
    assert read_toml(tmp_path / "windows.toml") == {"name": "中"}
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_toml(Path("~/windows.toml")) == {"name": "中"}


def test_defaults_recipe_flags_and_set_in_this_order(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('name = "a"\n[train]\nlr = 0.1\nclip = 2.0\nschedule = "cosine"\n')
    settings = JobSettings(Run(), size="train.schedule")
    given = Requested(recipe, {"train.clip": 3.0, "name": None, "size": "flat"}, ["train.lr=0.3"])
    found = settings.resolve(given)
    assert (found.name, found.train.clip, found.train.lr, found.train.schedule) == ("a", 3.0, 0.3, "flat")
    assert settings.resolve(Requested(), Run(name="b")) == Run(name="b")


def test_one_word_on_how_long(tmp_path: Path) -> None:
    settings = JobSettings(Run())
    for flags, assignments in (
        ({"train.minutes": 1.0}, ["train.steps=5"]),
        ({}, ["train.steps = 5", "train.minutes=1"]),
    ):
        with pytest.raises(InputError, match="^--minutes and train.steps both say how long to train. Give one"):
            settings.resolve(Requested(flags=flags, assignments=assignments))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[train]\nminutes = 3.0\nsteps = 7\n")
    assert settings.resolve(Requested(recipe)).train.minutes == 3.0
    found = settings.resolve(Requested(recipe, assignments=["train.steps=5"])).train
    assert (found.steps, found.minutes) == (5, None), "what is typed counts, not the recipe's minutes"


def test_what_cannot_be_set(tmp_path: Path) -> None:
    settings = JobSettings(Run(), refused={"train.steps": "steps are worked out."})
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[train]\nsteps = 7\n")
    for given in (Requested(recipe), Requested(flags={"train.steps": 1}), Requested(assignments=["train.steps=1"])):
        with pytest.raises(InputError, match="steps are worked out"):
            settings.resolve(given)
