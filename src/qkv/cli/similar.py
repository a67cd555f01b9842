"""qkv similar: the nearest words of a word."""

from typing import Annotated

import typer

from qkv.cli.options import JsonOption
from qkv.cli.word_vectors import VectorsOption, vectors_named


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

    --json prints one line a word: word, neighbours (word, similarity).
    """
    vectors = vectors_named(model)
    found = {word: vectors.neighbours(word, k) for word in words}
    from qkv.cli.terminal import bar, print_json, table

    for number, (word, neighbours) in enumerate(found.items()):
        if as_json:
            pairs = [{"word": one.word, "similarity": one.score} for one in neighbours]
            print_json({"word": word, "neighbours": pairs})
            continue
        if number:
            typer.echo()
        rows = [[f"{one.score:.3f}", bar(one.score, 16), one.word] for one in neighbours]
        table(["cosine", "", f"like {word}"], rows, right=(0,))
