"""word2vec: qkv beside gensim, same words, same sentences, same settings, two threads each, speed and quality.

    python bench/word2vec.py                            # 12 M words of English Wikipedia, 3 epochs; about 15 minutes
    python bench/word2vec.py --words 2 --epochs 1 --seeds 1 --only qkv "gensim file"
    python bench/word2vec.py --language zh              # Chinese Wikipedia, in words as rjieba cuts them
    python bench/word2vec.py --shards shards --architecture cbow --width 128 --window 8 --negatives 25 --subsample 1e-4
                                                        # a prepared text of both languages, as qkv-words was trained

    gensim queue   sentences from a list, through its job queue
    gensim file    its file mode, in which every thread reads for itself
    qkv            the numba kernel, negatives shared by a window
    qkv torch      the path without numba

Each runs in a process of its own; reading the vocabulary and compiling are not counted. Words are those of the text,
before frequent ones are thinned out. Where others use the machine too, words a CPU second is the fairer measure.
Analogies are Google's or CA8's and similarities WS-353's or 297's, over the words that the common vocabulary has; with
several seeds the spread is beside the mean, with one the 95 % interval over the questions (Wilson's, bootstrap).
`memory` is the peak of the process while it trains, above what it had before.
"""

import argparse
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from qkv.api.vector_scores import Analogies, read_test, score_analogies, score_pairs
from qkv.config import Requested
from qkv.data.corpus.prepare import prepare_corpus
from qkv.data.corpus.shards import Shards
from qkv.data.readers import stream_texts
from qkv.metrics.intervals import wilson_interval
from qkv.models.word2vec.corpus import SentenceChunks
from qkv.models.word2vec.folder import WordVectors
from qkv.models.word2vec.learners import WORD2VEC_SETTINGS
from qkv.models.word2vec.pretrain import Word2VecTrainer
from qkv.text.tokenizer import Tokenizer
from qkv.train.log import Silent

DATA = Path(os.environ.get("QKV_DATA", Path(__file__).parents[2] / "shared" / "data"))
CONTENDERS = ("gensim queue", "gensim file", "qkv", "qkv torch")
TESTS = {
    "en": {"analogies": "analogy_en/questions-words.txt", "WS-353": "wordsim_en/EN-WS-353-ALL.txt"},
    "zh": {
        "CA8 semantic": "analogy_zh/semantic.txt",
        "CA8 morphological": "analogy_zh/morphological.txt",
        "297": "wordsim_zh/297.txt",
    },
}
TESTS["both"] = {
    "Google": "analogy_en/questions-words.txt",
    "CA8 semantic": "analogy_zh/semantic.txt",
    "CA8 morphological": "analogy_zh/morphological.txt",
    "Google's in Chinese": "analogy_zh/ca_translated.txt",
    "WS-353": "wordsim_en/EN-WS-353-ALL.txt",
    "240": "wordsim_zh/240.txt",
    "297": "wordsim_zh/297.txt",
}
LETTERS_A_WORD = 1.6
"""Of running Chinese, marks included, as rjieba cuts it: to know how much text so many words are."""


def corpus(folder: Path, language: str, words: int, vocabulary: int) -> None:
    """folder/corpus.txt, folder/shards, and folder/words.txt for gensim: the same words, a sentence a line."""
    lines = stream_texts(sorted((DATA / f"{language}wiki_text").glob("train-*.txt.xz")))
    left = float(words)
    with open(folder / "corpus.txt", "w", encoding="utf-8") as out:
        for line in lines:
            out.write(line + "\n\n")
            left -= line.count(" ") + 1 if language == "en" else len(line) / LETTERS_A_WORD
            if left <= 0:
                break
    cuts = "rjieba" if language == "zh" else None
    tokenizer = Tokenizer.train(
        stream_texts([folder / "corpus.txt"]), "word", vocabulary, min_frequency=5, segmenter=cuts
    )
    prepare_corpus(folder / "corpus.txt", tokenizer, folder / "shards", hold_out=0, segmenter=cuts or "none")
    write_words(folder)


def write_words(folder: Path) -> None:
    with open(folder / "words.txt", "w", encoding="utf-8") as out:
        for sentence in sentences(folder / "shards"):
            out.write(" ".join(sentence) + "\n")


