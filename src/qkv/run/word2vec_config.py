"""Every setting of a word2vec run, with its default: the keys of RUN/config.toml, of recipes and of --set."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qkv.config import merge, override
from qkv.errors import InputError, did_you_mean
from qkv.models.word2vec import Word2VecConfig
from qkv.objectives.sampled import SamplingConfig
from qkv.run.pretrain_recipe import read_recipe

MODEL_TYPE = "word2vec"
COUNTS = ("steps", "threads", "chunk", "windows", "most", "log_every", "evaluate_every", "save_every", "keep")
WORDS = ("tokens", "whole")
KERNELS = ("auto", "numba", "torch")
RATES = {"skipgram": 0.025, "cbow": 0.05}
"""Largest learning rates, those of Mikolov's program."""
MIN_COUNT, VOCABULARY_SIZE = 5, 200_000
"""Of whole words. Tokens were chosen when their tokenizer was trained."""
EVALUATE_EVERY, MOMENTS = 2048, 5
"""Chunks between two evaluations, and how many of these even a short run has."""


@dataclass(frozen=True)
class VectorChoice:
    architecture: str = "skipgram"  # or cbow
    width: int = 100

    def __post_init__(self) -> None:
        self.config(1)

    def config(self, vocabulary_size: int) -> Word2VecConfig:
        return Word2VecConfig(vocabulary_size, self.architecture, self.width)


@dataclass(frozen=True)
class Word2VecTrainConfig:
    epochs: float = 5.0  # how often the corpus is read
    steps: int | None = None  # chunks in all; put here at the start, from epochs or minutes
    minutes: float | None = None  # a time budget; turned into `steps` once, at the start
    lr: float | None = None  # at the beginning; None: 0.025 for skip-gram, 0.05 for CBOW
    lr_end: float = 1e-4  # share of it that is left at the end; it falls in a straight line
    kernel: str = "auto"  # numba where it is installed and the device is a CPU, else torch
    threads: int | None = None  # None: one a core. With 1, a run is reproducible to the last bit
    chunk: int = 16_384  # tokens that one thread takes at a time
    windows: int | None = None  # of the torch kernel: a step of gradient descent; None: 512, on a GPU a whole chunk
    most: int = 64  # of the torch kernel: gradients that a word's vector takes in a step; more are scaled down to these
    seed: int = 0
    log_every: int = 64  # chunks
    evaluate_every: int | None = None  # None: 2048, or as often as makes MOMENTS in a shorter run
    save_every: int = 2048
    keep: int = 2  # checkpoints

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            hint = did_you_mean(self.kernel, KERNELS)
            raise InputError(f"Unknown kernel '{self.kernel}'.{hint} Known: {', '.join(KERNELS)}.")
        for name in COUNTS:
            if (value := getattr(self, name)) is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}.")
        for name in ("epochs", "minutes", "lr"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise InputError(f"{name} must be a number above 0, not {value}.")
        if not 0 <= self.lr_end <= 1:
            raise InputError(f"lr_end is a share of lr, from 0 to 1, not {self.lr_end}.")
        if self.seed < 0:
            raise InputError(f"seed must be 0 or more, not {self.seed}.")


@dataclass(frozen=True)
class Word2VecConfiguration:
    model_type: str = MODEL_TYPE
    data: str = ""  # the folder that `qkv prepare` wrote
    data_sha256: str | None = None  # of its manifest; put here at the start
    device: str = "cpu"
    words: str = "tokens"  # or "whole": tokens are put together where the corpus says that a word goes on
    min_count: int | None = None  # rarer words get no vector; None: 5 for whole words, 1 for tokens
    vocabulary_size: int | None = None  # so many, special tokens among them; None: 200,000 whole words, all tokens
    model: VectorChoice = field(default_factory=VectorChoice)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    train: Word2VecTrainConfig = field(default_factory=Word2VecTrainConfig)

    def __post_init__(self) -> None:
        if self.model_type != MODEL_TYPE:
            raise InputError(f"These are the settings of model_type '{MODEL_TYPE}', not of '{self.model_type}'.")
        if self.words not in WORDS:
            hint = did_you_mean(self.words, WORDS)
            raise InputError(f"Unknown words '{self.words}'.{hint} Known: {', '.join(WORDS)}.")
        if self.min_count is not None and self.min_count < 1:
            raise InputError(f"min_count must be at least 1, not {self.min_count}.")
        if self.vocabulary_size is not None and self.vocabulary_size < 10:
            raise InputError(f"vocabulary_size must be at least 10, not {self.vocabulary_size}.")

    @property
    def lr(self) -> float:
        """The learning rate at the beginning."""
        return RATES[self.model.architecture] if self.train.lr is None else self.train.lr

    def with_words(self) -> "Word2VecConfiguration":
        """With what is in force where nothing was set on which words get a vector."""
        if self.words == "tokens":
            return replace(self, min_count=self.min_count or 1)
        return replace(
            self,
            min_count=self.min_count or MIN_COUNT,
            vocabulary_size=self.vocabulary_size or VOCABULARY_SIZE,
        )

    def with_steps(self, steps: int) -> "Word2VecConfiguration":
        """With so many steps, and the evaluations spread over them where nothing was set.

        >>> Word2VecConfiguration().with_steps(40).train.evaluate_every
        8
        """
        every = self.train.evaluate_every or min(EVALUATE_EVERY, math.ceil(steps / MOMENTS))
        return replace(self, train=replace(self.train, steps=steps, evaluate_every=every))

    def lr_at(self, step: float) -> float:
        """At the beginning of a chunk; inside it goes on in the same straight line.

        >>> Word2VecConfiguration(train=Word2VecTrainConfig(steps=4, lr=1.0, lr_end=0.0)).lr_at(1)
        0.75
        """
        train = self.train
        assert train.steps is not None
        return self.lr * (1 - (1 - train.lr_end) * step / train.steps)


def configured(
    data: str, recipe: Path | None, flags: Mapping[str, Any], assignments: Sequence[str]
) -> Word2VecConfiguration:
    """The defaults, then a recipe's differences, then the command line's flags, then each --set."""
    given = [one.replace(" ", "").split("=")[0] for one in assignments]
    if "train.minutes" in flags and (clash := {"train.steps", "train.epochs"} & {*given, *flags}):
        raise InputError(f"--minutes and {min(clash)} both say how long to train. Give one of them.")
    config = merge(Word2VecConfiguration(), read_recipe(recipe, MODEL_TYPE), str(recipe))
    changes: dict[str, Any] = {"data": data}
    for key, value in flags.items():
        table, _, name = key.rpartition(".")
        (changes.setdefault(table, {}) if table else changes)[name] = value
    return override(merge(config, changes, "command line"), assignments)
