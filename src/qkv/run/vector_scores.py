"""What word vectors know: the share of analogies they solve, and whether they find those words alike that people do.

Only what is in the vocabulary can be asked. Every score therefore comes with its coverage, and is over what is covered:
two vocabularies are compared fairly where both cover the same. The rules are those of gensim's evaluation, so that the
figures are too: an analogy is solved when the best word by 3CosAdd (or 3CosMul), the three words of the question left
out, is the expected one; the candidates, and the words of the questions, are the 300,000 most frequent words. A word
that is not there as it is written is looked up in lower case.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from qkv.data.word_tests import Analogies, Pairs
from qkv.metrics.numbers import number_intervals, spearman
from qkv.run.word_vectors import WordVectors

MOST = 300_000
"""Candidates for an answer, as gensim has it."""
GRAMMAR = "gram"
"""How the sections of Google's set that ask for grammar are called; the others ask for meaning."""


@dataclass(frozen=True)
class Solved:
    """How many questions there are, how many of them can be asked, and how many were solved."""

    name: str
    n_questions: int
    n_covered: int
    n_correct: int

    @property
    def accuracy(self) -> float:
        return self.n_correct / self.n_covered if self.n_covered else math.nan

    @property
    def coverage(self) -> float:
        return self.n_covered / self.n_questions


@dataclass(frozen=True)
class AnalogyScore:
    name: str
    file: Path
    sections: list[Solved]

    @property
    def total(self) -> Solved:
        return together(self.name, self.sections)

    @property
    def halves(self) -> list[Solved]:
        """Meaning and grammar apart, where the set has both."""
        grammar = [section for section in self.sections if section.name.startswith(GRAMMAR)]
        meaning = [section for section in self.sections if section not in grammar]
        return [together("semantic", meaning), together("syntactic", grammar)] if grammar and meaning else []


@dataclass(frozen=True)
class PairScore:
    name: str
    file: Path
    n_pairs: int
    n_covered: int
    spearman: float  # nan where fewer than two pairs are covered
    low: float  # 95 %
    high: float

    @property
    def coverage(self) -> float:
        return self.n_covered / self.n_pairs


def together(name: str, parts: Sequence[Solved]) -> Solved:
    return Solved(
        name,
        sum(part.n_questions for part in parts),
        sum(part.n_covered for part in parts),
        sum(part.n_correct for part in parts),
    )


def score_analogies(
    vectors: WordVectors,
    test: Analogies,
    method: str = "add",
    most: int | None = MOST,
    progress: Callable[[int], None] | None = None,
) -> AnalogyScore:
    """`progress` is told how many words were scored, of as many as there are candidates."""
    last = min(len(vectors), most or len(vectors))
    asked: list[tuple[int, ...]] = []
    section_of: list[int] = []
    for number, section in enumerate(test.sections):
        for question in section.questions:
            rows = tuple(row for word in question if (row := vectors.find(word)) is not None and row < last)
            if len(rows) == len(question):
                asked.append(rows)
                section_of.append(number)
    questions = torch.tensor(asked, dtype=torch.long).view(-1, 4)
    owner = torch.tensor(section_of, dtype=torch.long)
    is_right = torch.zeros(len(asked), dtype=torch.bool)
    if asked:
        is_right = vectors.answers(questions[:, :3], method, last, progress) == questions[:, 3]
    covered = owner.bincount(minlength=len(test.sections)).tolist()
    correct = owner[is_right].bincount(minlength=len(test.sections)).tolist()
    return AnalogyScore(
        test.name,
        test.file,
        [
            Solved(section.name, len(section.questions), n_covered, n_correct)
            for section, n_covered, n_correct in zip(test.sections, covered, correct, strict=True)
        ],
    )


def score_pairs(vectors: WordVectors, test: Pairs) -> PairScore:
    found: list[tuple[int, int]] = []
    rated: list[float] = []
    for first, second, rating in test.pairs:
        one, other = vectors.find(first), vectors.find(second)
        if one is not None and other is not None:
            found.append((one, other))
            rated.append(rating)
    cosines = vectors.cosines(torch.tensor(found, dtype=torch.long).view(-1, 2)).double().numpy()
    value = spearman(rated, cosines)
    low, high = number_intervals(rated, cosines)["spearman"] if math.isfinite(value) else (math.nan, math.nan)
    return PairScore(test.name, test.file, len(test.pairs), len(found), value, low, high)


def as_document(scores: Sequence[AnalogyScore | PairScore]) -> dict[str, list[dict[str, Any]]]:
    """For a program to read: nan, which JSON does not have, is null."""
    document: dict[str, list[dict[str, Any]]] = {"analogies": [], "similarities": []}
    for score in scores:
        if isinstance(score, AnalogyScore):
            parts = {"sections": [_solved(section) for section in score.sections]}
            document["analogies"].append({**_solved(score.total), "file": str(score.file), **parts})
        else:
            figures = {**asdict(score), "file": str(score.file), "coverage": score.coverage}
            document["similarities"].append({name: _known(value) for name, value in figures.items()})
    return document


def _solved(part: Solved) -> dict[str, Any]:
    return {**asdict(part), "coverage": part.coverage, "accuracy": _known(part.accuracy)}


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
