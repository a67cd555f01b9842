"""Every setting of ELMo's training, with its default: the keys of RUN/config.toml, of recipes and of --set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from qkv.config import merge, override
from qkv.errors import InputError
from qkv.models.elmo import ElmoConfig
from qkv.objectives.running_text import TextConfig
from qkv.run.pretrain_recipe import read_recipe
from qkv.train.loop import TrainConfig

MODEL_TYPE = "elmo"


@dataclass(frozen=True)
class ElmoChoice:
    size: str = "small"  # a preset of models/elmo.py; the fields below change it
    filters: tuple[int, ...] = ()  # how many see 1 byte, 2 bytes, …; none given: the preset's
    byte_width: int | None = None
    longest: int | None = None
    highways: int | None = None
    layers: int | None = None
    width: int | None = None
    cell_width: int | None = None
    clip: float | None = None
    dropout: float | None = None

    def __post_init__(self) -> None:
        # width and cell_width must fit together, which is checked when both were said (`configured`)
        ElmoConfig.preset(self.size, **self._given("width", "cell_width"), vocabulary_size=1)

    def config(self, vocabulary_size: int) -> ElmoConfig:
        return ElmoConfig.preset(self.size, vocabulary_size=vocabulary_size, **self._given())

    def _given(self, *left_out: str) -> dict[str, Any]:
        named = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("size", *left_out)}
        return {name: value for name, value in named.items() if value not in (None, ())}


@dataclass(frozen=True)
class ElmoTraining:
    model_type: str = MODEL_TYPE
    data: str = ""  # the folder that `qkv prepare` wrote
    data_sha256: str | None = None  # of its manifest; put here at the start
    rows: int = 32  # a batch: streams of text in each direction
    negatives: int = 4096  # words that those of a step are told from; of a vocabulary less than twice as large, all are
    evaluation_tokens: int = 100_000  # of the held-out documents, at most
    device: str = "cpu"
    text: TextConfig = field(default_factory=TextConfig)
    model: ElmoChoice = field(default_factory=ElmoChoice)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.model_type != MODEL_TYPE:
            raise InputError(f"These are the settings of model_type '{MODEL_TYPE}', not of '{self.model_type}'.")
        for name in ("rows", "negatives", "evaluation_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("compile", "recompute"):
            if getattr(self.train, name):
                raise InputError(f"train.{name} does nothing for {MODEL_TYPE}: leave it out.")

    def samples(self, vocabulary_size: int) -> bool:
        """Whether words are told from some of the vocabulary only."""
        return vocabulary_size >= 2 * self.negatives


def configured(data: str, recipe: Path | None, flags: Mapping[str, Any], assignments: Sequence[str]) -> ElmoTraining:
    """The defaults, then a recipe's differences, then the command line's flags, then each --set."""
    if "train.minutes" in flags and any(one.replace(" ", "").startswith("train.steps=") for one in assignments):
        raise InputError("--minutes and train.steps both say how long to train. Give one of them.")
    config = merge(ElmoTraining(), read_recipe(recipe, MODEL_TYPE), str(recipe))
    changes: dict[str, Any] = {"data": data}
    for key, value in flags.items():
        table, _, name = key.rpartition(".")
        (changes.setdefault(table, {}) if table else changes)[name] = value
    config = override(merge(config, changes, "command line"), assignments)
    config.model.config(1)
    return config
