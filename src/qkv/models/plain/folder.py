"""Plain encoders (network.py): their folders, new ones for a task, and those on models that give vectors of words.

A folder is one of ours (models/folders/own.py): config.json has `model_type` "reader", the fields of its config, its
heads and its labels; qkv.json has the record that a BERT's folder has too, and so predictions are restored in the same
way. An encoder on the vectors of a language model has that model inside, its sizes under `features`: it needs no other
folder.

A new encoder for a task (`build_untrained`) is put on what a family of models `Feeds` it:

    word2vec   a folder, or a file of the C tool's form: a vector a word, the first weights of a table
    nnlm       its table, which is the same thing
    elmo       all of it: a token has a vector of every layer, and the task learns how much of each it uses
    rnnlm      all of it: the state after each token

The same families, as they were trained, give vectors of texts through an encoder of kind lookup (`family_below`). A
text's vector is the mean of its tokens': [CLS] and [SEP], which mark the ends of a text for what reads on, are no part
of it, and neither is a word without a vector.

Shapes: V tokens of the tokenizer, E width of the vectors below.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from qkv.errors import InputError, listed
from qkv.models.encoder import HEADS, SkipInit, WithHeads
from qkv.models.family import (
    ENCODES,
    FEEDS,
    HAS_TASK,
    PREDICTS_NEXT,
    RECURS,
    SHOWS_LAYERS,
    TAKES_HEAD,
    Ability,
    Encodes,
    Facts,
    Feeds,
    HasTask,
    Head,
    Loading,
    Opened,
    PredictsNext,
    Saving,
    TakesHead,
)
from qkv.models.folders.own import CONFIG, WEIGHTS, OwnFolder, save_folder
from qkv.models.folders.weights import StoredTensor
from qkv.models.plain.config import (
    ABOUT,
    MODEL_TYPE,
    READER_KINDS,
    EmbedderConfig,
    ReaderConfig,
    ReaderSettings,
    lookup_config,
    read_names,
    read_reader_config,
    sizes_of,
    sizes_of_reader,
)
from qkv.models.plain.network import ReaderWithHeads, TokenTable, build_mix
from qkv.text.tokenizer import Tokenizer

_F = TypeVar("_F", bound=EmbedderConfig)
_N = TypeVar("_N", bound=nn.Module)


def save_reader(
    path: str | Path,
    model: ReaderWithHeads,
    tokenizer: Tokenizer,
    labels: Sequence[str] = (),
    record: Mapping[str, Any] | None = None,
) -> Path:
    """Write a folder, atomically; return its path."""
    config = {**asdict(model.config), "heads": list(model.heads), "labels": list(labels)}
    if (features := model.config.features) is None:
        del config["features"]
    else:
        config["features"] = {"model_type": features.model_type, **config["features"]}
    # not the state dict, which lists a shared module twice
    return save_folder(path, MODEL_TYPE, config, dict(model.named_parameters()), tokenizer, record)


# Trained encoders


@dataclass(frozen=True)
class Plain:
    """A plain encoder and its abilities."""

    network: ReaderWithHeads
    tokenizer: Tokenizer
    path: Path
    labels: tuple[str, ...] = ()
    record: Mapping[str, Any] | None = None
    from_nothing: bool = False  # all that was not trained before is on torch's meta device

    @property
    def config(self) -> ReaderConfig:
        return self.network.config

    @property
    def architecture(self) -> str:
        features = self.config.features
        below = "" if features is None else f" on vectors of {features.model_type}"
        return f"encoder of kind {self.config.kind}{below}"

    def encodes(self) -> Encodes:
        return Encodes(self.network, self.tokenizer, sizes_of_reader(self.config))

    def has_task(self) -> HasTask:
        return HasTask(self.network, tuple(self.network.heads))

    def shown(self) -> ReaderWithHeads:
        return self.network

    def takes_head(self) -> TakesHead:
        sizes = sizes_of_reader(self.config)
        return TakesHead(
            sizes, self.tokenizer, self.path, self.network, self.with_one, self.save_trained, self.from_nothing, True
        )

    def with_one(self, head: Head) -> ReaderWithHeads:
        config = self.config if head.dropout is None else replace(self.config, dropout=head.dropout)
        return ReaderWithHeads(config, [head.name], labels=head.outputs, words=self.tokenizer)

    def save_trained(self, target: Path, network: WithHeads, saving: Saving) -> Path:
        assert isinstance(network, ReaderWithHeads)
        network.config = replace(network.config, dropout=self.config.dropout)
        return save_reader(target, network, self.tokenizer, saving.labels, saving.record)

    def save(self, target: Path, architecture: str | None) -> Path:
        if architecture is not None:
            raise InputError(f"{self.path} is a {self.architecture}: transformers has no class for it.")
        return save_reader(target, self.network, self.tokenizer, self.labels, self.record)

    def opened(self, facts: Facts) -> Opened:
        parts: dict[Ability[Any], Callable[[], Any]] = {
            HAS_TASK: self.has_task,
            ENCODES: self.encodes,
            SHOWS_LAYERS: self.shown,
            RECURS: self.shown,
            TAKES_HEAD: self.takes_head,
        }
        return Opened(
            facts,
            self.tokenizer,
            self.config,
            self.labels,
            self.architecture,
            parts={one: parts[one] for one in facts.abilities},
            write=self.save,
        )


def open_plain(found: OwnFolder, facts: Facts, loading: Loading) -> Opened:
    """Weights are a private mapping of the file."""
    path, tensors = found.path, found.tensors
    config = read_reader_config(found.config, path)
    heads, labels = (read_names(found.config, name, path) for name in ("heads", "labels"))
    if unknown := set(heads) - set(HEADS):
        raise InputError(f"{path / CONFIG}: there is no head {listed(unknown)}. Known: {', '.join(HEADS)}.")
    outputs = [len(tensors[name]) for head in heads if (name := f"heads.{head}.linear.weight") in tensors]
    tokenizer = _read_by(config.features, found.tokenizer, loading.spelled)
    with torch.device("meta"), SkipInit():
        network = ReaderWithHeads(config, heads, labels=max(outputs, default=2), words=tokenizer)
    _check(network, found.stored, path, f"which a {config.kind} has")
    if left_over := set(tensors) - {name for name, _ in network.named_parameters()}:
        raise InputError(f"{path / WEIGHTS} holds {listed(sorted(left_over))}, which a {config.kind} does not have.")
    # a shared module is stored once
    stored = {name: tensor.to(loading.dtype) for name, tensor in tensors.items()}
    network.load_state_dict(stored, strict=False, assign=True)
    return Plain(network.to(loading.device).eval(), tokenizer, path, tuple(labels), found.record).opened(facts)


def _check(network: nn.Module, tensors: Mapping[str, StoredTensor], path: Path, who: str) -> list[str]:
    """Check that a folder has a network's parameters, in their shapes; return their names."""
    wanted = {name: parameter.shape for name, parameter in network.named_parameters()}
    if missing := set(wanted) - set(tensors):
        raise InputError(f"{path / WEIGHTS} lacks {listed(sorted(missing))}, {who}.")
    for name, shape in wanted.items():
        if (stored := tensors[name].shape) != shape:
            raise InputError(f"{path / WEIGHTS}: {name} has the shape {list(stored)}, and {CONFIG} says {list(shape)}.")
    return list(wanted)


