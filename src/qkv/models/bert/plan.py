"""Folders of BERT and its relatives, checked by names and shapes and described, without torch.

A plan (`make_plan`) is made before a weight is read. Every error names its file: a missing part, an unknown key, a
shape that config.json contradicts, a tokenizer of another model. `family_of_bert` turns a record of names (likes.py)
into the family of models/table.py; folder.py opens what was planned.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from qkv.errors import InputError, listed
from qkv.models.bert.config import POOLED_HEADS, BertConfig, shapes_of_bert
from qkv.models.bert.likes import BERT_NAMES, WEIGHT_AND_BIAS, BertLike, FolderConfig
from qkv.models.family import (
    ATTENDS,
    ENCODES,
    FILLS,
    HAS_TASK,
    JUDGES_PAIRS,
    SHOWS_LAYERS,
    TAKES_HEAD,
    TASK_HEADS,
    Ability,
    EncoderSizes,
    Facts,
    Family,
)
from qkv.models.folders.fields import MODULES, POOLINGS, SentenceFiles, default_labels, read_sentence
from qkv.models.folders.own import CONFIG, OURS, check_vocabulary, read_ours, vocabulary_line
from qkv.models.folders.weights import StoredTensor, WeightFiles, are_equal, check_tensor, open_weights
from qkv.nn.shapes import Shapes
from qkv.text.tokenizer import Tokenizer

_TOLERATED = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})
"""Buffers that older files store and that say nothing: 0, 1, 2 … and 0, 0, 0 …"""
LABELLED = frozenset({"sequence", "token"})
"""Heads whose outputs have names."""
OWN_HEAD = "qkv_head"
"""The name of the tensors of a head that no class of transformers has: it reads a mean, or [CLS] without a pooler."""


@dataclass(frozen=True)
class FolderPlan:
    path: Path
    like: BertLike
    stated: FolderConfig
    weights: WeightFiles
    names: dict[str, StoredTensor]  # by canonical name
    config: BertConfig
    heads: tuple[str, ...]
    outputs: int  # of a head with labels
    shapes: Shapes  # of our parameters
    tensors: dict[str, tuple[str, ...]]  # the names that are used
    dense: str | None  # the name of the pooler's layer
    labels: tuple[str, ...]
    architecture: str
    tokenizer: Tokenizer
    sentence: SentenceFiles
    record: dict[str, Any]
    own_head: str | None  # the head that is stored as `OWN_HEAD`
    is_decoder_compared: bool  # False: a decoder is stored beside the token table, and was not compared
    notes: tuple[str, ...]


def make_plan(like: BertLike, folder: Path, compare: bool) -> FolderPlan:
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
    ours = read_ours(folder)
    own_head, own_tensors = ours.get("head"), _take_own_head(ours, names, folder / OURS)
    heads = like.heads_held(names, stated.architecture, where)
    architecture = like.architecture_of(heads, stated.architecture)
    dense, notes = _dense_held(like, names, heads, architecture)
    repeated = stated.config.tied and f"{like.decoder}.weight" in names and like.token_table in names
    known = like.classes[architecture]
    config = replace(
        stated.config,
        tied=_resolve_decoder(like, names, stated.config.tied, compare),
        dense_activation=known.activation,
        drops_before_dense=known.drops_before,
    )
    linears = [f"{like.heads[head]['linear']}.weight" for head in heads if head in TASK_HEADS]
    outputs = [names[linear].shape[0] for linear in linears if linear in names and len(names[linear].shape) == 2]
    # more layers than tensors are missing in any case, and need not be counted one by one
    tensors = like.tensors(config, heads, dense, min(config.own_layers, len(names) + 1))
    _check_names(like, stated, weights, names, tensors, heads)
    if own_head is not None:
        heads, names = (*heads, own_head), names | own_tensors
        tensors |= {f"heads.{own_head}.linear.{kind}": (f"{OWN_HEAD}.{kind}",) for kind in WEIGHT_AND_BIAS}
        outputs.append(own_tensors[f"{OWN_HEAD}.weight"].shape[0])
    count = max(outputs, default=2)
    shapes = shapes_of_bert(config, heads, count, pooler=dense is not None)
    _check_shapes(like, stated, weights, names, tensors, shapes)

    labels = stated.labels if set(heads) & LABELLED else ()
    if labels is None:
        labels = default_labels(count)
    elif labels and len(labels) != count:
        raise InputError(
            f"{folder / CONFIG} names {len(labels)} labels, but the classifier in {weights.source.name} has "
            f"{count} outputs. One of the two files belongs to another model."
        )
    tokenizer = Tokenizer.load(folder)
    notes = [*stated.notes, *notes, *check_vocabulary(tokenizer, config.vocabulary_size, str(folder))]
    if repeated and not compare:
        notes.append(
            f"{weights.source.name} holds {like.decoder}.weight too; whether it differs is seen when it is loaded"
        )
    if ours.get("pooling") not in (None, *POOLINGS):
        raise InputError(
            f"{folder / OURS}: pooling is {ours['pooling']!r}, where one of {', '.join(POOLINGS)} belongs."
        )
    sentence = read_sentence(folder)
    if not (folder / MODULES).is_file():
        sentence = SentenceFiles(ours.get("pooling"), bool(ours.get("normalize")), ours.get("foreign_pooling"))
    return FolderPlan(
        path=folder,
        like=like,
        stated=stated,
        weights=weights,
        names=names,
        config=config,
        heads=tuple(heads),
        outputs=count,
        shapes=shapes,
        tensors=tensors,
        dense=dense,
        labels=labels,
        architecture=architecture,
        tokenizer=tokenizer,
        sentence=sentence,
        record=ours.get("record") or {},
        own_head=own_head,
        is_decoder_compared=compare or not repeated,
        notes=(*notes, *sentence.notes),
    )


def _take_own_head(ours: Mapping[str, Any], names: dict[str, StoredTensor], file: Path) -> dict[str, StoredTensor]:
    """Remove the tensors of a head of ours from `names` and return them; {} if qkv.json declares none."""
    head = ours.get("head")
    if head is None:
        return {}
    wanted = [f"{OWN_HEAD}.{kind}" for kind in WEIGHT_AND_BIAS]
    if head not in TASK_HEADS or any(name not in names or not names[name].shape for name in wanted):
        raise InputError(f"{file} declares the head {head!r}, and the weights have no {listed(wanted)} of one.")
    return {name: names.pop(name) for name in wanted}


def _dense_held(
    like: BertLike, names: dict[str, StoredTensor], heads: Collection[str], architecture: str
) -> tuple[str | None, list[str]]:
    """The name of the pooler's layer, and a note if one is unused; its tensors are removed from `names`."""
    bare = like.pooler if like.pooler and f"{like.pooler}.weight" in names else None
    if not set(heads) & POOLED_HEADS:
        return bare, []
    dense = like.dense_of(architecture)
    if bare is None or bare == dense:
        return dense, []
    for kind in WEIGHT_AND_BIAS:
        names.pop(f"{bare}.{kind}", None)
    return dense, [f"the head reads {dense}, so {bare} is not used"]


