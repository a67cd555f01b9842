"""All settings of a translation run with their defaults: the keys of RUN/config.toml, of recipes and of --set."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from qkv.config import JobSettings, Requested, check_known, check_least, check_shares, given_changes, merge
from qkv.errors import InputError, did_you_mean
from qkv.models.seq2seq.network import Seq2Seq, Seq2SeqConfig
from qkv.models.table import PRETRAINED
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.search.options import GenerateConfig
from qkv.train.loop import TrainConfig

TRANSLATION_MODELS = ("transformer", "seq2seq")
SELECTIONS = ("loss", "bleu", "exact")
"""By what the best weights are chosen."""


@dataclass(frozen=True)
class TransformerChoice:
    network: ClassVar[Any] = Transformer
    size: str = "small"  # a preset of models/transformer/network.py; the fields below change it
    encoder_layers: int | None = None
    decoder_layers: int | None = None
    width: int | None = None
    heads: int | None = None
    inner_width: int | None = None
    dropout: float | None = None
    attention_dropout: float | None = None
    activation: str | None = None
    norm: str | None = None  # post or pre
    alignment_layer: int | None = None

    def __post_init__(self) -> None:
        TransformerConfig.preset(self.size, vocabulary_size=1)

    def config(self, source: int, target: int, joint: bool, max_length: int) -> TransformerConfig:
        sizes = {"vocabulary_size": target, "source_vocabulary_size": None if joint else source}
        return TransformerConfig.preset(self.size, **sizes, max_length=max_length, **given_changes(self))


@dataclass(frozen=True)
class Seq2SeqChoice:
    network: ClassVar[Any] = Seq2Seq
    size: str = "base"  # a preset of models/seq2seq/network.py; the fields below change it
    context: str | None = None  # fixed, every_step or attention
    score: str | None = None  # additive, dot or bilinear
    query: str | None = None  # previous or current
    cell: str | None = None  # rnn, lstm, peephole, coupled or gru
    layers: int | None = None
    width: int | None = None
    cell_width: int | None = None
    encoder_width: int | None = None
    bidirectional: bool | None = None
    dropout: float | None = None
    tied: bool | None = None

    def __post_init__(self) -> None:
        Seq2SeqConfig.preset(self.size, vocabulary_size=1)

    def config(self, source: int, target: int, joint: bool, max_length: int) -> Seq2SeqConfig:
        """`length` is unused: the network has no positions."""
        sizes = {"vocabulary_size": target, "source_vocabulary_size": None if joint else source}
        return Seq2SeqConfig.preset(self.size, **sizes, **given_changes(self))


@dataclass(frozen=True)
class BitextChoice:
    train: tuple[str, ...] = ()  # two files (source, target), or one with both sides
    more: tuple[str, ...] = ()  # files with both sides, of which nothing is held out
    dev: tuple[str, ...] = ()  # development set; else held out of train
    test: tuple[str, ...] = ()  # test set, evaluated once, at the end
    columns: tuple[str, ...] = ()  # of source and target in files with both sides; else the first two
    dev_share: float = 0.02  # held out of train, where no dev is given: data/pairs/files.py
    test_share: float = 0.0  # likewise, where no test is given
    source_language: str = ""  # a code: de, en, zh; else by the names of the files, or by their letters
    target_language: str = ""
    sha256: str | None = None  # of all these files; put here at the start

    def __post_init__(self) -> None:
        for name in ("dev_share", "test_share"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"bitext.{name} is a share from 0 to less than 1, not {getattr(self, name)}.")
        if self.dev_share + self.test_share >= 1:
            raise InputError("bitext.dev_share and bitext.test_share leave nothing to train on.")
        if len(self.columns) not in (0, 2):
            raise InputError(f"bitext.columns are two, source and target, not {len(self.columns)}.")


@dataclass(frozen=True)
class TokenizerChoice:
    joint: bool = True  # one vocabulary for both sides, which the model then embeds once
    size: int = 8_000  # of a vocabulary that is learned from the pairs; of each side, where they have one each
    min_frequency: int = 2
    source: str | None = None  # folders of tokenizers that are there already; joint: the source's alone
    target: str | None = None

    def __post_init__(self) -> None:
        for name in ("size", "min_frequency"):
            if getattr(self, name) < 1:
                raise InputError(f"tokenizer.{name} must be at least 1, not {getattr(self, name)}.")


@dataclass(frozen=True)
class TranslateConfig:
    model_type: str = "transformer"  # or "seq2seq"
    tokens_per_batch: int = 4_096  # on either side, at most
    max_length: int = 256  # tokens of a text; pairs with a longer side are left out, and told
    smoothing: float = 0.1  # of labels
    epochs: float | None = None  # times through the pairs; turned into train.steps at the start
    average: int = 1  # checkpoints at the end whose mean is tried beside the best weights; 1: none
    select: str = "loss"  # what the best weights are best by, on dev: loss, bleu or exact
    evaluation_pairs: int = 200  # of dev, translated (greedily) at every evaluation
    device: str = "auto"  # cuda, mps or cpu, whichever is found first; put here at the start
    bitext: BitextChoice = field(default_factory=BitextChoice)
    tokenizer: TokenizerChoice = field(default_factory=TokenizerChoice)
    transformer: TransformerChoice = field(default_factory=TransformerChoice)
    seq2seq: Seq2SeqChoice = field(default_factory=Seq2SeqChoice)
    decoding: GenerateConfig = field(default_factory=lambda: GenerateConfig(beams=4, max_ratio=2.0))  # of test
    train: TrainConfig = field(
        default_factory=lambda: TrainConfig(lr=1e-3, schedule="inverse_sqrt", betas=(0.9, 0.98), weight_decay=0.0)
    )

    def __post_init__(self) -> None:
        check_known(self, model_type=TRANSLATION_MODELS, select=SELECTIONS)
        check_least(self, "tokens_per_batch", "average")
        check_least(self, "max_length", least=2)
        check_least(self, "evaluation_pairs", least=0)
        check_shares(self, "smoothing")
        if self.epochs is not None and not self.epochs > 0:
            raise InputError(f"epochs must be more than 0, not {self.epochs}.")
        if self.select != "loss" and not self.evaluation_pairs:
            raise InputError(f"select is {self.select}, for which pairs must be translated: evaluation_pairs is 0.")
        for name in ("compile", "recompute"):
            if getattr(self.train, name):
                raise InputError(f"train.{name} does nothing for translation: leave it out.")
        if self.decoding.sample:
            raise InputError("decoding.sample draws by chance; a model is judged by what it thinks best.")

    @property
    def choice(self) -> TransformerChoice | Seq2SeqChoice:
        """The settings of the chosen model."""
        found: TransformerChoice | Seq2SeqChoice = getattr(self, self.model_type)
        return found


def _checked(config: TranslateConfig, given: Requested) -> TranslateConfig:
    if "decoding.max_length" not in {**given.written, **given.typed}:
        config = replace(config, decoding=_as_long(config))
    _check_tokenizer(config.tokenizer, given.written, given.typed)
    for other in TRANSLATION_MODELS:
        if other != config.model_type and getattr(config, other) != getattr(TranslateConfig(), other):
            raise InputError(f"The settings {other}.… do nothing for {config.model_type}: leave them out.")
    model_config(config, 1, 1, joint=True)  # what does not fit together is told before anything is read
    return config


_SETTINGS = JobSettings(
    TranslateConfig(),
    size="{model_type}.size",
    lengths={"train.minutes": "--minutes", "epochs": "--epochs", "train.steps": "train.steps"},
    giving_way=("epochs", "train.minutes"),  # what does not decide is not written into config.toml
    check=_checked,
)


def resolve_translation_settings(given: Requested, start: TranslateConfig | None = None) -> TranslateConfig:
    """The requested settings, for the model that the recipe or --model (the flag `model_type`) names."""
    tables, model, start = given.tables, given.flags.get("model_type"), start or TranslateConfig()
    named = tables.get("model_type", model or start.model_type)
    if model not in (None, named):
        raise InputError(f"{given.recipe} is a recipe for {named}, not for {model}. Leave --model out, or the recipe.")
    if "bitext" not in tables and ({"rnnlm", "nnlm", "masking"} & set(tables) or named in PRETRAINED):
        raise InputError(f"{given.recipe} is a recipe for qkv pretrain, not for a translation.")
    return _SETTINGS.resolve(given, replace(start, model_type=str(named)))


def _as_long(config: TranslateConfig) -> GenerateConfig:
    """Translations may be as long as the longest training text, unless decoding.max_length is set."""
    if config.decoding.max_length != TranslateConfig().decoding.max_length:
        return config.decoding
    return replace(config.decoding, max_length=config.max_length)


def _check_tokenizer(choice: TokenizerChoice, written: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    """Refuse settings for learning a vocabulary if none is learned. Defaults are accepted, since a recipe may be a
    run's config.toml."""
    if choice.source is None and choice.target is None:
        return
    for name in ("size", "min_frequency"):
        key = f"tokenizer.{name}"
        if key in said or (key in written and written[key] != getattr(TokenizerChoice(), name)):
            flag = " (--vocab-size)" if name == "size" else ""
            raise InputError(
                f"{key}{flag} is for a vocabulary that is learned, and a tokenizer was given: "
                f"{choice.source or choice.target}. Leave one of the two out."
            )


