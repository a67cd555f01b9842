"""What people see: tables, shaded numbers and progress on a terminal, plain lines everywhere else.

Results go to standard output; progress, and where a file was written, to standard error, so that a pipe carries
results alone.
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

WIDE = 400
"""Columns of a table that goes to a file or a pipe, which has no width of its own; only a longer line is folded."""


def console(error: bool = False) -> Console:
    stream = sys.stderr if error else sys.stdout
    return Console(stderr=error, highlight=False, width=None if stream.isatty() else WIDE)


def say(message: str) -> None:
    """A remark to the person, beside the results."""
    typer.echo(message, err=True)


def print_json(document: Any) -> None:
    """One JSON document on one line; 汉字 stay readable."""
    typer.echo(json.dumps(document, ensure_ascii=False))


def table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[int] = (), padding: int = 3
) -> None:
    """Print a table; columns listed in `right` hold numbers. Cells are text, never markup."""
    grid = Table(
        box=SIMPLE_HEAD if any(headings) else None,
        padding=(0, padding, 0, 0),
        pad_edge=False,
        show_edge=False,
        show_header=any(headings),
    )
    for number, heading in enumerate(headings):
        numbers = number in right
        grid.add_column(Text(heading), justify="right" if numbers else "left", overflow="fold", no_wrap=numbers)
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    out = console()
    with out.capture() as captured:
        out.print(grid)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


class Finding(Protocol):
    """Something wrong in a file; line 0: a file that cannot be read to its end."""

    @property
    def kind(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def message(self) -> str: ...


def print_findings(counts: Mapping[str, int], findings: Sequence[Finding], kinds: Mapping[str, str]) -> None:
    """By kind: how many there are, those that are told in full, and how many are not."""
    for kind, count in counts.items():
        typer.echo(f"\n{kinds[kind]}: {count:,}")
        found = [finding for finding in findings if finding.kind == kind]
        for finding in found:
            place = f"{finding.file}:{finding.line}" if finding.line else finding.file
            typer.echo(f"  {place}: {finding.message}")
        if len(found) < count:
            typer.echo(f"  … and {count - len(found):,} more")


def bar(share: float, width: int = 24) -> Text:
    """A share of 1 as a bar of eighths of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return Text("█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8].strip()), style="cyan")


def shaded(value: float, digits: int = 2) -> Text:
    """A number on a ground that is the warmer the larger it is (0 to 1)."""
    share = max(0.0, min(1.0, value))
    ground = [round(low + (high - low) * share) for low, high in zip((28, 35, 48), (214, 69, 27), strict=True)]
    return Text(
        f" {round(value, digits) + 0.0:.{digits}f} ",
        style=f"rgb(255,255,255) on rgb({ground[0]},{ground[1]},{ground[2]})",
    )


def similarity_table(texts: Sequence[str], similarity: Sequence[Sequence[float]]) -> None:
    """Every text against every other, numbered."""
    rows = [
        [f"{number}  {text}  ", *(shaded(value) for value in line)]
        for number, (text, line) in enumerate(zip(texts, similarity, strict=True), start=1)
    ]
    table(["", *(f"{number + 1} " for number in range(len(texts)))], rows, right=range(1, len(texts) + 1), padding=0)


class Advance(Protocol):
    def __call__(self, items: int) -> None: ...


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """Progress of a long job on standard error: a bar on a terminal, else a line every few seconds."""
    if not sys.stderr.isatty():
        with _lines(what, total) as advance:
            yield advance
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(error=True), transient=True) as shown:
        task = shown.add_task(what, total=total)
        yield lambda items: shown.advance(task, items)


@contextmanager
def _lines(what: str, total: int | None, every: float = 5.0) -> Iterator[Advance]:
    began = last = time.monotonic()
    done = 0

    def advance(items: int) -> None:
        nonlocal done, last
        done += items
        now = time.monotonic()
        if now - last >= every:
            last = now
            of = f" of {total:,}" if total is not None else ""
            say(f"{what}: {done:,}{of}, {done / (now - began):,.0f} a second")

    yield advance


class Move(Protocol):
    def __call__(self, share: float, figures: str) -> None: ...


@contextmanager
def fraction(what: str, every: float = 5.0) -> Iterator[Move]:
    """Progress of a job that knows its share and not its items: a bar on a terminal, else a line every few seconds."""
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"))
        with Progress(*columns, TimeRemainingColumn(), console=console(error=True), transient=True) as shown:
            task = shown.add_task(what, total=1.0, figures="")
            yield lambda share, figures: shown.update(task, completed=share, figures=figures)
        return
    last = time.monotonic()

    def moved(share: float, figures: str) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            say(f"{what}: {share:.0%}" + (f", {figures}" if figures else ""))

    yield moved
