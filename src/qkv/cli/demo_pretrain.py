"""`qkv demo pretrain`: a BERT from nothing in about two minutes, on text that every Python brings along."""

import json
import shutil
from pathlib import Path

import typer

from qkv.atomic import write_text
from qkv.errors import InputError

BLANKS = (
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
    """The whole path, each stage a file that can be looked at: corpus, tokenizer, shards, run."""
    from qkv.cli.terminal import fraction, table
    from qkv.config import merge
    from qkv.data.prepare import prepare
    from qkv.data.readers import texts
    from qkv.run.demo_corpus import documents
    from qkv.run.load import load
    from qkv.run.pretrain import start
    from qkv.run.pretrain_config import PretrainConfig
    from qkv.tokenizer import Tokenizer
    from qkv.train.progress import for_stderr

    folder = out / "pretrain"
    corpus = folder / "corpus.txt"
    found = list(documents())
    text = "".join("\n".join(paragraphs) + "\n\n" for paragraphs in found)
    _clear(folder, text)
    write_text(corpus, text)
    typer.echo(f"{corpus}: {len(found)} documents, Python's own documentation")
    tokenizer = Tokenizer.train(texts(corpus), vocabulary_size=4000)
    tokenizer.save(folder / "tokenizer")
    typer.echo(f"{folder / 'tokenizer'}: {tokenizer.size:,} tokens")
    with fraction("preparing") as moved:
        manifest = prepare(
            [corpus], tokenizer, folder / "shards", hold_out=0.05, progress=lambda now: moved(now.share, "")
        )
    typer.echo(f"{folder / 'shards'}: {manifest['totals']['tokens']:,} tokens; sample.txt shows some")

    run = folder / "run"
    config = merge(PretrainConfig(data=str(folder / "shards")), RECIPE, "demo")
    config = merge(config, {"train": {"minutes": minutes, "evaluate_every": 100}}, "demo")
    with for_stderr() as progress:
        outcome = start(config, run, progress).outcome
    if not outcome.finished:
        typer.echo(f"Stopped and saved at step {outcome.step:,}. Go on with: qkv pretrain --resume {run}", err=True)
        raise typer.Exit(128 + (outcome.signal or 0))

    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    evaluations = [(line["step"], line["evaluation"]) for line in lines if "evaluation" in line]
    typer.echo("\nOn documents it was not trained on:\n")
    table(
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
    typer.echo(f"\nA model that knows only how frequent words are has a loss of {manifest['unigram_entropy']:.2f}.\n")
    model = load(run / "model")
    for text in BLANKS:
        best = ", ".join(f"{one.text} {one.probability:.0%}" for one in model.fill(text, k=4)[0].candidates)
        typer.echo(f"{text}\n    {best}")
    typer.echo(f"\n{run / 'model'}: the model\n{run / 'report.html'}: curves, fillings, remarks")


def _clear(folder: Path, text: str) -> None:
    """Make room where an earlier demonstration stood, and only there: nobody's own corpus or run is removed."""
    if not folder.exists():
        return
    ours = {"corpus.txt", "tokenizer", "shards", "run"}
    corpus = folder / "corpus.txt"
    others = {one.name for one in folder.iterdir()} - ours
    if others or (corpus.exists() and corpus.read_text(encoding="utf-8", errors="replace") != text):
        what = sorted(others)[0] if others else "another corpus"
        raise InputError(f"{folder} holds {what}, which is not the demonstration's. Give another folder with --out.")
    for name in ours:
        shutil.rmtree(folder / name, ignore_errors=True)
    corpus.unlink(missing_ok=True)
