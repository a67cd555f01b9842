"""`qkv prepare`: a corpus to shards."""

import time
from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import JsonOption
from qkv.cli.tokenize import load_tokenizer


def prepare(
    corpus: Annotated[list[Path], typer.Argument(metavar="FILE", help=".txt or .jsonl, also .gz and .xz.")],
    tokenizer: Annotated[str, typer.Option("--tokenizer", "-t", metavar="FOLDER", help="A tokenizer or model folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the shards go.")],
    segmenter: Annotated[
        str | None,
        typer.Option(
            "--segmenter",
            metavar="NAME",
            help="Chinese words: rjieba or none; else the tokenizer's own, else rjieba if installed.",
        ),
    ] = None,
    hold_out: Annotated[
        float, typer.Option("--hold-out", metavar="SHARE", help="Share of documents kept for evaluation.")
    ] = 0.005,
    workers: Annotated[int | None, typer.Option("--workers", metavar="N", help="Processes; else one a core.")] = None,
    field: Annotated[str, typer.Option("--field", metavar="NAME", help="The text in .jsonl files.")] = "text",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier preparation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Turn a corpus into shards: token ids with the boundaries of documents, sentences and words.

    In .txt a blank line stands between documents, and a line is a sentence or a paragraph; in .jsonl a line is a
    document. White space inside of a document is kept where tokens are characters or pairs of bytes. Memory stays flat
    however large the corpus is, and a preparation that was killed goes on when it is asked for again.

    \b
    qkv tokenizer train corpus.txt --vocab-size 8000 --out tokenizer
    qkv prepare corpus.txt --tokenizer tokenizer --out shards
    qkv prepare wiki-*.txt.xz news.jsonl.gz --tokenizer tokenizer --out shards
    qkv prepare my-field.txt --tokenizer qkv-mini --out shards

    FOLDER/sample.txt shows what came out. --json prints the manifest.
    """
    from qkv.cli.terminal import fraction, print_json, say
    from qkv.data.prepare import prepare as prepared

    began = time.monotonic()
    cutter = load_tokenizer(tokenizer)
    with fraction("preparing") as moved:
        manifest = prepared(
            corpus,
            cutter,
            out,
            workers=workers,
            segmenter=segmenter,
            hold_out=hold_out,
            field=field,
            overwrite=overwrite,
            progress=lambda now: moved(now.share, f"{now.documents:,} documents, {now.tokens:,} tokens"),
        )
    if as_json:
        print_json(manifest)
        return
    totals = manifest["totals"]
    say(
        f"{out}: {totals['documents']:,} documents, {totals['sentences']:,} sentences, {totals['tokens']:,} tokens; "
        f"{manifest['valid']['documents']:,} documents held out; {time.monotonic() - began:.1f} s. "
        f"Look at {out / 'sample.txt'}."
    )
    for note in manifest["notes"]:
        say(f"note: {note}")