def _read_by(features: EmbedderConfig | None, tokenizer: Tokenizer, most: int | None) -> Tokenizer:
    return tokenizer if features is None else features.opened(tokenizer, most)


# Untrained encoders, on pretrained vectors


def check_sizes(kind: str, sizes: ReaderSettings, named: str) -> None:
    """Refuse sizes that this kind of encoder does not use."""
    of_others = {size for one in READER_KINDS.values() for size in one.sizes} - set(READER_KINDS[kind].sizes)
    usual = ReaderSettings()
    if idle := [size for size in sorted(of_others) if getattr(sizes, size) != getattr(usual, size)]:
        raise InputError(
            f"The settings {', '.join(f'reader.{size}' for size in idle)} do nothing for {named}: leave them out."
        )


def count_layers(kind: str, sizes: ReaderSettings) -> int:
    return READER_KINDS[kind].layers(1) if sizes.layers is None else sizes.layers


def build_untrained(
    kind: str, sizes: ReaderSettings, below: Feeds | None, tokenizer: Tokenizer, named: str, tell: Callable[[str], None]
) -> Opened:
    """A new plain encoder on torch's meta device; only pretrained parts have values."""
    if below is not None and sizes.embedding_width not in (None, below.width):
        raise InputError(
            f"reader.embedding_width is {sizes.embedding_width}, and the vectors of {below.place} have {below.width}."
        )
    config = ReaderConfig(
        kind,
        vocabulary_size=tokenizer.size,
        embedding_width=sizes.embedding_width or 128 if below is None else below.width,
        inner_width=sizes.inner_width,
        layers=count_layers(kind, sizes),
        kernels=sizes.kernels,
        dropout=sizes.dropout,
        max_length=sizes.max_length,
        pad_id=tokenizer.pad_id,
        features=None if below is None else below.features,
    )
    tokenizer = _read_by(config.features, tokenizer, None)  # a run keeps the tokens of all its texts
    with torch.device("meta"), SkipInit():
        network = ReaderWithHeads(config, words=tokenizer)
    if below is not None:
        tell(_put_in(network, below, tokenizer))
    facts = Facts("plain", MODEL_TYPE, Path(named), ABOUT, "reader", (TAKES_HEAD,), {}, sizes=sizes_of_reader(config))
    return Plain(network, tokenizer, facts.path, from_nothing=True).opened(facts)


