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

import typer

from qkv.cli.scores import print_result
from qkv.errors import InputError

LANGUAGES = {"en": "English", "zh": "Chinese"}
MESSAGES = (
    "Any idea when my parcel turns up? It's been a week.",
    "I was charged twice for the same basket!!",
    "买的鞋子小了一码，能换吗？",
    "验证码一直收不到，登不上去",
)
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
    from qkv.run.load import load
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
    for language, (right, of) in _by_language(run, [language for language, _, _ in rows]).items():
        typer.echo(f"{LANGUAGES[language]}: {right} of {of} right ({right / of:.0%})")
    typer.echo("")
    for message, found in zip(MESSAGES, load(run).predict(MESSAGES), strict=True):
        typer.echo(f"{message}\n    {found.label} {found.probability:.0%}")
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


def _by_language(run: Path, languages: list[str]) -> dict[str, tuple[int, int]]:
    """How many of the held-out messages were answered right, and how many there are."""
    found = dict.fromkeys(LANGUAGES, (0, 0))
    for line in (run / "predictions.jsonl").read_text(encoding="utf-8").splitlines():
        answer = json.loads(line)
        language = languages[answer["line"] - 2]  # lines count from 1, and the first holds the names
        right, of = found[language]
        found[language] = (right + answer["right"], of + 1)
    return {language: (right, of) for language, (right, of) in found.items() if of}


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
