"""Every setting of a pretraining run, with its default: the keys of RUN/config.toml, of recipes and of --set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qkv.config import merge, override
from qkv.errors import InputError
from qkv.models.bert import BertConfig
from qkv.objectives.masked import MaskingConfig
from qkv.objectives.pairs import PairConfig
from qkv.run.pretrain_recipe import read_recipe
from qkv.train.loop import TrainConfig

MODEL_TYPE = "bert"
SHAPE = ("layers", "width", "heads", "inner_width")


@dataclass(frozen=True)
class ModelChoice:
    size: str = "mini"  # a preset of models/bert.py; the fields below change it
    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    inner_width: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.1

    def __post_init__(self) -> None:
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} is a share from 0 to less than 1, not {getattr(self, name)}.")
        for name in SHAPE:
            if (value := getattr(self, name)) is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}.")

    def config(self, vocabulary_size: int, max_length: int) -> BertConfig:
        named = {name: getattr(self, name) for name in SHAPE}
        changes: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
        return BertConfig.preset(
            self.size,
            vocabulary_size=vocabulary_size,
            max_length=max(512, max_length),
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            **changes,
        )


@dataclass(frozen=True)
class PretrainConfig:
    model_type: str = MODEL_TYPE
    data: str = ""  # the folder that `qkv prepare` wrote
    data_sha256: str | None = None  # of its manifest; put here at the start
    init: str | None = None  # a folder to go on from; None: random weights
    rows: int = 32  # a batch
    evaluation_rows: int = 256  # of the held-out documents
    device: str = "cpu"
    model: ModelChoice = field(default_factory=ModelChoice)
    pairs: PairConfig = field(default_factory=PairConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.model_type != MODEL_TYPE:
            raise InputError(f"These are the settings of model_type '{MODEL_TYPE}', not of '{self.model_type}'.")
        for name in ("rows", "evaluation_rows"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}.")


def configured(data: str, recipe: Path | None, flags: Mapping[str, Any], assignments: Sequence[str]) -> PretrainConfig:
    """The defaults, then a recipe's differences, then the command line's flags, then each --set."""
    if "train.minutes" in flags and any(one.replace(" ", "").startswith("train.steps=") for one in assignments):
        raise InputError("--minutes and train.steps both say how long to train. Give one of them.")
    if "init" in flags and "model.size" in flags:
        raise InputError(f"{flags['init']} has its own shape: leave out --size.")
    config = merge(PretrainConfig(), read_recipe(recipe, MODEL_TYPE), str(recipe))
    changes: dict[str, Any] = {"data": data}
    for key, value in flags.items():
        table, _, name = key.rpartition(".")
        (changes.setdefault(table, {}) if table else changes)[name] = value
    return override(merge(config, changes, "command line"), assignments)
