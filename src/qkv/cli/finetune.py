"""`qkv finetune`: a labelled file to a model you can trust."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import JsonOption, required_model
from qkv.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from qkv.run.finetune import Finished

TASKS = ("classify", "tag", "answer", "choice")

ColumnOption = Annotated[str | None, typer.Option("--text", metavar="COLUMN", help="Column of the text.")]
PairOption = Annotated[str | None, typer.Option("--pair", metavar="COLUMN", help="Column of the second text.")]
LabelOption = Annotated[str | None, typer.Option("--label", metavar="COLUMN", help="Column of the label.")]
GroupOption = Annotated[
    str | None, typer.Option("--group", metavar="COLUMN", help="Column that says what belongs together in a split.")
]
QuestionColumn = Annotated[str | None, typer.Option("--question", metavar="COLUMN", help="Column of the question.")]
ContextColumn = Annotated[str | None, typer.Option("--context", metavar="COLUMN", help="Column of the passage.")]
AnswerColumn = Annotated[str | None, typer.Option("--answer", metavar="COLUMN", help="Column of the answer.")]
ChoicesColumn = Annotated[str | None, typer.Option("--choices", metavar="COLUMN", help="Column of the choices.")]
FormatOption = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="csv, tsv, jsonl, conll, squad …; found out if left out.")
]
SeparatorOption = Annotated[
    str | None, typer.Option("--separator", metavar="TEXT", help="Between several labels in one cell.")
]


def finetune(
    task: Annotated[
        str | None, typer.Argument(metavar="[classify|tag|answer|choice]", help="What is to be learned.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", envvar="QKV_MODEL", metavar="FOLDER", help="The pretrained model."),
    ] = None,
    train: Annotated[str | None, typer.Option("--train", metavar="FILE", help="Labelled examples.")] = None,
    dev: Annotated[
        str | None, typer.Option("--dev", metavar="FILE", help="Examples to choose by; else held out of --train.")
    ] = None,
    test: Annotated[
        str | None, typer.Option("--test", metavar="FILE", help="Examples to judge by, once, at the end.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="RUN", help="A new folder for the run.")] = None,
    transfer: Annotated[
        str | None, typer.Option("--transfer", metavar="WAY", help="full (if left out), top:K, freeze or features.")
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", metavar="N", help="Train N times; mean ± std.")] = None,
    epochs: Annotated[float | None, typer.Option("--epochs", metavar="E", help="How often to read the file.")] = None,
    lr: Annotated[float | None, typer.Option("--lr", metavar="RATE", help="Largest learning rate.")] = None,
    class_weights: Annotated[
        str | None, typer.Option("--class-weights", metavar="none|auto", help="auto: rare classes weigh more.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Of classify: single, multi or regression.")
    ] = None,
    crf: Annotated[bool, typer.Option("--crf", help="Of tag: a conditional random field on top.")] = False,
    text: ColumnOption = None,
    pair: PairOption = None,
    label: LabelOption = None,
    group: GroupOption = None,
    question: QuestionColumn = None,
    context: ContextColumn = None,
    answer: AnswerColumn = None,
    choices: ChoicesColumn = None,
    format: FormatOption = None,
    separator: SeparatorOption = None,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", metavar="FILE", help="Settings in TOML that differ from the defaults.")
    ] = None,
    device: Annotated[str | None, typer.Option("--device", metavar="NAME", help="cpu, cuda or cuda:0.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting; repeatable.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Go on with a run that was stopped.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fine-tune a model on a labelled file: classes, entities, answers or choices.

    \b
    qkv finetune classify --model M --train intents.csv --out run
    qkv finetune tag --model M --train train.bio --dev dev.bio --out run --seeds 3
    qkv finetune answer --model M --train cmrc2018_train.json --out run
    qkv finetune classify --model M --train 评论.tsv --text 内容 --label 情感 --out run --transfer features
    qkv finetune --resume run

    \b
    --transfer full       everything learns (fine-tuning)
    --transfer top:2      the last two layers and the head learn
    --transfer freeze     the head learns, the encoder stays
    --transfer features   the encoder is run once; the head learns from its vectors: the cheapest way

    \b
    RUN/model        the model with labels and calibration: qkv predict, transformers, …
    RUN/report.html  scores, confusion, calibration, the hardest examples: to be handed on
    RUN/config.toml  every setting; these are the keys of --set
    RUN/faults.jsonl examples that were dropped or mended, with their lines

    Look through a file first: qkv check FILE. Ctrl-C saves and stops; --resume goes on, and ends as if never stopped.
    --json prints one document: run, finished, result.
    """
    from qkv.train.progress import for_stderr

    given: dict[str, Any] = {
        "data.train": train,
        "data.dev": dev,
        "data.test": test,
        "data.format": format,
        "data.separator": separator,
        "data.columns.text": text,
        "data.columns.pair": pair,
        "data.columns.label": label,
        "data.columns.group": group,
        "data.columns.question": question,
        "data.columns.context": context,
        "data.columns.answer": answer,
        "data.columns.choices": choices,
        "seeds": seeds,
        "epochs": epochs,
        "train.lr": lr,
        "class_weights": class_weights,
        "classify.kind": kind,
        "device": device,
    }
    flags = {key: value for key, value in given.items() if value is not None}
    if resume is not None:
        if task or flags or out or recipe or settings or transfer or crf:
            raise InputError("--resume goes on with the settings of the run; leave out everything else.")
        from qkv.run.finetune import resume as go_on

        with for_stderr() as progress:
            finished = go_on(resume, progress)
        return _tell(finished, as_json)
    if task not in TASKS:
        named = f"'{task}' is not a task.{did_you_mean(task, TASKS)} " if task else ""
        raise InputError(f"{named}Say what is to be learned: qkv finetune {'|'.join(TASKS)} --train FILE --out RUN.")
    if train is None or out is None:
        raise InputError("Give the labelled file with --train and a new folder for the run with --out.")
    if crf:
        if task != "tag":
            raise InputError(f"--crf is for tag, not for {task}.")
        flags["tag.crf"] = True
    if kind is not None and task != "classify":
        raise InputError(f"--kind is for classify, not for {task}.")
    folder = required_model(model)
    from qkv.run.finetune import start
    from qkv.run.finetune_start import configured_for

    with for_stderr() as progress:
        config = configured_for(task, folder, transfer, recipe, flags, settings or [])
        finished = start(config, out, progress)
    return _tell(finished, as_json)


def _tell(finished: "Finished", as_json: bool) -> None:
    from qkv.cli.scores import print_result
    from qkv.cli.terminal import print_json, say

    run = finished.run
    if as_json:
        result = finished.result if finished.finished else None
        print_json({"run": str(run), "finished": finished.finished, "result": result})
    elif finished.finished:
        if finished.already:
            say(f"{run} is finished.")
        print_result(finished.result)
        say(f"\n{run / 'model'}: the model, for qkv and transformers\n{run / 'report.html'}: the whole story")
    else:
        say(f"Stopped and saved. Go on with: qkv finetune --resume {run}")
    if finished.signal is not None:
        raise typer.Exit(128 + finished.signal)
