"""What is in a folder of BERT's kind, found out and checked by names and shapes before a weight is read.

Everything that can be wrong with a folder is said here, in one message that names the file: a part that is missing, a
key that nobody knows, a shape that config.json contradicts, a tokenizer of another model.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from qkv.errors import InputError, listed
from qkv.models.bert.likes import KINDS, BertLike, FolderConfig
from qkv.models.bert.network import BertWithHeads
from qkv.models.encoder import READS_POOLED
from qkv.models.family import TASK_HEADS
from qkv.models.folders.codec import CONFIG, OURS, check_vocabulary, read_ours
from qkv.models.folders.fields import default_labels
from qkv.models.folders.sentence import MODULES, POOLINGS, SentenceFiles, read_sentence
from qkv.models.folders.weights import StoredTensor, Undrawn, Weights, open_weights, same
from qkv.text.tokenizer import Tokenizer

_TOLERATED = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})
"""Buffers that older files store and that say nothing: 0, 1, 2 … and 0, 0, 0 …"""
LABELLED = frozenset({"sequence", "token"})
"""Heads whose outputs have names."""


@dataclass(frozen=True)
class Plan:
    like: BertLike
    stated: FolderConfig
    weights: Weights
    names: dict[str, StoredTensor]  # by canonical name
    skeleton: BertWithHeads  # on the meta device
    tensors: dict[str, tuple[str, ...]]  # the names that are used
    dense: str | None  # where the pooler's layer lies
    labels: tuple[str, ...]
    architecture: str
    tokenizer: Tokenizer
    sentence: SentenceFiles
    record: dict[str, Any]
    is_decoder_compared: bool  # False: a decoder is stored beside the token table, and nobody looked whether it differs
    notes: tuple[str, ...]


def make_plan(like: BertLike, folder: Path, compare: bool) -> Plan:
    """Read everything but the weights. `compare`: look into the file whether a stored decoder is the token table."""
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}.")
    stated = like.read_config(folder / CONFIG)
    weights = open_weights(folder, shapes_only=not compare)
    where = str(weights.source)
    names: dict[str, StoredTensor] = {}
    for stored, tensor in weights.tensors.items():
        name = like.canonical(stored)
        if name in names:
            raise InputError(f"{where} holds {name} twice, with and without a prefix or under an older name.")
        if name not in _TOLERATED:
            names[name] = tensor
    heads = like.heads_held(names, stated.architecture, where)
    architecture = like.architecture_of(heads, stated.architecture)
    dense, notes = _dense_held(like, names, heads, architecture)
    repeated = stated.config.tied and f"{like.decoder}.weight" in names and like.token_table in names
    known = like.classes[architecture]
    config = replace(
        stated.config,
        tied=_settle_decoder(like, names, stated.config.tied, compare),
        dense_activation=known.activation,
        drops_before_dense=known.drops_before,
    )
    linears = [f"{like.heads[head]['linear']}.weight" for head in heads if head in TASK_HEADS]
    outputs = [names[linear].shape[0] for linear in linears if linear in names and len(names[linear].shape) == 2]
    # more layers than tensors are missing in any case, and need not be counted one by one
    tensors = like.tensors(config, heads, dense, min(config.own_layers, len(names) + 1))
    _check_names(like, stated, weights, names, tensors, heads)
    with torch.device("meta"), Undrawn():
        skeleton = BertWithHeads(config, heads, labels=max(outputs, default=2), pooler=dense is not None)
    _check_shapes(like, stated, weights, names, tensors, skeleton)

    labels = stated.labels if set(heads) & LABELLED else ()
    if labels is None:
        labels = default_labels(max(outputs))
    elif labels and len(labels) != max(outputs):
        raise InputError(
            f"{folder / CONFIG} names {len(labels)} labels, but the classifier in {weights.source.name} has "
            f"{max(outputs)} outputs. One of the two files belongs to another model."
        )
    tokenizer = Tokenizer.load(folder)
    notes = [*stated.notes, *notes, *check_vocabulary(tokenizer, config.vocabulary_size, str(folder))]
    if repeated and not compare:
        notes.append(
            f"{weights.source.name} holds {like.decoder}.weight too; whether it differs is seen when it is loaded"
        )
    ours = read_ours(folder)
    if ours.get("pooling") not in (None, *POOLINGS):
        raise InputError(
            f"{folder / OURS}: pooling is {ours['pooling']!r}, where one of {', '.join(POOLINGS)} belongs."
        )
    sentence = read_sentence(folder)
    if not (folder / MODULES).is_file():
        sentence = SentenceFiles(ours.get("pooling"), bool(ours.get("normalize")), ours.get("foreign_pooling"))
    return Plan(
        like=like,
        stated=stated,
        weights=weights,
        names=names,
        skeleton=skeleton,
        tensors=tensors,
        dense=dense,
        labels=labels,
        architecture=architecture,
        tokenizer=tokenizer,
        sentence=sentence,
        record=ours.get("record") or {},
        is_decoder_compared=compare or not repeated,
        notes=(*notes, *sentence.notes),
    )


def _dense_held(
    like: BertLike, names: dict[str, StoredTensor], heads: Collection[str], architecture: str
) -> tuple[str | None, list[str]]:
    """Where the pooler's layer lies, and a note of one that nothing reads; its tensors are taken out of the names."""
    bare = like.pooler if like.pooler and f"{like.pooler}.weight" in names else None
    if not set(heads) & READS_POOLED:
        return bare, []
    dense = like.dense_of(architecture)
    if bare is None or bare == dense:
        return dense, []
    for kind in KINDS:
        names.pop(f"{bare}.{kind}", None)
    return dense, [f"the head reads {dense}, so {bare} is not used"]


def _settle_decoder(like: BertLike, names: dict[str, StoredTensor], tied: bool, compare: bool) -> bool:
    """Reduce the names that may repeat a tensor to those of the record; whether the decoder is the token table.

    As transformers 5 does it: a decoder stored beside the token table counts when it differs from it, whatever
    config.json says, and of two biases the decoder's is the one that is added.
    """
    if like.decoder_bias is not None and like.decoder_bias in names:
        names[like.masked_bias] = names.pop(like.decoder_bias)
    decoder, table = names.get(f"{like.decoder}.weight"), names.get(like.token_table)
    if not tied or decoder is None or table is None:
        return tied
    if compare and not same(decoder, table):
        return False
    del names[f"{like.decoder}.weight"]
    return True


def _check_names(
    like: BertLike,
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
            f"{stated.architecture or like.architecture_of(heads)} with {stated.config.layers} layers needs: "
            f"{listed(missing)}. The file is incomplete, or config.json belongs to another model."
        )
    if unexpected := set(names) - wanted:
        raise InputError(
            f"{weights.source} holds {len(unexpected)} tensors that {like.about.en} of {stated.config.layers} layers "
            f"does not have: {listed(unexpected)}. The folder is of another architecture, or config.json of another "
            "model."
        )


def _check_shapes(
    like: BertLike,
    stated: FolderConfig,
    weights: Weights,
    names: Mapping[str, StoredTensor],
    tensors: Mapping[str, tuple[str, ...]],
    skeleton: BertWithHeads,
) -> None:
    rows, vocabulary = names[like.token_table].shape[0], stated.config.vocabulary_size
    if rows != vocabulary:
        raise InputError(
            f"{weights.source.parent / CONFIG} says vocab_size {vocabulary:,}, but the token table in "
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
