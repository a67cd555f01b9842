"""config.json of a folder of transformers: fields to values of ours and back. No field is passed over in silence.

Every field is in one of four lots: it becomes a value of ours (`table`), it must have the one value that the network
has (`fixed`), it is known to say nothing about the numbers (`neutral`), or it is unknown and named in a note.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qkv.errors import InputError, did_you_mean

_COUNTS = frozenset(
    {
        *("vocabulary_size", "layers", "width", "heads", "inner_width", "max_length", "segments"),
        *("embedding_width", "task_types", "groups", "encoder_layers", "decoder_layers"),
    }
)
_MOST = 10_000_000  # of anything; with more, the sizes of tensors overflow before they can be compared
_SHARES = frozenset({"dropout", "attention_dropout", "embedding_dropout", "head_dropout"})
_TRUTHS = frozenset({"tied", "adds_task_type", "scaled", "scaled_by_layer"})

ACTIVATION_NAMES: dict[str, str] = {
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

NEUTRAL = frozenset(
    {
        *("model_type", "architectures", "id2label", "label2id", "num_labels", "_num_labels", "problem_type"),
        *("finetuning_task", "task_specific_params", "transformers_version", "_name_or_path", "tokenizer_class"),
        *("_attn_implementation_autoset", "dtype", "torch_dtype", "torchscript", "gradient_checkpointing"),
        *("chunk_size_feed_forward", "use_cache", "output_past", "output_attentions", "output_hidden_states"),
        *("return_dict", "bos_token_id", "eos_token_id", "sep_token_id"),
    }
)
"""Settings of training and of transformers itself."""
CARRIED = ("problem_type", "finetuning_task", "task_specific_params")
"""Of the neutral fields, those that a user of the saved folder still wants."""


@dataclass(frozen=True)
class Fields:
    table: Mapping[str, str]  # theirs → ours
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of theirs that a config.json may leave out
    fixed: Mapping[str, tuple[tuple[Any, ...], str]] = field(default_factory=dict)  # allowed values, and why
    neutral: frozenset[str] = NEUTRAL
    carried: tuple[str, ...] = CARRIED  # neutral ones that a save writes back
    activations: Mapping[str, str] = field(default_factory=lambda: ACTIVATION_NAMES)

    def read(self, said: Mapping[str, Any], file: Path) -> dict[str, Any]:
        """Our values by name; those that are null are left out."""
        for name, (allowed, reason) in self.fixed.items():
            if said.get(name) not in allowed:
                raise InputError(f"{file}: {name} is {said[name]!r}, but {reason}. This folder cannot be loaded.")
        whole = {**self.defaults, **said}
        values = {
            ours: self._activation(file, theirs, whole[theirs])
            if ours == "activation"
            else _value(file, theirs, ours, whole[theirs])
            for theirs, ours in self.table.items()
            if theirs in whole
        }
        return {name: value for name, value in values.items() if value is not None}

    def unknown(self, said: Mapping[str, Any]) -> list[str]:
        return [name for name in said if name not in {*self.table, *self.fixed, *self.neutral}]

    def kept(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """What a save writes back as it was."""
        return {name: said[name] for name in (*self.carried, *self.unknown(said)) if said.get(name) is not None}

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Their fields of our values."""
        written = {theirs: values[ours] for theirs, ours in self.table.items()}
        for theirs, ours in self.table.items():
            if ours == "activation":
                written[theirs] = next(name for name, known in self.activations.items() if known == values[ours])
        return written

    def _activation(self, file: Path, theirs: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.activations:
            hint, known = did_you_mean(str(value), self.activations), ", ".join(self.activations)
            raise InputError(f"{file}: {theirs} {value!r} is not known.{hint} Known: {known}.")
        return self.activations[value]


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
    elif ours in _TRUTHS:
        good, wanted = isinstance(value, bool), "true or false"
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


def write_labels(labels: Sequence[str]) -> dict[str, Any]:
    """The fields for the names of a head's outputs; none without names."""
    by_name: dict[str, int] = {}
    for number, name in enumerate(labels):
        by_name.setdefault(name, number)  # of two that are called the same, the first
    by_id = {str(number): name for number, name in enumerate(labels)}
    return {"id2label": by_id, "label2id": by_name} if labels else {}
