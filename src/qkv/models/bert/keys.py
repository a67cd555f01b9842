"""The names of BERT's tensors, ours and theirs: one literal table, read from left to right to save and back to load.

An entry may name several tensors, which lie one under the other in ours: our attention multiplies once by
[query; key; value], theirs three times. Their names are written without the prefix `bert.` that every class but
BertModel puts before the encoder's tensors.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from qkv.errors import InputError, did_you_mean, listed
from qkv.files import read_object
from qkv.models.bert.network import BertConfig

KEYS: dict[str, tuple[str, ...]] = {
    "encoder.embedding.token.weight": ("embeddings.word_embeddings.weight",),
    "encoder.embedding.segment.weight": ("embeddings.token_type_embeddings.weight",),
    "encoder.embedding.position.weight": ("embeddings.position_embeddings.weight",),
    "encoder.embedding.norm.weight": ("embeddings.LayerNorm.weight",),
    "encoder.embedding.norm.bias": ("embeddings.LayerNorm.bias",),
    "encoder.blocks.{i}.attention.qkv.weight": (
        "encoder.layer.{i}.attention.self.query.weight",
        "encoder.layer.{i}.attention.self.key.weight",
        "encoder.layer.{i}.attention.self.value.weight",
    ),
    "encoder.blocks.{i}.attention.qkv.bias": (
        "encoder.layer.{i}.attention.self.query.bias",
        "encoder.layer.{i}.attention.self.key.bias",
        "encoder.layer.{i}.attention.self.value.bias",
    ),
    "encoder.blocks.{i}.attention.out.weight": ("encoder.layer.{i}.attention.output.dense.weight",),
    "encoder.blocks.{i}.attention.out.bias": ("encoder.layer.{i}.attention.output.dense.bias",),
    "encoder.blocks.{i}.attention_norm.weight": ("encoder.layer.{i}.attention.output.LayerNorm.weight",),
    "encoder.blocks.{i}.attention_norm.bias": ("encoder.layer.{i}.attention.output.LayerNorm.bias",),
    "encoder.blocks.{i}.feed_forward.up.weight": ("encoder.layer.{i}.intermediate.dense.weight",),
    "encoder.blocks.{i}.feed_forward.up.bias": ("encoder.layer.{i}.intermediate.dense.bias",),
    "encoder.blocks.{i}.feed_forward.down.weight": ("encoder.layer.{i}.output.dense.weight",),
    "encoder.blocks.{i}.feed_forward.down.bias": ("encoder.layer.{i}.output.dense.bias",),
    "encoder.blocks.{i}.feed_forward_norm.weight": ("encoder.layer.{i}.output.LayerNorm.weight",),
    "encoder.blocks.{i}.feed_forward_norm.bias": ("encoder.layer.{i}.output.LayerNorm.bias",),
    "encoder.pooler.dense.weight": ("pooler.dense.weight",),
    "encoder.pooler.dense.bias": ("pooler.dense.bias",),
    "heads.masked.dense.weight": ("cls.predictions.transform.dense.weight",),
    "heads.masked.dense.bias": ("cls.predictions.transform.dense.bias",),
    "heads.masked.norm.weight": ("cls.predictions.transform.LayerNorm.weight",),
    "heads.masked.norm.bias": ("cls.predictions.transform.LayerNorm.bias",),
    "heads.masked.bias": ("cls.predictions.bias",),
    "heads.masked.table": ("cls.predictions.decoder.weight",),  # only where it is not the token embedding itself
    "heads.next_sentence.linear.weight": ("cls.seq_relationship.weight",),
    "heads.next_sentence.linear.bias": ("cls.seq_relationship.bias",),
    "heads.sequence.linear.weight": ("classifier.weight",),
    "heads.sequence.linear.bias": ("classifier.bias",),
    "heads.token.linear.weight": ("classifier.weight",),
    "heads.token.linear.bias": ("classifier.bias",),
    "heads.choice.linear.weight": ("classifier.weight",),
    "heads.choice.linear.bias": ("classifier.bias",),
    "heads.span.linear.weight": ("qa_outputs.weight",),
    "heads.span.linear.bias": ("qa_outputs.bias",),
}

TOKEN_TABLE = "embeddings.word_embeddings.weight"
DECODER_TABLE = "cls.predictions.decoder.weight"
DECODER_BIAS = "cls.predictions.decoder.bias"
"""Two names that may repeat another tensor: the decoder's weight is the token table and its bias is
cls.predictions.bias. Files of some years hold both, of others one."""

TOLERATED = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})
"""Buffers that older files store and that say nothing: 0, 1, 2 … and 0, 0, 0 …"""

OLDER_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # from TensorFlow

_PREFIX = "bert."
PREFIXED = ("embeddings.", "encoder.", "pooler.")


class Architecture(NamedTuple):
    """What a class of transformers holds on top of the encoder, and how a user reaches it there."""

    heads: tuple[str, ...]
    pooler: bool
    auto_class: str
    pipeline: str | None  # the hub's name for the task


ARCHITECTURES: dict[str, Architecture] = {
    "BertForPreTraining": Architecture(("masked", "next_sentence"), True, "AutoModelForPreTraining", "fill-mask"),
    "BertForMaskedLM": Architecture(("masked",), False, "AutoModelForMaskedLM", "fill-mask"),
    "BertForNextSentencePrediction": Architecture(("next_sentence",), True, "AutoModelForNextSentencePrediction", None),
    "BertForSequenceClassification": Architecture(
        ("sequence",), True, "AutoModelForSequenceClassification", "text-classification"
    ),
    "BertForTokenClassification": Architecture(
        ("token",), False, "AutoModelForTokenClassification", "token-classification"
    ),
    "BertForQuestionAnswering": Architecture(("span",), False, "AutoModelForQuestionAnswering", "question-answering"),
    "BertForMultipleChoice": Architecture(("choice",), True, "AutoModelForMultipleChoice", "multiple-choice"),
    "BertModel": Architecture((), True, "AutoModel", "feature-extraction"),
}

CLASSIFIERS = ("sequence", "token", "choice")
"""Heads that transformers stores under the one name `classifier`: only the architecture tells them apart."""


def canonical(name: str) -> str:
    """A stored name as the table writes it: no prefix, today's endings.

    >>> canonical("bert.embeddings.LayerNorm.gamma")
    'embeddings.LayerNorm.weight'
    """
    name = name.removeprefix(_PREFIX)
    for old, new in OLDER_ENDINGS.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def written(name: str, architecture: str) -> str:
    """A name of the table as this class stores it.

    >>> written("pooler.dense.bias", "BertForPreTraining"), written("pooler.dense.bias", "BertModel")
    ('bert.pooler.dense.bias', 'pooler.dense.bias')
    """
    prefixed = architecture != "BertModel" and name.startswith(PREFIXED)
    return _PREFIX + name if prefixed else name


def tensors_of(heads: Collection[str], pooler: bool, layers: int, tied: bool) -> dict[str, tuple[str, ...]]:
    """The part of the table that a network with these heads uses, one entry a parameter."""
    chosen: dict[str, tuple[str, ...]] = {}
    for ours, theirs in KEYS.items():
        if ours.startswith("encoder.pooler.") and not pooler:
            continue
        if ours.startswith("heads.") and ours.split(".")[1] not in heads:
            continue
        if ours == "heads.masked.table" and tied:
            continue
        for i in range(layers) if "{i}" in ours else (0,):
            chosen[ours.replace("{i}", str(i))] = tuple(name.replace("{i}", str(i)) for name in theirs)
    return chosen


def check_architecture(name: str, where: str) -> None:
    if name not in ARCHITECTURES:
        raise InputError(
            f"{where}: architecture '{name}' is not one that qkv reads.{did_you_mean(name, ARCHITECTURES)} "
            f"Known: {', '.join(ARCHITECTURES)}."
        )


def parts_held(stored: Collection[str], stated: str | None, where: str) -> tuple[tuple[str, ...], bool]:
    """Heads and pooler of a file: what its architecture needs and every other known part that it holds.

    Published folders hold more than they state: bert-base-uncased says BertForMaskedLM and has a pooler and the next
    sentence head as well. `stored` are canonical names; whether each part is whole is checked later.
    """
    needed = ARCHITECTURES[stated or "BertModel"]
    heads = list(needed.heads)
    pooler = needed.pooler and bool(heads)  # a bare encoder may be stored without its pooler
    unclaimed_classifier = "classifier.weight" in stored and not set(heads) & set(CLASSIFIERS)
    if unclaimed_classifier:
        raise InputError(
            f"{where}: it holds a classifier, and config.json says "
            f"{f'architecture {stated}' if stated else 'no architecture'}, so it is not known what it classifies. "
            'Set "architectures" in config.json to ["BertForSequenceClassification"] (texts), '
            '["BertForTokenClassification"] (tokens) or ["BertForMultipleChoice"] (choices).'
        )
    for ours, theirs in KEYS.items():
        if ours.startswith("encoder.pooler.") and theirs[0] in stored:
            pooler = True
        elif ours.startswith("heads.") and theirs[0] in stored:
            head = ours.split(".")[1]
            if head not in heads and head not in CLASSIFIERS:
                heads.append(head)
    return tuple(heads), pooler


def architecture_of(heads: Collection[str], stated: str | None = None) -> str:
    """The class of transformers that holds the most of these heads; among equals the stated one, then the first.

    >>> architecture_of(["next_sentence", "masked"], stated="BertForMaskedLM")
    'BertForPreTraining'
    """
    fitting = [name for name, known in ARCHITECTURES.items() if set(known.heads) <= set(heads)]
    return max(fitting, key=lambda name: (len(ARCHITECTURES[name].heads), name == stated))


# --- config.json of a BERT folder to our config and back. No field is passed over in silence.
#
# Every field is in one of four lots: it becomes a value of ours (FIELDS), it must have the one value that qkv's BERT
# has
# (FIXED), it is known to say nothing about the numbers (NEUTRAL), or it is unknown and named in a note.

_FIELDS: dict[str, str] = {
    "vocab_size": "vocabulary_size",
    "num_hidden_layers": "layers",
    "hidden_size": "width",
    "num_attention_heads": "heads",
    "intermediate_size": "inner_width",
    "max_position_embeddings": "max_length",
    "type_vocab_size": "segments",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "head_dropout",
    "hidden_act": "activation",
    "layer_norm_eps": "norm_epsilon",
    "initializer_range": "initial_std",
    "tie_word_embeddings": "tied",
    "pad_token_id": "pad_id",
}
OWN = ("word2vec", "nnlm", "rnnlm", "elmo", "reader")
"""Models that transformers has no class for: models/folders/own.py has their folders, and models/plain/folder.py those
of readers."""
_COUNTS = frozenset({"vocabulary_size", "layers", "width", "heads", "inner_width", "max_length", "segments"})
_MOST = 10_000_000  # of anything; with more, the sizes of tensors overflow before they can be compared
_SHARES = frozenset({"dropout", "attention_dropout", "head_dropout"})

ACTIVATIONS: dict[str, str] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",  # the same approximation with its constants multiplied out
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""Their names of an activation and ours; the first of several is the one that is written."""

_FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "position_embedding_type": (("absolute", None), "qkv's BERT has learned absolute positions"),
    "is_decoder": ((False, None), "qkv's BERT reads in both directions"),
    "add_cross_attention": ((False, None), "qkv's BERT is an encoder alone"),
    "is_encoder_decoder": ((False, None), "qkv's BERT is an encoder alone"),
    "pruned_heads": (({}, None), "qkv's BERT keeps all heads of a layer"),
    "quantization_config": ((None,), "qkv reads float weights"),
    "per_layer_config": ((None, {}), "qkv's BERT has layers of one shape"),
}

_NEUTRAL = frozenset(
    {
        "model_type",
        "architectures",
        "id2label",
        "label2id",
        "num_labels",
        "_num_labels",
        "problem_type",
        "finetuning_task",
        "task_specific_params",
        "transformers_version",
        "_name_or_path",
        "tokenizer_class",
        "_attn_implementation_autoset",
        "dtype",
        "torch_dtype",
        "torchscript",
        "gradient_checkpointing",
        "chunk_size_feed_forward",
        "use_cache",
        "output_past",
        "output_attentions",
        "output_hidden_states",
        "return_dict",
        "bos_token_id",
        "eos_token_id",
        "sep_token_id",
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    }
)
"""Settings of training and of transformers itself; the last six are Google's, for a pooler that was never used."""

