"""`qkv analogy`, `qkv similar` and `qkv evaluate-vectors`: use and evaluate word vectors."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import JsonOption
from qkv.errors import InputError
from qkv.models.folders.hub import default_model
from qkv.text.messages import write

if TYPE_CHECKING:
    from qkv.api.vector_scores import AnalogyScore, PairScore, Solved
    from qkv.models.word2vec.folder import Neighbour, WordVectors


WordVectorsOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        envvar="QKV_VECTORS",
        metavar="VECTORS",
        help="Word vectors: folder or run of word2vec or nnlm, or a file .txt .vec .bin, also compressed (default: "
        "qkv-words).",
    ),
]
MethodOption = Annotated[
    str, typer.Option("--method", metavar="add|multiply", help="Method for analogies: 3CosAdd or 3CosMul.")
]


def load_named_vectors(model: str | None, most: int | None = None) -> "WordVectors":
    """Load word vectors and print the notes about them to standard error."""
    from qkv.api.vector_scores import load_vectors

    vectors = load_vectors(model, most)
    for note in vectors.notes:
        write(f"note: {note}", err=True)
    return vectors


def solve_analogy(
    a: Annotated[str, typer.Argument(metavar="A", help="First word.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Word related to A.")],
    c: Annotated[str, typer.Argument(metavar="C", help="Word related to the answer as A is to B.")],
    model: WordVectorsOption = None,
    k: Annotated[int, typer.Option("-k", metavar="N", help="Number of answers.")] = 5,
    method: MethodOption = "add",
    as_json: JsonOption = False,
) -> None:
    """A is to B as C is to what? man king woman: king − man + woman is near queen.

    \b
    qkv analogy man king woman
    qkv analogy 法国 巴黎 日本 --model vectors.bin --method multiply

    --json prints one document: a, b, c, method, answers (word, score).
    """
    from qkv.cli.terminal import print_json, print_table
    from qkv.models.word2vec.folder import check_method

    check_method(method)  # a large file takes a while to read
    answers = load_named_vectors(model).analogy(a, b, c, k, method)
    if as_json:
        found = [{"word": one.word, "score": one.score} for one in answers]
        print_json({"a": a, "b": b, "c": c, "method": method, "answers": found})
        return
    print_table(
        ["score", f"{a} is to {b} as {c} is to"], [[f"{one.score:.3f}", one.word] for one in answers], right=(0,)
    )


def similar(
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="One or more words.")],
    model: WordVectorsOption = None,
    k: Annotated[int, typer.Option("-k", metavar="N", help="Number of neighbours.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Print the nearest neighbours of a word, by the cosine of their vectors (1: same direction, 0: unrelated).

    \b
    qkv similar 国王
    qkv similar king queen -k 5 --model FOLDER
    qkv similar king --model GoogleNews-vectors-negative300.bin.gz --json

    A word without a vector is reported; the exit code is 2 if no word has one.

    --json prints one line per word: word, neighbours (word, similarity); or word, error.
    """
    if k < 1:
        raise InputError(f"-k is {k}; it must be at least 1.")
    vectors = load_named_vectors(model)
    found: dict[str, list[Neighbour]] = {}
    unknown: dict[str, str] = {}
    for word in words:
        try:
            found[word] = vectors.neighbours(word, k)
        except InputError as error:
            unknown[word] = str(error)
    from qkv.cli.terminal import bar, print_json, print_table, say

    for word in dict.fromkeys(words) if as_json else ():
        pairs = [{"word": one.word, "similarity": one.score} for one in found.get(word, ())]
        print_json({"word": word, "neighbours": pairs} if word in found else {"word": word, "error": unknown[word]})
    if not found:
        raise InputError("\n".join(unknown.values()))
    for message in unknown.values():
        say(message)
    for number, (word, neighbours) in enumerate(found.items() if not as_json else ()):
        if number:
            typer.echo()
        rows = [[f"{one.score:.3f}", bar(one.score, 16), one.word] for one in neighbours]
        print_table(["cosine", "", f"neighbours of {word}"], rows, right=(0,))


_LEAST = 0.01
"""Minimum coverage of a test set to be shown: a few English words in Chinese vectors give no meaningful score."""


def evaluate_vectors(
    model: WordVectorsOption = None,
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
    """Evaluate word vectors on analogies (Google, CA8) and word similarity (WS-353 …).

    Scores count the questions and pairs whose words are all in the vocabulary; coverage is their share. Accuracy is
    defined as in gensim. For pairs the score is Spearman's correlation, with its 95 % interval.

    Sets with less than 1 % coverage are only named; --json has all of them.

    \b
    qkv evaluate-vectors --data questions-words.txt
    qkv evaluate-vectors --model vectors.bin --data folder-of-sets --data pairs.tsv --json

    --json prints one document: model, n_words, width, method, most, analogies (with sections), similarities.
    """
    if most < 1:
        raise InputError(f"--most is {most}; it must be at least 1.")
    if not data:
        raise InputError(
            "Give the test sets: --data FOLDER or --data FILE, or set QKV_DATA. Files of analogies (such as "
            "Google's questions-words.txt) or of rated pairs (such as WordSim-353) work; docs/word2vec.md lists where "
            "to get published ones."
        )
    from qkv.api.vector_scores import Analogies, as_document, find_tests, score_analogies, score_pairs
    from qkv.cli.terminal import print_json, progress
    from qkv.models.word2vec.folder import check_method

    check_method(method)
    tests = find_tests(data)
    vectors = load_named_vectors(model)
    scores: list[AnalogyScore | PairScore] = []
    for test in tests:
        if isinstance(test, Analogies):
            with progress(f"{test.name}, words", min(most, len(vectors))) as advance:
                scores.append(score_analogies(vectors, test, method, most, advance))
        else:
            scores.append(score_pairs(vectors, test))
    if as_json:
        head = {
            "model": model or default_model("looks_up"),
            "n_words": len(vectors),
            "width": vectors.width,
            "method": method,
            "most": most,
        }
        print_json({**head, **as_document(scores)})
        return
    _print(scores)


def _print(scores: "list[AnalogyScore | PairScore]") -> None:
    from qkv.api.vector_scores import AnalogyScore
    from qkv.cli.terminal import print_table, say

    solved = [score for score in scores if isinstance(score, AnalogyScore) and score.total.coverage >= _LEAST]
    rows: list[list[str]] = []
    for score in solved:
        rows.append(_line(score.total, score.name))
        rows += [_line(part, f"  {part.name}") for part in (*score.halves, *score.sections) if part.name]
    if rows:
        print_table(["analogies", "accuracy", "correct", "covered", "of"], rows, right=(1, 2, 3, 4))
    pairs = [score for score in scores if not isinstance(score, AnalogyScore)]
    rated = [score for score in pairs if score.coverage >= _LEAST and math.isfinite(score.spearman)]
    if rows and rated:
        typer.echo()
    if rated:
        print_table(
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
        say(f"hardly covered by this vocabulary: {', '.join(missed)}")


def _line(part: "Solved", name: str) -> list[str]:
    accuracy = f"{part.accuracy:.1%}" if part.n_covered else "–"
    return [name, accuracy, f"{part.n_correct:,}", f"{part.coverage:.1%}", f"{part.n_questions:,}"]
