"""What the verbs that train share on their command line: where a run goes, its settings, how it ends."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from qkv.run.finetune import Finished

TASKS = ("classify", "tag", "answer", "choice")

RunOption = Annotated[Path | None, typer.Option("--out", "-o", metavar="RUN", help="A new folder for the run.")]
RecipeOption = Annotated[
    Path | None, typer.Option("--recipe", metavar="FILE", help="Settings in TOML that differ from the defaults.")
]
TrainingDevice = Annotated[str | None, typer.Option("--device", metavar="NAME", help="cpu, cuda or cuda:0.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting; repeatable.")
]
ResumeOption = Annotated[
    Path | None, typer.Option("--resume", metavar="RUN", help="Go on with a run that was stopped.")
]

# of fine-tuning
TaskArgument = Annotated[
    str | None, typer.Argument(metavar="[classify|tag|answer|choice]", help="What is to be learned.")
]
PretrainedOption = Annotated[
    str,
    typer.Option("--model", "-m", envvar="QKV_MODEL", metavar="FOLDER", help="A pretrained model, or scratch:KIND."),
]
VectorsOption = Annotated[
    str | None,
    typer.Option("--embeddings", metavar="FOLDER|FILE", help="Of scratch: word vectors, or ELMo."),
]
TokenizerOption = Annotated[
    str | None,
    typer.Option("--tokenizer", metavar="FOLDER", help="Of scratch: a tokenizer; else that of the vectors."),
]
TrainOption = Annotated[str | None, typer.Option("--train", metavar="FILE", help="Labelled examples.")]
DevOption = Annotated[
    str | None, typer.Option("--dev", metavar="FILE", help="Examples to choose by; else held out of --train.")
]
TransferOption = Annotated[
    str | None, typer.Option("--transfer", metavar="WAY", help="full, top:K, freeze or features.")
]
EpochsOption = Annotated[float | None, typer.Option("--epochs", metavar="E", help="How often to read the file.")]
RateOption = Annotated[float | None, typer.Option("--lr", metavar="RATE", help="Largest learning rate.")]
KindOption = Annotated[
    str | None, typer.Option("--kind", metavar="KIND", help="Of classify: single, multi or regression.")
]


def refuse_beside_resume(*given: object) -> None:
    """A run that goes on has its settings: anything else on the line would be ignored."""
    if any(value not in (None, False) and value != {} for value in given):
        raise InputError("--resume goes on with the settings of the run; leave out everything else.")


def checked_task(
    verb: str, task: str | None, train: str | None, out: Path | None, kind: str | None
) -> tuple[str, Path]:
    """The task and the run's folder, once all that a new run needs was given."""
    if task not in TASKS:
        named = f"'{task}' is not a task.{did_you_mean(task, TASKS)} " if task else ""
        raise InputError(f"{named}Say what is to be learned: qkv {verb} {'|'.join(TASKS)} --train FILE --out RUN.")
    if train is None or out is None:
        raise InputError("Give the labelled file with --train and a new folder for the run with --out.")
    if kind is not None and task != "classify":
        raise InputError(f"--kind is for classify, not for {task}.")
    return task, out


def check_spelling(model: str) -> None:
    """Refuse a slip in scratch:KIND, which would be looked for as a folder.

    >>> check_spelling("scrach:lstm")
    Traceback (most recent call last):
    qkv.errors.InputError: There is no model 'scrach:lstm'. Did you mean 'scratch:lstm'?
    """
    before, colon, kind = model.partition(":")
    if colon and before != "scratch" and did_you_mean(before, ["scratch"]) and not Path(model).exists():
        raise InputError(f"There is no model '{model}'. Did you mean 'scratch:{kind}'?")


def tell(verb: str, finished: "Finished", as_json: bool, show: Callable[[dict[str, Any]], None], left: str) -> None:
    """What a run came to, or how to go on with it; `left` says what is in its folder, after the folder's name."""
    from qkv.cli.terminal import print_json, say

    run = finished.run
    if as_json:
        result = finished.result if finished.finished else None
        print_json({"run": str(run), "finished": finished.finished, "result": result})
    elif finished.finished:
        if finished.already:
            say(f"{run} is finished.")
        show(finished.result)
        say(left)
    else:
        say(f"Stopped and saved. Go on with: qkv {verb} --resume {run}")
    if finished.signal is not None:
        raise typer.Exit(128 + finished.signal)
