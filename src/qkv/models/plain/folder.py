"""Folders of readers (models/plain/network.py), and the one door to every model that a task was put on, or can be.

A reader's folder is one of ours (models/folders/own.py): config.json has `model_type` "reader", the fields of its
config, its heads and its labels; qkv.json has the record that a BERT's folder has too, and so predictions are restored
in the same way. A reader on the vectors of a language model has that model inside, its sizes under `features`: it needs
no other folder.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from qkv.config import merge
from qkv.errors import InputError, listed, reading
from qkv.files import read_object
from qkv.models.bert import folder as hf
from qkv.models.bert.keys import read_config
from qkv.models.bert.network import BertConfig
from qkv.models.elmo.network import ElmoConfig
from qkv.models.elmo.tokenizer import MOST, OpenTokenizer
from qkv.models.encoder import HEADS, WithHeads
from qkv.models.family import (
    ENCODES,
    HAS_TASK,
    RECURS,
    SHOWS_LAYERS,
    TAKES_HEAD,
    TASK_HEADS,
    Ability,
    EncoderSizes,
    Encodes,
    Facts,
    Family,
    HasTask,
    Head,
    Loading,
    Saving,
    TakesHead,
)
from qkv.models.family import Opened as FamilyOpened
from qkv.models.folders.codec import CONFIG, GPTS, TRANSLATORS, WEIGHTS, model_type_of
from qkv.models.folders.info import lines_of_ours, shown_facts
from qkv.models.folders.own import KINDS, describe_folder, read_folder, save_folder
from qkv.models.gpt.encoder import GPTReaderConfig
from qkv.models.gpt.task_folder import GPTFolder, open_gpt, shape_of_gpt
from qkv.models.plain.features import sizes_of, sizes_table
from qkv.models.plain.network import ReaderConfig, ReaderWithHeads
from qkv.nn.recurrent import CELLS
from qkv.report.bilingual import Phrase
from qkv.text.tokenizer import Tokenizer

_MODEL_TYPE = "reader"


@dataclass
class ReaderFolder:
    """A reader and all that its folder says about it, under the names of `hf.Folder`."""

    model: ReaderWithHeads
    tokenizer: Tokenizer
    config: ReaderConfig
    labels: tuple[str, ...]
    path: Path
    record: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    # what a folder of transformers may say, and this one never does
    pooling: ClassVar[str | None] = None
    normalize: ClassVar[bool] = False
    foreign_pooling: ClassVar[str | None] = None
    carried: ClassVar[Mapping[str, Any]] = {}

    @property
    def architecture(self) -> str:
        features = self.config.features
        return f"reader of kind {self.config.kind}" + (
            "" if features is None else f" on vectors of {sizes_table(features)['model_type']}"
        )

    def save(self, path: str | Path, architecture: str | None = None) -> Path:
        if architecture is not None:
            raise InputError(f"{self.path} is a {self.architecture}: transformers has no class for it.")
        return save_reader(path, self.model, self.tokenizer, self.labels, self.record)


Opened = hf.Folder | ReaderFolder | GPTFolder
Shape = BertConfig | ReaderConfig | GPTReaderConfig


def open_model(path: str | Path, *, dtype: torch.dtype = torch.float32, most: int | None = MOST) -> Opened:
    """A folder that answers: a BERT's, or a reader's or GPT's that has a task. `most` as for `OpenTokenizer`."""
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        is_gpt = model_type_of(folder) in GPTS
    if is_gpt and (opened := open_gpt(folder, dtype=dtype)).model.heads:
        return opened
    return load_reader(folder, dtype=dtype, most=most) if _is_reader(folder) else hf.load(folder, dtype=dtype)


def open_start(path: str | Path) -> Opened:
    """A folder that a task can be put on: all that `open_model` takes, and a GPT as it was pretrained."""
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        is_gpt = model_type_of(folder) in GPTS
    return open_gpt(folder) if is_gpt else open_model(folder, most=None)  # a run keeps the tokens of all its texts


def shape_of(path: str | Path) -> Shape:
    """The sizes that a folder states, without its weights."""
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        is_gpt = model_type_of(folder) in GPTS
    if is_gpt:
        return shape_of_gpt(folder)
    if not _is_reader(folder):
        return read_config(folder / CONFIG).config
    with reading(folder):
        return _config(read_object(folder / CONFIG), folder)


def save_reader(
    path: str | Path,
    model: ReaderWithHeads,
    tokenizer: Tokenizer,
    labels: Sequence[str] = (),
    record: Mapping[str, Any] | None = None,
) -> Path:
    """Write a folder, whole or not at all; return its path."""
    config = {**asdict(model.config), "heads": list(model.heads), "labels": list(labels)}
    if model.config.features is None:
        del config["features"]
    else:
        config["features"] = sizes_table(model.config.features)
    # not the state dict, which has a module that stands in two places twice
    return save_folder(path, _MODEL_TYPE, config, dict(model.named_parameters()), tokenizer, record)


