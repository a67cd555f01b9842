"""All settings of a fine-tuning run with their defaults: the keys of RUN/config.toml, of recipes and of --set.

Some defaults depend on the task, the width of the model, the trained layers and the amount of data. They are resolved
once, at the start, and written to config.toml.
"""

from dataclasses import dataclass, field, fields
from typing import Any

from qkv.config import JobSettings
from qkv.errors import InputError, did_you_mean
from qkv.models.plain.network import ReaderSettings
from qkv.tasks.answer import AnswerSettings
from qkv.tasks.choice import ChoiceSettings
from qkv.tasks.table import TASKS
from qkv.tasks.tag import TagSettings
from qkv.tasks.texts import ClassifySettings
from qkv.tasks.transfer import Transfer
from qkv.train.loop import TrainConfig

CLASS_WEIGHTS = ("none", "auto")


@dataclass(frozen=True)
class Columns:
    """Which column holds what, by its name or its number from 1; None: found by the usual names."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    group: str | None = None  # examples of one group are never torn apart by a split
    id: str | None = None
    question: str | None = None
    context: str | None = None
    answer: str | None = None
    choices: str | None = None

    def given(self) -> dict[str, str]:
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}


@dataclass(frozen=True)
class DataChoice:
    train: str = ""
    dev: str | None = None  # None: held out of the training file
    test: str | None = None  # evaluated once, after everything was chosen
    train_sha256: str | None = None  # put here at the start, so that a resumed run knows its data
    dev_sha256: str | None = None
    test_sha256: str | None = None
    format: str | None = None  # None: found out
    separator: str | None = None  # between several labels in one cell
    dev_share: float = 0.1
    split_seed: int = 0
    columns: Columns = field(default_factory=Columns)

    def __post_init__(self) -> None:
        if not 0 < self.dev_share < 1:
            raise InputError(f"dev_share is a share between 0 and 1, not {self.dev_share}.")


@dataclass(frozen=True)
class FinetuneConfig:
    task: str = "classify"
    model: str = ""  # the pretrained folder, or scratch:KIND
    model_sha256: str | None = None  # of its files; put here at the start
    embeddings: str | None = None  # of scratch: word vectors to begin from, a folder or a file
    tokenizer: str | None = None  # of scratch: a folder with a tokenizer; None: what comes with the vectors
    transfer: str = "full"  # full, top:K, freeze or features
    layer_decay: float = 1.0  # learning rate of a layer against the one above it
    seeds: int = 1
    epochs: float | None = None  # None: by task and amount of data
    evaluations: int | None = None  # in all; None: as many as cost little beside training, 20 at most
    texts_per_step: int = 32  # on average: turned into tokens_per_step
    tokens_per_step: int | None = None
    tokens_at_once: int | None = None  # a larger step is made of several passes, with the same result; None: by device
    max_length: int | None = None  # tokens of a window; None: what the task and the model allow
    class_weights: str = "none"  # auto: rare classes weigh as much as frequent ones
    dropout: float | None = None  # None: the model's own
    attention_dropout: float = 0.0  # above 0 attention takes a slower way, and gains nothing that was measured
    language_model_weight: float | None = None  # of a GPT, of predicting the next word; None: 0.5 where layers move
    precision_target: float = 0.95  # of the abstain threshold
    device: str = "cpu"
    data: DataChoice = field(default_factory=DataChoice)
    classify: ClassifySettings = field(default_factory=ClassifySettings)
    tag: TagSettings = field(default_factory=TagSettings)
    answer: AnswerSettings = field(default_factory=AnswerSettings)
    choice: ChoiceSettings = field(default_factory=ChoiceSettings)
    reader: ReaderSettings = field(default_factory=ReaderSettings)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise InputError(f"Unknown task '{self.task}'.{did_you_mean(self.task, TASKS)} Known: {', '.join(TASKS)}.")
        if self.class_weights not in CLASS_WEIGHTS:
            raise InputError(f"class_weights is {' or '.join(CLASS_WEIGHTS)}, not '{self.class_weights}'.")
        for name in ("seeds", "texts_per_step"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.evaluations is not None and self.evaluations < 1:
            raise InputError(f"evaluations must be at least 1, not {self.evaluations}.")
        for name in ("tokens_per_step", "tokens_at_once", "max_length"):
            if (value := getattr(self, name)) is not None and value < 8:
                raise InputError(f"{name} must be at least 8, not {value}.")
        if self.epochs is not None and not 0 < self.epochs < 10_000:
            raise InputError(f"epochs must be more than 0, not {self.epochs}.")
        if not 0 < self.layer_decay <= 1:
            raise InputError(f"layer_decay is above 0 and at most 1, not {self.layer_decay}.")
        for name in ("dropout", "attention_dropout"):
            if (share := getattr(self, name)) is not None and not 0 <= share < 1:
                raise InputError(f"{name} is a share from 0 to less than 1, not {share}.")
        if self.language_model_weight is not None and not 0 <= self.language_model_weight < 1_000:
            raise InputError(f"language_model_weight is 0 or more, not {self.language_model_weight}.")
        if not 0 < self.precision_target < 1:
            raise InputError(f"precision_target lies between 0 and 1, unlike {self.precision_target}.")

    @property
    def settings(self) -> Any:
        """Of the task."""
        return getattr(self, self.task)


LONE, SMALL = 1e-3, 3e-4
"""Learning rates: of a head without its encoder, and of a small BERT."""


def default_settings(
    transfer: Transfer, device: str, width: int | None = None, on_language_model: bool = False
) -> dict[str, Any]:
    """What a run begins from when nobody says otherwise: small models and lone heads take larger steps.

    `width` is that of a BERT or a GPT. Without one it is a reader, which takes the steps of a head, whatever its size;
    where it stands on a language model that moves with it, those of a small BERT.
    """
    lr = LONE
    if width is not None and transfer.moves_encoder:
        lr = next(rate for limit, rate in ((256, SMALL), (512, 1e-4), (768, 5e-5), (1 << 30, 2e-5)) if width <= limit)
    elif on_language_model and transfer.moving_embedding:
        lr = SMALL
    train: dict[str, Any] = {"lr": lr, "warmup": 0.1, "betas": [0.9, 0.999], "epsilon": 1e-8, "patience": 8, "keep": 1}
    train["precision"] = "bf16" if device.startswith("cuda") else "fp32"
    return {"train": train}


def choose_epochs(task: str, units: int, steps_per_epoch: int, from_nothing: bool = False) -> float:
    """Large files are read a few times, small ones until there were enough steps to learn something.

    A model that begins from nothing has the language to learn as well, and its steps cost little.
    """
    least = TASKS[task].epochs * (3 if from_nothing else 1)
    enough = (1000 if from_nothing else 400) / steps_per_epoch
    most = (20 if units > 50 else 40) * (3 if from_nothing else 1)
    return float(round(min(max(least, enough), most)))


_SETTLED = {
    "steps": "epochs",
    "minutes": "epochs",
    "accumulate": "tokens_per_step",
    "evaluate_every": "evaluations",
    "save_every": None,
    "log_every": None,
}
"""Settings of the loop that a fine-tuning run works out, and from which others."""
FINETUNE_SETTINGS = JobSettings(
    FinetuneConfig(),
    lengths={},
    giving_way=(),
    refused={
        f"train.{name}": f"train.{name} is worked out by a fine-tuning run and cannot be set."
        + (f" Set {instead} instead." if instead else "")
        for name, instead in _SETTLED.items()
    },
)
