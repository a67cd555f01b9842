"""qkv similar: the nearest words of a word."""

from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import JsonOption
from qkv.cli.word_vectors import VectorsOption, vectors_named
from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.run.word_vectors import Neighbour


def similar(
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="One word or several.")],
    model: VectorsOption = None,
    k: Annotated[int, typer.Option("-k", metavar="N", help="How many neighbours.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Say which words are most like a word, by the cosine of their vectors (1: the same direction, 0: unrelated).

    \b
    qkv similar king --model FOLDER
    qkv similar 国王 女王 -k 5 --model vectors.bin
    qkv similar king --model GoogleNews-vectors-negative300.bin.gz --json

    A word without a vector is told beside the answers for the others; the exit code is 2 when no word has one.

    --json prints one line a word: word, neighbours (word, similarity); or word, error.
    """
    if k < 1:
        raise InputError(f"The number of words to show is {k}; it must be at least 1.")
    vectors = vectors_named(model)
    found: dict[str, list[Neighbour]] = {}
    unknown: dict[str, str] = {}
    for word in words:
        try:
            found[word] = vectors.neighbours(word, k)
        except InputError as error:
            unknown[word] = str(error)
    from qkv.cli.terminal import bar, print_json, say, table

    for word in dict.fromkeys(words) if as_json else ():
        pairs = [{"word": one.word, "similarity": one.score} for one in found.get(word, ())]
        print_json({"word": word, "neighbours": pairs} if word in found else {"word": word, "error": unknown[word]})
    if not found:
        raise InputError("\n".join(unknown.values()))
    for message in unknown.values():
        say(message)
    for number, (word, neighbours) in enumerate(found.items() if not as_json else ()):
        if number:
            typer.echo()
        rows = [[f"{one.score:.3f}", bar(one.score, 16), one.word] for one in neighbours]
        table(["cosine", "", f"like {word}"], rows, right=(0,))
