"""qkv tokenizer train: a vocabulary from your own files."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from qkv.cli.options import JsonOption

if TYPE_CHECKING:
    from qkv.vocabulary import Kind

tokenizer = typer.Typer(help="Make tokenizers.", rich_markup_mode=None)


@tokenizer.callback()
def _noun() -> None:
    """Make tokenizers."""


@tokenizer.command("train")
def train(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Texts by the line: .txt .jsonl, also .gz .xz.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="The folder to write.")],
    vocabulary_size: Annotated[
        int, typer.Option("--vocab-size", metavar="N", help="Tokens, special ones included.")
    ] = 8000,
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help="wordpiece, word or character.")] = "wordpiece",
    min_frequency: Annotated[
        int, typer.Option("--min-frequency", metavar="N", help="How often a word, or a pair to join, must occur.")
    ] = 2,
    limit_alphabet: Annotated[
        int | None,
        typer.Option(
            "--limit-alphabet", metavar="N", help="Characters to start from; else enough for 99.99 % of the text."
        ),
    ] = None,
    segmenter: Annotated[
        str | None,
        typer.Option("--segmenter", metavar="NAME", help="Of the kind word: Chinese words as tokens, cut by rjieba."),
    ] = None,
    cased: Annotated[bool, typer.Option("--cased", help="Keep capital letters and accents.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier tokenizer.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Learn a vocabulary from files of any size and write it as a tokenizer folder.

    汉字 are one token each, unless Chinese words are asked for: --kind word --segmenter rjieba. Transformers and qkv
    both load the folder; the segmenter works in qkv alone, elsewhere spaces have to stand between Chinese words.

    \b
    qkv tokenizer train corpus.txt more.jsonl.gz --vocab-size 8000 --out my-tokenizer
    qkv tokenizer train 语料.txt --kind character --out zi
    qkv tokenizer train 语料.txt --kind word --segmenter rjieba --vocab-size 50000 --out ci
    qkv tokenize "试一试 a test" --model my-tokenizer

    --json prints one document: path, kind, segmenter, size, n_texts, seconds.
    """
    from qkv.cli.terminal import print_json, progress
    from qkv.data.readers import texts
    from qkv.tokenizer import Tokenizer
    from qkv.tokenizer_files import check_target
    from qkv.vocabulary import check_kind

    check_kind(kind, segmenter)
    check_target(out, overwrite)
    began, read = time.perf_counter(), 0
    with progress("read", None) as advance:

        def seen(number: int) -> None:
            nonlocal read
            advance(number - read)
            read = number

        learned = Tokenizer.train(
            texts(files),
            kind=cast("Kind", kind),
            vocabulary_size=vocabulary_size,
            lowercase=not cased,
            min_frequency=min_frequency,
            limit_alphabet=limit_alphabet,
            segmenter=segmenter,
            progress=seen,
        )
    learned.save(out)
    facts = {"path": str(out), "kind": kind, "segmenter": learned.segmenter, "size": learned.size, "n_texts": read}
    if as_json:
        print_json({**facts, "seconds": round(time.perf_counter() - began, 3)})
        return
    how = kind if learned.segmenter is None else f"{kind}, Chinese by {learned.segmenter}"
    typer.echo(f"{out}: {learned.size:,} tokens ({how}), learned from {read:,} texts")
