"""Encoders without attention (network.py), without torch: their sizes, those of new ones for a task, and folders.

Folders of these encoders, and of the models that can be below them, are described. All are folders of ours
(models/folders/own.py), whose `OwnFolder` is the plan; folder.py has what is in one. What the models below an encoder
have in common: vectors of words, which a text's vector is the mean of.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from qkv.config import check_least, check_shares, merge
from qkv.errors import InputError, did_you_mean
from qkv.models.elmo.config import ElmoConfig
from qkv.models.family import (
    ENCODES,
    FEEDS,
    HAS_TASK,
    LOOKS_UP,
    PREDICTS_NEXT,
    RECURS,
    SHOWS_LAYERS,
    TAKES_HEAD,
    TASK_HEADS,
    WRITES,
    Ability,
    EncoderSizes,
    Facts,
    Family,
)
from qkv.models.folders.own import CONFIG, OwnFolder, describe_folder, lines_of_ours, read_folder
from qkv.models.rnnlm.config import RNNLMConfig
from qkv.nn.shapes import CELL_SIZES
from qkv.report.bilingual import Phrase
from qkv.text.tokenizer import Tokenizer


class EmbedderConfig(Protocol):
    """The config of a language model in the place of a table: the width of its vectors. network.py builds
    the modules that compute them."""

    model_type: ClassVar[str]  # of its family

    @property
    def features_width(self) -> int: ...
    @property
    def mixed_layers(self) -> int:
        """Vectors of a token that are mixed into one; 0 if a token has a single vector."""
        ...

    def opened(self, tokenizer: Tokenizer, most: int | None = None) -> Tokenizer:
        """The tokenizer for this model: one without unknown words, if it reads characters (`most` of OpenTokenizer)."""
        ...


@dataclass(frozen=True)
class ReaderConfig:
    kind: str = "lstm"
    vocabulary_size: int = 30_522
    embedding_width: int = 128
    inner_width: int = 128  # of one direction, of one size of window, or of a convolution
    layers: int = 1
    kernels: tuple[int, ...] = (3, 5, 7)  # sizes of windows; `cnn` has the first
    dropout: float = 0.3
    max_length: int = 512  # longer texts are read in parts, as by every encoder
    segments: int = 2
    head_dropout: float | None = None
    initial_std: float = 0.02
    pad_id: int = 0
    features: EmbedderConfig | None = None  # None: vectors are looked up in a table

    def __post_init__(self) -> None:
        if self.kind not in READER_KINDS:
            raise InputError(
                f"Unknown encoder '{self.kind}'.{did_you_mean(self.kind, READER_KINDS)} "
                f"Known: {', '.join(READER_KINDS)}."
            )
        check_least(self, "vocabulary_size", "embedding_width", "inner_width", "max_length", "segments")
        check_shares(self, "dropout", "head_dropout")
        if not self.kernels or any(kernel < 1 or kernel % 2 == 0 for kernel in self.kernels):
            raise InputError(f"kernels are {list(self.kernels)}; each must be odd, since a window has a middle.")
        if self.features is not None and self.embedding_width != self.features.features_width:
            raise InputError(
                f"embedding_width is {self.embedding_width}, and the vectors of the language model below it have "
                f"{self.features.features_width}."
            )
        if self.layers != READER_KINDS[self.kind].layers(self.layers):
            raise InputError(
                f"a {self.kind} has {READER_KINDS[self.kind].layers(self.layers)} layers, not {self.layers}."
            )

    @property
    def width(self) -> int:
        """Of the encoder's vectors, D."""
        return READER_KINDS[self.kind].width(self)

    @property
    def mixed_layers(self) -> int:
        return 0 if self.features is None else self.features.mixed_layers


@dataclass(frozen=True)
class ReaderSettings:
    """Sizes of a new encoder: the settings reader.* of a run."""

    embedding_width: int | None = None  # None: that of the word vectors; without any, 128
    inner_width: int = 128  # of one direction, of one size of window, or of a convolution
    layers: int | None = None  # None: one, where the kind has layers
    kernels: tuple[int, ...] = (3, 5, 7)  # sizes of windows; `cnn` has the first
    dropout: float = 0.3
    max_length: int = 512

    def __post_init__(self) -> None:
        for name, least in (("embedding_width", 1), ("inner_width", 1), ("layers", 0), ("max_length", 8)):
            if (value := getattr(self, name)) is not None and value < least:
                raise InputError(f"reader.{name} must be at least {least}, not {value}.")
        if not self.kernels or min(self.kernels) < 1:
            raise InputError("reader.kernels are sizes of windows, such as [3, 5, 7].")
        if not 0 <= self.dropout < 1:
            raise InputError(f"reader.dropout is a share from 0 to less than 1, not {self.dropout}.")


@dataclass(frozen=True)
class _Kind:
    width: Callable[[ReaderConfig], int]
    layers: Callable[[int], int]  # from the number of layers requested
    sizes: tuple[str, ...] = ()  # fields of its config, except layers, that not every kind uses


def _as_asked(layers: int) -> int:
    return max(1, layers)


READER_KINDS: dict[str, _Kind] = {
    "lookup": _Kind(lambda config: config.embedding_width, lambda layers: 0),
    "textcnn": _Kind(
        lambda config: config.inner_width * len(config.kernels), lambda layers: 1, ("inner_width", "kernels")
    ),
    "cnn": _Kind(lambda config: config.inner_width, _as_asked, ("inner_width", "kernels")),
    **dict.fromkeys(CELL_SIZES, _Kind(lambda config: 2 * config.inner_width, _as_asked, ("inner_width",))),
}