CARRIED = ("problem_type", "finetuning_task", "task_specific_params")
"""Of the neutral fields, those that a user of the saved folder still wants."""


@dataclass(frozen=True)
class FolderConfig:
    config: BertConfig
    architecture: str | None  # as stated
    labels: tuple[str, ...] | None  # None when config.json has none
    carried: dict[str, Any]  # what a save should write back as it was
    notes: tuple[str, ...]


def read_config(file: Path) -> FolderConfig:
    if not file.exists():
        raise InputError(f"{file} is missing. A model folder has config.json, weights and a tokenizer.")
    fields = read_object(file)
    check_model_type(fields, file)
    for name, (allowed, reason) in _FIXED.items():
        if fields.get(name) not in allowed:
            raise InputError(f"{file}: {name} is {fields[name]!r}, but {reason}. This folder cannot be loaded.")
    values = {ours: _value(file, theirs, ours, fields[theirs]) for theirs, ours in _FIELDS.items() if theirs in fields}
    width, heads = values.get("width", BertConfig.width), values.get("heads", BertConfig.heads)
    if width % heads:
        raise InputError(f"{file}: hidden_size {width} is not divisible by num_attention_heads {heads}.")
    config = BertConfig(**{name: value for name, value in values.items() if value is not None})
    stated = fields.get("architectures")
    architecture = None
    if isinstance(stated, list) and stated:
        architecture = str(stated[0])
        check_architecture(architecture, str(file))
    labels, notes = read_labels(file, fields)
    if twice := sorted(name for name, count in Counter(labels).items() if count > 1):
        notes.append(f"{file.name}: more than one label is called {listed(twice)}; only their ids tell them apart")
    unknown = [name for name in fields if name not in _FIELDS and name not in _FIXED and name not in _NEUTRAL]
    if unknown:
        notes.append(f"{file.name}: {listed(unknown)} mean nothing to qkv and change nothing here")
    carried = {name: fields[name] for name in (*CARRIED, *unknown) if fields.get(name) is not None}
    return FolderConfig(config, architecture, labels, carried, tuple(notes))


