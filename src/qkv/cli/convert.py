"""`qkv convert`: rewrite a BERT folder in the current transformers format, or word vectors in another format."""

import os
from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import JsonOption
from qkv.errors import InputError, did_you_mean
from qkv.text.messages import write


def convert_vectors(source: str, target: Path, as_json: bool) -> None:
    """Write word vectors in the format of the suffix: .txt and .vec text, .bin binary, also .gz; without one a folder.

    --json prints one document: path, n_words, width, left_out.
    """
    from qkv.cli.terminal import print_json, say
    from qkv.cli.word_vectors import load_named_vectors
    from qkv.models.word2vec.files import choose_form

    if target.suffix:
        choose_form(target)  # fail early
    vectors = load_named_vectors(source)
    left_out = vectors.save(target)
    if left_out:
        say(f"note: {len(left_out):,} words cannot be written in this format and are left out, such as {left_out[0]!r}")
    number = len(vectors) - len(left_out)
    if as_json:
        print_json({"path": str(target), "n_words": number, "width": vectors.width, "left_out": left_out})
        return
    write(f"{target}: {number:,} words, {vectors.width} numbers each")


_DTYPES = ("float32", "bfloat16", "float16")


def convert(
    source: Annotated[
        str,
        typer.Argument(metavar="FOLDER|FILE", help="Model folder or run, hf:owner/name, or a file of word vectors."),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="NEW", help="Folder to write; for word vectors also a file .txt .vec .bin, also compressed."
        ),
    ],
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="TYPE", help="float32, float16 or bfloat16 (default: as stored)."),
    ] = None,
    architecture: Annotated[
        str | None, typer.Option("--architecture", metavar="CLASS", help="Keep only the weights of this class.")
    ] = None,
    fold: Annotated[
        str | None,
        typer.Option(
            "--fold",
            metavar="NAMES",
            help="How the new folder reads texts: width (full-width letters as half-width), emoji (each by itself), "
            "simplified (traditional 汉字 as simplified); several: width,emoji.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the contents of NEW.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Rewrite a BERT folder in the current transformers format, or word vectors in another format, atomically.

    Reads old formats too: pytorch_model.bin, shards, gamma/beta names, only a vocab.txt. Weights stored in several
    types or in float64 become float32 unless --dtype is given.

    \b
    qkv convert old-folder new-folder
    qkv convert old-folder new-folder --dtype float16 --architecture BertModel
    qkv convert qkv-mini mine --fold width,emoji
    qkv convert word2vec-folder vectors.bin
    qkv convert vectors.bin word2vec-folder

    --json prints one document: path, architecture, parameters, dtype; for word vectors path, n_words, width, left_out.
    """
    if dtype is not None and dtype not in _DTYPES:
        raise InputError(f"Unknown dtype '{dtype}'.{did_you_mean(dtype, _DTYPES)} Known: {', '.join(_DTYPES)}.")
    there = Path(os.path.expanduser(target))
    if not overwrite and (any(there.iterdir()) if there.is_dir() else there.exists()):
        raise InputError(f"{target} already exists. Give another name, or add --overwrite.")

    import torch

    from qkv.cli.terminal import say
    from qkv.models.family import LOOKS_UP, Loading
    from qkv.models.folders.hub import locate
    from qkv.models.folders.own import check_model_target
    from qkv.models.table import describe_model, open_model

    file = Path(os.path.expanduser(source))
    place = file if file.is_file() else locate(source)
    found = describe_model(place)
    if LOOKS_UP in found.abilities:
        if dtype is not None or architecture is not None or fold is not None:
            raise InputError("Word vectors are always float32: leave out --dtype, --architecture and --fold.")
        convert_vectors(source, target, as_json)
        return
    stored = found.document.get("dtype", "float32")
    if dtype is None and stored not in _DTYPES:
        say(f"note: the weights are stored as {stored} and are written as float32")
        dtype = "float32"
    check_model_target(target)
    opened = open_model(place, Loading(getattr(torch, dtype or stored)))
    for note in opened.notes:
        say(f"note: {note}")
    if fold is not None:
        from qkv.text.unknown import add_folding, check_fold, read_folds

        check_fold(names := read_folds(fold), opened.tokenizer.kind, opened.tokenizer.segmenter)
        add_folding(opened.tokenizer.backend, names)
    target = opened.save(target, architecture)
    facts = describe_model(target).document
    kind, count = facts.get("architecture", opened.architecture), facts["parameters"]
    total = count["total"] if isinstance(count, dict) else count
    if as_json:
        from qkv.cli.terminal import print_json

        print_json({"path": str(target), "architecture": kind, "parameters": total, "dtype": facts["dtype"]})
        return
    write(f"{target}: {kind}, {total:,} parameters, {facts['dtype']}")
