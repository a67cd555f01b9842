"""Evaluate word vectors on analogies and on rated word pairs.

    analogies   a line with a colon names a section, other lines have four words: Athens Greece Bern Switzerland
    pairs       two words and a rating, separated by tabs or spaces: tiger  cat  7.35

Scores count only questions whose words are in the vocabulary, and come with this coverage. The rules are those of
gensim: an analogy is solved if the best word by 3CosAdd (or 3CosMul), without the words of the question, is the
expected one; candidates are the 300,000 most frequent words; an unknown word is looked up in lower case. KNOWN lists
the file names of published sets.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from qkv.data.readers import numbered_lines
from qkv.errors import InputError
from qkv.metrics.numbers import number_intervals, spearman
from qkv.models.family import LOOKS_UP
from qkv.models.folders.hub import default_model, locate_vectors
from qkv.models.table import open_model
from qkv.models.word2vec.folder import VectorFile, WordVectors

KNOWN: dict[str, str] = {
    "analogy_en/questions-words.txt": "Google",  # Mikolov et al. 2013
    "analogy_en/questions-phrases.txt": "Google phrases",
    "analogy_zh/semantic.txt": "CA8 semantic",  # Li et al. 2018
    "analogy_zh/morphological.txt": "CA8 morphological",
    "analogy_zh/ca_translated.txt": "CA translated",  # Chen et al. 2015: a part of Google's, in Chinese
    "wordsim_en/EN-WS-353-ALL.txt": "WS-353",  # Finkelstein et al. 2002
    "wordsim_en/EN-WS-353-SIM.txt": "WS-353 similar",  # split by Agirre et al. 2009
    "wordsim_en/EN-WS-353-REL.txt": "WS-353 related",
    "wordsim_en/EN-SIMLEX-999.txt": "SimLex-999",  # Hill et al. 2015
    "wordsim_en/EN-SimVerb-3500.txt": "SimVerb-3500",  # Gerz et al. 2016
    "wordsim_en/EN-MEN-TR-3k.txt": "MEN",  # Bruni et al. 2014
    "wordsim_en/EN-RG-65.txt": "RG-65",  # Rubenstein and Goodenough 1965
    "wordsim_en/EN-RW-STANFORD.txt": "Rare words",  # Luong et al. 2013
    "wordsim_zh/240.txt": "WordSim-240",  # Chen et al. 2015
    "wordsim_zh/297.txt": "WordSim-297",
}
"""File in a folder of such sets → what it is called."""


class AnalogySection(NamedTuple):
    name: str
    questions: list[tuple[str, str, str, str]]


@dataclass(frozen=True)
class Analogies:
    name: str
    file: Path
    sections: list[AnalogySection]


@dataclass(frozen=True)
class RatedPairs:
    name: str
    file: Path
    pairs: list[tuple[str, str, float]]


def find_tests(places: Iterable[str | os.PathLike[str]]) -> list[Analogies | RatedPairs]:
    """The sets in these files, and the known ones in these folders."""
    found: list[Analogies | RatedPairs] = []
    for place in places:
        path = Path(os.path.expanduser(place))
        if path.is_dir():
            # the folder of everything, or one that they lie in themselves
            under = {path / file: name for file, name in KNOWN.items()}
            inside = {path / Path(file).name: name for file, name in KNOWN.items()}
            files = {file: name for file, name in {**under, **inside}.items() if file.is_file()}
            if not files:
                raise InputError(
                    f"{path} holds none of the known test sets, such as {Path(next(iter(KNOWN))).name}. Give the files "
                    "themselves."
                )
            found += [read_test(file, name) for file, name in files.items()]
        else:
            name = KNOWN.get(f"{path.parent.name}/{path.name}", path.stem)
            found.append(read_test(path, name))
    return found


def read_test(file: Path, name: str) -> Analogies | RatedPairs:
    """A set of either kind, recognised by its first line."""
    rows = [(number, line.strip()) for number, line in numbered_lines(file)]
    rows = [(number, line) for number, line in rows if line and not line.startswith("#")]
    if not rows:
        raise InputError(f"{file} is empty: there is nothing to test with.")
    first = rows[0][1]
    if first.startswith(":") or (len(first.split()) == 4 and "\t" not in first):
        return Analogies(name, file, _sections(file, rows))
    return RatedPairs(name, file, [_pair(file, number, line) for number, line in rows])


def _sections(file: Path, rows: Iterable[tuple[int, str]]) -> list[AnalogySection]:
    sections: list[AnalogySection] = []
    for number, line in rows:
        if line.startswith(":"):
            sections.append(AnalogySection(line[1:].strip(), []))
            continue
        words = line.split()
        if len(words) != 4:
            raise InputError(
                f"{file}, line {number} has {len(words)} words, where an analogy has four (a is to b as c is to d)."
            )
        if not sections:
            sections.append(AnalogySection("", []))
        sections[-1].questions.append((words[0], words[1], words[2], words[3]))
    return [section for section in sections if section.questions]


def _pair(file: Path, number: int, line: str) -> tuple[str, str, float]:
    fields = [field.strip() for field in (line.split("\t") if "\t" in line else line.split())]
    try:
        score = float(fields[2])
    except (IndexError, ValueError):
        score = math.nan
    if len(fields) != 3 or not all(fields) or not math.isfinite(score):
        raise InputError(
            f"{file}, line {number} is not two words and a number between tabs, as in 'tiger\\tcat\\t7.35'."
        )
    return fields[0], fields[1], score


# Scores.

_MOST = 300_000
"""Candidates for an answer, as gensim has it."""
GRAMMAR = "gram"
"""How the sections of Google's set that ask for grammar are called; the others ask for meaning."""


@dataclass(frozen=True)
class Solved:
    """The number of questions, of those whose words are known, and of those that were solved."""

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
        return _together(self.name, self.sections)

    @property
    def halves(self) -> list[Solved]:
        """Semantic and syntactic questions separately, if the set has both."""
        grammar = [section for section in self.sections if section.name.startswith(GRAMMAR)]
        meaning = [section for section in self.sections if section not in grammar]
        return [_together("semantic", meaning), _together("syntactic", grammar)] if grammar and meaning else []


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


def _together(name: str, parts: Sequence[Solved]) -> Solved:
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
    most: int | None = _MOST,
    progress: Callable[[int], None] | None = None,
) -> AnalogyScore:
    """`progress` gets the number of words scored, out of all candidates."""
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


def score_pairs(vectors: WordVectors, test: RatedPairs) -> PairScore:
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
    """The scores as JSON; NaN becomes null."""
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


# --- Word vectors by a name: a folder, a run, a file, the hub.


def load_vectors(name: str | os.PathLike[str] | None = None, most: int | None = None) -> WordVectors:
    """Word vectors from a folder of ours, a run, the hub (hf:owner/name), or a file in the format of the C tool or
    GloVe; without a name those of qkv-words, which come with qkv.

    Of a folder, the words are those with a vector; a row of zeros is what training leaves to a word it never met. The
    table of a Bengio model (nnlm) serves too.

    `most` takes no more than the first so many words, which are the most frequent.
    """
    place = locate_vectors(default_model(LOOKS_UP.name) if name is None else name)
    return VectorFile(place).vectors(most) if place.is_file() else open_model(place).ability(LOOKS_UP).vectors(most)
