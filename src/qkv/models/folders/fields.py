"""config.json of a folder of transformers, fields to values of ours and back; and sentence-transformers' pooling files.

No field is ignored silently.

Every field is in one of four lots: it becomes a value of ours (`table`), it must have the one value that the network
has (`fixed`), it is known to say nothing about the numbers (`neutral`), or it is unknown and named in a note.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qkv.errors import InputError, did_you_mean
from qkv.files import read_json, read_object, to_json

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
        """The fields that a save writes back unchanged."""
        return {name: said[name] for name in (*self.carried, *self.unknown(said)) if said.get(name) is not None}

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of config.json for these values."""
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
    """One field, checked when it is read: a wrong value would fail later with an obscure error."""
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
    """The names of a head's outputs, None if there are none, and notes about them."""
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


# --- How a folder turns tokens into one vector a text: the files that sentence-transformers puts beside a model.
#
# modules.json lists the steps (Transformer, Pooling, perhaps Normalize), and 1_Pooling/config.json says how to pool.
# The files of a loaded folder are kept as they are, so that a save gives them back with all that they say.

MODULES = "modules.json"
_KEPT = (MODULES, "sentence_bert_config.json", "config_sentence_transformers.json")
STEPS = ("Transformer", "Pooling", "Normalize")
POOLINGS = ("mean", "cls")
MODES: dict[str, str] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
"""The flags of one mode each that folders before sentence-transformers 5 hold, for the modes that qkv has."""


@dataclass(frozen=True)
class SentenceFiles:
    pooling: str | None = None  # "mean" or "cls"; None: the folder does not say, or says what qkv cannot do
    normalize: bool = False
    foreign: str | None = None  # how the folder pools, where that is not one of ours: a mean would be another vector
    files: Mapping[str, bytes] = field(default_factory=dict)  # by path in the folder
    notes: tuple[str, ...] = ()


def read_sentence(folder: Path) -> SentenceFiles:
    if not (folder / MODULES).is_file():
        return SentenceFiles()
    modules = read_json(folder / MODULES)
    try:
        steps = [(str(step["type"]).rsplit(".", 1)[-1], str(step["path"])) for step in modules]
    except (TypeError, KeyError):
        raise InputError(f"{folder / MODULES} is not a list of steps with a type and a path each.") from None
    for _, path in steps:
        if path and Path(path).name != path:
            raise InputError(f"{folder / MODULES} names the path {path!r}, which is no folder beside it.")
    normalize = any(name == "Normalize" for name, _ in steps)
    if other := [name for name, _ in steps if name not in STEPS]:
        # without its weights the step could not be given back either, so the files are not kept
        note = f"{MODULES}: the step {other[0]} is not one that qkv does, so the folder's pooling is not used"
        return SentenceFiles(normalize=normalize, foreign=f"a step {other[0]}", notes=(note,))
    kept = [*_KEPT, *(f"{path}/config.json" for _, path in steps if path)]
    files = {name: (folder / name).read_bytes() for name in kept if (folder / name).is_file()}
    notes: list[str] = []
    pooling = foreign = None
    for path in (path for name, path in steps if name == "Pooling"):
        pooling, mode = _mode(read_object(folder / path / "config.json"))
        if pooling is None:
            foreign = mode
            notes.append(f"{path}/config.json: pooling by {mode} is not one that qkv does ({', '.join(POOLINGS)})")
    if (folder / _KEPT[1]).is_file() and read_object(folder / _KEPT[1]).get("do_lower_case") is True:
        notes.append(f"{_KEPT[1]}: do_lower_case is left to the tokenizer")
    return SentenceFiles(pooling, normalize, foreign, files, tuple(notes))


def _mode(fields: Mapping[str, Any]) -> tuple[str | None, str]:
    """The pooling, None if qkv does not have it, and its name in the file."""
    chosen = fields.get("pooling_mode")
    if chosen is None:
        chosen = [MODES.get(name, name) for name, on in fields.items() if name.startswith("pooling_mode_") and on]
    modes = [chosen] if isinstance(chosen, str) else list(chosen) or ["mean"]  # the library's default
    name = " and ".join(str(mode) for mode in modes)
    return (name if name in POOLINGS else None), name


def write_sentence(pooling: str, normalize: bool, width: int) -> dict[str, bytes]:
    """Files that make sentence-transformers pool as qkv does."""
    steps = [("", "Transformer"), ("1_Pooling", "Pooling")] + ([("2_Normalize", "Normalize")] if normalize else [])
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
        for number, (path, name) in enumerate(steps)
    ]
    modes = {"word_embedding_dimension": width} | {flag: mode == pooling for flag, mode in MODES.items()}
    return {MODULES: to_json(modules).encode(), "1_Pooling/config.json": to_json(modes).encode()}
