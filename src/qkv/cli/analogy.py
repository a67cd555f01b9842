"""qkv analogy: a is to b as c is to what."""

from typing import Annotated

import typer

from qkv.cli.options import JsonOption
from qkv.cli.word_vectors import MethodOption, VectorsOption, vectors_named


def analogy(
    a: Annotated[str, typer.Argument(metavar="A", help="A word;")],
    b: Annotated[str, typer.Argument(metavar="B", help="what it is related to;")],
    c: Annotated[str, typer.Argument(metavar="C", help="a word that is related to what is looked for as A to B.")],
    model: VectorsOption = None,
    k: Annotated[int, typer.Option("-k", metavar="N", help="How many answers.")] = 5,
    method: MethodOption = "add",
    as_json: JsonOption = False,
) -> None:
    """A is to B as C is to what? man king woman: king − man + woman is near queen.

    \b
    qkv analogy man king woman --model FOLDER
    qkv analogy 法国 巴黎 日本 --model vectors.bin --method multiply

    --json prints one document: a, b, c, method, answers (word, score).
    """
    from qkv.cli.terminal import print_json, table
    from qkv.run.word_vectors import check_method

    check_method(method)  # a large file takes a while to read
    answers = vectors_named(model).analogy(a, b, c, k, method)
    if as_json:
        found = [{"word": one.word, "score": one.score} for one in answers]
        print_json({"a": a, "b": b, "c": c, "method": method, "answers": found})
        return
    table(["score", f"{a} is to {b} as {c} is to"], [[f"{one.score:.3f}", one.word] for one in answers], right=(0,))
