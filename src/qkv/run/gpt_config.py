"""Every setting of a GPT's pretraining, with its default: the keys of RUN/config.toml, of recipes and of --set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from qkv.config import merge, override
from qkv.errors import InputError
from qkv.interop.gpt_json import dialect_of
from qkv.models.gpt import GPTConfig
from qkv.run.pretrain_recipe import read_recipe
from qkv.train.train_config import TrainConfig

MODEL_TYPE = "gpt"
SHAPE = ("size", "layers", "width", "heads", "inner_width", "max_length", "order")
DROPOUTS = ("dropout", "attention_dropout", "embedding_dropout")


@dataclass(frozen=True)
class GPTChoice:
    size: str = "mini"  # a preset of models/gpt.py; the fields below change it
    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    inner_width: int | None = None
    max_length: int | None = None  # positions; None: `length`, since no others would be trained
    order: str | None = None  # of norm and residual: "pre" as in GPT-2, "post" as in GPT
    # None: that of the folder to go on from, or what GPTConfig has
    dropout: float | None = None  # of what each half of a block adds
    attention_dropout: float | None = None
    embedding_dropout: float | None = None

    def __post_init__(self) -> None:
        # width and heads must fit together, which is checked when both were said (`configured`)
        GPTConfig.preset(self.size, vocabulary_size=1, **self._given("width", "heads"))
        GPTConfig.preset(self.size, vocabulary_size=1, heads=1, **self._given("heads"))

    def config(self, vocabulary_size: int, length: int) -> GPTConfig:
        """For rows of so many tokens; one that can be saved when it is trained."""
        settings = {"max_length": length} | self._given()
        config = GPTConfig.preset(self.size, vocabulary_size=vocabulary_size, **settings)
        dialect_of(config)
        return config

    def _given(self, *left_out: str) -> dict[str, Any]:
        named = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("size", *left_out)}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class GPTTrainConfig:
    model_type: str = MODEL_TYPE
    data: str = ""  # the folder that `qkv prepare` wrote
    data_sha256: str | None = None  # of its manifest; put here at the start
    init: str | None = None  # a folder to go on from; None: random weights
    rows: int = 32  # a batch has about rows · length tokens
    length: int = 128  # tokens of a row; a document that has more becomes several rows
    evaluation_tokens: int = 100_000  # of the held-out documents, about so many at most
    device: str = "cpu"
    model: GPTChoice = field(default_factory=GPTChoice)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.model_type != MODEL_TYPE:
            raise InputError(f"These are the settings of model_type '{MODEL_TYPE}', not of '{self.model_type}'.")
        for name in ("rows", "length", "evaluation_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}.")


def configured(data: str, recipe: Path | None, flags: Mapping[str, Any], assignments: Sequence[str]) -> GPTTrainConfig:
    """The defaults, then a recipe's differences, then the command line's flags, then each --set."""
    if "train.minutes" in flags and any(one.replace(" ", "").startswith("train.steps=") for one in assignments):
        raise InputError("--minutes and train.steps both say how long to train. Give one of them.")
    if "init" in flags and "model.size" in flags:
        raise InputError(f"{flags['init']} has its own shape: leave out --size.")
    config = merge(GPTTrainConfig(), read_recipe(recipe, MODEL_TYPE), str(recipe))
    changes: dict[str, Any] = {"data": data}
    for key, value in flags.items():
        table, _, name = key.rpartition(".")
        (changes.setdefault(table, {}) if table else changes)[name] = value
    config = override(merge(config, changes, "command line"), assignments)
    if config.init is None and config.length > config.model.config(1, config.length).max_length:
        raise InputError(
            f"Rows of {config.length} tokens do not fit a model of {config.model.max_length} positions. Set length "
            "lower, or model.max_length higher."
        )
    return config
