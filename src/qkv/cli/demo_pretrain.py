"""`qkv demo pretrain`: a BERT from nothing in about two minutes, on text that every Python brings along."""

import json
import shutil
from pathlib import Path

import typer

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
    from qkv.run.demo_corpus import write_corpus
    from qkv.run.load import load
    from qkv.run.pretrain import start
    from qkv.run.pretrain_config import PretrainConfig
    from qkv.tokenizer import Tokenizer
    from qkv.train.progress import for_stderr

    folder = out / "pretrain"
    corpus = folder / "corpus.txt"
    if folder.exists() and any(folder.iterdir()) and not corpus.exists():
        raise InputError(f"{folder} is not empty and not of an earlier demo. Give another folder with --out.")
    shutil.rmtree(folder, ignore_errors=True)
    documents = write_corpus(corpus)
    typer.echo(f"{corpus}: {documents} documents, Python's own documentation")
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
        start(config, run, progress)

    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    found = [(line["step"], line["evaluation"]) for line in lines if "evaluation" in line]
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
            for step, e in found
        ],
        right=range(4),
    )
    typer.echo(f"\nA model that knows only how frequent words are has a loss of {manifest['unigram_entropy']:.2f}.\n")
    model = load(run / "model")
    for text in BLANKS:
        best = ", ".join(f"{one.text} {one.probability:.0%}" for one in model.fill(text, k=4)[0].candidates)
        typer.echo(f"{text}\n    {best}")
    typer.echo(f"\n{run / 'model'}: the model\n{run / 'report.html'}: curves, fillings, remarks")