def _put_in(network: ReaderWithHeads, below: Feeds, tokenizer: Tokenizer) -> str:
    """Load pretrained vectors or a language model into a network; return a message about it."""
    if below.features is None:
        table, known = below.table(tokenizer)
        if not known.any():
            raise InputError(
                f"None of the {tokenizer.size:,} tokens of the tokenizer is a word of {below.place}. Take the "
                "tokenizer that the vectors were trained with, or leave --tokenizer out."
            )
        _table_of(network).weight = nn.Parameter(draw_unknown(table, known))
        return f"{int(known.sum()):,} of {tokenizer.size:,} tokens have a vector in {below.place}"
    _load_features(network, below)
    if mixed := below.features.mixed_layers:
        return f"a token has the vectors of {mixed} layers of {below.place}, mixed as the task learns"
    return f"a token has the state of {below.place} after it"


def draw_unknown(table: Tensor, known: Tensor) -> Tensor:
    """(V, E) where tokens without a vector are drawn with the deviation of the others, from a fixed seed."""
    drawn = torch.randn(table.shape, generator=torch.Generator().manual_seed(0)) * table[known].std(correction=0)
    return torch.where(known[:, None], table, drawn)


def _table_of(network: ReaderWithHeads) -> TokenTable:
    assert isinstance(network.encoder.embedding, TokenTable)
    return network.encoder.embedding


def _load_features(network: ReaderWithHeads, below: Feeds) -> None:
    features = network.encoder.embedding.network
    assert isinstance(features, nn.Module)
    features.load_state_dict(below.weights(), assign=True)


# Families that give vectors of words, below an encoder


