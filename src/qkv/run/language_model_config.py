"""Every setting of a language model's training, with its default: the keys of RUN/config.toml, of recipes and of --set.

NNLM and RNNLM share all but the table of their own name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from qkv.config import merge, override
from qkv.errors import InputError, did_you_mean
from qkv.models.nnlm import NNLMConfig
from qkv.models.rnnlm import RNNLMConfig
from qkv.objectives.running_text import TextConfig
from qkv.run.pretrain_recipe import read_recipe
from qkv.train.loop import TrainConfig

MODELS = ("nnlm", "rnnlm")


@dataclass(frozen=True)
class NNLMChoice:
    size: str = "small"  # a preset of models/nnlm.py; the fields below change it
    context: int | None = None
    width: int | None = None
    hidden_width: int | None = None
    direct: bool | None = None
    dropout: float | None = None

    def __post_init__(self) -> None:
        self.config(1, 0)

    def config(self, vocabulary_size: int, begin_id: int) -> NNLMConfig:
        return NNLMConfig.preset(self.size, vocabulary_size=vocabulary_size, begin_id=begin_id, **_given(self))


@dataclass(frozen=True)
class RNNLMChoice:
    size: str = "small"  # a preset of models/rnnlm.py; the fields below change it
    cell: str | None = None  # rnn, lstm, peephole, coupled or gru
    layers: int | None = None
    width: int | None = None
    cell_width: int | None = None
    projection: int | None = None
    dropout: float | None = None
    tied: bool | None = None

    def __post_init__(self) -> None:
        # what must fit together is checked when all of it was said (`configured`)
        alone = {name: value for name, value in _given(self).items() if name not in ("projection", "tied")}
        RNNLMConfig.preset(self.size, vocabulary_size=1, **(alone | {"tied": False}))

    def config(self, vocabulary_size: int) -> RNNLMConfig:
        return RNNLMConfig.preset(self.size, vocabulary_size=vocabulary_size, **_given(self))


def _given(choice: NNLMChoice | RNNLMChoice) -> dict[str, Any]:
    named = {one.name: getattr(choice, one.name) for one in fields(choice) if one.name != "size"}
    return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class LanguageModelConfig:
    model_type: str = "rnnlm"  # or "nnlm"
    data: str = ""  # the folder that `qkv prepare` wrote
    data_sha256: str | None = None  # of its manifest; put here at the start
    rows: int = 32  # a batch: pieces of text, for rnnlm each of a stream of its own
    evaluation_tokens: int = 100_000  # of the held-out documents, at most
    device: str = "cpu"
    text: TextConfig = field(default_factory=TextConfig)
    nnlm: NNLMChoice = field(default_factory=NNLMChoice)
    rnnlm: RNNLMChoice = field(default_factory=RNNLMChoice)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.model_type not in MODELS:
            hint = did_you_mean(self.model_type, MODELS)
            raise InputError(f"Unknown model_type '{self.model_type}'.{hint} Known: {', '.join(MODELS)}.")
        for name in ("rows", "evaluation_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("compile", "recompute"):
            if getattr(self.train, name):
                raise InputError(f"train.{name} does nothing for {self.model_type}: leave it out.")


def configured(
    model_type: str, data: str, recipe: Path | None, flags: Mapping[str, Any], assignments: Sequence[str]
) -> LanguageModelConfig:
    """The defaults, then a recipe's differences, then the command line's flags, then each --set.

    The flag `size` is one of the model that is trained.
    """
    if "train.minutes" in flags and any(one.replace(" ", "").startswith("train.steps=") for one in assignments):
        raise InputError("--minutes and train.steps both say how long to train. Give one of them.")
    config = merge(LanguageModelConfig(model_type=model_type), read_recipe(recipe, model_type), str(recipe))
    changes: dict[str, Any] = {"data": data}
    for key, value in flags.items():
        table, _, name = (f"{model_type}.size" if key == "size" else key).rpartition(".")
        (changes.setdefault(table, {}) if table else changes)[name] = value
    config = override(merge(config, changes, "command line"), assignments)
    other = "nnlm" if config.model_type == "rnnlm" else "rnnlm"
    if getattr(config, other) != getattr(LanguageModelConfig(), other):
        raise InputError(f"The settings {other}.… do nothing for {config.model_type}: leave them out.")
    if config.model_type == "rnnlm":
        config.rnnlm.config(1)
    return config
