"""qkv embed: texts to vectors."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import DeviceOption, JsonOption, ModelOption, ThreadsOption, required_model
from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.run.predict import Model

FEW = 12
"""As many texts as a similarity table can still show on a terminal."""


def embed(
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts; - reads lines.")] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", metavar="FILE", help="Texts by the line: .txt .jsonl, also .gz .xz; repeatable."),
    ] = None,
    model: ModelOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write .npy, .jsonl or .tsv.")] = None,
    pooling: Annotated[
        str | None,
        typer.Option("--pooling", metavar="mean|cls", help="How tokens become a text; else as in the folder."),
    ] = None,
    normalize: Annotated[
        bool | None, typer.Option("--normalize/--no-normalize", help="Scale to length 1; else as in the folder.")
    ] = None,
    skip_empty: Annotated[bool, typer.Option("--skip-empty", help="Leave out empty lines of files and input.")] = False,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Turn texts into vectors; a few texts on a terminal are compared with each other.

    A text longer than the model is read in overlapping windows, nothing is cut. Files of any size stream through.

    \b
    qkv embed "A cat sits." "Stocks fell." "一只猫" --model FOLDER
    qkv embed --file texts.txt --out vectors.npy --model FOLDER
    qkv embed --file texts.jsonl.gz --json --model FOLDER > vectors.jsonl

    --json prints one line a text: text, n_tokens, n_windows, vector. With --out, one document: out, n_texts,
    n_tokens, n_windows, width, seconds.
    """
    from qkv.run.vector_files import check_name

    if out is not None:
        check_name(out)
    if bool(texts) == bool(file):
        raise InputError('Give texts (qkv embed "one text" "another"), or a file with --file; one of the two.')
    folder = required_model(model)
    number = _count(file, skip_empty) if file else len(texts) if texts and texts != ["-"] else None
    from qkv.run.load import load

    loaded = load(folder, device=device, threads=threads)
    how = (pooling, normalize)
    stream = _read(file, skip_empty) if file else _standard_input(skip_empty) if texts == ["-"] else iter(texts or ())
    if out is not None:
        _to_file(loaded, stream, number, out, how, as_json)
    elif as_json:
        _to_json(loaded, stream, how)
    else:
        _to_terminal(loaded, stream, how)


def _read(files: Iterable[Path], skip_empty: bool) -> Iterator[str]:
    from qkv.data.readers import texts

    return (text for text in texts(files) if text.strip() or not skip_empty)


def _count(files: Iterable[Path], skip_empty: bool) -> int:
    """Read once to the end before the work starts: a fault in the last line should not cost an hour."""
    from qkv.data.readers import texts

    files, count = list(files), 0
    list(map(texts, files))  # names first, all of them
    for file in files:
        what = "line" if ".txt" in file.suffixes else "text"
        for number, text in enumerate(texts(file), start=1):
            if text.strip():
                count += 1
            elif not skip_empty:
                raise InputError(f"{file}, {what} {number} is empty. Take it out, or add --skip-empty.")
    return count


def _standard_input(skip_empty: bool) -> Iterator[str]:
    import sys

    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            text = line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise InputError(f"Standard input, line {number} is not UTF-8.") from error
        if text.strip():
            yield text
        elif not skip_empty:
            raise InputError(f"Standard input, line {number} is empty. Take it out, or add --skip-empty.")


class _Kept:
    """Passes texts on and keeps those whose vectors are still to come."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = texts
        self._waiting: list[str] = []

    def __iter__(self) -> Iterator[str]:
        for text in self._texts:
            self._waiting.append(text)
            yield text

    def take(self, number: int) -> list[str]:
        taken, self._waiting = self._waiting[:number], self._waiting[number:]
        return taken


def _to_file(
    model: "Model",
    texts: Iterable[str],
    number: int | None,
    out: Path,
    how: tuple[str | None, bool | None],
    as_json: bool,
) -> None:
    from qkv.cli.terminal import print_json, progress, say
    from qkv.run.vector_files import vector_file

    kept, began = _Kept(texts), time.perf_counter()
    done = n_tokens = n_windows = 0
    with vector_file(out, model.config.width) as writer, progress("embed", number) as advance:
        for part in model.embed_stream(kept, *how):
            writer.add(kept.take(len(part)), part)
            done += len(part)
            n_tokens += int(part.n_tokens.sum())
            n_windows += int(part.n_windows.sum())
            advance(len(part))
        if not done:
            raise InputError("There is no text to embed: the input is empty.")
    seconds = time.perf_counter() - began
    if as_json:
        facts = {"out": str(out), "n_texts": done, "n_tokens": n_tokens, "n_windows": n_windows}
        print_json({**facts, "width": model.config.width, "seconds": round(seconds, 3)})
    else:
        windows = f" in {n_windows:,} windows" if n_windows > done else ""
        say(f"{out}: {done:,} texts{windows}, {model.config.width} numbers each, {done / seconds:,.0f} texts a second")


def _to_json(model: "Model", texts: Iterable[str], how: tuple[str | None, bool | None]) -> None:
    from qkv.run.vector_files import json_lines

    kept = _Kept(texts)
    for part in model.embed_stream(kept, *how):
        for line in json_lines(kept.take(len(part)), part):
            typer.echo(line)


def _to_terminal(model: "Model", texts: Iterable[str], how: tuple[str | None, bool | None]) -> None:
    from itertools import islice

    from qkv.cli.terminal import say, similarity_table

    few = list(islice(texts, FEW + 1))
    if len(few) > FEW:
        raise InputError(f"More than {FEW} texts are too many for the screen: add --out vectors.npy, or --json.")
    if not few:
        raise InputError("There is no text to embed: the input is empty.")
    found = model.embed(few, *how)
    if len(few) == 1:
        start = ", ".join(f"{value:.4f}" for value in found.vectors[0, :6].tolist())
        typer.echo(f"{model.config.width} numbers: {start}, …")
    else:
        similarity_table(few, found.similarity().tolist())
    for number, windows in enumerate(found.n_windows.tolist(), start=1):
        if windows > 1:
            say(f"text {number} is {found.n_tokens[number - 1]} tokens long and was read in {windows} windows")