@dataclass(frozen=True)
class LanguageModel:
    """A language model in the place of a table (`Feeds` of models/family.py)."""

    folder: OwnFolder
    features: EmbedderConfig
    tensors: Mapping[str, Tensor]  # those that make vectors of tokens

    @property
    def place(self) -> Path:
        return self.folder.path

    @property
    def tokenizer(self) -> Tokenizer:
        return self.folder.tokenizer

    @property
    def model_type(self) -> str:
        return self.features.model_type

    @property
    def width(self) -> int:
        return self.features.features_width

    def weights(self) -> Mapping[str, Tensor]:
        return self.tensors

    def table(self, tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
        raise AssertionError(f"{self.place} has no table")

    def check_tokenizer(self, given: Tokenizer, name: str) -> None:
        raise InputError(
            f"{self.place} is a model of type {self.model_type}, whose vectors belong to the tokens of its own "
            "tokenizer: leave --tokenizer out."
        )


def read_features(
    folder: OwnFolder, kind: type[_F], build: Callable[[_F], nn.Module]
) -> tuple[OwnFolder, _F, dict[str, Tensor]]:
    """The fields of `LanguageModel`. The weights that score words are left out: a task does not need them, and they are
    the larger part of a model with many words."""
    config = sizes_of(kind, folder.config, folder.path / CONFIG)
    with torch.device("meta"), SkipInit():
        network = build(config)
    names = _check(network, folder.stored, folder.path, f"which {CONFIG} says it has")
    return folder, config, {name: folder.tensors[name].float() for name in names}


def load_whole(network: _N, folder: OwnFolder, loading: Loading) -> _N:
    """Load a whole language model, its scores of words included, for prediction."""
    try:
        network.load_state_dict(folder.tensors)
    except RuntimeError as error:
        raise InputError(f"{folder.path}: {CONFIG} and {WEIGHTS} do not fit together: {error}") from None
    return network.to(loading.device, loading.dtype).eval()


OwnParts = Mapping[Ability[Any], Callable[[Any, Loading], Any]]
"""Abilities of one family, in addition to those of all."""


class PredictsWith(NamedTuple):
    """How a family predicts the next token."""

    ability: Ability[Any]  # gives the whole network, which is then loaded once for both
    make: Callable[[Any, Tokenizer], PredictsNext]


def open_below(
    facts: Facts, below: Feeds, own: OwnParts, loading: Loading, predicts: PredictsWith | None = None
) -> Opened:
    tokenizer = _read_by(below.features, below.tokenizer, loading.spelled)
    parts: dict[Ability[Any], Callable[[], Any]] = {
        ENCODES: partial(_encodes, below, tokenizer, loading),
        SHOWS_LAYERS: partial(_network, below, tokenizer, loading),
        FEEDS: partial(_itself, below),
    }
    parts |= {kind: partial(part, below, loading) for kind, part in own.items()}
    config = lookup_config(tokenizer.size, below.width, below.features, tokenizer.pad_id)
    opened = Opened(facts, tokenizer, config, architecture=f"model of type {facts.model_type}", parts=parts)
    if predicts is not None:
        parts[PREDICTS_NEXT] = lambda: predicts.make(opened.ability(predicts.ability), tokenizer)
    return opened


def _itself(below: Feeds) -> Feeds:
    return below


def _encodes(below: Feeds, tokenizer: Tokenizer, loading: Loading) -> Encodes:
    network, known = _around(below, tokenizer, loading)
    sizes = sizes_of_reader(network.config)
    layers = sizes.mixed_layers - 1 if sizes.mixed_layers else None
    return Encodes(network, tokenizer, sizes, layers, counts_marks=False, pools_first=False, known=known)


def _network(below: Feeds, tokenizer: Tokenizer, loading: Loading) -> ReaderWithHeads:
    return _around(below, tokenizer, loading)[0]


def _around(below: Feeds, tokenizer: Tokenizer, loading: Loading) -> tuple[ReaderWithHeads, Tensor | None]:
    """An encoder of kind lookup, and (V,) which tokens have a vector; None if all have."""
    with torch.device("meta"), SkipInit():
        network = ReaderWithHeads(
            lookup_config(tokenizer.size, below.width, below.features, tokenizer.pad_id), words=tokenizer
        )
    known: Tensor | None = None
    if below.features is None:
        table, known = below.table(tokenizer)
        _table_of(network).weight = nn.Parameter(table)
    else:
        _load_features(network, below)
        network.encoder.mix = build_mix(below.features)  # equal shares, which is where learning them begins
    return network.to(loading.device, loading.dtype).requires_grad_(False).eval(), known
