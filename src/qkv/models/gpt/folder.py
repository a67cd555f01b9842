"""config.json of GPT and GPT-2 folders to our config and back, and the names of their tensors: one table a dialect.

transformers has two classes for what is one network with two orders of norm and residual: `openai-gpt` (post-norm) and
`gpt2` (pre-norm). Their fields and tensors are named almost alike. No field is passed over in silence: it becomes a
value of ours, it must have the one value that qkv's GPT has (FIXED), it is known to say nothing about the numbers
(NEUTRAL), or it is named in a note.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qkv.errors import InputError, did_you_mean, listed, reading
from qkv.files import read_object, to_json
from qkv.models.bert.keys import read_labels
from qkv.models.folders.card import Card, write_about, write_card
from qkv.models.folders.codec import (
    CARD,
    CONFIG,
    FORMAT,
    GPTS,
    OURS,
    check_vocabulary,
    model_type_of,
    read_record,
    write_folder,
)
from qkv.models.folders.info import vocabulary_line
from qkv.models.folders.weights import StoredTensor, Undrawn, Weights, open_weights, same
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.models.gpt.tokenizer import files_for_writing
from qkv.text.tokenizer import Tokenizer

_MOST = 10_000_000  # of anything; with more, the sizes of tensors overflow before they can be compared
_SIZES: dict[str, str] = {
    "vocab_size": "vocabulary_size",
    "n_positions": "max_length",
    "n_embd": "width",
    "n_layer": "layers",
    "n_head": "heads",
    "resid_pdrop": "dropout",
    "attn_pdrop": "attention_dropout",
    "embd_pdrop": "embedding_dropout",
    "layer_norm_epsilon": "norm_epsilon",
    "initializer_range": "initial_std",
    "tie_word_embeddings": "tied",
}
_COUNTS = frozenset({"vocabulary_size", "max_length", "width", "layers", "heads", "inner_width"})
_SHARES = frozenset({"dropout", "attention_dropout", "embedding_dropout"})
TRUTHS = frozenset({"tied", "scaled", "scaled_by_layer"})
WIDER = 4
"""How much wider the feed-forward's inside is where a config does not say."""


class Dialect(NamedTuple):
    """What one class of transformers calls things."""

    model_type: str
    order: str
    fields: Mapping[str, str]  # theirs → ours
    defaults: Mapping[str, Any]  # theirs, where config.json leaves a field out
    activation: str  # the field that names it
    activations: Mapping[str, str]  # theirs → ours; the first of several is the one that is written
    classes: tuple[str, str]  # with the scores of words and without
    tables: tuple[str, str]  # of tokens and of positions


