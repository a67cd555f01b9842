"""What is in a BERT folder, found out and checked by names and shapes before a weight is read.

Everything that can be wrong with a folder is said here, in one message that names the file: a part that is missing, a
key that nobody knows, a shape that config.json contradicts, a tokenizer of another model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from qkv.errors import InputError, listed
from qkv.models.bert.keys import (
    DECODER_BIAS,
    DECODER_TABLE,
    TOKEN_TABLE,
    TOLERATED,
    FolderConfig,
    architecture_of,
    canonical,
    default_labels,
    parts_held,
    read_config,
    tensors_of,
)
from qkv.models.bert.network import BertWithHeads
from qkv.models.folders.codec import OURS, check_vocabulary, read_ours
from qkv.models.folders.sentence import MODULES, POOLINGS, SentenceFiles, read_sentence
from qkv.models.folders.weights import StoredTensor, Undrawn, Weights, open_weights, same
from qkv.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Plan:
    stated: FolderConfig
    weights: Weights
    names: dict[str, StoredTensor]  # by canonical name
    skeleton: BertWithHeads  # on the meta device
    tensors: dict[str, tuple[str, ...]]  # the part of the key table that is used
    labels: tuple[str, ...]
    architecture: str
    tokenizer: Tokenizer
    sentence: SentenceFiles
    record: dict[str, Any]
    is_decoder_compared: bool  # False: a decoder is stored beside the token table, and nobody looked whether it differs
    notes: tuple[str, ...]


def make_plan(folder: Path, compare: bool) -> Plan:
    """Read everything but the weights. `compare`: look into the file whether a stored decoder is the token table."""
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}.")
    stated = read_config(folder / "config.json")
    weights = open_weights(folder, shapes_only=not compare)
    where = str(weights.source)
    names: dict[str, StoredTensor] = {}
    for stored, tensor in weights.tensors.items():
        name = canonical(stored)
        if name in names:
            raise InputError(f"{where} holds {name} twice, with and without a prefix or under an older name.")
        if name not in TOLERATED:
            names[name] = tensor
    heads, pooler = parts_held(names, stated.architecture, where)
    repeated = stated.config.tied and DECODER_TABLE in names and TOKEN_TABLE in names
    config = replace(stated.config, tied=_settle_decoder(names, stated.config.tied, compare))
    outputs = [names["classifier.weight"].shape[0]] if "classifier.weight" in names else []
    # more layers than tensors are missing in any case, and need not be counted one by one
    tensors = tensors_of(heads, pooler, min(config.layers, len(names) + 1), config.tied)
    _check_names(stated, weights, names, tensors, heads)
    with torch.device("meta"), Undrawn():
        skeleton = BertWithHeads(config, heads, labels=(outputs or [2])[0], pooler=pooler)
    _check_shapes(stated, weights, names, tensors, skeleton)

    labels = stated.labels if set(heads) & {"sequence", "token"} else ()
    if labels is None:
        labels = default_labels(outputs[0])
    elif labels and len(labels) != outputs[0]:
        raise InputError(
            f"{folder / 'config.json'} names {len(labels)} labels, but the classifier in {weights.source.name} has "
            f"{outputs[0]} outputs. One of the two files belongs to another model."
        )
    tokenizer = Tokenizer.load(folder)
    notes = [*stated.notes, *check_vocabulary(tokenizer, config.vocabulary_size, str(folder))]
    if repeated and not compare:
        notes.append(f"{weights.source.name} holds {DECODER_TABLE} too; whether it differs is seen when it is loaded")
    ours = _read_ours(folder)
    sentence = read_sentence(folder)
    if not (folder / MODULES).is_file():
        sentence = SentenceFiles(ours.get("pooling"), bool(ours.get("normalize")), ours.get("foreign_pooling"))
    return Plan(
        stated=stated,
        weights=weights,
        names=names,
        skeleton=skeleton,
        tensors=tensors,
        labels=labels,
        architecture=architecture_of(heads, stated.architecture),
        tokenizer=tokenizer,
        sentence=sentence,
        record=ours.get("record") or {},
        is_decoder_compared=compare or not repeated,
        notes=(*notes, *sentence.notes),
    )


def _settle_decoder(names: dict[str, StoredTensor], tied: bool, compare: bool) -> bool:
    """Reduce the names that may repeat a tensor to those of the table; whether the decoder is the token table.

    As transformers 5 does it: a decoder stored beside the token table counts when it differs from it, whatever
    config.json says, and of two biases the decoder's is the one that is added.
    """
    if DECODER_BIAS in names:
        names["cls.predictions.bias"] = names.pop(DECODER_BIAS)
    decoder, table = names.get(DECODER_TABLE), names.get(TOKEN_TABLE)
    if not tied or decoder is None or table is None:
        return tied
    if compare and not same(decoder, table):
        return False
    del names[DECODER_TABLE]
    return True


def _check_names(
    stated: FolderConfig,
    weights: Weights,
    names: Mapping[str, StoredTensor],
    tensors: Mapping[str, tuple[str, ...]],
    heads: Sequence[str],
) -> None:
    wanted = {name for theirs in tensors.values() for name in theirs}
    if missing := wanted - set(names):
        raise InputError(
            f"{weights.source} lacks {len(missing)} of the tensors that "
            f"{stated.architecture or architecture_of(heads)} with {stated.config.layers} layers needs: "
            f"{listed(missing)}. The file is incomplete, or config.json belongs to another model."
        )
    if unexpected := set(names) - wanted:
        raise InputError(
            f"{weights.source} holds {len(unexpected)} tensors that a BERT of {stated.config.layers} layers does not "
            f"have: {listed(unexpected)}. The folder is of another architecture, or config.json of another model."
        )


def _check_shapes(
    stated: FolderConfig,
    weights: Weights,
    names: Mapping[str, StoredTensor],
    tensors: Mapping[str, tuple[str, ...]],
    skeleton: BertWithHeads,
) -> None:
    rows, vocabulary = names[TOKEN_TABLE].shape[0], stated.config.vocabulary_size
    if rows != vocabulary:
        raise InputError(
            f"{weights.source.parent / 'config.json'} says vocab_size {vocabulary:,}, but the token table in "
            f"{weights.source.name} has {rows:,} rows. One of the two files belongs to another model."
        )
    for ours, parameter in skeleton.state_dict().items():
        theirs = tensors[ours]
        shape = (parameter.shape[0] // len(theirs), *parameter.shape[1:])
        for name in theirs:
            stored = names[name]
            if stored.shape != shape:
                raise InputError(
                    f"{stored.file}: {name} has the shape {list(stored.shape)}, but config.json asks for "
                    f"{list(shape)}. One of the two files belongs to another model."
                )
            if not stored.dtype.is_floating_point:
                raise InputError(f"{stored.file}: {name} is stored as {stored.dtype}; qkv reads float weights.")


def _read_ours(folder: Path) -> dict[str, Any]:
    ours = read_ours(folder)
    if ours.get("pooling") not in (None, *POOLINGS):
        raise InputError(
            f"{folder / OURS}: pooling is {ours['pooling']!r}, where one of {', '.join(POOLINGS)} belongs."
        )
    return ours