def model_config(
    config: TranslateConfig, source: int, target: int, *, joint: bool
) -> TransformerConfig | Seq2SeqConfig:
    """The config of the network for vocabularies of these sizes."""
    return config.choice.config(source, target, joint, config.max_length)


# Examples: `qkv train translate --example NAME`.

_EXAMPLES: dict[str, dict[str, Any]] = {
    "reverse": {
        "smoothing": 0.0,  # a digit is right or wrong, and can be known for certain
        "tokens_per_batch": 1_024,
        "max_length": 32,
        "select": "exact",
        "tokenizer": {"size": 64},
        "transformer": {
            "size": "tiny",
            "encoder_layers": 1,
            "decoder_layers": 1,
            "width": 64,
            "inner_width": 128,
            "dropout": 0.0,
        },
        "seq2seq": {"size": "small", "dropout": 0.0},
        "train": {
            "threads": 1,  # so small a network is no work for two
            "steps": 700,
            "lr": 5e-3,
            "warmup": 0.1,
            "schedule": "linear",
            "log_every": 50,
            "evaluate_every": 350,
            "save_every": 350,
        },
    }
}
"""By name, what differs from the defaults."""


def example_settings(name: str, model_type: str) -> TranslateConfig:
    if name not in _EXAMPLES:
        raise InputError(f"There is no example '{name}'.{did_you_mean(name, _EXAMPLES)} Known: {', '.join(_EXAMPLES)}.")
    others = set(TRANSLATION_MODELS) - {model_type}
    settings = {key: value for key, value in _EXAMPLES[name].items() if key not in others}
    return merge(TranslateConfig(model_type=model_type), settings, f"example {name}")