GPT2 = Dialect(
    "gpt2",
    "pre",
    _SIZES
    | {
        "n_inner": "inner_width",
        "scale_attn_weights": "scaled",
        "scale_attn_by_inverse_layer_idx": "scaled_by_layer",
    },
    {"vocab_size": 50_257, "n_positions": 1_024},
    "activation_function",
    {
        "gelu_new": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
        "gelu_fast": "gelu_tanh",
        "gelu": "gelu",
        "gelu_python": "gelu",
        "relu": "relu",
        "silu": "silu",
        "swish": "silu",
        "tanh": "tanh",
    },
    ("GPT2LMHeadModel", "GPT2Model"),
    ("wte.weight", "wpe.weight"),
)
GPT1 = Dialect(
    "openai-gpt",
    "post",
    _SIZES,
    {"vocab_size": 40_478, "n_positions": 512},
    "afn",
    {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"},  # what is called gelu there is the tanh one
    ("OpenAIGPTLMHeadModel", "OpenAIGPTModel"),
    ("tokens_embed.weight", "positions_embed.weight"),
)
DIALECTS = {dialect.model_type: dialect for dialect in (GPT2, GPT1)}

LAYER: dict[str, str] = {
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "attention_norm": "ln_1",
    "feed_forward.up": "mlp.c_fc",
    "feed_forward.down": "mlp.c_proj",
    "feed_forward_norm": "ln_2",
}
"""Parts of a layer, ours and theirs, each with a weight and a bias."""
TURNED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
"""Stored with a row for each input, where ours has a row for each output."""
SCORES = "lm_head.weight"
PREFIX = "transformer."
HEADS: dict[str, str] = {
    "sequence": "score",
    "token": "classifier",
    "span": "qa_outputs",
    "choice": "multiple_choice_head.summary",
}
"""Heads of tasks, ours and theirs (task_folder.py): one linear layer each, beside the network."""

_FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "add_cross_attention": ((False, None), "qkv's GPT asks its own text alone"),
    "is_encoder_decoder": ((False, None), "qkv's GPT is a decoder alone"),
    "pruned_heads": (({}, None), "qkv's GPT keeps all heads of a layer"),
    "quantization_config": ((None,), "qkv reads float weights"),
}
_NEUTRAL = frozenset(
    {
        *(
            "model_type",
            "architectures",
            "transformers_version",
            "_name_or_path",
            "dtype",
            "torch_dtype",
            "torchscript",
        ),
        *("id2label", "label2id", "num_labels", "_num_labels", "problem_type", "task_specific_params"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "use_cache", "gradient_checkpointing", "is_decoder"),
        *("output_attentions", "output_hidden_states", "output_past", "return_dict", "chunk_size_feed_forward"),
        *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"),
        *("n_ctx", "n_special", "predict_special_tokens", "tokenizer_class", "_attn_implementation_autoset"),
        "reorder_and_upcast_attn",  # how 16 bits are rounded in training, and nothing else
    }
)
"""Settings of training, of decoding, of other heads and of transformers itself."""


