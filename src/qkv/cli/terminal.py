"""Terminal output: tables, shaded numbers, progress, scores and predictions; plain lines if there is no terminal.

Results go to standard output, progress and messages to standard error, so that a pipe carries only results.
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from qkv.errors import InputError
from qkv.text.messages import language, translate, translate_at, write

if TYPE_CHECKING:
    from qkv.api.cluster import AnyJob, PartsAnswered
    from qkv.api.model import Model
    from qkv.data.batch import Watch
    from qkv.data.labelled.examples import Example
    from qkv.text.unknown import UnknownFacts


_WIDE = 400
"""Width of a table that is written to a file or a pipe; longer lines are folded."""


def console(error: bool = False) -> Console:
    stream = sys.stderr if error else sys.stdout
    return Console(stderr=error, highlight=False, width=None if stream.isatty() else _WIDE)


def say(message: str) -> None:
    """Print a message to standard error, in the user's language."""
    write(message, err=True)


def say_encodings(files: Iterable[str | Path]) -> None:
    """Say which files are not UTF-8 and how they are read."""
    from qkv.data.readers import encoding_note

    for file in files:
        if note := encoding_note(file):
            say(f"{file}: {note}")


def warn_unknown(unknown: "UnknownFacts", model: str = "MODEL") -> None:
    """One line about tokens that the model does not know, where they are more than a few."""
    if said := unknown.describe(model):
        say(f"note: {said}")


def warn_not_for_sentences(model: "Model") -> None:
    """One line where texts are compared by a model whose folder does not declare a pooling; not for word vectors."""
    from qkv.models.family import ENCODES
    from qkv.models.folders.hub import DEFAULT_MODEL, FOLDER, default_model

    sentence, known = model.opened.sentence, model.opened.ability(ENCODES).known
    if sentence.pooling or sentence.foreign or known is not None:
        return
    shipped = model.opened.path.resolve().parent == FOLDER
    fact = "was not trained to compare sentences" if shipped else "does not say that it compares sentences"
    own = default_model("encodes")
    way = "`qkv demo --weights` prints MiniLM's folder" if own == DEFAULT_MODEL else f"--model {own}"
    say(f"note: {model.name} {fact}: for search take a sentence model ({way}), or train one: qkv train embed.")


def print_json(document: Any) -> None:
    """Print a JSON document on one line, without escaping 汉字."""
    typer.echo(json.dumps(document, ensure_ascii=False))


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[int] = (), padding: int = 3
) -> None:
    """Print a table; columns listed in `right` hold numbers. Headings are translated; cells are text, never markup."""
    grid = Table(
        box=SIMPLE_HEAD if any(headings) else None,
        padding=(0, padding, 0, 0),
        pad_edge=False,
        show_edge=False,
        show_header=any(headings),
    )
    for number, heading in enumerate(headings):
        numbers = number in right
        grid.add_column(
            Text(translate(heading)), justify="right" if numbers else "left", overflow="fold", no_wrap=numbers
        )
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    out = console()
    with out.capture() as captured:
        out.print(grid)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_facts(rows: Iterable[tuple[str, str]]) -> None:
    """Print a table of names and texts, both in the user's language; a single word is a name and stays as it is."""
    print_table(["", ""], [(translate(name), translate(text) if " " in text else text) for name, text in rows])