def _resolve_decoder(like: BertLike, names: dict[str, StoredTensor], tied: bool, compare: bool) -> bool:
    """Reduce the names that may repeat a tensor to those of the record; whether the decoder is the token table.

    As transformers 5 does it: a decoder stored beside the token table counts when it differs from it, whatever
    config.json says, and of two biases the decoder's is the one that is added.
    """
    if like.decoder_bias is not None and like.decoder_bias in names:
        names[like.masked_bias] = names.pop(like.decoder_bias)
    decoder, table = names.get(f"{like.decoder}.weight"), names.get(like.token_table)
    if not tied or decoder is None or table is None:
        return tied
    if compare and not are_equal(decoder, table):
        return False
    del names[f"{like.decoder}.weight"]
    return True


def _check_names(
    like: BertLike,
    stated: FolderConfig,
    weights: WeightFiles,
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
    weights: WeightFiles,
    names: Mapping[str, StoredTensor],
    tensors: Mapping[str, tuple[str, ...]],
    shapes: Shapes,
) -> None:
    rows, vocabulary = names[like.token_table].shape[0], stated.config.vocabulary_size
    if rows != vocabulary:
        raise InputError(
            f"{weights.source.parent / CONFIG} says vocab_size {vocabulary:,}, but the token table in "
            f"{weights.source.name} has {rows:,} rows. One of the two files belongs to another model."
        )
    for ours, shape in shapes.items():
        theirs = tensors[ours]
        for name in theirs:
            check_tensor(names[name], name, (shape[0] // len(theirs), *shape[1:]))


def _describe_plan(plan: FolderPlan) -> dict[str, Any]:
    config, folder = plan.config, plan.path
    counts: dict[str, int] = {}
    for name, shape in plan.shapes.items():
        top, part = name.split(".")[:2]
        part = part if top == "heads" else {"embedding": "embeddings", "blocks": "encoder"}.get(part, part)
        counts[part] = counts.get(part, 0) + math.prod(shape)
    return {
        "path": str(folder),
        "architecture": plan.architecture,
        "stated_architecture": plan.stated.architecture,
        "heads": list(plan.heads),
        "layers": config.layers,
        "width": config.width,
        "attention_heads": config.heads,
        "inner_width": config.inner_width,
        "max_length": config.max_length,
        "activation": config.activation,
        "tied": config.tied if plan.is_decoder_compared else None,  # None: not compared
        "parameters": {
            "total": sum(counts.values()),
            **{part: counts.get(part, 0) for part in ("embeddings", "encoder", "pooler")},
            "heads": {head: counts[head] for head in plan.heads},
        },
        "dtype": " and ".join(sorted({tensor.dtype for tensor in plan.names.values()})),
        "files": {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if file.is_file()},
        "weight_bytes": sum(file.stat().st_size for file in plan.weights.files),
        "vocabulary": {
            "size": plan.tokenizer.size,
            "rows": config.vocabulary_size,
            "kind": plan.tokenizer.kind,
            "lowercase": plan.tokenizer.lowercase,
            "segmenter": plan.tokenizer.segmenter,
        },
        "labels": list(plan.labels),
        "pooling": plan.sentence.pooling,
        "normalize": plan.sentence.normalize,
        "foreign_pooling": plan.sentence.foreign,
        "record": plan.record,
        "notes": list(plan.notes),
    }


def _lines_of_bert(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    parameters, vocabulary = facts["parameters"], facts["vocabulary"]
    rows = vocabulary["rows"]
    spare = f", table of {rows:,} rows" if rows != vocabulary["size"] else ""
    stated, found = facts["stated_architecture"], facts["architecture"]
    heads = ", ".join(f"{name} {number:,}" for name, number in parameters["heads"].items())
    labels = facts["labels"]
    shown = ", ".join(labels[:12]) + (f", … ({len(labels)} in all)" if len(labels) > 12 else "")
    pooling = facts["pooling"] and facts["pooling"] + (", scaled to length 1" if facts["normalize"] else "")
    return [
        ("folder", facts["path"]),
        ("architecture", found if stated in (None, found) else f"{found} (config.json says {stated})"),
        ("heads", ", ".join(facts["heads"]) or "none: embeds texts and shows attention"),
        (
            "layers",
            f"{facts['layers']} of width {facts['width']}, {facts['attention_heads']} attention heads, "
            f"feed-forward {facts['inner_width']}, {facts['activation']}",
        ),
        ("longest text", f"{facts['max_length']} tokens at once"),
        ("parameters", f"{parameters['total']:,}"),
        ("  embeddings", f"{parameters['embeddings']:,}"),
        ("  encoder", f"{parameters['encoder']:,}"),
        ("  pooler", f"{parameters['pooler']:,}" if parameters["pooler"] else ""),
        ("  heads", heads),
        ("vocabulary", vocabulary_line(vocabulary) + spare),
        ("labels", shown),
        ("pooling", pooling or ""),
        ("weights", f"{facts['weight_bytes'] / 1e6:,.1f} MB, {facts['dtype']}"),
        ("licence", ", ".join(part for part in (facts["licence"], facts["licence_file"]) if part)),
        ("card", facts["card"] or ""),
    ]


# The family

_ABILITIES: dict[str, Ability[Any]] = {"masked": FILLS, "next_sentence": JUDGES_PAIRS}


def family_of_bert(like: BertLike) -> Family[FolderPlan]:
    return Family(like.name, (like.name,), like.about, partial(make_plan, like), _facts, _lines_of_bert)


def sizes_of_bert(like: BertLike, config: BertConfig) -> EncoderSizes:
    return EncoderSizes(
        config.vocabulary_size,
        config.own_layers,
        config.width,
        config.max_length,
        pairs=config.segments > 1 if like.pairs is None else like.pairs,
        dropout=config.dropout,
    )


def _facts(plan: FolderPlan) -> Facts:
    config, heads, like = plan.config, plan.heads, plan.like
    abilities = [HAS_TASK] if set(heads) & set(TASK_HEADS) else list[Ability[Any]]()
    abilities += [ability for head, ability in _ABILITIES.items() if head in heads]
    stated = {
        "layers": config.layers,
        "heads": config.heads,
        "width": config.width,
        "positions": config.max_length,
    }
    return Facts(
        like.name,
        like.name,
        plan.path,
        like.about,
        "bert",
        (*abilities, ENCODES, ATTENDS, SHOWS_LAYERS, TAKES_HEAD),
        _describe_plan(plan),
        heads,
        plan.record,
        plan.notes,
        stated,
        sizes_of_bert(like, config),
    )


BERT = family_of_bert(BERT_NAMES)
