"""Which models `qkv pretrain` trains, and a recipe read for one of them.

Settings of different models share many names, so a recipe says which model it is for, as `model_type`. A recipe that
does not say is taken as it is.
"""

from pathlib import Path
from typing import Any

from qkv.config import read_toml
from qkv.errors import InputError, did_you_mean

MODELS = ("bert", "word2vec", "elmo", "nnlm", "rnnlm", "gpt")


def read_recipe(file: Path | None, model: str) -> dict[str, Any]:
    """The settings in a recipe; without one, none."""
    if file is None:
        return {}
    settings = read_toml(file)
    named = settings.get("model_type", model)
    if named not in MODELS:
        raise InputError(f"{file}: {unknown_model(named)}")
    if named != model:
        raise InputError(
            f"{file} is a recipe for {named}, not for {model}. Type: qkv pretrain {named} --recipe {file} …, or leave "
            "the recipe out."
        )
    return settings


def unknown_model(named: object) -> str:
    hint = did_you_mean(named, MODELS) if isinstance(named, str) else ""
    return f"unknown model_type {named!r}.{hint} Known: {', '.join(MODELS)}."
