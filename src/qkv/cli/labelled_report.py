"""The report on labelled files as people read it: what is in them, a bar for each label, and findings by kind."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from qkv.data.check_labelled import LabelledReport
    from qkv.data.check_lengths import Lengths

SHOWN = 40  # labels
WHAT = {"classify": "label", "tag": "kind of span", "answer": "answer", "choice": "right choice"}


def print_labelled(report: "LabelledReport") -> None:
    from qkv.cli.terminal import print_findings, table
    from qkv.data.check_labelled import KINDS

    rows = [("task", report.task), ("examples", f"{report.examples:,}")]
    for facts in report.files:
        against = ", held against the others" if facts.against else ""
        lost = "".join(
            f", {count:,} {what}" for what, count in (("dropped", facts.dropped), ("mended", facts.mended)) if count
        )
        rows.append((facts.path, f"{facts.examples:,} examples{lost}{against} ({facts.read_as})"))
    for unit, lengths in (("characters", report.characters), ("tokens", report.tokens)):
        if lengths is not None:
            rows.append((unit, _said(lengths)))
    if report.numbers is not None:
        rows.append(("labels", ", ".join(f"{name} {value:.4g}" for name, value in report.numbers.items())))
    table(["", ""], rows)
    _print_labels(report)
    print_findings(report.counts, report.findings, KINDS)
    if report.sound:
        typer.echo("\nNothing is wrong with it.")
    for note in report.notes:
        typer.echo(f"\nnote: {note}")


def _print_labels(report: "LabelledReport") -> None:
    from qkv.cli.terminal import bar, table

    if not report.labels:
        return
    typer.echo()
    total, most = sum(report.labels.values()), max(report.labels.values())
    rows = [
        (label, f"{count:,}", f"{count / total:.1%}", bar(count / most))
        for label, count in list(report.labels.items())[:SHOWN]
    ]
    table([WHAT[report.task], "number", "share", ""], rows, right=(1, 2))
    if len(report.labels) > SHOWN:
        typer.echo(f"… and {len(report.labels) - SHOWN:,} more labels")


def _said(lengths: "Lengths") -> str:
    said = f"median {lengths.median:,}, 90 % up to {lengths.p90:,}, 99 % up to {lengths.p99:,}"
    said += f", longest {lengths.longest:,}"
    if lengths.limit is not None:
        said += f"; {lengths.over:,} above the model's {lengths.limit:,}"
        said += ", which are read in windows" if lengths.over else ""
    return said
