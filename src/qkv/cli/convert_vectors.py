"""qkv convert, for word vectors: our folder to a file of the C tool's, and back."""

import os
from pathlib import Path

import typer


def is_vectors(source: str) -> bool:
    """Whether a name stands for word vectors: a file, or the folder or run of a word2vec model or an nnlm."""
    from qkv.interop.folder import model_type_of

    path = Path(os.path.expanduser(source))
    return path.is_file() or not {"word2vec", "nnlm"}.isdisjoint((model_type_of(path), model_type_of(path / "model")))


def convert_vectors(source: str, target: Path, as_json: bool) -> None:
    """Write word vectors by the ending of the target: .txt and .vec text, .bin binary, also .gz; none is a folder.

    --json prints one document: path, n_words, width, left_out.
    """
    from qkv.cli.terminal import print_json, say
    from qkv.cli.word_vectors import vectors_named
    from qkv.interop.vectors import written_form

    if target.suffix:
        written_form(target)  # refused before the work starts
    vectors = vectors_named(source)
    left_out = vectors.save(target)
    if left_out:
        say(f"note: {len(left_out):,} words cannot stand there and are left out, such as {left_out[0]!r}")
    number = len(vectors) - len(left_out)
    if as_json:
        print_json({"path": str(target), "n_words": number, "width": vectors.width, "left_out": left_out})
        return
    typer.echo(f"{target}: {number:,} words, {vectors.width} numbers each")
