"""`qkv tokenizer train` and `qkv tokenize`: learn a vocabulary, and split a text into tokens."""

import json
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from qkv.cli.options import JsonOption, Noun, Verb, text_or_stdin
from qkv.models.folders.hub import DEFAULT_MODEL
from qkv.text.messages import translate, write

if TYPE_CHECKING:
    from qkv.text.tokenizer import Tokenizer
    from qkv.text.vocabulary import Kind


tokenizer = typer.Typer(help="Train tokenizers.", rich_markup_mode=None, cls=Noun)


@tokenizer.callback()
def _noun() -> None:
    """Train tokenizers."""


@tokenizer.command("train", short_help="Learn a vocabulary from files of any size.", cls=Verb)
def train_tokenizer(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Files with one text per line: .txt .jsonl, also .gz .xz.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder to write.")],
    vocabulary_size: Annotated[
        int, typer.Option("--vocab-size", metavar="N", help="Vocabulary size, including special tokens.")
    ] = 8000,
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help="wordpiece, word or character.")] = "wordpiece",
    min_frequency: Annotated[
        int, typer.Option("--min-frequency", metavar="N", help="Minimum frequency of a word, or of a pair to merge.")
    ] = 2,
    limit_alphabet: Annotated[
        int | None,
        typer.Option(
            "--limit-alphabet",
            metavar="N",
            help="Maximum number of characters (default: enough for 99.99 % of the text).",
        ),
    ] = None,
    segmenter: Annotated[
        str | None,
        typer.Option("--segmenter", metavar="NAME", help="With --kind word: segmenter of Chinese words, rjieba."),
    ] = None,
    fold: Annotated[
        str | None,
        typer.Option(
            "--fold",
            metavar="NAMES",
            help="width: full-width letters and digits as half-width; emoji: each a token; simplified: traditional "
            "汉字 as simplified; none (default: width,emoji; with --kind character none).",
        ),
    ] = None,
    cased: Annotated[bool, typer.Option("--cased", help="Keep case and accents.")] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Number of processes (default: one per core).")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier tokenizer.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Learn a vocabulary from files of any size and write it as a tokenizer folder.

    Each 汉字 is a token, except with --kind word --segmenter rjieba. Transformers and qkv both load the folder; the
    segmenter works only in qkv, other programs need spaces between Chinese words.

    \b
    qkv tokenizer train corpus.txt more.jsonl.gz --vocab-size 8000 --out my-tokenizer
    qkv tokenizer train 微博.txt --fold width,emoji,simplified --out weibo
    qkv tokenizer train 语料.txt --kind character --out zi
    qkv tokenizer train 语料.txt --kind word --segmenter rjieba --vocab-size 50000 --out ci
    qkv tokenize "试一试 a test" --model my-tokenizer

    --json prints one document: path, kind, segmenter, size, n_texts, seconds.
    """
    from qkv.cli.terminal import print_json, progress, say_encodings
    from qkv.data.corpus.counting import count_files
    from qkv.text.folding import check_fold, read_folds
    from qkv.text.tokenizer import Tokenizer, check_tokenizer_folder
    from qkv.text.vocabulary import check_learning

    chosen = cast("Kind", kind)
    check_learning(chosen, vocabulary_size, min_frequency, limit_alphabet, segmenter)
    folds = read_folds(fold, kind)
    check_fold(folds, kind, segmenter)
    check_tokenizer_folder(out, overwrite)
    began, read = time.perf_counter(), 0
    say_encodings(files)
    with progress("read", None) as advance:

        def seen(number: int) -> None:
            nonlocal read
            advance(number - read)
            read = number

        counts = count_files(files, chosen, not cased, segmenter=segmenter, fold=folds, workers=workers, progress=seen)
    learned = Tokenizer.from_counts(
        counts,
        chosen,
        vocabulary_size,
        not cased,
        min_frequency=min_frequency,
        limit_alphabet=limit_alphabet,
        segmenter=segmenter,
        fold=folds,
    )
    learned.save(out)
    facts = {"path": str(out), "kind": kind, "segmenter": learned.segmenter, "size": learned.size, "n_texts": read}
    if as_json:
        print_json({**facts, "seconds": round(time.perf_counter() - began, 3)})
        return
    how = kind if learned.segmenter is None else f"{kind}, Chinese by {learned.segmenter}"
    write(f"{out}: {learned.size:,} tokens ({how}), learned from {read:,} texts")


_DRAWN = 500
"""Maximum rows of a formatted table; more are printed as plain columns, since layout is slow."""
_AT_ONCE = 1000


def tokenize(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text; - reads standard input.")],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            "--tokenizer",
            envvar="QKV_MODEL",
            metavar="FOLDER",
            help="A model or tokenizer folder, a tokenizer.json, a vocab.txt, or hf:owner/name.",
        ),
    ] = DEFAULT_MODEL,
    pair: Annotated[str | None, typer.Option("--pair", metavar="TEXT", help="Second text (segment 1).")] = None,
    steps: Annotated[bool, typer.Option("--steps", help="Show the steps of WordPiece.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Split a text into tokens: ids, segments, and the characters of each.

    \b
    qkv tokenize "unaffable 他欠我100万"
    qkv tokenize "How are you?" --pair "Fine." --json
    qkv tokenize "unaffable" --steps --model FOLDER

    --json prints one document: text, pair, n_tokens, and tokens with token, id, segment, start, end, text. With
    --steps: text, pair, steps and pair_steps with step and parts.
    """
    tokenizer = load_tokenizer(model)
    text = text_or_stdin(text)
    if steps:
        _show_steps(tokenizer, text, pair, as_json)
        return
    rows = _tokens(tokenizer, text, pair)
    if as_json:
        _print_document(text, pair, rows)
        return
    from qkv.cli.terminal import print_table

    headings = ["token", "id", "segment", "characters", "text"]
    first = list(islice(rows, _DRAWN + 1))
    if len(first) <= _DRAWN:
        print_table(headings, [_cells(row) for row in first], right=(1, 2))
        write(f"\n{len(first)} tokens")
        return
    typer.echo("\t".join(headings))
    count = 0
    rows = chain(first, rows)
    while some := list(islice(rows, _AT_ONCE)):
        typer.echo("\n".join("\t".join(_cells(row)) for row in some))
        count += len(some)
    write(f"\n{count} tokens")


