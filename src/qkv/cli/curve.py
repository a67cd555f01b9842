"""`qkv curve`: how many more labels would help."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.finetune import (
    TASKS,
    ColumnOption,
    FormatOption,
    GroupOption,
    LabelOption,
    PairOption,
    SeparatorOption,
)
from qkv.cli.options import JsonOption, required_model
from qkv.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from qkv.run.finetune import Finished


def curve(
    task: Annotated[
        str | None, typer.Argument(metavar="[classify|tag|answer|choice]", help="What is to be learned.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", envvar="QKV_MODEL", metavar="FOLDER", help="The pretrained model."),
    ] = None,
    train: Annotated[str | None, typer.Option("--train", metavar="FILE", help="Labelled examples.")] = None,
    dev: Annotated[
        str | None, typer.Option("--dev", metavar="FILE", help="Examples to judge by; else held out of --train.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="RUN", help="A new folder for the run.")] = None,
    shares: Annotated[
        str | None,
        typer.Option("--shares", metavar="LIST", help="Of the examples to train on; 0.1,0.2,0.4,0.7,1 if left out."),
    ] = None,
    draws: Annotated[int | None, typer.Option("--draws", metavar="N", help="Trainings of each share; 3.")] = None,
    transfer: Annotated[
        str | None, typer.Option("--transfer", metavar="WAY", help="full (if left out), top:K, freeze or features.")
    ] = None,
    epochs: Annotated[float | None, typer.Option("--epochs", metavar="E", help="How often to read the file.")] = None,
    lr: Annotated[float | None, typer.Option("--lr", metavar="RATE", help="Largest learning rate.")] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Of classify: single, multi or regression.")
    ] = None,
    text: ColumnOption = None,
    pair: PairOption = None,
    label: LabelOption = None,
    group: GroupOption = None,
    format: FormatOption = None,
    separator: SeparatorOption = None,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", metavar="FILE", help="Settings in TOML that differ from the defaults.")
    ] = None,
    device: Annotated[str | None, typer.Option("--device", metavar="NAME", help="cpu, cuda or cuda:0.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As in qkv finetune; repeatable.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Go on with a run that was stopped.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train on growing shares of a labelled file, and say what more labels would bring, or that nobody can tell.

    \b
    qkv curve classify --model M --train intents.csv --out curve --transfer features
    qkv curve tag --model M --train train.bio --dev dev.bio --out curve --shares 0.05,0.2,0.5,1 --draws 5
    qkv curve --resume curve

    The same examples are held out for all points. --transfer features runs the encoder once for the whole curve, which
    makes it a matter of minutes; the other ways train the model anew for every share and draw.

    \b
    RUN/report.html   the curve, what to expect of 2, 4 and 10 times as many labels, and how sure that is
    RUN/points.jsonl  every training: n, draw, score
    RUN/result.json   the same as --json prints under "result"

    Ctrl-C saves and stops; --resume goes on and trains no point again. --json prints one document: run, finished,
    result.
    """
    from qkv.train.progress import for_stderr

    given: dict[str, Any] = {
        "data.train": train,
        "data.dev": dev,
        "data.format": format,
        "data.separator": separator,
        "data.columns.text": text,
        "data.columns.pair": pair,
        "data.columns.label": label,
        "data.columns.group": group,
        "epochs": epochs,
        "train.lr": lr,
        "classify.kind": kind,
        "device": device,
    }
    flags = {key: value for key, value in given.items() if value is not None}
    if resume is not None:
        if task or flags or out or shares or draws is not None or recipe or settings or transfer:
            raise InputError("--resume goes on with the settings of the run; leave out everything else.")
        from qkv.run.curve import resume as go_on

        with for_stderr() as progress:
            finished = go_on(resume, progress)
        return _tell(finished, as_json)
    if task not in TASKS:
        named = f"'{task}' is not a task.{did_you_mean(task, TASKS)} " if task else ""
        raise InputError(f"{named}Say what is to be learned: qkv curve {'|'.join(TASKS)} --train FILE --out RUN.")
    if train is None or out is None:
        raise InputError("Give the labelled file with --train and a new folder for the run with --out.")
    if kind is not None and task != "classify":
        raise InputError(f"--kind is for classify, not for {task}.")
    wanted: dict[str, Any] = {} if shares is None else {"shares": _shares(shares)}
    if draws is not None:
        wanted["draws"] = draws
    folder = required_model(model)
    from qkv.run.curve import start
    from qkv.run.curve_points import CurveConfig
    from qkv.run.finetune_start import configured_for

    with for_stderr() as progress:
        config = CurveConfig(**wanted, finetune=configured_for(task, folder, transfer, recipe, flags, settings or []))
        finished = start(config, out, progress)
    return _tell(finished, as_json)


def _shares(words: str) -> tuple[float, ...]:
    try:
        return tuple(sorted({float(word) for word in words.split(",")}))
    except ValueError:
        raise InputError(f"--shares '{words}': write shares with commas between them, such as 0.1,0.3,1.") from None


def _tell(finished: "Finished", as_json: bool) -> None:
    from qkv.cli.terminal import print_json, say

    run = finished.run
    if as_json:
        result = finished.result if finished.finished else None
        print_json({"run": str(run), "finished": finished.finished, "result": result})
    elif finished.finished:
        if finished.already:
            say(f"{run} is finished.")
        _print(finished.result)
        say(f"\n{run / 'report.html'}: the curve")
    else:
        say(f"Stopped and saved. Go on with: qkv curve --resume {run}")
    if finished.signal is not None:
        raise typer.Exit(128 + finished.signal)


def _print(result: dict[str, Any]) -> None:
    from qkv.cli.scores import NAMES
    from qkv.cli.terminal import bar, table

    main = NAMES.get(result["main"], result["main"].replace("_", " "))
    rows: list[tuple[object, ...]] = []
    for point in result["points"]:
        spread = "" if point["deviation"] is None else f" ± {point['deviation']:.4f}"
        rows.append((f"{point['n']:,}", f"{point['mean']:.4f}{spread}", bar(point["mean"])))
    for one in result["fit"]["predictions"]:
        between = f"{one['score']:.4f} ({one['low']:.4f} – {one['high']:.4f})"
        rows.append((f"{one['n']:,}, expected", between, bar(one["score"])))
    table(["examples", main, ""], rows)
    if result["verdict"]:
        typer.echo(f"\n{result['verdict']['en']}".replace("\u00a0", " "))
