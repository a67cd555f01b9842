"""The first result: qkv's defaults beside tf-idf and sentence vectors with a logistic regression, on labelled files.

    python bench/first_result.py train.tsv --sizes 100,400 --draws 3 --transfer features
    python bench/first_result.py train.tsv --test test.tsv --model FOLDER --json found.json

A draw takes so many random training examples and, without --test, up to 1,000 others to evaluate on. qkv holds out its
own tenth of the examples; the others train on all of them. Columns, all by accuracy:

    qkv          qkv.Classifier(model, transfer) with its defaults
    tf-idf       qkv's own baseline (tasks/baselines.py)
    tf-idf*      TfidfVectorizer (words and pairs; 汉字: 1 to 3 characters), LogisticRegression(C=10)
    vectors*     qkv.load(model).embed, LogisticRegression(C=10)

Those with a star need scikit-learn and are left out without it.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import qkv
from qkv.data.labelled.examples import TextExample
from qkv.data.labelled.reader import labelled
from qkv.models.folders.hub import DEFAULT_MODEL
from qkv.tasks.baselines import TextBaseline
from qkv.tasks.classify import SingleLabel, sort_labels
from qkv.tasks.texts import BEFORE_POOLING

MOST_TEST = 1_000
Part = Sequence[TextExample]
Side = Callable[[Part, Part], list[str]]


def qkv_defaults(model: str, transfer: str | None) -> Side:
    def answers(train: Part, test: Part) -> list[str]:
        classifier = qkv.Classifier(model, transfer=transfer)
        classifier.fit(_inputs(train), [str(one.label) for one in train])
        return list(map(str, classifier.predict(_inputs(test))))

    return answers


def own_tf_idf(train: Part, test: Part) -> list[str]:
    labels = sort_labels(dict.fromkeys((str(one.label) for one in train), 1))
    task = SingleLabel(labels, BEFORE_POOLING, train[0].pair is not None)
    return [one.label for one in TextBaseline.fit(task, train).answer(test)]


def peer_tf_idf(train: Part, test: Part) -> list[str]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    texts = [_joined(one) for one in train]
    chinese = sum("\u4e00" <= letter <= "\u9fff" for text in texts for letter in text)
    by_character = chinese > sum(map(len, texts)) / 2
    form: dict[str, Any] = {"analyzer": "char", "ngram_range": (1, 3)} if by_character else {"ngram_range": (1, 2)}
    terms = TfidfVectorizer(**form)
    fitted = LogisticRegression(C=10, max_iter=1_000).fit(terms.fit_transform(texts), [one.label for one in train])
    return list(fitted.predict(terms.transform([_joined(one) for one in test])))


def peer_vectors(model: str) -> Side:
    loaded = qkv.load(model)

    def answers(train: Part, test: Part) -> list[str]:
        from sklearn.linear_model import LogisticRegression

        first, second = (loaded.embed([_joined(one) for one in part]).vectors for part in (train, test))
        fitted = LogisticRegression(C=10, max_iter=1_000).fit(first, [one.label for one in train])
        return list(fitted.predict(second))

    return answers


def _inputs(part: Part) -> list[Any]:
    return [one.text if one.pair is None else (one.text, one.pair) for one in part]


def _joined(example: TextExample) -> str:
    return example.text if example.pair is None else f"{example.text} {example.pair}"


def read_examples(file: str) -> list[TextExample]:
    found = [one for one in labelled(file, "classify") if isinstance(one, TextExample)]
    return [one for one in found if isinstance(one.label, str)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", nargs="+", help="labelled files, one label per text")
    parser.add_argument("--test", help="evaluate on this file instead of on the rest of each training file")
    parser.add_argument("--sizes", default="100,400")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--model", default=str(DEFAULT_MODEL))
    parser.add_argument("--transfer", help="of qkv; default: its own")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    sides: dict[str, Side] = {"qkv": qkv_defaults(given.model, given.transfer), "tf-idf": own_tf_idf}
    if find_spec("sklearn"):
        sides |= {"tf-idf*": peer_tf_idf, "vectors*": peer_vectors(given.model)}
    found = []
    for file in given.train:
        examples = read_examples(file)
        for size in map(int, given.sizes.split(",")):
            if size >= len(examples) and given.test is None:
                print(f"{file} has {len(examples)} examples: {size} are too many", file=sys.stderr)
                continue
            found.append(measure(file, examples, size, sides, given))
    if given.json:
        given.json.write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")


def measure(file: str, examples: Part, size: int, sides: dict[str, Side], given: argparse.Namespace) -> dict[str, Any]:
    scores: dict[str, list[float]] = {name: [] for name in sides}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for draw in range(given.draws):
        order = np.random.default_rng(draw).permutation(len(examples))
        train = [examples[number] for number in order[:size]]
        rest = read_examples(given.test) if given.test else [examples[n] for n in order[size:]]
        test = rest[:MOST_TEST]
        for name, side in sides.items():
            began = time.perf_counter()
            answers = side(train, test)
            seconds[name].append(time.perf_counter() - began)
            scores[name].append(statistics.fmean(a == b.label for a, b in zip(answers, test, strict=True)))
    medians = {name: statistics.median(values) for name, values in scores.items()}
    times = {name: statistics.median(values) for name, values in seconds.items()}
    line = "  ".join(f"{name} {value:.3f} ({times[name]:.1f} s)" for name, value in medians.items())
    print(f"{Path(file).parent.name}/{Path(file).name}  {size:>5}  {line}", flush=True)
    return {"file": file, "size": size, "scores": scores, "seconds": seconds}


if __name__ == "__main__":
    main()