def read_config(fields: Mapping[str, Any], file: Path) -> tuple[GPTConfig, Dialect, list[str]]:
    """The sizes that a config.json states, whose it is, and what is odd about it."""
    kind = fields.get("model_type")
    if kind not in DIALECTS:
        raise InputError(
            f"{file} says model_type {kind!r}, where {' or '.join(DIALECTS)} belongs: it is not the folder of a GPT. "
            f"What it is and holds: qkv info {file.parent}"
        )
    dialect = DIALECTS[kind]
    for name, (allowed, reason) in _FIXED.items():
        if fields.get(name) not in allowed:
            raise InputError(f"{file}: {name} is {fields[name]!r}, but {reason}. This folder cannot be loaded.")
    said = dict(dialect.defaults) | dict(fields)
    values = {
        ours: _value(file, theirs, ours, said[theirs])
        for theirs, ours in dialect.fields.items()
        if said.get(theirs) is not None
    }
    values.setdefault("inner_width", WIDER * values.get("width", GPTConfig.width))
    if (bend := fields.get(dialect.activation)) is not None:
        if not isinstance(bend, str) or bend not in dialect.activations:
            hint = did_you_mean(str(bend), dialect.activations)
            known = ", ".join(dialect.activations)
            raise InputError(f"{file}: {dialect.activation} {bend!r} is not known.{hint} Known: {known}.")
        values["activation"] = dialect.activations[bend]
    known_fields = {*dialect.fields, dialect.activation, *_FIXED, *_NEUTRAL}
    unknown = [name for name in fields if name not in known_fields]
    notes = [f"{file.name}: {listed(unknown)} mean nothing to qkv and change nothing here"] if unknown else []
    try:
        return GPTConfig(**values, order=dialect.order), dialect, notes
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _value(file: Path, theirs: str, ours: str, value: Any) -> Any:
    """One field, checked where it is read: a wrong number here is a riddle later."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    number = whole or (isinstance(value, float) and math.isfinite(value))
    if ours in _COUNTS:
        good, wanted = whole and 1 <= value <= _MOST, f"a whole number from 1 to {_MOST:,}"
    elif ours in _SHARES:
        good, wanted = number and 0 <= value < 1, "a number in [0, 1)"
    elif ours in TRUTHS:
        good, wanted = isinstance(value, bool), "true or false"
    else:
        good, wanted = number and value > 0, "a number above 0"
    if not good:
        raise InputError(f"{file}: {theirs} is {value!r}, where {wanted} belongs.")
    return value


def dialect_of(config: GPTConfig) -> Dialect:
    """The class of transformers that can be this network; where there is none, what is in the way."""
    dialect = next(dialect for dialect in DIALECTS.values() if dialect.order == config.order)
    if config.activation not in dialect.activations.values():
        raise InputError(
            f"transformers' {dialect.model_type} has no activation {config.activation}; it can be saved with "
            f"{', '.join(dict.fromkeys(dialect.activations.values()))}."
        )
    if dialect is GPT1:
        if config.inner_width != WIDER * config.width:
            raise InputError(
                f"transformers' {dialect.model_type} is {WIDER} times as wide inside: with order post and width "
                f"{config.width} inner_width must be {WIDER * config.width}, not {config.inner_width}. Set "
                "model.inner_width, or model.order to pre."
            )
        if not config.scaled or config.scaled_by_layer:
            raise InputError(f"transformers' {dialect.model_type} always scales its attention by 1 / √(head width).")
    return dialect


def write_config(config: GPTConfig, dialect: Dialect, end: int | None, pad: int | None, dtype: str) -> dict[str, Any]:
    """The fields of a config.json that transformers reads as this network."""
    return {
        "architectures": [dialect.classes[0]],
        "model_type": dialect.model_type,
        "dtype": dtype,
        **{theirs: getattr(config, ours) for theirs, ours in dialect.fields.items()},
        dialect.activation: next(name for name, ours in dialect.activations.items() if ours == config.activation),
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": pad,
    }


def names_of(config: GPTConfig, dialect: Dialect) -> dict[str, str]:
    """Every parameter of ours and its name in a file, without the prefix that the classes with heads put before it."""
    names = dict(zip(("embedding.weight", "position.weight"), dialect.tables, strict=True))
    for number in range(config.layers):
        for ours, theirs in LAYER.items():
            for kind in ("weight", "bias"):
                names[f"blocks.{number}.{ours}.{kind}"] = f"h.{number}.{theirs}.{kind}"
    if config.order == "pre":
        names |= {f"norm.{kind}": f"ln_f.{kind}" for kind in ("weight", "bias")}
    return names if config.tied else names | {"table": SCORES}


# --- Folders of GPT and GPT-2 as transformers writes them: load, save, describe.
#
# A folder is config.json, weights and a tokenizer, which is theirs (byte pairs) or one of ours. Loading builds the
# network without memory, holds every stored name and shape against the table in folder.py, and hands the network
# views
# of the mapped file: their matrices lie the other way round, and a view turns them, which is also how products with
# few
# rows like them (nn/cpu/weight_layout.py). Saving goes the same table backwards. qkv.json holds what is ours alone.

_ABOUT = {
    "pre": ("a language model that writes on from a text (Radford et al. 2019)", "语言模型：接着一段文字往下写"),
    "post": ("a language model that writes on from a text (Radford et al. 2018)", "语言模型：接着一段文字往下写"),
}
SIZES = ("vocabulary_size", "layers", "width", "heads", "inner_width", "max_length", "order")
"""What the card of a GPT lists."""


@dataclass
class LoadedGPT:
    """A GPT and all that its folder says about it."""

    model: GPT
    tokenizer: Tokenizer
    config: GPTConfig
    record: dict[str, Any] = field(default_factory=dict)  # from qkv.json
    path: Path = Path()
    notes: tuple[str, ...] = ()  # what the folder says and qkv does not do
    begin_id: int | None = None  # what stands before a text, and
    end_id: int | None = None  # after it; None: the vocabulary has no mark for it, as that of OpenAI's first GPT


def begins_documents(record: Mapping[str, Any]) -> bool:
    """Whether a model was trained to take a prompt as the beginning of a document: those that were trained here."""
    return record.get("job") == "pretrain"


def is_gpt(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a GPT, trained here or by others."""
    return model_type_of(path) in GPTS