def sentences(shards: Path) -> Iterator[list[str]]:
    opened = Shards.open(shards)
    tokenizer = opened.tokenizer()
    names = [tokenizer.token(id) for id in range(tokenizer.size)]
    chunks = SentenceChunks(opened, 1 << 16)
    for number in range(len(chunks)):
        ids, places = chunks[number].flat()
        for sentence in np.split(ids, np.flatnonzero(np.diff(places)) + 1):
            if found := [names[id] for id in sentence.tolist() if id not in tokenizer.special_ids]:
                yield found


# The contenders: each trains, times that alone, and hands back words and vectors.


def run_gensim(folder: Path, options: argparse.Namespace, seed: int, from_file: bool) -> WordVectors:
    gensim: Any = importlib.import_module("gensim.models")
    skip_gram = options.architecture == "skipgram"
    model = gensim.Word2Vec(
        vector_size=options.width,
        window=options.window,
        negative=options.negatives,
        sample=options.subsample,
        sg=int(skip_gram),
        alpha=0.025 if skip_gram else 0.05,
        workers=options.threads,
        min_count=1,
        seed=seed,
    )
    file = str(folder / "words.txt")
    if from_file:
        model.build_vocab(corpus_file=file)
        more: dict[str, Any] = {"corpus_file": file, "total_words": model.corpus_total_words}
    else:
        text = [line.split() for line in Path(file).read_text(encoding="utf-8").splitlines()]
        model.build_vocab(text)
        more = {"corpus_iterable": text}
    with timed(model.corpus_total_words * options.epochs):
        model.train(total_examples=model.corpus_count, epochs=options.epochs, **more)
    return WordVectors(model.wv.index_to_key, torch.from_numpy(model.wv.vectors))


def run_qkv(folder: Path, options: argparse.Namespace, seed: int, kernel: str) -> WordVectors:
    settings = [f"model.architecture={options.architecture}", f"model.width={options.width}", f"train.seed={seed}"]
    settings += [f"train.epochs={options.epochs}", f"train.threads={options.threads}", f"train.kernel={kernel}"]
    settings += [f"sampling.{key}={getattr(options, key)}" for key in ("window", "negatives", "subsample")]
    settings += ["train.evaluate_every=1000000", "train.save_every=1000000"]
    config = WORD2VEC_SETTINGS.resolve(Requested(flags={"data": str(folder / "shards")}, assignments=settings))
    run = Word2VecTrainer(config, folder / f"run-{seed}", Silent(), begins=True)
    run.learn(run.chunks[0], 0.0, 0.0, 0)  # compiles, and moves nothing
    with timed(int(run.counts.sum()) * options.epochs), run.mapped() as each:
        each(run.advance, range(run.steps))
    known = [(word, id) for word, id in run.tokenizer.vocabulary.items() if run.counts[id]]
    rows = torch.tensor([id for _, id in known])
    return WordVectors([word for word, _ in known], run.model.embedding.data[rows])


RUN: dict[str, Callable[[Path, argparse.Namespace, int], WordVectors]] = {
    "gensim queue": lambda folder, options, seed: run_gensim(folder, options, seed, from_file=False),
    "gensim file": lambda folder, options, seed: run_gensim(folder, options, seed, from_file=True),
    "qkv": lambda folder, options, seed: run_qkv(folder, options, seed, "numba"),
    "qkv torch": lambda folder, options, seed: run_qkv(folder, options, seed, "torch"),
}


@contextmanager
def timed(words: int) -> Iterator[None]:
    """Prints what happened inside: words a second, words a CPU second, growth of memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, processor = time.perf_counter(), time.process_time()
    yield
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"speed": words / seconds, "processor": words / processor, "memory": memory / 1e3}))


class Score(NamedTuple):
    value: float
    low: float  # 95 %
    high: float
    covered: int  # questions whose words all have a vector


def contend(name: str, folder: Path, options: argparse.Namespace, seed: int) -> None:
    """What a contender's own process does."""
    vectors = RUN[name](folder, options, seed)
    scores = {}
    for label, file in TESTS[options.language].items():
        test = read_test(DATA / file, label)
        if isinstance(test, Analogies):
            total = score_analogies(vectors, test).total
            bounds = wilson_interval(total.n_correct, total.n_covered)
            scores[label] = Score(total.accuracy, *bounds, total.n_covered)
        else:
            rated = score_pairs(vectors, test)
            scores[label] = Score(rated.spearman, rated.low, rated.high, rated.n_covered)
    print(json.dumps({"scores": scores}))


