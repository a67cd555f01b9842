"""`qkv evaluate`: a fine-tuned model held against labelled examples; evaluate_pairs.py has those that translate."""

from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.cli.columns import (
    AnswerColumn,
    ChoicesColumn,
    ContextColumn,
    FormatOption,
    LabelColumn,
    PairColumn,
    QuestionColumn,
    SeparatorOption,
    TextColumn,
    given,
)
from qkv.cli.evaluate_pairs import (
    ColumnsOption,
    DecodingOption,
    PairsOption,
    TargetOption,
    evaluate_translations,
    files_of,
)
from qkv.cli.options import DeviceOption, JsonOption, ThreadsOption, check_not_read
from qkv.errors import InputError


def evaluate(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run or model folder: fine-tuned, or one that translates.")
    ],
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="Labelled examples, or pairs of texts.")] = None,
    pairs: PairsOption = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="RUN", help="Another model on the same file: is one better?")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write every example and answer, as .jsonl.")
    ] = None,
    pair_columns: ColumnsOption = None,
    language: TargetOption = None,
    decoding: DecodingOption = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    question: QuestionColumn = None,
    context: ContextColumn = None,
    answer: AnswerColumn = None,
    choices: ChoicesColumn = None,
    format: FormatOption = None,
    separator: SeparatorOption = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score a fine-tuned model on a labelled file, with 95 % intervals; memory does not grow with the file.

    \b
    qkv evaluate run test.tsv
    qkv evaluate run test.tsv --out answers.jsonl
    qkv evaluate run test.tsv --against other-run

    A model that translates takes pairs, in two files or one (tsv, jsonl), and gets BLEU and chrF with their signatures:

    \b
    qkv evaluate run --pairs test.de test.en
    qkv evaluate run --pairs test.de test.en --decoding beams=1 --out translations.jsonl

    --against adds the difference of the main score, its interval and how easily chance would bring it (paired
    bootstrap). --json prints one document: file, examples, scores, intervals, labels, windowed, dropped, …; of pairs
    files, scores (bleu, chrf, their signatures and intervals, exact, by_length), not_translated, unknown, dropped, …
    """
    from qkv.cli.scores import print_scores
    from qkv.cli.terminal import print_json, progress
    from qkv.run.evaluate_file import evaluate_file
    from qkv.run.places import device_named

    check_not_read(out, [file, *(pairs or ())])
    device_named(device)  # a device that is not there is told before anything is looked for
    columns = given(
        text=text, pair=pair, label=label, question=question, context=context, answer=answer, choices=choices
    )
    if pairs or _translates(run):
        labelled = [f"--{name}" for name in (*columns, *given(format=format, separator=separator))]
        files = files_of(file, pairs, labelled)
        if files:
            evaluate_translations(run, files, pair_columns, language, decoding, against, out, device, threads, as_json)
            return
        raise InputError(f"Give pairs to hold {run} against: qkv evaluate {run} --pairs SOURCE REFERENCE.")
    if file is None:
        raise InputError(f"Give labelled examples to hold {run} against: qkv evaluate {run} FILE.")
    for option, value in (("--columns", pair_columns), ("--language", language), ("--decoding", decoding)):
        if value:
            raise InputError(f"{option} is for models that translate, and {run} is none: leave it out.")
    with progress("examples", None) as advance:
        found = evaluate_file(
            run,
            file,
            against=against,
            out=out,
            columns=columns,
            format=format,
            separator=separator,
            device=device,
            threads=threads,
            progress=advance,
        )
    if as_json:
        print_json(found)
        return
    print_scores(Path(file).name, found["scores"])
    for line in _remarks(found):
        typer.echo(line)


def _translates(run: str) -> bool:
    from qkv.run.translate import translates

    return translates(run)


def _remarks(found: dict[str, Any]) -> list[str]:
    lines = []
    if found["is_training_file"]:
        lines.append("\nnote: this is the file the model was trained on: these figures are too good")
    if found["windowed"]:
        windows = found["most_windows"]
        lines.append(f"\n{found['windowed']:,} texts were longer than the model: read in up to {windows} windows")
    if found["dropped"] or found["mended"]:
        lines.append(f"examples dropped: {found['dropped']:,}, mended: {found['mended']:,}")
        lines += [f"  {fault}" for fault in found["faults"][:5]]
    if other := found["against"]:
        lines.append(f"\nagainst {other['run']}: {_difference(other)}")
    return lines


def _difference(other: dict[str, Any]) -> str:
    if other["difference"] is None:
        return f"the {other['figure']} of one of the two cannot be said: all its answers are alike, or all labels are"
    verdict = "chance would bring this easily" if other["p"] > 0.05 else "this is hardly chance"
    return (
        f"{other['figure']} {other['value']:.4f}; difference {other['difference']:+.4f} "
        f"({other['low']:+.4f} – {other['high']:+.4f}), p = {other['p']:.3f}: {verdict}"
    )