def load(path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32) -> LoadedGPT:
    """Load a folder for writing. Weights stored in another dtype are converted.

    The weights are a private mapping of the file: training does not write to it. In return the file must not be
    written over in place while the model lives; `save` puts a new file in the old one's place.
    """
    loaded, heads = load_with_heads(path, dtype=dtype)
    if heads:
        raise InputError(
            f"{loaded.path} holds a GPT that was made for a task ({listed(heads)}): qkv predict {loaded.path} TEXT. To "
            "write, give the one that it was made of."
        )
    return loaded


def load_with_heads(
    path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32
) -> tuple[LoadedGPT, dict[str, Tensor]]:
    """A folder, and the tensors of heads that it has beside the network, by their names in the file."""
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        plan = _planned(folder, compare=True)
        state = {ours: _tensor(plan.names[theirs], theirs, dtype) for ours, theirs in plan.tensors.items()}
        heads = {name: _tensor(stored, name, dtype) for name, stored in plan.heads.items()}
    plan.skeleton.load_state_dict(state, strict=True, assign=True)
    model = plan.skeleton.eval()
    marks = plan.begin_id, plan.end_id
    return LoadedGPT(model, plan.tokenizer, model.config, plan.record, folder, plan.notes, *marks), heads


def save(
    path: str | os.PathLike[str],
    model: GPT,
    tokenizer: Tokenizer,
    record: Mapping[str, Any] | None = None,
    *,
    card: str | None = None,
    heads: Mapping[str, Tensor] | None = None,
    fields: Mapping[str, Any] | None = None,
    files: Mapping[str, str | bytes] | None = None,
) -> Path:
    """Write a folder that transformers and qkv load, whole or not at all; return its path.

    A folder that is already there is replaced if it is a model folder, and refused if it holds anything else. `heads`
    are tensors beside the network, `fields` of config.json and `files` are beside those of its own, or in their place.
    """
    target, config = Path(os.path.expanduser(path)), model.config
    dialect = dialect_of(config)
    check_vocabulary(tokenizer, config.vocabulary_size, str(target))
    parameters = dict(model.named_parameters())
    tensors = {}
    for ours, theirs in names_of(config, dialect).items():
        tensor = parameters[ours].detach().cpu()
        name = theirs if theirs == SCORES else PREFIX + theirs
        tensors[name] = (tensor.t() if theirs.endswith(TURNED) else tensor).contiguous()
    tensors |= {name: tensor.detach().cpu().contiguous() for name, tensor in (heads or {}).items()}
    end = tokenizer.sep_id if tokenizer.has_marks else None
    pad = tokenizer.pad_id if tokenizer.pad_id != tokenizer.unk_id else None  # a vocabulary of one mark pads nothing
    dtype = str(model.embedding.weight.dtype).removeprefix("torch.")
    own = files_for_writing(tokenizer, config.max_length, begins=begins_documents(record or {}))
    texts: dict[str, str | bytes] = {
        **own,
        CONFIG: to_json(write_config(config, dialect, end, pad, dtype) | dict(fields or {})),
        OURS: to_json({"format": FORMAT, "record": dict(record or {})}),
        CARD: card or _card(target.resolve().name, model, dialect),
        **(files or {}),
    }
    write_folder(target, texts, tensors)
    return target


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a folder holds, without reading its weights: for people to look at and programs to read."""
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        plan = _planned(folder, compare=False)
        files = {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if file.is_file()}
        weight_bytes = sum(file.stat().st_size for file in plan.weights.files)
    config, tokenizer = plan.skeleton.config, plan.tokenizer
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in plan.names.values()}
    sizes = {name: value for name, value in vars(config).items() if name != "vocabulary_size"}
    heads, file = [ours for ours, theirs in HEADS.items() if f"{theirs}.weight" in plan.heads], folder / CONFIG
    return {
        "path": str(folder),
        "model_type": plan.dialect.model_type,
        "about": "a GPT that was made for a task" if heads else _ABOUT[config.order][0],
        "config": sizes,
        "parameters": sum(parameter.numel() for parameter in plan.skeleton.parameters()),
        "max_length": config.max_length,
        "dtype": " and ".join(sorted(dtypes)),
        "files": files,
        "weight_bytes": weight_bytes,
        "vocabulary": {
            "size": tokenizer.size,
            "rows": config.vocabulary_size,
            "kind": tokenizer.kind,
            "lowercase": tokenizer.lowercase,
            "segmenter": tokenizer.segmenter,
        },
        "heads": heads,
        "labels": list(read_labels(file, read_object(file))[0] or ()) if {"sequence", "token"} & set(heads) else [],
        "record": plan.record,
        "notes": list(plan.notes),
    }


@dataclass(frozen=True)
class _Plan:
    """What is in a folder, found out and checked by names and shapes before a weight is read."""

    dialect: Dialect
    weights: Weights
    names: dict[str, StoredTensor]  # by their names, without the prefix
    heads: dict[str, StoredTensor]  # of tasks, by their names
    tensors: dict[str, str]  # ours → theirs
    skeleton: GPT  # on the meta device
    tokenizer: Tokenizer
    record: dict[str, Any]
    notes: tuple[str, ...]
    begin_id: int | None
    end_id: int | None


def _planned(folder: Path, compare: bool) -> _Plan:
    """`compare`: look into the file whether a stored table of scores is the table of tokens."""
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}.")
    file = folder / CONFIG
    fields = read_object(file)
    config, dialect, notes = read_config(fields, file)
    weights = open_weights(folder, shapes_only=not compare)
    names = {
        plain: tensor for name, tensor in weights.tensors.items() if not _is_mask(plain := name.removeprefix(PREFIX))
    }
    heads = {name: names.pop(name) for name in list(names) if name.rpartition(".")[0] in HEADS.values()}
    if config.tied and SCORES in names:
        # as transformers 5 does it: one that is stored beside the tokens counts where it differs
        if compare and dialect.tables[0] in names and not same(names[SCORES], names[dialect.tables[0]]):
            config = replace(config, tied=False)
        else:
            del names[SCORES]
    # more layers than tensors are missing in any case, and need not be counted one by one
    tensors = names_of(replace(config, layers=min(config.layers, len(names) + 1)), dialect)
    _check_names(weights, names, tensors, config, dialect)
    with torch.device("meta"), Undrawn():
        skeleton = GPT(config)
    _check_shapes(weights, names, tensors, skeleton)
    tokenizer = Tokenizer.load(folder)
    notes += check_vocabulary(tokenizer, config.vocabulary_size, str(folder))
    own = tokenizer.sep_id if tokenizer.has_marks else None
    end = _mark(fields, "eos_token_id", tokenizer, own, notes)
    begin = _mark(fields, "bos_token_id", tokenizer, end, notes)
    found = weights, names, heads, tensors, skeleton, tokenizer, read_record(folder), tuple(notes)
    return _Plan(dialect, *found, begin, end)


def _mark(fields: Mapping[str, Any], name: str, tokenizer: Tokenizer, own: int | None, notes: list[str]) -> int | None:
    """The token that config.json names for a purpose; `own` is the one that is taken where it names none."""
    number = fields.get(name)
    if number is None or number == own:
        return own
    if isinstance(number, int) and number in tokenizer.vocabulary.values():
        return number
    taken = "none" if own is None else f"{tokenizer.token(own)} ({own})"
    notes.append(f"{CONFIG}: {name} {number!r} is no token of the vocabulary; {taken} is taken")
    return own


def _is_mask(name: str) -> bool:
    """Buffers that older files store and that say nothing: who may see whom."""
    return name.endswith((".attn.bias", ".attn.masked_bias"))


def _check_names(
    weights: Weights, names: Mapping[str, StoredTensor], tensors: Mapping[str, str], config: GPTConfig, dialect: Dialect
) -> None:
    wanted, what = set(tensors.values()), f"{dialect.classes[0]} of {config.layers} layers"
    if missing := wanted - set(names):
        raise InputError(
            f"{weights.source} lacks {len(missing)} of the tensors that a {what} needs: {listed(missing)}. The file is "
            "incomplete, or config.json belongs to another model."
        )
    if unexpected := set(names) - wanted:
        raise InputError(
            f"{weights.source} holds {len(unexpected)} tensors that a {what} does not have: {listed(unexpected)}. The "
            "folder is of another architecture, or config.json of another model."
        )


def _check_shapes(
    weights: Weights, names: Mapping[str, StoredTensor], tensors: Mapping[str, str], skeleton: GPT
) -> None:
    for ours, parameter in skeleton.state_dict().items():
        theirs = tensors[ours]
        stored, shape = names[theirs], tuple(parameter.shape)
        shape = shape[::-1] if theirs.endswith(TURNED) else shape
        if stored.shape != shape:
            raise InputError(
                f"{stored.file}: {theirs} has the shape {list(stored.shape)}, but config.json asks for {list(shape)}. "
                "One of the two files belongs to another model."
            )
        if not stored.dtype.is_floating_point:
            raise InputError(f"{stored.file}: {theirs} is stored as {stored.dtype}; qkv reads float weights.")


def _tensor(stored: StoredTensor, name: str, dtype: torch.dtype) -> Tensor:
    if stored.dtype == dtype:
        found = stored.mapped()
    else:
        found = torch.empty(stored.shape, dtype=dtype)
        stored.read_into(found)
    return found.t() if name.endswith(TURNED) else found


def _card(name: str, model: GPT, dialect: Dialect) -> str:
    english, chinese = _ABOUT[model.config.order]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return write_card(
        Card(
            name,
            write_about(dialect.model_type, english, chinese, parameters),
            tags=[dialect.model_type],
            library="transformers",
            pipeline="text-generation",
            sizes={size: getattr(model.config, size) for size in SIZES},
            command='qkv generate path/to/this/folder "TEXT"',
            python=["from transformers import AutoModelForCausalLM, AutoTokenizer"],
        )
    )


def lines_of_gpt(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    sizes, vocabulary, path = facts["config"], facts["vocabulary"], facts["path"]
    rows = vocabulary["rows"]
    first = f"qkv generate {path} TEXT; qkv embed TEXT --model {path}"
    first = f"qkv predict {path} TEXT" if facts["heads"] else first
    spare = f", table of {rows:,} rows" if rows != vocabulary["size"] else ""
    return [
        ("folder", path),
        ("model", f"{facts['model_type']}: {facts['about']}"),
        (
            "layers",
            f"{sizes['layers']} of width {sizes['width']}, {sizes['heads']} attention heads, feed-forward "
            f"{sizes['inner_width']}, {sizes['activation']}, {sizes['order']}-norm",
        ),
        ("longest text", f"{facts['max_length']} tokens, prompt and all"),
        ("parameters", f"{facts['parameters']:,}"),
        ("vocabulary", vocabulary_line(vocabulary) + spare),
        ("weights", f"{facts['weight_bytes'] / 1e6:,.1f} MB, {facts['dtype']}"),
        ("licence", ", ".join(part for part in (facts["licence"], facts["licence_file"]) if part)),
        ("note", "; ".join(facts["notes"])),
        ("heads", ", ".join(facts["heads"])),
        ("labels", ", ".join(facts["labels"][:12]) + (" …" if len(facts["labels"]) > 12 else "")),
        ("for", f"{first}; qkv finetune TASK --model {path} --train FILE --out RUN"),
    ]
