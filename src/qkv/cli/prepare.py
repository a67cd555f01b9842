"""`qkv prepare` and `qkv show`: tokenize a corpus into shards, and show BERT training instances."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import JsonOption, LanguageOption
from qkv.cli.tokenize import load_tokenizer
from qkv.errors import InputError
from qkv.text.messages import language

if TYPE_CHECKING:
    from qkv.models.bert.objective import Corpus
    from qkv.models.bert.page import Instance
    from qkv.text.tokenizer import Tokenizer


def prepare_corpus(
    corpus: Annotated[list[Path], typer.Argument(metavar="FILE", help=".txt or .jsonl, also .gz and .xz.")],
    tokenizer: Annotated[str, typer.Option("--tokenizer", "-t", metavar="FOLDER", help="A tokenizer or model folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the shards.")],
    segmenter: Annotated[
        str | None,
        typer.Option(
            "--segmenter",
            metavar="NAME",
            help="Chinese word segmenter: rjieba or none (default: the tokenizer's, else rjieba if installed).",
        ),
    ] = None,
    hold_out: Annotated[
        float, typer.Option("--hold-out", metavar="SHARE", help="Share of documents held out for evaluation.")
    ] = 0.005,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Number of processes (default: one per core).")
    ] = None,
    field: Annotated[str, typer.Option("--field", metavar="NAME", help="Text field of .jsonl files.")] = "text",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier preparation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Tokenize a corpus into shards: token ids with the boundaries of documents, sentences and words.

    In .txt a blank line separates documents, and a line is a sentence or a paragraph; in .jsonl a line is a document.
    White space inside a document is kept for character and byte-pair tokenizers. Memory use is constant. Run the same
    command again to resume a preparation that was killed.

    \b
    qkv tokenizer train corpus.txt --vocab-size 8000 --out tokenizer
    qkv prepare corpus.txt --tokenizer tokenizer --out shards
    qkv prepare wiki-*.txt.xz news.jsonl.gz --tokenizer tokenizer --out shards
    qkv prepare my-field.txt --tokenizer qkv-mini --out shards

    FOLDER/sample.txt shows a sample of the tokens. --json prints the manifest.
    """
    from qkv.cli.terminal import fraction, print_json, say, say_encodings
    from qkv.data.corpus.prepare import prepare_corpus as prepared

    began = time.monotonic()
    cutter = load_tokenizer(tokenizer)
    say_encodings(corpus)
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
        f"See {out / 'sample.txt'}."
    )
    for note in manifest["notes"]:
        say(f"note: {note}")


STYLES = {
    "mask": "bold blue",
    "random": "bold yellow",
    "kept": "bold green",
    "special": "dim",
    "soft": "dim",
    "segment": "bold",
    "IsNext": "bold green",
    "NotNext": "bold yellow",
    "plain": "bold",
}


def show(
    shards: Annotated[Path, typer.Argument(metavar="SHARDS", help="Folder written by qkv prepare.")],
    count: Annotated[int, typer.Option("-n", "--count", metavar="N", help="Number of instances.")] = 3,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random seed.")] = 0,
    epoch: Annotated[
        int, typer.Option("--epoch", metavar="N", help="Epoch, counted from 0; masks differ between epochs.")
    ] = 0,
    negatives: Annotated[
        str, typer.Option("--negatives", metavar="document|corpus|none", help="Source of a random segment B.")
    ] = "document",
    max_length: Annotated[int, typer.Option("--max-length", metavar="N", help="Maximum tokens of an instance.")] = 128,
    whole_words: Annotated[
        bool, typer.Option("--whole-words/--no-whole-words", help="Mask whole words, or single tokens.")
    ] = True,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page instead.")] = None,
    lang: LanguageOption = "en",
    as_json: JsonOption = False,
) -> None:
    """Show BERT training instances: segments, masked tokens, targets.

    \b
    qkv show SHARDS
    qkv show SHARDS -n 5 --epoch 1 --max-length 48
    qkv show SHARDS --html instances.html --lang zh

    These are the first instances of the epoch that training with this seed uses. --json prints one document:
    seed, epoch, and instances with label and tokens (token, original, segment, position, begins_word, treatment).
    """
    if count < 1:
        raise InputError(f"-n must be at least 1, not {count}.")
    if epoch < 0 or seed < 0:
        raise InputError("--epoch and --seed are counted from 0.")
    from qkv.data.corpus.shards import Shards
    from qkv.report.bilingual import check_page_language

    check_page_language(lang)
    corpus = Shards.open(shards)
    drawn = draw_instances(
        corpus,
        corpus.tokenizer(),
        count,
        seed=seed,
        epoch=epoch,
        negatives=negatives,
        max_length=max_length,
        whole_words=whole_words,
    )
    if html is not None:
        _write_page(html, drawn, shards, seed, epoch, lang)
    if as_json:
        from qkv.cli.terminal import print_json

        print_json({"seed": seed, "epoch": epoch, "instances": [one.to_dict() for one in drawn]})
    elif html is None:
        _print(drawn, language() if lang == "en" else lang)  # without --lang that of messages


