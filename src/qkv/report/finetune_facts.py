"""What the report of a fine-tuning run is drawn from: plain data, put together by the job that ran."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from qkv.data.examples import Fault
from qkv.report.bilingual import Words
from qkv.tasks.task import Judgement, Scored


@dataclass(frozen=True)
class DataFacts:
    """One part of the labelled data as it was used."""

    source: str  # file name, or "held out of train.csv"
    examples: int
    labels: Mapping[str, int]  # how many of each; empty where examples have no labels of that kind
    tokens: int
    longest: int  # tokens of the longest text
    windowed: int  # texts of more than one window
    most_windows: int
    faults: tuple[Fault, ...] = ()  # the first of them
    n_dropped: int = 0
    n_mended: int = 0


@dataclass(frozen=True)
class Shown:
    """An example with what was answered, to be looked at."""

    file: str
    line: int
    text: str
    pair: str | None  # the second text; the question of an answer or a choice
    judgement: Judgement
    n_tokens: int
    n_windows: int


@dataclass(frozen=True)
class LengthBin:
    low: int  # tokens, both ends included
    high: int
    n: int
    right: int


@dataclass(frozen=True)
class CalibrationFacts:
    """`after` is cross-fitted: each fold's temperature and thresholds were fitted on the other folds."""

    unit: str  # what a probability is of: "text", "entity", "question"
    temperature: float
    error_before: float  # expected calibration error
    error_after: float
    # reliability bins: mean confidence, share right, count; empty bins left out
    before: tuple[tuple[float, float, int], ...]
    after: tuple[tuple[float, float, int], ...]
    # coverage curve, from answering all to answering few: threshold, share answered, precision of those
    coverage: tuple[tuple[float, float, float], ...]
    target: float = 0.95  # precision asked for
    abstain_below: float | None = None  # reaches it; None: no threshold does, or there is no rule
    answered: float | None = None  # share it answers by itself then
    thresholds: Mapping[str, float] = field(default_factory=dict)  # multi-label: by label


@dataclass(frozen=True)
class SeedFacts:
    seed: int
    score: float  # the main metric on dev at the best step
    best_step: int
    steps: int  # trained
    seconds: float
    folder: str = ""  # under the run; "" is the run itself


@dataclass(frozen=True)
class CostFacts:
    seconds: float  # training, by the clock, evaluation included
    seconds_vectors: float | None  # transfer features: the one pass of the encoder
    tokens_per_second: float | None  # training
    peak_memory: int | None  # bytes
    parameters: int
    trained_parameters: int
    device: str


@dataclass(frozen=True)
class MixFacts:
    """How much of each layer of ELMo the task uses."""

    shares: tuple[float, ...]  # from the spelling up; they add up to 1
    gamma: float  # what their sum is multiplied by
    began: tuple[float, ...] = ()  # the shares before the first step; none: all alike


@dataclass(frozen=True)
class FinetuneFacts:
    task: str  # classify, tag, answer, choice
    kind: str  # single, multi, regression; bio, crf; "" where a task has one kind
    model: str
    transfer: str  # full, top:K, freeze, features
    main: str  # the metric that counts
    train: DataFacts
    dev: DataFacts
    scored: Scored  # on dev, best seed
    baseline: tuple[Words, float] | None  # what answering without looking reaches in the main metric, and how
    seeds: tuple[SeedFacts, ...]
    cost: CostFacts
    calibration: CalibrationFacts | None = None
    test: DataFacts | None = None
    test_scored: Scored | None = None
    hardest: tuple[Shown, ...] = ()
    confident_errors: tuple[Shown, ...] = ()
    by_length: tuple[LengthBin, ...] = ()
    numbers: NDArray[np.float64] | None = None  # regression: (n, 2) expected, answered
    notes: tuple[Words, ...] = ()  # what was chosen by itself, in words
    mix: MixFacts | None = None
    new_layers: bool = False  # the encoder was made for this run, and what `transfer` holds lies below it
