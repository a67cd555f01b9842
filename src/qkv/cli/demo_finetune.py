"""`qkv demo finetune`: a labelled file to a judged model, on the messages that qkv brings along."""

import shutil
from importlib import resources
from pathlib import Path

import typer

from qkv.cli.scores import print_result
from qkv.errors import InputError

MESSAGES = (
    "Any idea when my parcel turns up? It's been a week.",
    "I was charged twice for the same basket!!",
    "can't get into my account, the code never comes",
)
EPOCHS, RATE = 16.0, 2e-4
"""About a minute and a half of two quiet cores. So few messages take a larger step than the default."""


def examples_folder() -> Path:
    """Where the small data sets of this project lie."""
    return Path(str(resources.files("qkv"))) / "examples"


def demo_finetune(out: Path, weights: Path) -> None:
    from qkv.run.finetune import start
    from qkv.run.finetune_start import configured_for
    from qkv.run.load import load
    from qkv.train.progress import for_stderr

    run = out / "finetune"
    _clear(run)
    file = examples_folder() / "intents.en.csv"
    typer.echo(f"{file.name}: customers' messages in ten intents, written for qkv\n")
    given = {"data.train": str(file), "data.dev_share": 0.2, "epochs": EPOCHS, "train.lr": RATE}
    config = configured_for("classify", str(weights), "full", None, given)
    with for_stderr() as progress:
        done = start(config, run, progress)
    if not done.finished:
        typer.echo(f"Stopped and saved. Go on with: qkv finetune --resume {run}", err=True)
        raise typer.Exit(128 + (done.signal or 0))
    print_result(done.result)
    typer.echo("")
    model = load(run)
    for text, found in zip(MESSAGES, model.predict(MESSAGES), strict=True):
        typer.echo(f"{text}\n    {found.label} {found.probability:.0%}")
    typer.echo(f"\n{run / 'report.html'}: the whole story, to be handed on\n{run / 'model'}: the model")


def _clear(run: Path) -> None:
    """Make room where an earlier demonstration stood, and only there."""
    if not run.exists():
        return
    file = run / "config.toml"
    if not file.is_file() or "intents.en.csv" not in file.read_text(encoding="utf-8", errors="replace"):
        raise InputError(f"{run} holds something that is not the demonstration's. Give another folder with --out.")
    shutil.rmtree(run)
