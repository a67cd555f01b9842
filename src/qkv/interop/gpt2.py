"""Folders of GPT and GPT-2 as transformers writes them: load, save, describe.

A folder is config.json, weights and a tokenizer, which is theirs (byte pairs) or one of ours. Loading builds the
network without memory, holds every stored name and shape against the table in gpt_json.py, and hands the network views
of the mapped file: their matrices lie the other way round, and a view turns them, which is also how products with few
rows like them (nn/by_columns.py). Saving goes the same table backwards. qkv.json holds what is ours alone.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qkv.errors import InputError, reading
from qkv.interop.card import MARK
from qkv.interop.config_json import read_labels
from qkv.interop.folder import CONFIG, GPTS, OURS, model_type_of, write_folder
from qkv.interop.gpt_json import (
    HEADS,
    PREFIX,
    SCORES,
    TURNED,
    Dialect,
    dialect_of,
    names_of,
    read_config,
    write_config,
)
from qkv.interop.gpt_tokenizer import files_for_writing
from qkv.interop.hf import CARD
from qkv.interop.keys import listed
from qkv.interop.plan import FORMAT, Undrawn, check_vocabulary
from qkv.interop.weights import StoredTensor, Weights, open_weights, same
from qkv.json_file import read_object, to_json
from qkv.models.gpt import GPT, GPTConfig
from qkv.tokenizer import Tokenizer

ABOUT = {
    "pre": ("a language model that writes on from a text (Radford et al. 2019)", "语言模型：接着一段文字往下写"),
    "post": ("a language model that writes on from a text (Radford et al. 2018)", "语言模型：接着一段文字往下写"),
}


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
        "about": "a GPT that was made for a task" if heads else ABOUT[config.order][0],
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
class Plan:
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


def _planned(folder: Path, compare: bool) -> Plan:
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
    found = weights, names, heads, tensors, skeleton, tokenizer, _record(folder), tuple(notes)
    return Plan(dialect, *found, begin, end)


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


def _record(folder: Path) -> dict[str, Any]:
    if not (folder / OURS).is_file():
        return {}
    ours = read_object(folder / OURS)
    if not isinstance(ours.get("format"), int) or ours["format"] > FORMAT:
        raise InputError(
            f"{folder / OURS} has format {ours.get('format')!r}; this qkv reads up to {FORMAT}. It was written by a "
            "newer qkv: upgrade, or delete the file to load the model without it."
        )
    return dict(ours.get("record") or {})


def _card(name: str, model: GPT, dialect: Dialect) -> str:
    config, (english, chinese) = model.config, ABOUT[model.config.order]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    lines = ["---", "library_name: transformers", "pipeline_tag: text-generation", "tags:", "- qkv"]
    lines += [f"- {dialect.model_type}", "---", MARK, "", f"# {name}", ""]
    lines += [f"{dialect.model_type}: {english}. {parameters:,} parameters.", ""]
    lines += [f"{dialect.model_type}：{chinese}。{parameters:,} 个参数。", ""]
    sizes = ("vocabulary_size", "layers", "width", "heads", "inner_width", "max_length", "order")
    lines += ["| | |", "|---|---|", *(f"| {key} | {getattr(config, key)} |" for key in sizes), ""]
    lines += ["## Use / 用法", "", "```bash", 'qkv generate path/to/this/folder "TEXT"', "```", ""]
    lines += ["```python", "from transformers import AutoModelForCausalLM, AutoTokenizer", "```", ""]
    return "\n".join(lines)
