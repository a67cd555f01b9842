"""Folders of models that transformers has no class for: word2vec, NNLM, RNN language models, ELMo, readers of texts.

The same folder as a BERT's, so that whoever knows one knows the other: config.json with a `model_type` of our own and
the sizes, model.safetensors, the tokenizer's files, README.md (a card in two languages) and qkv.json with the record of
the training. Written whole or not at all; weights are never pickled.

What this file does NOT do: know a network. It hands out a config and tensors by name, and each model's own loader holds
them against its network. A BERT goes through models/bert/folder.py.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from qkv.errors import InputError, did_you_mean, listed, reading
from qkv.files import read_object, to_json
from qkv.models.folders.card import Card, write_about, write_card
from qkv.models.folders.codec import (
    CARD,
    CONFIG,
    FORMAT,
    OURS,
    WEIGHTS,
    check_vocabulary,
    own_version,
    read_record,
    write_folder,
)
from qkv.models.folders.weights import read_header
from qkv.text.tokenizer import Tokenizer


class _Kind(NamedTuple):
    """What the card of a model says it is, and the first thing to do with it."""

    english: str
    chinese: str
    command: str | None = None


KINDS: dict[str, _Kind] = {
    "word2vec": _Kind(
        "word vectors: one vector a word, the same in every sentence (Mikolov et al. 2013)",
        "词向量：一词一向量，与语境无关",
        "qkv similar WORD --model path/to/this/folder",
    ),
    "nnlm": _Kind(
        "a feed-forward language model: the next word from a window of words (Bengio et al. 2003)",
        "前馈神经网络语言模型：由前面几个词预测下一个词",
    ),
    "rnnlm": _Kind(
        "a recurrent language model: the next word from all words before it",
        "循环神经网络语言模型：由前面所有的词预测下一个词",
    ),
    "elmo": _Kind(
        "word vectors that depend on their sentence, from language models of both directions (Peters et al. 2018)",
        "与语境有关的词向量，来自正、反两个方向的语言模型",
    ),
    "reader": _Kind(
        "an encoder without attention (looked-up vectors, convolutions or recurrent layers), trained for one task",
        "不用注意力的编码器（查表、卷积或循环层），为一个任务训练而成",
        "qkv predict path/to/this/folder TEXT",
    ),
}
"""Every `model_type` that a folder of ours may have."""


class _Folder(NamedTuple):
    """What a folder holds. A tensor is a private view of the file: as stored, and read when it is used."""

    model_type: str
    config: dict[str, Any]
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer
    record: dict[str, Any]


def save_folder(
    path: str | os.PathLike[str],
    model_type: str,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer,
    record: Mapping[str, Any] | None = None,
    *,
    card: str | None = None,
) -> Path:
    """Write a folder, whole or not at all; return its path.

    A folder that is already there is replaced if it is a model folder, and refused if it holds anything else. `config`
    is JSON: numbers, names, lists; its `vocabulary_size`, where it has one, must fit the tokenizer. `card` takes the
    place of the README.md that is written otherwise.
    """
    if model_type not in KINDS:
        raise InputError(
            f"The model_type is {model_type!r}; a folder is one of {', '.join(KINDS)}.{did_you_mean(model_type, KINDS)}"
        )
    target = Path(os.path.expanduser(path))
    if "vocabulary_size" in config:
        check_vocabulary(tokenizer, config["vocabulary_size"], str(target))
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    files = tokenizer.files(config.get("max_length")) | {
        CONFIG: to_json({"model_type": model_type, **config}),
        OURS: to_json({"format": FORMAT, "qkv": own_version(), "record": dict(record or {})}),
        CARD: card or _card(target.resolve().name, model_type, config, stored, tokenizer.segmenter),
    }
    write_folder(target, files, stored)
    return target


def read_folder(path: str | os.PathLike[str], *expected: str) -> _Folder:
    """Read a folder that `save_folder` wrote; with `expected`, one of these model_types and no other.

    The weights are a private mapping of the file, which must not be written over in place while they are used.
    """
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        if not (folder / CONFIG).is_file():
            held = listed(entry.name for entry in folder.iterdir()) if folder.is_dir() else ""
            what = f"only {held}" if held else "or is no folder"
            raise InputError(f"{folder} is not a model folder: it has no {CONFIG}, {what}.")
        config = read_object(folder / CONFIG)
        model_type = config.pop("model_type", None)
        if not isinstance(model_type, str) or model_type not in (expected or KINDS):
            raise _other_type(folder, model_type, expected)
        record = read_record(folder)
        if not (folder / WEIGHTS).is_file():
            raise InputError(f"{folder} has no weights: {WEIGHTS} is missing. Copy it there.")
        tensors = {name: tensor.mapped() for name, tensor in read_header(folder / WEIGHTS).items()}
        tokenizer = Tokenizer.load(folder)
        if "vocabulary_size" in config:
            if not isinstance(rows := config["vocabulary_size"], int):
                raise InputError(f"{folder / CONFIG}: vocabulary_size is {rows!r}, where a number belongs.")
            check_vocabulary(tokenizer, rows, str(folder))
    return _Folder(model_type, config, tensors, tokenizer, record)


def describe_folder(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a folder holds, for people to look at and programs to read. Weights are mapped, not read."""
    found = read_folder(path)
    folder = Path(os.path.expanduser(path))
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in found.tensors.values()}
    return {
        "path": str(folder),
        "model_type": found.model_type,
        "about": KINDS[found.model_type].english,
        "config": found.config,
        "parameters": sum(tensor.numel() for tensor in found.tensors.values()),
        "tensors": {name: list(tensor.shape) for name, tensor in found.tensors.items()},
        "dtype": " and ".join(sorted(dtypes)),
        "files": {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if file.is_file()},
        "vocabulary": {
            "size": found.tokenizer.size,
            "kind": found.tokenizer.kind,
            "lowercase": found.tokenizer.lowercase,
            "segmenter": found.tokenizer.segmenter,
        },
        "record": found.record,
    }


def _other_type(folder: Path, found: object, expected: tuple[str, ...]) -> InputError:
    wanted = " or ".join(expected or KINDS)
    if found == "bert":
        return InputError(f"{folder} holds a BERT, where {wanted} belongs. Give the folder of such a model.")
    if isinstance(found, str) and found in KINDS:
        return InputError(f"{folder} holds a model of type {found}, where {wanted} belongs.")
    hint = did_you_mean(found, KINDS) if isinstance(found, str) else ""
    return InputError(
        f"{folder / CONFIG} says model_type {found!r}, where {wanted} belongs.{hint} Was it written by a newer qkv, or "
        "by another program?"
    )


def _card(
    name: str, model_type: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor], segmenter: str | None
) -> str:
    kind = KINDS[model_type]
    parameters = sum(tensor.numel() for tensor in tensors.values())
    return write_card(
        Card(
            name,
            write_about(model_type, kind.english, kind.chinese, parameters),
            tags=[model_type],
            sizes={key: value for key, value in config.items() if isinstance(value, str | int | float | bool)},
            notes=[f"Chinese words are found by {segmenter} / 中文由 {segmenter} 分词。"]
            if segmenter is not None
            else (),
            command=kind.command,
        )
    )