# Folders

MODEL_TYPE = "reader"
ABOUT = Phrase("an encoder without attention that was made for a task", "不用注意力的编码器，为一个任务训练而成")
_F = TypeVar("_F", bound=EmbedderConfig)


def read_reader_config(table: Mapping[str, Any], folder: Path) -> ReaderConfig:
    beside = ("model_type", "heads", "labels", "features")
    # null is what a field has that is not given
    plain = {name: value for name, value in table.items() if name not in beside and value is not None}
    found = merge(ReaderConfig(), plain, str(folder / CONFIG))
    if table.get("features") is None:
        return found
    features = read_embedder_config(table["features"], folder / CONFIG)
    try:
        return replace(found, features=features)
    except InputError as error:
        raise InputError(f"{folder / CONFIG}: {error}") from None


def read_embedder_config(table: object, where: Path) -> EmbedderConfig:
    """The config of the language model inside a folder of a plain encoder."""
    known: dict[str, type[EmbedderConfig]] = {"elmo": ElmoConfig, "rnnlm": RNNLMConfig}
    name = table.get("model_type") if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping) or name not in known:
        raise InputError(f"{where}: features are of {' or '.join(known)}, not {name!r}.")
    return sizes_of(known[name], table, where)


def sizes_of(kind: type[_F], table: Mapping[str, Any], where: Path) -> _F:
    given = {name: value for name, value in table.items() if name != "model_type" and value is not None}
    start: Any = kind
    found: _F = merge(start(vocabulary_size=1), given, str(where))
    return found


def sizes_of_reader(config: ReaderConfig) -> EncoderSizes:
    return EncoderSizes(
        config.vocabulary_size,
        config.layers,
        config.width,
        config.max_length,
        pairs=config.segments > 1,
        dropout=config.dropout,
        mixed_layers=config.mixed_layers,
        attends=False,
        on_features=config.features is not None,
    )


def _facts(folder: OwnFolder) -> Facts:
    config, heads = (
        read_reader_config(folder.config, folder.path),
        tuple(read_names(folder.config, "heads", folder.path)),
    )
    can = (HAS_TASK,) if set(heads) & set(TASK_HEADS) else ()
    recurs = (RECURS,) if config.kind in CELL_SIZES or config.features is not None else ()
    return Facts(
        "plain",
        MODEL_TYPE,
        folder.path,
        ABOUT,
        "reader",
        (*can, ENCODES, SHOWS_LAYERS, *recurs, TAKES_HEAD),
        describe_folder(folder),
        heads,
        folder.record,
        sizes=sizes_of_reader(config),
    )


def read_names(config: Mapping[str, Any], name: str, path: Path) -> list[str]:
    values = config.get(name)
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise InputError(f"{path / CONFIG}: {name} is {values!r}, where a list of names belongs.")
    return values


PLAIN_FAMILY = Family(
    "plain", (MODEL_TYPE,), ABOUT, lambda path, compare: read_folder(path, MODEL_TYPE), _facts, lines_of_ours
)


# Families that give vectors of words, below an encoder


def _family_below(
    name: str,
    about: Phrase,
    view_kind: str,
    own: tuple[Ability[Any], ...],
    features: type[EmbedderConfig] | None = None,
) -> Family[OwnFolder]:
    """A family that gives vectors of words; `own` are its abilities beyond those of all such families."""

    def facts_of(folder: OwnFolder) -> Facts:
        sizes = None
        if features is not None:
            below = sizes_of(features, folder.config, folder.path / CONFIG)
            sizes = sizes_of_reader(lookup_config(folder.tokenizer.size, below.features_width, below))
        return Facts(
            name,
            name,
            folder.path,
            about,
            view_kind,
            tuple(dict.fromkeys((*own, ENCODES, FEEDS, SHOWS_LAYERS))),
            describe_folder(folder),
            record=folder.record,
            sizes=sizes,
        )

    return Family(name, (name,), about, lambda path, compare: read_folder(path, name), facts_of, lines_of_ours)


def lookup_config(vocabulary_size: int, width: int, features: EmbedderConfig | None, pad_id: int = 0) -> ReaderConfig:
    return ReaderConfig("lookup", vocabulary_size, width, layers=0, pad_id=pad_id, features=features)


_VECTORS = Phrase("word vectors", "词向量")
WORD2VEC = _family_below("word2vec", _VECTORS, "table", (LOOKS_UP,))
NNLM_FAMILY = _family_below(
    "nnlm",
    Phrase("an NNLM, which gives vectors of words", "NNLM，可给出词向量"),
    "nnlm",
    (LOOKS_UP, SHOWS_LAYERS, PREDICTS_NEXT),
)
RNNLM_FAMILY = _family_below(
    "rnnlm",
    Phrase("a recurrent language model", "循环神经网络语言模型"),
    "rnnlm",
    (WRITES, RECURS, PREDICTS_NEXT),
    RNNLMConfig,
)
ELMO = _family_below(
    "elmo",
    Phrase("an ELMo, which gives vectors of words in their sentence", "ELMo，可给出词在句中的向量"),
    "elmo",
    (RECURS, PREDICTS_NEXT),
    ElmoConfig,
)


def describe_vectors(file: Path) -> Facts:
    """The facts of a file. The number of words is not among them: the file would have to be read."""
    size = file.stat().st_size
    document = {"path": str(file), "model_type": "word2vec", "bytes": size}
    abilities = (LOOKS_UP, ENCODES, FEEDS, SHOWS_LAYERS)
    return Facts("word2vec", "word2vec", file, _VECTORS, "table", abilities, document)