def _tokens(tokenizer: "Tokenizer", text: str, pair: str | None) -> Iterator[dict[str, Any]]:
    """The tokens one by one, so that a text of any length takes little memory."""
    texts = (text, pair or "")
    for part in tokenizer.stream(text, pair):
        for token, number, segment, (start, end) in zip(
            part.tokens, part.ids, part.segments, part.offsets, strict=True
        ):
            yield {
                "token": token,
                "id": number,
                "segment": segment,
                "start": start,
                "end": end,
                "text": texts[segment][start:end],
            }


def _cells(row: dict[str, Any]) -> list[str]:
    place = f"{row['start']}–{row['end']}" if row["text"] else ""
    return [row["token"], str(row["id"]), str(row["segment"]), place, repr(row["text"])[1:-1]]


def _print_document(text: str, pair: str | None, rows: Iterator[dict[str, Any]]) -> None:
    """One line of JSON, written as the tokens come."""
    some = list(islice(rows, _AT_ONCE))  # before the first character is written: the text may be refused
    head = json.dumps({"text": text, "pair": pair}, ensure_ascii=False)
    typer.echo(f'{head[:-1]}, "tokens": [', nl=False)
    count = 0
    while some:
        typer.echo((", " if count else "") + json.dumps(some, ensure_ascii=False)[1:-1], nl=False)
        count += len(some)
        some = list(islice(rows, _AT_ONCE))
    typer.echo(f'], "n_tokens": {count}}}')


def load_tokenizer(name: str) -> "Tokenizer":
    """Load a tokenizer from a file, or from the folder of a model."""
    from qkv.models.folders.hub import locate
    from qkv.text.tokenizer import Tokenizer

    path = Path(name).expanduser()
    return Tokenizer.load(path if path.is_file() or path.suffix in (".json", ".txt") else locate(name))


def _show_steps(tokenizer: "Tokenizer", text: str, pair: str | None, as_json: bool) -> None:
    """Print the steps for each text; the texts of a pair are tokenized separately."""
    from qkv.cli.terminal import print_json, print_table

    plain = tokenizer.plain()
    found = [plain.steps(one) for one in (text, pair) if one is not None]
    if as_json:
        steps = [[{"step": step, "parts": parts} for step, parts in one] for one in found]
        print_json({"text": text, "pair": pair, "steps": steps[0], "pair_steps": None if pair is None else steps[1]})
        return
    for number, one in enumerate(found):
        if number:
            typer.echo()
        name = "gives" if len(found) == 1 else ("the first text gives", "the second text gives")[number]
        rows = [[translate(step), " │ ".join(repr(part)[1:-1] for part in parts)] for step, parts in one]
        print_table(["step", name], rows)
