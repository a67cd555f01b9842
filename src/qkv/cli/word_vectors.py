"""What the verbs that ask word vectors share on their command line."""

from typing import TYPE_CHECKING, Annotated

import typer

from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.run.word_vectors import WordVectors

VectorsOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        envvar="QKV_VECTORS",
        metavar="VECTORS",
        help="Word vectors: a folder or run of word2vec or nnlm, or a file .txt .vec .bin, also packed.",
    ),
]
MethodOption = Annotated[
    str, typer.Option("--method", metavar="add|multiply", help="How analogies are solved: 3CosAdd or 3CosMul.")
]


def vectors_named(model: str | None, most: int | None = None) -> "WordVectors":
    """Load what was named; what is odd about it is said beside the results."""
    if model is None:
        raise InputError("Say which word vectors: --model FOLDER or --model FILE, or set QKV_VECTORS.")
    from qkv.run.word_vectors import load_vectors

    vectors = load_vectors(model, most)
    for note in vectors.notes:
        typer.echo(f"note: {note}", err=True)
    return vectors
