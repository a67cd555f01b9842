"""`qkv check`: what is in a corpus and what is wrong with it, before anything is trained on it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import JsonOption
from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.data.check import CorpusReport

LANGUAGE_NAMES = {"zh": "Chinese", "en": "English", "other": "other"}


def check(
    corpus: Annotated[list[Path], typer.Argument(metavar="FILE", help=".txt or .jsonl, also .gz and .xz.")],
    field: Annotated[str, typer.Option("--field", metavar="NAME", help="The text in .jsonl files.")] = "text",
    named: Annotated[int, typer.Option("-n", "--named", metavar="N", help="Findings to name of each kind.")] = 3,
    as_json: JsonOption = False,
) -> None:
    """Look through a corpus: documents, sentences, languages, and everything that is wrong with it, by file and line.

    \b
    qkv check corpus.txt
    qkv check 语料.txt more-*.jsonl.gz -n 20
    qkv check corpus.txt --json

    Nothing is changed. Files are read once, in little memory. The exit code is 0 whatever was found, and 2 when a file
    is not there. --json prints one document: files, bytes, documents, sentences, characters, languages, counts,
    findings (kind, file, line, message), limits, …
    """
    if named < 0:
        raise InputError(f"-n must be 0 or more, not {named}.")
    from qkv.cli.terminal import fraction, print_json
    from qkv.data.check import check_corpus

    with fraction("checking") as moved:
        report = check_corpus(corpus, field, named, progress=lambda share: moved(share, ""))
    if as_json:
        print_json(report.to_dict())
    else:
        _print(report)


def _print(report: "CorpusReport") -> None:
    from qkv.cli.terminal import table
    from qkv.data.check import KINDS

    languages = ", ".join(
        f"{LANGUAGE_NAMES.get(name, name)} {share:.0%}" for name, share in report.languages.items() if share >= 0.005
    )
    table(
        ["", ""],
        [
            ("documents", f"{report.documents:,}"),
            ("sentences", f"{report.sentences:,}"),
            ("characters", f"{report.characters:,}"),
            ("longest document", f"{report.longest_document:,} characters"),
            ("languages", languages or "none"),
            ("files", f"{report.files:,}, {_size(report.bytes)} of text"),
        ],
    )
    for kind, count in report.counts.items():
        typer.echo(f"\n{KINDS[kind]}: {count:,}")
        found = [finding for finding in report.findings if finding.kind == kind]
        for finding in found:
            # a file that cannot be read at all has no line
            place = f"{finding.file}:{finding.line}" if finding.line else finding.file
            typer.echo(f"  {place}: {finding.message}")
        if len(found) < count:
            typer.echo(f"  … and {count - len(found):,} more")
    if not report.counts and report.documents:
        typer.echo("\nNothing is wrong with it.")
    for limit in report.limits:
        typer.echo(f"\nnote: {limit}")


def _size(count: int) -> str:
    """
    >>> _size(999), _size(12_345_678)
    ('999 bytes', '12.3 MB')
    """
    if count < 1000:
        return f"{count} bytes"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 1000 or unit == "TB":
            break
    return f"{value:.1f} {unit}"
