"""Settings of a fine-tuning run with their defaults (the keys of RUN/config.toml, recipes and --set), and its model.

Some defaults depend on the task, the width of the model, the trained layers and the amount of data. They are resolved
once, at the start, and written to config.toml.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from qkv.config import JobSettings, Requested, check_least, check_shares, merge
from qkv.errors import InputError, did_you_mean
from qkv.files import sha256_of
from qkv.models.family import FEEDS, TAKES_HEAD, EncoderSizes, Facts, Feeds, Loading, Opened, explain_missing
from qkv.models.folders.hub import locate, locate_vectors, shown_name
from qkv.models.folders.own import CONFIG
from qkv.models.plain.folder import build_untrained, check_sizes, count_layers
from qkv.models.plain.network import READER_KINDS, ReaderSettings
from qkv.models.table import describe_model, open_model
from qkv.tasks.table import TASKS, find_task
from qkv.tasks.task import AnswerSettings, ChoiceSettings, ClassifySettings, TagSettings
from qkv.tasks.transfer import Transfer, parse_scratch_transfer, parse_transfer
from qkv.text.tokenizer import Tokenizer
from qkv.train.device import AUTO, fastest_device
from qkv.train.loop import TrainConfig
from qkv.train.run_folder import check_folder_sha256, folder_sha256

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
    weight: str | None = None  # of each training example in the loss

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
    skip_bad: bool = False  # leave out rows that cannot be used, such as one without a label, instead of stopping

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
    device: str = "auto"  # cuda, mps or cpu, whichever is found first; put here at the start
    data: DataChoice = field(default_factory=DataChoice)
    classify: ClassifySettings = field(default_factory=ClassifySettings)
    tag: TagSettings = field(default_factory=TagSettings)
    answer: AnswerSettings = field(default_factory=AnswerSettings)
    choice: ChoiceSettings = field(default_factory=ChoiceSettings)
    reader: ReaderSettings = field(default_factory=ReaderSettings)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        find_task(self.task)
        if self.class_weights not in CLASS_WEIGHTS:
            raise InputError(f"class_weights is {' or '.join(CLASS_WEIGHTS)}, not '{self.class_weights}'.")
        check_least(self, "seeds", "texts_per_step", "evaluations")
        check_least(self, "tokens_per_step", "tokens_at_once", "max_length", least=8)
        if self.epochs is not None and not 0 < self.epochs < 10_000:
            raise InputError(f"epochs must be more than 0, not {self.epochs}.")
        if not 0 < self.layer_decay <= 1:
            raise InputError(f"layer_decay is above 0 and at most 1, not {self.layer_decay}.")
        check_shares(self, "dropout", "attention_dropout")
        if self.language_model_weight is not None and not 0 <= self.language_model_weight < 1_000:
            raise InputError(f"language_model_weight is 0 or more, not {self.language_model_weight}.")
        if not 0 < self.precision_target < 1:
            raise InputError(f"precision_target lies between 0 and 1, unlike {self.precision_target}.")

    @property
    def settings(self) -> Any:
        """The settings of the configured task."""
        return getattr(self, self.task)


LONE, SMALL = 1e-3, 3e-4
"""Learning rates: of a head without its encoder, and of a small BERT."""
_WIDER = ((512, 1e-4), (768, 5e-5), (math.inf, 2e-5))
RATES = {"tag": ((256, 2e-4), *_WIDER), "classify": ((256, 2e-4), *_WIDER), "": ((256, SMALL), *_WIDER)}
"""Learning rates of a BERT or a GPT whose layers are trained, by task ("": all others) and width, up to a limit. Wider
models take smaller steps.

    256        2e-4, 3e-4  measured: bench/finetune_defaults.py with qkv-mini on ten sets, Chinese and English, of 100
                           to 1,500 examples
    384, 512   1e-4        MiniLM, BERT-small: of the rates that Turc et al. (2019) search for small BERTs (3e-4, 1e-4,
                           5e-5, 3e-5) the largest below that of 256
    768        5e-5        BERT-base: the largest that Devlin et al. (2019, A.3) search (5e-5, 3e-5, 2e-5)
    1024, …    2e-5        BERT-large: the smallest of these, since it is unstable on small sets (ibid., 4.1)

