"""What several verbs share on their command line: the model, its tokenizer, the language, `--json`, text from standard
input, and a file to write that is none of those that are read."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.run.predict import Model
    from qkv.tokenizer import Tokenizer

ModelOption = Annotated[
    str,
    typer.Option("--model", "-m", envvar="QKV_MODEL", metavar="FOLDER", help="A model folder, or hf:owner/name."),
]
"""Its default is the zoo's DEFAULT_MODEL in every verb."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
LanguageOption = Annotated[str, typer.Option("--lang", metavar="en|zh", help="Language of the captions.")]
DeviceOption = Annotated[str, typer.Option("--device", metavar="NAME", help="cpu, cuda, cuda:0 or mps.")]
DtypeOption = Annotated[
    str, typer.Option("--dtype", metavar="TYPE", help="What to compute in: float32, or bfloat16, float16 for a GPU.")
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", metavar="N", help="CPU threads to use.")]


def load_model(model: str, **how: Any) -> "Model":
    """Load the model that was named; what is odd about its folder is said beside the results."""
    from qkv.run.load import load

    loaded = load(model, **how)
    for note in loaded.notes:
        typer.echo(f"note: {note}", err=True)
    return loaded


def load_tokenizer(name: str) -> "tuple[Tokenizer, int | None]":
    """The tokenizer of a model, a run or a tokenizer folder, and the model's limit where there is a model."""
    from qkv.interop.hub import locate
    from qkv.json_file import read_object
    from qkv.run.places import model_folder
    from qkv.tokenizer import Tokenizer

    path = Path(name).expanduser()
    if path.is_file():
        return Tokenizer.load(path), None
    folder = model_folder(locate(name))
    config = folder / "config.json"
    limit = read_object(config).get("max_position_embeddings") if config.is_file() else None
    return Tokenizer.load(folder), limit if isinstance(limit, int) else None


def text_or_stdin(text: str) -> str:
    """The argument itself, or all of standard input for "-"."""
    if text != "-":
        return text
    from qkv.data.readers import BOM

    try:
        return sys.stdin.buffer.read().decode("utf-8").removeprefix(BOM).rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(f"Standard input is not UTF-8: byte {error.start} cannot be read.") from error


def check_not_read(out: Path | None, inputs: Iterable[str | Path | None]) -> None:
    """Refuse to write over what is read; what is None or - is no file."""
    if out is None:
        return
    target = out.expanduser().resolve()
    for one in inputs:
        if one is not None and str(one) != "-" and Path(one).expanduser().resolve() == target:
            raise InputError(f"--out {out} is a file that is read: what it holds would be lost. Give another name.")


def suffix_of(path: Path, known: dict[str, Any]) -> str:
    """The file's ending, which says what is to be written."""
    from qkv.errors import did_you_mean

    suffix = path.suffix.lower()
    if suffix not in known:
        hint = did_you_mean(suffix, known)
        raise InputError(
            f"Cannot tell what to write into '{path.name}'.{hint} Use a name that ends in {' or '.join(known)}."
        )
    return suffix
