"""qkv convert: any BERT folder in, a clean Hugging Face folder out; word vectors from one form into another."""

import os
from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import JsonOption
from qkv.errors import InputError, did_you_mean

DTYPES = ("float32", "bfloat16", "float16")


def convert(
    source: Annotated[
        str,
        typer.Argument(metavar="FOLDER|FILE", help="A model folder or run, hf:owner/name, or a file of word vectors."),
    ],
    target: Annotated[
        Path,
        typer.Argument(metavar="NEW", help="The folder to write; of word vectors also a file .txt .vec .bin, packed."),
    ],
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="TYPE", help="float32, float16 or bfloat16; else as stored, if that is one."),
    ] = None,
    architecture: Annotated[
        str | None, typer.Option("--architecture", metavar="CLASS", help="Keep only the parts of this class.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what NEW holds.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Rewrite a BERT folder as transformers writes one today, or word vectors in another form, whole or not at all.

    Reads what is out there: pytorch_model.bin, shards, old gamma/beta names, a vocab.txt and nothing else. Weights
    stored in several types, or in float64, become float32 unless --dtype says otherwise.

    \b
    qkv convert old-folder new-folder
    qkv convert old-folder new-folder --dtype float16 --architecture BertModel
    qkv convert word2vec-folder vectors.bin
    qkv convert vectors.bin word2vec-folder

    --json prints one document: path, architecture, parameters, dtype; of word vectors path, n_words, width, left_out.
    """
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"Unknown dtype '{dtype}'.{did_you_mean(dtype, DTYPES)} Known: {', '.join(DTYPES)}.")
    there = Path(os.path.expanduser(target))
    if not overwrite and (any(there.iterdir()) if there.is_dir() else there.exists()):
        raise InputError(f"{target} is there already. Give another name, or have it overwritten (--overwrite).")
    from qkv.cli.convert_vectors import convert_vectors, is_vectors

    if is_vectors(source):
        if dtype is not None or architecture is not None:
            raise InputError("Word vectors have one form of numbers: leave out --dtype and --architecture.")
        convert_vectors(source, target, as_json)
        return
    import torch

    from qkv.cli.terminal import say
    from qkv.interop import hf
    from qkv.interop.hub import locate
    from qkv.run.places import model_folder

    place = model_folder(locate(source))
    stored = hf.describe(place)["dtype"]
    if dtype is None and stored not in DTYPES:
        say(f"note: the weights are stored as {stored} and are written as float32")
        dtype = "float32"
    folder = hf.load(place, dtype=getattr(torch, dtype or stored))
    for note in folder.notes:
        say(f"note: {note}")
    target = folder.save(target, architecture)
    facts = hf.describe(target)
    total = facts["parameters"]["total"]
    if as_json:
        from qkv.cli.terminal import print_json

        print_json(
            {"path": str(target), "architecture": facts["architecture"], "parameters": total, "dtype": facts["dtype"]}
        )
        return
    typer.echo(f"{target}: {facts['architecture']}, {total:,} parameters, {facts['dtype']}")
