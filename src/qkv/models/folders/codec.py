"""The files of a model folder: which they are, how they are written, whole or not at all, and what holds for all.

    config.json          what it is, and its sizes
    model.safetensors    the weights; never pickled
    tokenizer.json …     how it cuts texts
    qkv.json             what is ours alone: the record of the training
    README.md            a card in two languages

What this file does NOT do: know a model.
"""

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from qkv.errors import InputError, listed
from qkv.files import check_replaceable, read_object, replaced_folder, to_json, write_text
from qkv.models.folders.sentence import MODULES
from qkv.text.tokenizer import FILES, Tokenizer

CONFIG, OURS, WEIGHTS, CARD = "config.json", "qkv.json", "model.safetensors", "README.md"
FORMAT = 1
"""Of qkv.json."""
MOST_SPARE = 127
"""Rows of a token table that stand for no token: tables are rounded up, to multiples of 128 at most."""
LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE")

OF_A_MODEL = (
    *("config.json", "qkv.json", CARD, *LICENCES, ".gitattributes", "generation_config.json", "training_args.bin"),
    *("model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model-*-of-*.bin", "pytorch_model.bin.index.json"),
    *FILES,
    *("spiece.model", "sentencepiece.bpe.model"),  # what tokenizer.json of ALBERT and XLM-R was made of
    *(MODULES, "sentence_bert_config.json", "config_sentence_transformers.json", "data_config.json"),
    *("[0-9]_Pooling", "[0-9]_Normalize"),
)
"""What a model folder consists of. A save replaces a folder of these alone: anything else in it is somebody's work."""


def write_folder(
    target: Path, files: Mapping[str, str | bytes], tensors: Mapping[str, Tensor], below: Sequence[str] = ()
) -> None:
    """Files by their names, which may lie in the folders `below`, and the weights: whole or not at all."""
    with replaced_folder(target, partial(reason_to_keep, below=below)) as fresh:
        for name, text in files.items():
            (fresh / name).parent.mkdir(exist_ok=True)
            (fresh / name).write_bytes(text.encode() if isinstance(text, str) else text)
        try:
            save_file(dict(tensors), fresh / WEIGHTS, metadata={"format": "pt"})
        except SafetensorError as error:  # how that library reports a full disk
            raise OSError(str(error)) from error
        # some versions of safetensors let nobody but the owner read the file
        (fresh / WEIGHTS).chmod((fresh / CONFIG).stat().st_mode)


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse a folder that `save_folder` would refuse, before the work starts."""
    check_replaceable(Path(os.path.expanduser(path)), reason_to_keep)


def reason_to_keep(folder: Path, below: Sequence[str] = ()) -> str | None:
    known = (*OF_A_MODEL, *below)
    foreign = [entry.name for entry in folder.iterdir() if not any(fnmatch(entry.name, one) for one in known)]
    if foreign:
        return f"it holds {listed(foreign)}, which is not part of a model"
    if not (folder / CONFIG).is_file():
        return f"it is not a model folder (no {CONFIG})"
    return None


def read_ours(folder: Path) -> dict[str, Any]:
    """All of qkv.json; nothing where others wrote the folder."""
    file = folder / OURS
    if not file.is_file():
        return {}
    ours = read_object(file)
    if not isinstance(ours.get("format"), int) or ours["format"] > FORMAT:
        raise InputError(
            f"{file} has format {ours.get('format')!r}; this qkv reads up to {FORMAT}. It was written by a newer "
            "qkv: upgrade, or delete the file to load the model without it."
        )
    return ours


def read_record(folder: Path) -> dict[str, Any]:
    return dict(read_ours(folder).get("record") or {})


def add_to_record(folder: Path, more: Mapping[str, Any]) -> None:
    """To what the training of a model wrote down."""
    ours = read_ours(folder)
    write_text(folder / OURS, to_json(ours | {"record": dict(ours.get("record") or {}) | dict(more)}))


def model_type_of(path: str | os.PathLike[str]) -> str | None:
    """What config.json calls the model, whoever wrote it; None where it says nothing or is not there."""
    file = Path(os.path.expanduser(path)) / CONFIG
    found = read_object(file).get("model_type") if file.is_file() else None
    return found if isinstance(found, str) else None


def terms_of(folder: Path) -> dict[str, bytes]:
    """The licence of a model, which goes with whatever is trained from it."""
    return {name: (folder / name).read_bytes() for name in LICENCES if (folder / name).is_file()}


def check_vocabulary(tokenizer: Tokenizer, rows: int, where: str) -> list[str]:
    """Hold the tokenizer against the token table: a note where a few rows are spare, an error where they cannot fit."""
    spare = rows - tokenizer.size
    if spare > MOST_SPARE or spare < 0:
        raise InputError(
            f"{where}: the tokenizer has {tokenizer.size:,} tokens, but the model's table has {rows:,} rows "
            "(vocab_size). The tokenizer belongs to another model."
        )
    return [f"the token table has {rows:,} rows for {tokenizer.size:,} tokens; the rest is not used"] if spare else []


def own_version() -> str | None:
    try:
        return version("qkv")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return None