def load_reader(path: str | Path, *, dtype: torch.dtype = torch.float32, most: int | None = MOST) -> ReaderFolder:
    """Load a folder that `save_reader` wrote. The weights are a private mapping of the file, as a BERT's are."""
    folder = Path(os.path.expanduser(path))
    found = read_folder(folder, _MODEL_TYPE)
    config, place = _config(found.config, folder), folder / CONFIG
    heads, labels = found.config.get("heads"), found.config.get("labels")
    for name, values in (("heads", heads), ("labels", labels)):
        if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
            raise InputError(f"{place}: {name} is {values!r}, where a list of names belongs.")
    assert isinstance(heads, list) and isinstance(labels, list)
    if unknown := set(heads) - set(HEADS):
        raise InputError(f"{place}: there is no head {listed(unknown)}. Known: {', '.join(HEADS)}.")
    outputs = [len(found.tensors[name]) for head in heads if (name := f"heads.{head}.linear.weight") in found.tensors]
    tokenizer = spelling(config, found.tokenizer, most)
    with torch.device("meta"):
        model = ReaderWithHeads(config, heads, labels=max(outputs, default=2), words=tokenizer)
    wanted = {name: parameter.shape for name, parameter in model.named_parameters()}
    if missing := set(wanted) - set(found.tensors):
        raise InputError(f"{folder / WEIGHTS} lacks {listed(sorted(missing))}, which a {config.kind} has.")
    if left_over := set(found.tensors) - set(wanted):
        raise InputError(f"{folder / WEIGHTS} holds {listed(sorted(left_over))}, which a {config.kind} does not have.")
    for name, shape in wanted.items():
        if (stored := found.tensors[name].shape) != shape:
            raise InputError(
                f"{folder / WEIGHTS}: {name} has the shape {list(stored)}, and {CONFIG} says {list(shape)}."
            )
    # a module that stands in two places is named once in the file
    model.load_state_dict({name: tensor.to(dtype) for name, tensor in found.tensors.items()}, strict=False, assign=True)
    return ReaderFolder(model.eval(), tokenizer, config, tuple(labels), folder, found.record)


def spelling(config: ReaderConfig, tokenizer: Tokenizer, most: int | None = None) -> Tokenizer:
    """The tokenizer as this reader needs it: open, if its words are spelled. `most` as for `OpenTokenizer`."""
    return OpenTokenizer(tokenizer, most) if isinstance(config.features, ElmoConfig) else tokenizer


def _is_reader(folder: Path) -> bool:
    with reading(folder):
        model_type = model_type_of(folder)
    if model_type in TRANSLATORS:
        raise InputError(f"{folder} holds a model that translates, and does nothing else: qkv translate {folder} TEXT.")
    if model_type in GPTS:
        raise InputError(
            f"{folder} holds a GPT, which writes on from a text: qkv generate {folder} TEXT. It neither fills blanks "
            f"nor was made for a task. Make one of it: qkv finetune TASK --model {folder} --train FILE --out RUN."
        )
    if model_type in KINDS and model_type != _MODEL_TYPE:
        raise InputError(
            f"{folder} holds a model of type {model_type}, which was not made for a task, and neither fills blanks nor "
            f"has attention. Make one of it: qkv finetune TASK --model {folder} --train FILE --out RUN."
        )
    return model_type == _MODEL_TYPE


def _config(table: Mapping[str, Any], folder: Path) -> ReaderConfig:
    beside = ("model_type", "heads", "labels", "features")
    # null is what a field has that is not given
    plain = {name: value for name, value in table.items() if name not in beside and value is not None}
    found = merge(ReaderConfig(), plain, str(folder / CONFIG))
    if table.get("features") is None:
        return found
    features = sizes_of(table["features"], folder / CONFIG)
    try:
        return replace(found, features=features)
    except InputError as error:
        raise InputError(f"{folder / CONFIG}: {error}") from None


# --- The family: what is asked of a plain encoder's folder from outside.

_ABOUT = Phrase("an encoder without attention that was made for a task", "不用注意力的编码器，为一个任务训练而成")


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


def _facts(path: Path) -> Facts:
    document = describe_folder(path)
    document["weight_bytes"] = document["files"][WEIGHTS]
    config, heads = _config(document["config"], path), tuple(document["config"].get("heads") or ())
    abilities = (HAS_TASK,) if set(heads) & set(TASK_HEADS) else ()
    recurs = (RECURS,) if config.kind in CELLS or config.features is not None else ()
    return Facts(
        "plain",
        _MODEL_TYPE,
        path,
        _ABOUT,
        "reader",
        (*abilities, ENCODES, SHOWS_LAYERS, *recurs, TAKES_HEAD),
        document,
        heads,
        document["record"],
        shown=shown_facts(path, "reader"),
        sizes=sizes_of_reader(config),
    )


def _open(path: Path, loading: Loading) -> FamilyOpened:
    facts, folder = _facts(path), load_reader(path, dtype=loading.dtype, most=loading.spelled)
    network = folder.model.to(loading.device)
    parts: dict[Ability[Any], Callable[[], Any]] = {
        HAS_TASK: lambda: HasTask(network, facts.heads),
        ENCODES: lambda: Encodes(network, folder.tokenizer, sizes_of_reader(folder.config)),
        SHOWS_LAYERS: lambda: network,
        RECURS: lambda: network,
        TAKES_HEAD: lambda: takes_head(folder),
    }
    return FamilyOpened(
        facts,
        folder.tokenizer,
        folder.config,
        folder.labels,
        folder.architecture,
        parts={one: parts[one] for one in facts.abilities},
        write=folder.save,
    )


def takes_head(folder: ReaderFolder, from_nothing: bool = False) -> TakesHead:
    def build(head: Head) -> ReaderWithHeads:
        dropout = folder.config.dropout if head.dropout is None else head.dropout
        config = replace(folder.config, dropout=dropout)
        return ReaderWithHeads(config, [head.name], labels=head.outputs, words=folder.tokenizer)

    def save(target: Path, network: WithHeads, saving: Saving) -> Path:
        assert isinstance(network, ReaderWithHeads)
        network.config = replace(network.config, dropout=folder.config.dropout)
        return save_reader(target, network, folder.tokenizer, saving.labels, saving.record)

    return TakesHead(
        sizes_of_reader(folder.config),
        folder.tokenizer,
        folder.path,
        folder.model,
        build,
        save,
        from_nothing,
        draws_whole=True,
    )


PLAIN = Family("plain", (_MODEL_TYPE,), _ABOUT, _facts, _open, lines_of_ours)
