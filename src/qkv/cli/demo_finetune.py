"""The last part of `qkv demo`: a labelled file to a judged model, on the messages that qkv brings along.

Both languages go into one file and one model; it learns the ten intents once, and is judged in each language by itself.
"""

import csv
import io
import json
import shutil
import tomllib
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import typer

from qkv.cli.scores import print_result
from qkv.errors import InputError

LANGUAGES = {"en": "English", "zh": "Chinese"}
SHOWN = 3
EPOCHS = 10.0
"""More would be a little better, and longer than anybody watches a demonstration."""


def examples_folder() -> Path:
    """Where the small data sets of this project lie."""
    return Path(str(resources.files("qkv"))) / "examples"


def demo_finetune(out: Path) -> None:
    from qkv.atomic import write_text
    from qkv.interop.zoo import DEFAULT_MODEL
    from qkv.run.finetune import start
    from qkv.run.finetune_start import configured_for
    from qkv.train.progress import for_stderr

    file, run = out / "intents.csv", out / "finetune"
    rows = _rows()
    text = _table(rows)
    _clear(file, run, text)
    given = {"data.train": str(file), "data.dev_share": 0.2, "epochs": EPOCHS}
    write_text(file, text)
    typer.echo(f"{file}: {len(rows)} customers' messages in ten intents, English and Chinese, written for qkv\n")
    with for_stderr() as progress:
        done = start(configured_for("classify", DEFAULT_MODEL, "full", None, given), run, progress)
    if not done.finished:
        typer.echo(f"Stopped and saved. Go on with: qkv finetune --resume {run}", err=True)
        raise typer.Exit(128 + (done.signal or 0))
    print_result(done.result)
    typer.echo("")
    answers = _answers(run, rows)
    for language, found in answers.items():
        right = sum(answer.right for answer in found)
        typer.echo(f"{LANGUAGES[language]}: {right} of {len(found)} right ({right / len(found):.0%})")
    typer.echo(
        "They say the same in many ways, so it is hard on purpose. More examples help, and models that have read more."
    )
    typer.echo("\nThe surest of these answers:\n")
    for found in answers.values():
        for answer in sorted(found, key=lambda answer: -answer.probability)[:SHOWN]:
            truth = "right" if answer.right else f"wrong: {answer.expected}"
            typer.echo(f"{answer.text}\n    {answer.label} {answer.probability:.0%}, {truth}")
    typer.echo(f"\n{run / 'report.html'}: the whole story, to be handed on\n{run / 'model'}: the model")


def _rows() -> list[tuple[str, str, str]]:
    """Language, text and label, the languages in turn."""
    found = []
    for language in LANGUAGES:
        with (examples_folder() / f"intents.{language}.csv").open(encoding="utf-8", newline="") as stream:
            found.append([(language, row["text"], row["label"]) for row in csv.DictReader(stream)])
    return [row for pair in zip(*found, strict=True) for row in pair]


def _table(rows: list[tuple[str, str, str]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([("text", "label"), *((text, label) for _, text, label in rows)])
    return text.getvalue()


class Answer(NamedTuple):
    text: str
    label: str
    probability: float
    expected: str
    right: bool


def _answers(run: Path, rows: list[tuple[str, str, str]]) -> dict[str, list[Answer]]:
    """What was said of the held-out messages, by language."""
    found: dict[str, list[Answer]] = {language: [] for language in LANGUAGES}
    for line in (run / "predictions.jsonl").read_text(encoding="utf-8").splitlines():
        said = json.loads(line)
        language, text, _ = rows[said["line"] - 2]  # lines count from 1, and the first holds the names
        found[language].append(Answer(text, said["label"], said["probability"], said["expected"], said["right"]))
    return {language: answers for language, answers in found.items() if answers}


def _clear(file: Path, run: Path, text: str) -> None:
    """Make room where an earlier demonstration stood, and only there."""
    others = run.exists() and not _is_ours(run / "config.toml", file)
    if others or (file.exists() and file.read_text(encoding="utf-8", errors="replace") != text):
        what = run if others else file
        raise InputError(f"{what} is not the demonstration's. Give another folder with --out.")
    shutil.rmtree(run, ignore_errors=True)


def _is_ours(config: Path, file: Path) -> bool:
    """Whether a run learned from the demonstration's own file and model, and not from anybody's who likes its names."""
    from qkv.interop import zoo

    try:
        settings = tomllib.loads(config.read_text(encoding="utf-8"))
        train, model = Path(settings["data"]["train"]), Path(settings["model"])
    except (OSError, ValueError, KeyError, TypeError):  # no run, or not a whole one
        return False
    return train.resolve() == file.resolve() and model.resolve() == (zoo.FOLDER / zoo.DEFAULT_MODEL).resolve()