A rate that learns nothing on a set is followed by a third of it (`RETRY`), which of 768 is 1.7e-5."""
WARMUP = {"tag": 0.3, "classify": 0.3, "": 0.1}
"""Share of the steps. Most tokens have no entity: with a short warm-up that alone is learned first, and kept long. For
classification both were chosen on four sets of about 2,000 texts: with 3e-4 and 0.1 some seeds learned nothing."""
MOST_EPOCHS = {"tag": 40, "": 20}
"""For files of more than 50 examples; large ones are read less often."""
RETRY = 0.33
"""Factor of the learning rate of a second attempt, after one that learned nothing."""


def default_settings(
    task: str, transfer: Transfer, device: str, width: int | None = None, on_language_model: bool = False
) -> dict[str, Any]:
    """The default training settings, by task, trained layers and width of the model.

    `width` is that of a BERT or a GPT. None is a new encoder, with the learning rate of a head; on a language model
    that is trained with it, that of a small BERT.
    """
    lr, warmup = LONE, WARMUP[""]
    if width is not None and transfer.moves_encoder:
        lr = next(rate for limit, rate in RATES.get(task, RATES[""]) if width <= limit)
        warmup = WARMUP.get(task, warmup)
    elif on_language_model and transfer.moving_embedding:
        lr = SMALL
    on = fastest_device() if device == AUTO else device
    train: dict[str, Any] = {
        "lr": lr,
        "warmup": warmup,
        "betas": [0.9, 0.999],
        "epsilon": 1e-8,
        "patience": 8,
        "keep": 1,
        "precision": "bf16" if on.startswith("cuda") else "fp32",
    }
    return {"train": train}


def choose_epochs(task: str, units: int, steps_per_epoch: int, from_nothing: bool = False) -> float:
    """Large files are read a few times, small ones until there were enough steps to learn something.

    A model that begins from nothing has the language to learn as well, and its steps cost little.
    """
    least = TASKS[task].epochs * (3 if from_nothing else 1)
    enough = (1000 if from_nothing else 400) / steps_per_epoch
    usual = MOST_EPOCHS[""] if from_nothing else MOST_EPOCHS.get(task, MOST_EPOCHS[""])
    most = (usual if units > 50 else 40) * (3 if from_nothing else 1)
    return float(round(min(max(least, enough), most)))


_SETTLED = {
    "steps": "epochs",
    "least": None,
    "accumulate": "tokens_per_step",
    "evaluate_every": "evaluations",
    "save_every": None,
    "log_every": None,
}
"""Settings of the loop that a fine-tuning run works out, and from which others."""
FINETUNE_SETTINGS = JobSettings(
    FinetuneConfig(),
    lengths={"train.minutes": "--minutes", "epochs": "--epochs"},
    giving_way=("train.minutes", "epochs"),
    refused={
        f"train.{name}": f"train.{name} is worked out by a fine-tuning run and cannot be set."
        + (f" Set {instead} instead." if instead else "")
        for name, instead in _SETTLED.items()
    },
)


# --- The model of a fine-tuning run: a pretrained folder, or `scratch:KIND`, a new encoder (models/plain/network.py).
#
# A new encoder takes its tokenizer from what is below it (`embeddings`, see models/plain/folder.py) or from another
# folder (`tokenizer`). Word vectors or a language model given as the model mean a lookup encoder on them: `--model
# ELMO` is stored as `--model scratch:lookup --embeddings ELMO`.
#
# All sources are hashed at the start; a resumed run requires the same ones. Settings come from a recipe, flags, --set
# and defaults that depend on task and model.

SCRATCH = "scratch:"


def is_scratch(model: str) -> bool:
    return model.startswith(SCRATCH)


def locate_model(model: str) -> str:
    """Return the absolute path of the model, or scratch:KIND unchanged."""
    if not is_scratch(model):
        place = locate_vectors(model) if Path(model).expanduser().is_file() else locate(model)
        if place.is_file() and (place.parent / CONFIG).is_file():
            locate(model)  # part of a model: it says that the folder is wanted
        return str(place)
    kind = model.removeprefix(SCRATCH)
    if kind not in READER_KINDS:
        raise InputError(
            f"There is no encoder '{kind}'.{did_you_mean(kind, READER_KINDS)} Known: {', '.join(READER_KINDS)}."
        )
    return model


def encoder_kind(config: FinetuneConfig) -> str:
    """Return the kind of a new encoder."""
    return locate_model(config.model).removeprefix(SCRATCH)


Described = Callable[[str], Facts]


def resolve_encoder(config: FinetuneConfig, describe: Described = describe_model) -> FinetuneConfig:
    """Replace word vectors or a language model given as the model by a lookup encoder on them."""
    if is_scratch(config.model):
        return config
    facts = describe(locate_model(config.model))
    if FEEDS not in facts.abilities:
        return config
    if config.embeddings is not None:
        raise InputError(
            f"{config.model} ({facts.model_type}) is itself what --embeddings brings. Give one of the two with "
            "--embeddings, and a new encoder for it with --model, scratch:lstm for example."
        )
    return replace(config, model=f"{SCRATCH}lookup", embeddings=config.model)


def resolve_transfer(config: FinetuneConfig, layers: int, mixes: bool = False) -> Transfer:
    """Return which layers are trained, including those below a new encoder."""
    if is_scratch(config.model):
        below = None if config.embeddings is None else shown_name(config.embeddings)
        return parse_scratch_transfer(config.transfer, layers, below, mixes)
    return parse_transfer(config.transfer, layers, mixes)


def default_transfer(sizes: EncoderSizes, is_new: bool) -> str:
    """Return the default transfer: full, except for ELMo, which is frozen (Peters et al. 2018, §3.3)."""
    if not sizes.mixed_layers:
        return "full"
    return "freeze" if is_new or not sizes.layers else f"top:{sizes.layers}"


def sizes_for(config: FinetuneConfig, describe: Described = describe_model) -> EncoderSizes:
    """Return the sizes of the encoder on which defaults depend, without reading weights."""
    if not is_scratch(config.model):
        facts = describe(config.model)
        if facts.sizes is None:
            raise InputError(explain_missing(facts, TAKES_HEAD))
        return facts.sizes
    below = None if config.embeddings is None else _facts_below(config.embeddings).sizes
    layers, width = count_layers(encoder_kind(config), config.reader), config.reader.inner_width
    return EncoderSizes(
        0,
        layers,
        width,
        config.reader.max_length,
        pairs=True,
        mixed_layers=0 if below is None else below.mixed_layers,
        attends=False,
        on_features=below is not None and below.on_features,
    )


def check_sources(config: FinetuneConfig) -> None:
    """Check that a new encoder has its sources, and that a pretrained one has none."""
    if is_scratch(config.model):
        if config.embeddings is None and config.tokenizer is None:
            raise InputError(
                f"{config.model} begins from nothing and has no tokenizer yet. Give word vectors with --embeddings "
                "(a word2vec or ELMo folder, or a file .vec, .txt or .bin), or a folder with a tokenizer with "
                "--tokenizer."
            )
        return
    for name in ("embeddings", "tokenizer"):
        if getattr(config, name) is not None:
            raise InputError(
                f"{name} is for a new encoder, --model scratch:lstm for example; {config.model} has its own."
            )
    if config.reader != ReaderSettings():
        raise InputError(f"reader.* are sizes of a new encoder; {config.model} has its own.")


def check_encoder_sizes(config: FinetuneConfig) -> None:
    """Check the sizes of a new encoder."""
    if is_scratch(config.model):
        on = "" if config.embeddings is None else f" on {shown_name(config.embeddings)}"
        check_sizes(encoder_kind(config), config.reader, f"{config.model}{on}")


def start_model(config: FinetuneConfig, tell: Callable[[str], None]) -> tuple[FinetuneConfig, Opened]:
    """Open the model of a new run; return it and the settings with pinned sources."""
    config = resolve_encoder(config)
    check_sources(config)
    check_encoder_sizes(config)
    if not is_scratch(config.model):
        opened = _open_start(locate(config.model))
        path = opened.path.resolve()
        return replace(config, model=str(path), model_sha256=folder_sha256(path)), opened
    reader = build_encoder(config, tell)  # first: it says what is wrong with the sources
    config = replace(
        config,
        embeddings=None if config.embeddings is None else str(locate_vectors(config.embeddings).resolve()),
        tokenizer=None if config.tokenizer is None else str(locate(config.tokenizer).resolve()),
    )
    return replace(config, model_sha256=_sources_sha256(config)), reader


def reopen_model(config: FinetuneConfig, tell: Callable[[str], None]) -> Opened:
    """Open the model of a resumed run; raise if its sources have changed."""
    if not is_scratch(config.model):
        folder = locate(config.model)
        check_folder_sha256(folder, config.model_sha256)
        return _open_start(folder)
    if config.model_sha256 is not None and _sources_sha256(config) != config.model_sha256:
        sources = " or ".join(str(source) for source in (config.embeddings, config.tokenizer) if source is not None)
        raise InputError(
            f"{sources} has changed since the run began: a resumed run would go on from other vectors. Put it back, or "
            "begin another run."
        )
    return build_encoder(config, tell)


def _open_start(folder: Path) -> Opened:
    """Open a folder that takes a task head."""
    opened = open_model(folder, Loading(spelled=None))  # a run keeps the tokens of all its texts
    opened.ability(TAKES_HEAD)
    return opened


def build_encoder(config: FinetuneConfig, tell: Callable[[str], None]) -> Opened:
    check_sources(config)
    below = None if config.embeddings is None else _open_below(config.embeddings)
    named = config.model if below is None else f"{config.model} + {shown_name(below.place)}"
    return build_untrained(encoder_kind(config), config.reader, below, _tokenizer(config, below), named, tell)


def load_run_tokenizer(config: FinetuneConfig) -> Tokenizer:
    """Load the tokenizer that a run will use."""
    config = resolve_encoder(config)
    if not is_scratch(config.model):
        return _tokenizer_in(config.model)
    check_sources(config)
    return _tokenizer(config, None if config.embeddings is None else _open_below(config.embeddings))


def _tokenizer(config: FinetuneConfig, below: Feeds | None) -> Tokenizer:
    """Return the tokenizer of a new encoder: the given one, if the vectors allow it, else that of the vectors."""
    if config.tokenizer is None:
        assert below is not None  # as was checked
        return below.tokenizer
    given = _tokenizer_in(config.tokenizer)
    if below is not None:
        below.check_tokenizer(given, config.tokenizer)
    return given


def _tokenizer_in(name: str) -> Tokenizer:
    """Load the tokenizer of a folder or of the model of a run."""
    return Tokenizer.load(locate(name))


def _facts_below(name: str) -> Facts:
    facts = describe_model(locate_vectors(name))
    if FEEDS not in facts.abilities:
        raise InputError(
            f"{name} holds a model of type {facts.model_type}, which reads texts by itself: give it with --model, and "
            "leave --embeddings out. --embeddings takes word2vec, nnlm, elmo, rnnlm, or a file of word vectors."
        )
    return facts


def _open_below(name: str) -> Feeds:
    return open_model(_facts_below(name).path).ability(FEEDS)


def _sources_sha256(config: FinetuneConfig) -> str:
    sources = [Path(source) for source in (config.embeddings, config.tokenizer) if source is not None]
    hashes = [sha256_of(source) if source.is_file() else folder_sha256(source) for source in sources]
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def resolve_finetune_settings(
    task: str,
    model: str,
    transfer: str | None = None,
    recipe: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
) -> FinetuneConfig:
    """Resolve the settings: recipe, flags and --set, then defaults by task, model size and transfer."""
    named = {"task": task, "model": locate_model(model), "transfer": transfer, **(flags or {})}
    given = Requested(recipe, named, assignments)

    described = cache(describe_model)  # once, however often it is asked

    def asked(start: Mapping[str, Any]) -> FinetuneConfig:
        return resolve_encoder(FINETUNE_SETTINGS.resolve(given, merge(FinetuneConfig(), start, "defaults")), described)

    first = asked({})
    check_sources(first)
    check_encoder_sizes(first)
    sizes, is_new = sizes_for(first, described), is_scratch(first.model)
    usual: dict[str, Any] = {"transfer": default_transfer(sizes, is_new)}
    config = asked(usual)
    moves = resolve_transfer(config, sizes.layers, sizes.mixed_layers > 0)
    width = sizes.width if sizes.attends else None
    defaults = default_settings(task, moves, config.device, width, sizes.on_features)
    # a given learning rate or length is used as it is, without a second attempt
    asked_for = {*given.written, *given.typed}
    if not {"train.lr", *FINETUNE_SETTINGS.lengths} & asked_for:
        defaults["train"]["retry"] = RETRY
    if task == "classify" and "train.lr" in asked_for:
        defaults["classify"] = {"fit": "steps"}  # a fit to the optimum has no learning rate
    return asked(usual | defaults)
