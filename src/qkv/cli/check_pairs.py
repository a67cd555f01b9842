"""`qkv check --pairs …`: pairs of texts before a model that translates is trained on them."""

from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import load_tokenizer
from qkv.cli.train import two_of
from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.data.check_lengths import Lengths
    from qkv.data.pair_check import PairReport
    from qkv.data.pair_languages import Languages

PairsOption = Annotated[
    list[str] | None, typer.Option("--pairs", metavar="FILE [FILE]", help="Pairs to train a translation on.")
]
DevOption = Annotated[list[str] | None, typer.Option("--dev", metavar="FILE [FILE]", help="Pairs to choose by.")]
TestOption = Annotated[list[str] | None, typer.Option("--test", metavar="FILE [FILE]", help="Pairs to judge by.")]
MoreOption = Annotated[
    list[str] | None, typer.Option("--more", metavar="FILE …", help="Further pairs to train on, both in a file.")
]
ColumnsOption = Annotated[
    str | None, typer.Option("--columns", metavar="A,B", help="Of source and target in a file of pairs.")
]


def check_pair_files(
    given: dict[str, list[str]], columns: str | None, model: str | None, named: int, as_json: bool
) -> None:
    """`given`: files by the option that named them, train, more, dev, test."""
    from qkv.cli.terminal import fraction, print_json
    from qkv.data.pair_check import check_pairs
    from qkv.data.pair_files import PairFiles

    names = () if columns is None else two_of(columns, ",", "--columns")
    # of --more every file has both sides; of the others, two files are one set of pairs
    sets = {part: [[one] for one in files] if part == "more" else [files] for part, files in given.items()}
    if names and all(len(files) == 2 for found in sets.values() for files in found):
        raise InputError(
            f"--columns are {' and '.join(names)}, and no file has both sides: of two files each is one. Leave the "
            "columns out."
        )
    parts = {
        part: [PairFiles.of(files, names if len(files) == 1 else ()) for files in found] for part, found in sets.items()
    }
    languages, limit = _limits(model)
    with fraction("checking") as moved:
        report = check_pairs(parts, languages=languages, max_length=limit, named=named, progress=moved)
    if as_json:
        print_json(report.to_dict())
    else:
        print_pairs(report)


def _limits(model: str | None) -> "tuple[Languages | None, int]":
    """The tokenizers of a model that translates and its longest text; of another model, its own for both sides; of a
    tokenizer alone, what is usual."""
    from pathlib import Path

    from qkv.data.pair_languages import Languages
    from qkv.run.translate import load_translator, translates
    from qkv.run.translate_config import TranslateConfig

    usual = TranslateConfig().max_length
    if model is None:
        return None, usual
    if not Path(model).expanduser().is_file() and translates(model):
        translator = load_translator(model)
        return translator.languages, translator.max_length
    tokenizer, limit = load_tokenizer(model)
    return Languages.of(tokenizer, tokenizer), limit or usual


def print_pairs(report: "PairReport") -> None:
    from qkv.cli.terminal import print_findings, table
    from qkv.data.pair_check import KINDS

    rows = [("pairs to train on", f"{report.pairs:,}")]
    for facts in report.files:
        left = f", {facts.dropped:,} left out" if facts.dropped else ""
        rows.append((facts.name, f"{facts.part}: {facts.pairs:,} pairs{left}"))
    for unit, by_side in (("characters", report.characters), ("tokens", report.tokens)):
        rows += [(f"{unit}, {side}", _said(found)) for side, found in by_side.items() if found is not None]
    if report.ratio is not None:
        rows.append(("length", f"{report.ratio:.2f} characters of the translation for one of the source (median)"))
    if report.several:
        rows.append(("several translations", f"{report.several:,} pairs give another one of a source that was there"))
    table(["", ""], rows)
    print_findings(report.counts, report.findings, KINDS)
    if report.sound:
        typer.echo("\nNothing is wrong with them.")
    for note in report.notes:
        typer.echo(f"\nnote: {note}")


def _said(lengths: "Lengths") -> str:
    said = f"median {lengths.median:,}, 90 % up to {lengths.p90:,}, 99 % up to {lengths.p99:,}"
    said += f", longest {lengths.longest:,}"
    return said if lengths.limit is None else f"{said}; {lengths.over:,} above {lengths.limit:,}"
