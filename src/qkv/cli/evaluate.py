"""`qkv evaluate`: a fine-tuned model held against labelled examples."""

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
from qkv.cli.options import DeviceOption, JsonOption, ThreadsOption


def evaluate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A fine-tuning run, or a fine-tuned model folder.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="Labelled examples.")],
    against: Annotated[
        str | None, typer.Option("--against", metavar="RUN", help="Another model on the same file: is one better?")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write every example and answer, as .jsonl.")
    ] = None,
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

    --against adds the difference of the main score, its interval and how easily chance would bring it (paired
    bootstrap). --json prints one document: file, examples, scores, intervals, labels, windowed, dropped, …
    """
    from qkv.cli.scores import print_scores
    from qkv.cli.terminal import print_json, progress
    from qkv.run.evaluate_file import evaluate_file

    columns = given(
        text=text, pair=pair, label=label, question=question, context=context, answer=answer, choices=choices
    )
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
