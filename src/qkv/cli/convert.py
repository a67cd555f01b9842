"""qkv convert: any BERT folder in, a clean Hugging Face folder out."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import JsonOption
from qkv.errors import InputError, did_you_mean

DTYPES = ("float32", "float16", "bfloat16")


def convert(
    source: Annotated[str, typer.Argument(metavar="FOLDER", help="A model folder, or hf:owner/name.")],
    target: Annotated[Path, typer.Argument(metavar="NEW", help="The folder to write.")],
    dtype: Annotated[
        str | None, typer.Option("--dtype", metavar="TYPE", help="float32, float16 or bfloat16; as stored if left out.")
    ] = None,
    architecture: Annotated[
        str | None, typer.Option("--architecture", metavar="CLASS", help="Keep only the parts of this class.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Rewrite a model folder as transformers writes one today, whole or not at all.

    Reads what is out there: pytorch_model.bin, shards, old gamma/beta names, a vocab.txt and nothing else.

    \b
    qkv convert old-folder new-folder
    qkv convert old-folder new-folder --dtype float16 --architecture BertModel

    --json prints one document: path, architecture, parameters, dtype.
    """
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"Unknown dtype '{dtype}'.{did_you_mean(dtype, DTYPES)} Known: {', '.join(DTYPES)}.")
    import torch

    from qkv.interop import hf
    from qkv.interop.hub import locate

    types = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    place = locate(source)
    dtype = dtype or hf.describe(place)["dtype"]
    folder = hf.load(place, dtype=types.get(dtype, torch.float32))
    folder.save(target, architecture)
    facts = hf.describe(target)
    total = facts["parameters"]["total"]
    if as_json:
        from qkv.cli.terminal import print_json

        print_json(
            {"path": str(target), "architecture": facts["architecture"], "parameters": total, "dtype": facts["dtype"]}
        )
        return
    typer.echo(f"{target}: {facts['architecture']}, {total:,} parameters, {facts['dtype']}")