def draw_instances(
    corpus: "Corpus",
    tokenizer: "Tokenizer",
    count: int,
    *,
    seed: int,
    epoch: int,
    negatives: str,
    max_length: int,
    whole_words: bool,
) -> "list[Instance]":
    """Return the first masked rows of an epoch, with the data for drawing them."""
    import numpy as np

    from qkv.data.corpus.rows import PairConfig
    from qkv.models.bert.objective import MaskingConfig, PretrainingBatches
    from qkv.models.bert.page import LABELS, TREATMENTS, DrawnToken, Instance

    pairs, masking = PairConfig(negatives, max_length), MaskingConfig(whole_words=whole_words)
    batches = PretrainingBatches(corpus, tokenizer, pairs, masking, rows=1, seed=seed)
    epoch_rows, order = batches.epoch(epoch)
    rows = epoch_rows.take(order[:count])
    batch, masked = batches.packed(rows, np.random.default_rng(np.random.SeedSequence((seed, epoch, 3))))
    original = batch.ids.numpy().copy()
    original[masked.chosen] = masked.targets
    treatment = dict(zip(masked.chosen.tolist(), masked.treatment.tolist(), strict=True))
    begins = np.ones(len(original), bool)  # a special token is a word of its own
    separators = np.isin(original, (tokenizer.cls_id, tokenizer.sep_id))
    # segments A and B of each row, in batch order
    begins[~separators] = corpus.word_starts(
        np.stack((rows.a_start, rows.b_start), 1).ravel(), np.stack((rows.a_length, rows.b_length), 1).ravel()
    )

    found = []
    at = 0
    for number, length in enumerate(batch.lengths):
        tokens = tuple(
            DrawnToken(
                token=tokenizer.token(int(batch.ids[place])),
                original=tokenizer.token(int(original[place])),
                segment=int(batch.segments[place]),
                position=int(batch.positions[place]),
                begins_word=bool(begins[place]),
                special=bool(separators[place]),
                treatment=TREATMENTS[treatment[place]] if place in treatment else None,
            )
            for place in range(at, at + length)
        )
        found.append(Instance(tokens, LABELS[int(rows.label[number])] if negatives != "none" else None))
        at += length
    return found


def _write_page(out: Path, drawn: "list[Instance]", shards: Path, seed: int, epoch: int, lang: str) -> None:
    from qkv.cli.terminal import say
    from qkv.files import write_text
    from qkv.models.bert.page import instances_page
    from qkv.report.bilingual import Phrase

    facts = (Phrase(f"epoch {epoch}", f"第 {epoch} 轮"), Phrase(f"seed {seed}", f"种子 {seed}"))
    write_text(out, instances_page(drawn, shards.resolve().name, facts, lang))
    say(f"{out}: {len(drawn)} instances")


def _print(drawn: "list[Instance]", lang: str) -> None:
    import shutil

    from rich.text import Text

    from qkv.cli.terminal import console
    from qkv.models.bert.page import draw_legend, draw_lines

    out = console()
    width = out.width if out.is_terminal else shutil.get_terminal_size((100, 24)).columns
    drawn_lines = []
    for number, one in enumerate(drawn, start=1):
        drawn_lines += [*draw_lines(one, number, width, lang), []]
    for line in [*drawn_lines, *draw_legend(width, lang)]:
        out.print(Text.assemble(*((span.text, STYLES.get(span.style, "")) for span in line)), soft_wrap=True)
