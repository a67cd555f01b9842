"""`qkv predict`: predict with a fine-tuned model, for a few texts or millions."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import (
    DeviceOption,
    FormatOption,
    JsonOption,
    PairColumn,
    TextColumn,
    ThreadsOption,
    check_not_read,
    choose_device,
    drop_missing,
    suffix_of,
)
from qkv.errors import InputError

_WRITTEN = {".jsonl": "JSON lines", ".csv": "a table", ".tsv": "a table"}


def predict(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Fine-tuning run, or folder of a fine-tuned model.")],
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT|FILE", help="Texts, a file, or - for standard input.")
    ] = None,
    question: Annotated[
        str | None, typer.Option("--question", "-q", metavar="TEXT", help="answer and choice: the question.")
    ] = None,
    second: Annotated[
        str | None, typer.Option("--with", metavar="TEXT", help="Text pair classification: the second text.")
    ] = None,
    choices: Annotated[
        list[str] | None, typer.Option("--choice", metavar="TEXT", help="choice: a candidate answer; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write .jsonl, .csv or .tsv.")] = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    format: FormatOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict labels, entities, answers or choices, each with its probability.

    \b
    qkv predict run "Where is my parcel?" "我要退货"
    qkv predict run messages.txt --out answers.csv
    cat messages.txt | qkv predict run - --json
    qkv predict reader "雨是从云中落下的水滴。" -q "雨从哪里落下？"

    A file has one text per line (.txt), or is csv, tsv, jsonl, SQuAD …; results stream in the order of the file, in
    constant memory. --json prints one line of JSON per text. Texts above the maximum length are split into windows.
    """
    if not inputs:
        raise InputError('Give texts or a file: qkv predict RUN "a text"; or - to read standard input.')
    check_not_read(out, inputs)
    suffix = suffix_of(out, _WRITTEN) if out is not None else None
    from qkv.api.model import load
    from qkv.api.predict import ResultWriter, make_record, open_inputs
    from qkv.cli.terminal import ResultPrinter, print_json, progress, say

    model = load(run, device=choose_device(device), threads=threads)
    columns = drop_missing(text=text, pair=pair)
    source = open_inputs(
        model.solver.task,
        inputs,
        model.tokenizer,
        question=question,
        pair=second,
        choices=choices or (),
        columns=columns,
        format=format,
    )
    if out is not None:
        assert suffix is not None
        with (
            progress("texts", None) as advance,
            ResultWriter(out, suffix, model.solver.task.paired is not False) as written,
        ):
            for examples, results in model.answer_stream(source):
                written.add(examples, results)
                advance(len(results))
        say(f"{out}: {written.count:,} results")
    else:
        printed = ResultPrinter()
        for examples, results in model.answer_stream(source):
            for example, result in zip(examples, results, strict=True):
                if as_json:
                    print_json(make_record(example, result))
                else:
                    printed.show(example, result)
    left_out = [fault for fault in source.faults if fault.action == "dropped"]
    for fault in left_out[:20]:
        place = fault.place if fault.place.file else f"text {fault.place.line}"  # typed texts have a number, no file
        say(f"left out: {place}: {fault.message}")
    if len(left_out) > 20:
        say(f"… and {len(left_out) - 20:,} more were left out")
