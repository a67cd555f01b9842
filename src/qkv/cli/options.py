"""What several verbs share on their command line: the model, the language, `--json`, and text from standard input."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.run.predict import Model

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


def text_or_stdin(text: str) -> str:
    """The argument itself, or all of standard input for "-"."""
    if text != "-":
        return text
    try:
        return sys.stdin.buffer.read().decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(f"Standard input is not UTF-8: byte {error.start} cannot be read.") from error


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
