"""`qkv evaluate RUN --pairs …`: a model that translates held against translations that people made."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.train import two_of
from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.generate.options import GenerateConfig
    from qkv.run.translate import Translator

PairsOption = Annotated[
    list[str] | None,
    typer.Option("--pairs", metavar="FILE [FILE]", help="Of a model that translates: source and reference."),
]
ColumnsOption = Annotated[
    str | None, typer.Option("--columns", metavar="A,B", help="Of source and reference in one file of pairs.")
]
TargetOption = Annotated[
    str | None, typer.Option("--language", metavar="CODE", help="Of the references, if the model does not say: zh.")
]
DecodingOption = Annotated[
    list[str] | None, typer.Option("--decoding", metavar="KEY=VALUE", help="As in qkv translate: beams=1; repeatable.")
]


def evaluate_translations(
    run: str,
    pairs: list[str],
    columns: str | None,
    language: str | None,
    decoding: list[str] | None,
    against: str | None,
    out: Path | None,
    device: str,
    threads: int | None,
    as_json: bool,
) -> None:
    from qkv.cli.options import suffix_of
    from qkv.cli.terminal import print_json, progress
    from qkv.cli.translate import assigned, decoding_of
    from qkv.run.evaluate_pairs import evaluate_pairs

    if out is not None:
        suffix_of(out, {".jsonl": "a line a pair"})
    wanted = assigned(decoding or [])

    def way(translator: "Translator") -> "GenerateConfig":
        return decoding_of(translator, wanted)

    with progress("texts", None) as advance:
        found = evaluate_pairs(
            run,
            pairs,
            columns=() if columns is None else two_of(columns, ",", "--columns"),
            language=language,
            decoding=way,
            against=against,
            out=out,
            device=device,
            threads=threads,
            progress=advance,
        )
    if as_json:
        print_json(found)
        return
    for line in _lines(found):
        typer.echo(line)
    if out is not None:
        from qkv.cli.terminal import say

        say(f"{out}: {found['scores']['pairs']:,} pairs, a line each")


def _lines(found: dict[str, Any]) -> list[str]:
    from qkv.cli.translate import unknown_to_the_model
    from qkv.tasks.translate import summary

    score = found["scores"]
    lines = [f"{' and '.join(Path(one).name for one in found['files'])}, {score['pairs']:,} pairs:"]
    lines += [f"  {line}" for line in summary(score)]
    if "bleu" not in score:
        lines.append("  BLEU and chrF are counted by sacrebleu, which is not installed: pip install 'qkv[translate]'")
    if found["is_training_file"]:
        lines.append("note: this is a file the model was trained on: these figures are too good")
    if found["dropped"]:
        lines.append(f"pairs with an empty side, which do not count: {found['dropped']:,}")
    if found["not_translated"]:
        lines.append(
            f"sources that are too long for the model, or of which no token comes: {found['not_translated']:,}; they "
            "count as translated with nothing"
        )
    lines += [f"  {fault}" for fault in found["faults"][:5]]
    if found["unknown"]["pieces"]:
        words = Counter(found["unknown"]["most_frequent"])
        unknown = found["unknown"]
        lines.append(f"note: {unknown_to_the_model(words, unknown['texts'], unknown['pieces'])}")
    if other := found["against"]:
        verdict = "chance would bring this easily" if other["p"] > 0.05 else "this is hardly chance"
        lines.append(
            f"against {other['run']}: {other['figure']} {other['value']:.4g}; difference {other['difference']:+.4g} "
            f"({other['low']:+.4g} to {other['high']:+.4g}), p = {other['p']:.3f}: {verdict}"
        )
    return lines


def files_of(file: str | None, pairs: list[str] | None, labelled: list[str]) -> list[str]:
    """The pairs, however they were given; options that are for labelled files have nothing to do with them."""
    if file is not None and pairs:
        raise InputError(f"{file} and --pairs {' '.join(pairs)} were given. A model that translates takes --pairs.")
    if labelled:
        raise InputError(f"{', '.join(labelled)}: for labelled files. Columns of pairs are named by --columns A,B.")
    return pairs or ([file] if file is not None else [])