def check_model_type(fields: Mapping[str, Any], file: Path) -> None:
    kind = fields.get("model_type")
    stated = fields.get("architectures")
    is_bert = isinstance(stated, list) and stated and str(stated[0]) in ARCHITECTURES
    # the first folders of 2019 have no model_type; those of Google's own release have no architectures either
    if kind == "bert" or (kind is None and (is_bert or (not stated and "type_vocab_size" in fields))):
        return
    what = f"model_type '{kind}'" if kind else "no model_type"
    berts = f"model_type 'bert' ({', '.join(ARCHITECTURES)})"
    if kind in OWN:
        raise InputError(
            f"{file} says {what}, a model that qkv alone has, where a BERT belongs: {berts}. What it is and holds: "
            f"qkv info {file.parent}"
        )
    raise InputError(
        f"{file} says {what}; qkv loads folders of {berts}, and those it writes of {', '.join(OWN)}. Convert the "
        "model to one of them, or give another folder."
    )


def _value(file: Path, theirs: str, ours: str, value: Any) -> Any:
    """One field, checked where it is read: a wrong number here is a riddle later."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    number = whole or (isinstance(value, float) and math.isfinite(value))
    if ours in _COUNTS:
        good, wanted = whole and 1 <= value <= _MOST, f"a whole number from 1 to {_MOST:,}"
    elif ours in _SHARES:
        good, wanted = (number and 0 <= value < 1) or (value is None and ours == "head_dropout"), "a number in [0, 1)"
    elif ours == "pad_id":
        good, wanted = value is None or (whole and value >= 0), "a token id"
    elif ours == "tied":
        good, wanted = isinstance(value, bool), "true or false"
    elif ours == "activation":
        if not isinstance(value, str) or value not in ACTIVATIONS:
            hint = did_you_mean(str(value), ACTIVATIONS)
            raise InputError(f"{file}: hidden_act {value!r} is not known.{hint} Known: {', '.join(ACTIVATIONS)}.")
        return ACTIVATIONS[value]
    else:
        good, wanted = number and value > 0, "a number above 0"
    if not good:
        raise InputError(f"{file}: {theirs} is {value!r}, where {wanted} belongs.")
    return value


def read_labels(file: Path, fields: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, list[str]]:
    """The names of a head's outputs, None where there are none, and what is odd about them."""
    by_id, by_name = fields.get("id2label"), fields.get("label2id")
    if by_id is None and by_name is None:
        count = fields.get("num_labels", fields.get("_num_labels"))
        return (default_labels(count) if isinstance(count, int) else None), []
    source = "id2label" if by_id is not None else "label2id"
    try:
        turned = {str(name): int(number) for name, number in (by_name or {}).items()}
        names = {int(number): str(name) for number, name in (by_id or {}).items()}
        names = names or {number: name for name, number in turned.items()}
    except (AttributeError, ValueError, TypeError):
        raise InputError(
            f'{file}: {source} is not a table of numbers and names such as {{"0": "A", "1": "B"}}.'
        ) from None
    if sorted(names) != list(range(len(names))):
        raise InputError(f"{file}: {source} numbers its labels {sorted(names)}, not 0 … {len(names) - 1}.")
    labels = tuple(names[number] for number in range(len(names)))
    differs = by_id is not None and turned and any(labels[i : i + 1] != (name,) for name, i in turned.items())
    return labels or None, ([f"{file.name}: label2id disagrees with id2label, which counts"] if differs else [])


def default_labels(count: int) -> tuple[str, ...]:
    """The names that transformers gives to labels without names."""
    return tuple(f"LABEL_{number}" for number in range(count))


def write_config(
    config: BertConfig, architecture: str, labels: Sequence[str], dtype: str, carried: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a config.json that transformers reads as this network."""
    fields: dict[str, Any] = {"architectures": [architecture], "model_type": "bert", "dtype": dtype}
    for theirs, ours in _FIELDS.items():
        fields[theirs] = getattr(config, ours)
    fields["hidden_act"] = next(name for name, ours in ACTIVATIONS.items() if ours == config.activation)
    return dict(carried) | fields | write_labels(labels)


def write_labels(labels: Sequence[str]) -> dict[str, Any]:
    """The fields for the names of a head's outputs; none without names."""
    by_name: dict[str, int] = {}
    for number, name in enumerate(labels):
        by_name.setdefault(name, number)  # of two that are called the same, the first
    by_id = {str(number): name for number, name in enumerate(labels)}
    return {"id2label": by_id, "label2id": by_name} if labels else {}