class _Finding(Protocol):
    """An error in a file; line 0 if the file cannot be read to its end."""

    @property
    def kind(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def message(self) -> str: ...
    @property
    def place(self) -> str: ...


def print_findings(counts: Mapping[str, int], findings: Sequence[_Finding], kinds: Mapping[str, str]) -> None:
    """Print the findings by kind: the count, those listed, and how many more there are."""
    colon = "：" if language() == "zh" else ": "
    for kind, count in counts.items():
        typer.echo(f"\n{translate(kinds[kind])}{colon}{count:,}")
        found = [finding for finding in findings if finding.kind == kind]
        for finding in found:
            within = finding.place or f"line {finding.line}"
            named = f"{finding.file}, {within}" if finding.line else finding.file
            is_line = finding.line and within == f"line {finding.line}"
            place = f"{finding.file}:{finding.line}" if is_line else translate(named)
            typer.echo(f"  {place}{colon}{translate_at(named, finding.message)}")
        if len(found) < count:
            write(f"  … and {count - len(found):,} more")


def bar(share: float, width: int = 24) -> Text:
    """Draw a share from 0 to 1 as a bar, in eighths of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return Text("█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8].strip()), style="cyan")


def shade_number(value: float, digits: int = 2) -> Text:
    """Format a number from 0 to 1 on a background that is warmer for larger values."""
    share = max(0.0, min(1.0, value))
    ground = [round(low + (high - low) * share) for low, high in zip((28, 35, 48), (214, 69, 27), strict=True)]
    return Text(
        f" {round(value, digits) + 0.0:.{digits}f} ",
        style=f"rgb(255,255,255) on rgb({ground[0]},{ground[1]},{ground[2]})",
    )


_LONGEST = 1_000
"""Characters of a text that a terminal shows."""


def shorten(text: str, most: int = _LONGEST) -> str:
    """Return the beginning and the end of a text that is too long for a terminal.

    >>> shorten("0123456789" * 3, 10)
    '0123456 … 789'
    """
    return text if len(text) <= most else f"{text[: most * 3 // 4]} … {text[len(text) - most // 3 :]}"


def similarity_table(texts: Sequence[str], similarity: Sequence[Sequence[float]]) -> None:
    """Print the similarity of every text with every other, numbered."""
    rows = [
        [f"{number}  {shorten(text)}  ", *(shade_number(value) for value in line)]
        for number, (text, line) in enumerate(zip(texts, similarity, strict=True), start=1)
    ]
    print_table(
        ["", *(f"{number + 1} " for number in range(len(texts)))], rows, right=range(1, len(texts) + 1), padding=0
    )


class Advance(Protocol):
    def __call__(self, items: int) -> None: ...


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """Show progress by items on standard error: a bar on a terminal, else a line every few seconds."""
    what = translate(what)
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
            say(f"{what}: {done:,}{of}, {done / (now - began):,.0f} per second")

    yield advance


def answer_on_cluster(
    job: "AnyJob", inputs: Iterable[str | Path], out: Path | None, address: str, part_rows: int | None
) -> "PartsAnswered":
    """Answer the rows of files on a Ray cluster, into a folder of parts, and say how it goes."""
    from qkv.api.cluster import answer_parts
    from qkv.api.parts import MOST_ROWS, PartLimits

    if out is None:
        raise InputError("--cluster writes a folder of parts: name it with --out.")
    if part_rows is not None and part_rows < 1:
        raise InputError(f"--part-rows must be 1 or more, not {part_rows}.")
    limits = PartLimits(part_rows or MOST_ROWS)
    done = answer_parts(job, [str(one) for one in inputs], str(out), address, limits, say, progress)
    new = sum(1 for _ in range(done.n_kept, done.n_parts))
    say(f"{done.out}: {done.n_rows:,} rows in {done.n_parts:,} parts, {new:,} of them new")
    return done


def refuse_with_cluster(address: str | None, part_rows: int | None, **flags: object) -> None:
    """Refuse options that mean nothing with --cluster, or without it; names with _ for -."""
    if address is None:
        if part_rows is not None:
            raise InputError("--part-rows is for --cluster: leave it out.")
        return
    for name, value in flags.items():
        if value not in (None, False, ()):
            raise InputError(f"--{name.replace('_', '-')} cannot be used with --cluster: leave one of them out.")


def say_windows(every: float = 5.0) -> "Watch":
    """A line every few seconds while one long text is read."""
    last = time.monotonic()

    def watch(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            say(f"a long text: {done:,} of {total:,} windows read")

    return watch


class Move(Protocol):
    def __call__(self, share: float, figures: str) -> None: ...


@contextmanager
def fraction(what: str, every: float = 5.0) -> Iterator[Move]:
    """Show progress by fraction on standard error: a bar on a terminal, else a line every few seconds."""
    what = translate(what)
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


# Scores.

METRIC_NAMES = {
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "weighted_f1": "weighted F1",
    "mcc": "MCC",
    "f1": "F1",
    "em": "exact match",
    "samples_f1": "F1 by text",
    "subset_accuracy": "all labels right",
    "has_answer_em": "exact match, answered",
    "has_answer_f1": "F1, answered",
    "no_answer_em": "exact match, no answer",
    "no_answer_f1": "F1, no answer",
    "mean_absolute_error": "mean absolute error",
    "mean_squared_error": "mean squared error",
    "pearson": "Pearson",
    "spearman": "Spearman",
}
_MOST_LABELS = 40


def print_result(result: Mapping[str, Any]) -> None:
    """Print the result of a fine-tuning run: first a failure, or how it compares with the baselines."""
    from qkv.jobs.finetune.facts import ENOUGH, explain_few_answers, explain_threshold

    failure, verdict = result.get("failure"), result.get("verdict")
    if failure:
        console().print(_plain(f"{failure[language()]}\n"), style="bold red", markup=False, soft_wrap=True)
    elif verdict:
        colon = "：" if language() == "zh" else ": "
        typer.echo(f"{translate(verdict['level'])}{colon}{_plain(verdict[language()])}\n")
    print_scores("held out", result["dev"])
    if selection := result.get("selection"):
        typer.echo(f"\n{translate('note')}: {_plain(selection[language()])}")
    if result["test"]:
        typer.echo("")
        print_scores("test", result["test"])
    seeds = result["seeds"]
    if len(seeds["values"]) > 1:
        write(
            f"\n{len(seeds['values'])} seeds, held out: {result['main']} {seeds['mean']:.4f} ± {seeds['deviation']:.4f}"
        )
    for line in baseline_lines(result.get("baselines") or {}, result["main"]):
        write(line)
    found = result["calibration"]
    if found:
        error = found["expected_calibration_error"]
        if found["answers"] < ENOUGH:
            typer.echo(getattr(explain_few_answers(found["answers"]), language()))
        elif found["temperature"] == 1.0:
            write(f"calibration error {error['before']:.3f}; a temperature does not help, so none is used")
        else:
            write(
                f"calibration error {error['before']:.3f} → {error['after']:.3f} "
                f"(temperature {found['temperature']:.2f})"
            )
        if (threshold := explain_threshold(found)) is not None:
            typer.echo(_plain(getattr(threshold, language())))
    if result["dropped"] or result["mended"]:
        write(f"examples dropped: {result['dropped']:,}, repaired: {result['mended']:,} (see faults.jsonl)")


def baseline_lines(baselines: Mapping[str, Any], main: str) -> list[str]:
    """A line per part with baselines: dev, test."""
    lines = []
    for part, found in baselines.items():
        if found:
            names = "; ".join(f"{one['name']} {one['value']:.4f}" for one in found)
            lines.append(f"{METRIC_NAMES.get(main, main)} of baselines on {part}: {names}")
    return ["", *lines] if lines else []


def _plain(text: str) -> str:
    """A sentence of a report for a terminal: with plain spaces."""
    return text.replace("\u00a0", " ")


def print_scores(name: str, scores: Mapping[str, Any]) -> None:
    rows = []
    for key, (low, high) in scores["intervals"].items():
        if key == "micro_f1" and scores.get("accuracy") == scores[key]:
            continue  # equal for single-label tasks
        ends = "–" if low is None or high is None else f"{low:.4f} – {high:.4f}"
        rows.append((translate(METRIC_NAMES.get(key, key.replace("_", " "))), f"{scores[key]:.4f}", ends))
    n = scores["examples"]
    print_table([f"{name}, {n:,} example{'' if n == 1 else 's'}", "", "95 % interval"], rows, right=(1,))
    labels = scores["labels"]
    if labels and len(labels) <= _MOST_LABELS:
        typer.echo("")
        print_table(
            ["label", "examples", "precision", "recall", "F1", ""],
            [
                (
                    label,
                    f"{one['examples']:,}",
                    *(f"{one[name]:.3f}" for name in ("precision", "recall", "f1")),
                    bar(one["f1"], 16),
                )
                for label, one in labels.items()
            ],
            right=(1, 2, 3, 4),
        )


# Predictions.

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


class ResultPrinter:
    """Prints predictions; every label keeps its colour."""

    def __init__(self) -> None:
        self.out = console()
        self.colours: dict[str, str] = {}

    def show(self, example: "Example", result: Any) -> None:
        line = Text()
        if example.place.file and not example.place.line:  # a document
            line.append(f"{example.place.file}\n", style="dim")
        for text, style, label, share in result.shown(example):
            shown = shorten(text) if self.out.is_terminal else text
            line.append(shown, style=f"{style} {self._colour(label) if label else ''}".strip())
            if share is not None:
                line.append_text(bar(share, 12))
        if result.abstained:
            line.append(translate("  (to be checked by a person)"), style="yellow")
        if result.n_windows > 1:
            line.append(translate(f"   ({result.n_tokens:,} tokens, {result.n_windows} windows)"), style="dim")
        self.out.print(line, soft_wrap=True)

    def _colour(self, label: str) -> str:
        return self.colours.setdefault(label, _COLOURS[len(self.colours) % len(_COLOURS)])
