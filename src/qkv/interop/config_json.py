"""config.json of a BERT folder to our config and back. No field is passed over in silence.

Every field is in one of four lots: it becomes a value of ours (FIELDS), it must have the one value that qkv's BERT has
(FIXED), it is known to say nothing about the numbers (NEUTRAL), or it is unknown and named in a note.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qkv.errors import InputError, did_you_mean
from qkv.interop.keys import ARCHITECTURES, check_architecture, listed
from qkv.json_file import read_object
from qkv.models.bert import BertConfig

FIELDS: dict[str, str] = {
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
"""Models that transformers has no class for: folder.py has their folders, and readers.py those of readers."""
COUNTS = frozenset({"vocabulary_size", "layers", "width", "heads", "inner_width", "max_length", "segments"})
MOST = 10_000_000  # of anything; with more, the sizes of tensors overflow before they can be compared
SHARES = frozenset({"dropout", "attention_dropout", "head_dropout"})

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

FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "position_embedding_type": (("absolute", None), "qkv's BERT has learned absolute positions"),
    "is_decoder": ((False, None), "qkv's BERT reads in both directions"),
    "add_cross_attention": ((False, None), "qkv's BERT is an encoder alone"),
    "is_encoder_decoder": ((False, None), "qkv's BERT is an encoder alone"),
    "pruned_heads": (({}, None), "qkv's BERT keeps all heads of a layer"),
    "quantization_config": ((None,), "qkv reads float weights"),
    "per_layer_config": ((None, {}), "qkv's BERT has layers of one shape"),
}

NEUTRAL = frozenset(
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
    for name, (allowed, reason) in FIXED.items():
        if fields.get(name) not in allowed:
            raise InputError(f"{file}: {name} is {fields[name]!r}, but {reason}. This folder cannot be loaded.")
    values = {ours: _value(file, theirs, ours, fields[theirs]) for theirs, ours in FIELDS.items() if theirs in fields}
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
    unknown = [name for name in fields if name not in FIELDS and name not in FIXED and name not in NEUTRAL]
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
    if ours in COUNTS:
        good, wanted = whole and 1 <= value <= MOST, f"a whole number from 1 to {MOST:,}"
    elif ours in SHARES:
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
    for theirs, ours in FIELDS.items():
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