def watched(name: str, folder: Path, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    given = ("language", "architecture", "width", "epochs", "window", "negatives", "subsample", "threads")
    words = [f"--{key}={getattr(options, key)}" for key in given]
    command = [sys.executable, __file__, "--contend", name, str(folder), str(seed), *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1" if name != "qkv torch" else str(options.threads)}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed")
    return {key: value for line in done.stdout.splitlines() for key, value in json.loads(line).items()}


def quality(scores: Sequence[Score]) -> str:
    """Mean and spread over the seeds; of one seed its interval.

    >>> quality([Score(0.61, 0.5, 0.7, 90)]), quality([Score(0.6, 0.5, 0.7, 90), Score(0.62, 0.5, 0.7, 90)])
    ('.610 (.500–.700)', '.610 ± .014')
    """
    values = [one.value for one in scores]
    if len(values) > 1:
        shown = f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}"
    else:
        shown = f"{values[0]:.3f} ({scores[0].low:.3f}–{scores[0].high:.3f})"
    return shown.replace("0.", ".")


def compare(console: Console, folder: Path, options: argparse.Namespace) -> None:
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in options.only}
    for seed in range(1, options.seeds + 1):
        for name in options.only:
            results[name].append(watched(name, folder, options, seed))
    settings = f"{options.architecture}, width {options.width}, window {options.window}, {options.negatives} negatives"
    speed = Table(title=f"{settings}, {options.epochs} epochs, {options.threads} threads")
    for heading in ("", "words/s", "×", "words/CPU s", "×", "memory MB"):
        speed.add_column(heading, justify="left" if not heading else "right")
    base = next((name for name in ("gensim file", "gensim queue") if results.get(name)), options.only[0])

    def ratio(name: str, key: str) -> str:
        pairs = zip(results[name], results[base], strict=True)
        return f"{statistics.median(own[key] / other[key] for own, other in pairs):.2f}"

    for name, runs in results.items():
        speed.add_row(
            name,
            f"{statistics.median(one['speed'] for one in runs):,.0f}",
            ratio(name, "speed"),
            f"{statistics.median(one['processor'] for one in runs):,.0f}",
            ratio(name, "processor"),
            f"{max(one['memory'] for one in runs):.0f}",
        )
    console.print(speed)
    console.print(f"× of {base}")
    good = Table("", "questions", *results, title=f"{options.seeds} seeds" if options.seeds > 1 else "one run; 95 %")
    for label in TESTS[options.language]:
        found = {name: [Score(*one["scores"][label]) for one in runs] for name, runs in results.items()}
        covered = str(found[base][0].covered)
        good.add_row(label, covered, *(quality(scores) for scores in found.values()))
    console.print(good)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", default="en", choices=list(TESTS))
    parser.add_argument("--shards", type=Path, help="a prepared text of both languages, instead of Wikipedia")
    parser.add_argument("--words", type=float, default=12, help="millions, of Wikipedia")
    parser.add_argument("--vocabulary", type=int, default=60_000)
    parser.add_argument("--architecture", default="skipgram", choices=["skipgram", "cbow"])
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--negatives", type=int, default=5)
    parser.add_argument("--subsample", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--contend", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contend:
        name, folder, seed = options.contend
        contend(name, Path(folder), options, int(seed))
        return
    options.language = "both" if options.shards else options.language
    if options.language == "both" and not options.shards:
        raise SystemExit("A text of both languages is prepared before: give its folder with --shards.")
    text = DATA / f"{options.language}wiki_text"
    if not options.shards and not text.is_dir():
        raise SystemExit(f"No text at {text}: set QKV_DATA to the folder that holds the data sets.")
    with tempfile.TemporaryDirectory(prefix="bench-word2vec-") as name:
        folder = Path(name)
        if options.shards:
            (folder / "shards").symlink_to(options.shards.resolve())
            write_words(folder)
        else:
            corpus(folder, options.language, int(options.words * 1e6), options.vocabulary)
        compare(Console(width=110), folder, options)


if __name__ == "__main__":
    main()
