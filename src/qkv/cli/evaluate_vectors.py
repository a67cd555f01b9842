"""qkv evaluate-vectors: analogies and rated pairs of words."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import JsonOption
from qkv.cli.word_vectors import MethodOption, VectorsOption, vectors_named
from qkv.errors import InputError

if TYPE_CHECKING:
    from qkv.run.vector_scores import AnalogyScore, PairScore, Solved

USUAL = Path("../shared/data")
LEAST = 0.01
"""Coverage of a set that is shown: a figure from a handful of English words in Chinese vectors says nothing."""


def evaluate_vectors(
    model: VectorsOption = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            "-d",
            envvar="QKV_DATA",
            metavar="PATH",
            help="A folder of known test sets, or a file of analogies or rated pairs; repeatable.",
        ),
    ] = None,
    method: MethodOption = "add",
    most: Annotated[
        int, typer.Option("--most", metavar="N", help="Only the N most frequent words ask and answer analogies.")
    ] = 300_000,
    as_json: JsonOption = False,
) -> None:
    """Score word vectors: analogies solved (Google, CA8), and how well likeness agrees with people (WS-353 …).

    Scores are over the questions and pairs whose words are all in the vocabulary; coverage says how many those are.
    Accuracy is as gensim counts it. The figure for pairs is Spearman's correlation, with its 95 % interval.

    Sets of which less than 1 % is covered are only named; --json has them all.

    \b
    qkv evaluate-vectors --model FOLDER --data questions-words.txt
    qkv evaluate-vectors --model vectors.bin --data folder-of-sets --data pairs.tsv --json

    --json prints one document: model, n_words, width, method, most, analogies (with sections), similarities.
    """
    if most < 1:
        raise InputError(f"--most is {most}; it must be at least 1.")
    places = data or ([USUAL] if USUAL.is_dir() else [])
    if not places:
        raise InputError(
            "Say where the test sets are: --data FOLDER or --data FILE, or set QKV_DATA. Files of analogies (such as "
            "Google's questions-words.txt) or of rated pairs (such as WordSim-353) serve; docs/word2vec.md says where "
            "the published ones can be had."
        )
    from qkv.cli.terminal import print_json, progress
    from qkv.data.word_tests import Analogies, find_tests
    from qkv.run.vector_scores import as_document, score_analogies, score_pairs
    from qkv.run.word_vectors import check_method

    check_method(method)
    tests = find_tests(places)
    vectors = vectors_named(model)
    scores: list[AnalogyScore | PairScore] = []
    for test in tests:
        if isinstance(test, Analogies):
            with progress(f"{test.name}, words", min(most, len(vectors))) as advance:
                scores.append(score_analogies(vectors, test, method, most, advance))
        else:
            scores.append(score_pairs(vectors, test))
    if as_json:
        head = {"model": model, "n_words": len(vectors), "width": vectors.width, "method": method, "most": most}
        print_json({**head, **as_document(scores)})
        return
    _print(scores)


def _print(scores: "list[AnalogyScore | PairScore]") -> None:
    from qkv.cli.terminal import say, table
    from qkv.run.vector_scores import AnalogyScore

    solved = [score for score in scores if isinstance(score, AnalogyScore) and score.total.coverage >= LEAST]
    rows: list[list[str]] = []
    for score in solved:
        rows.append(_line(score.total, score.name))
        rows += [_line(part, f"  {part.name}") for part in (*score.halves, *score.sections) if part.name]
    if rows:
        table(["analogies", "accuracy", "correct", "covered", "of"], rows, right=(1, 2, 3, 4))
    pairs = [score for score in scores if not isinstance(score, AnalogyScore)]
    rated = [score for score in pairs if score.coverage >= LEAST and math.isfinite(score.spearman)]
    if rows and rated:
        typer.echo()
    if rated:
        table(
            ["pairs", "Spearman", "95 %", "covered", "of"],
            [
                [
                    score.name,
                    f"{score.spearman:.3f}",
                    f"{score.low:.3f} … {score.high:.3f}",
                    f"{score.coverage:.1%}",
                    f"{score.n_pairs:,}",
                ]
                for score in rated
            ],
            right=(1, 2, 3, 4),
        )
    if missed := [score.name for score in scores if score not in solved and score not in rated]:
        say(f"not in this vocabulary, or hardly: {', '.join(missed)}")


def _line(part: "Solved", name: str) -> list[str]:
    accuracy = f"{part.accuracy:.1%}" if part.n_covered else "–"
    return [name, accuracy, f"{part.n_correct:,}", f"{part.coverage:.1%}", f"{part.n_questions:,}"]
