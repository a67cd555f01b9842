"""Test sets for word vectors: analogies, and pairs of words that people have rated by how alike they are.

    analogies   a line with a colon names a section, every other one has four words: Athens Greece Bern Switzerland
    pairs       two words and a number, between tabs (or spaces): tiger  cat  7.35

KNOWN are the published sets by the names under which they are passed around. What this file does NOT do: score.
"""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from qkv.data.readers import lines
from qkv.errors import InputError

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


class Section(NamedTuple):
    name: str
    questions: list[tuple[str, str, str, str]]


@dataclass(frozen=True)
class Analogies:
    name: str
    file: Path
    sections: list[Section]


@dataclass(frozen=True)
class Pairs:
    name: str
    file: Path
    pairs: list[tuple[str, str, float]]


def find_tests(places: Iterable[str | os.PathLike[str]]) -> list[Analogies | Pairs]:
    """The sets of these files, and the known ones of these folders."""
    found: list[Analogies | Pairs] = []
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


def read_test(file: Path, name: str) -> Analogies | Pairs:
    """A set of one kind or the other, told apart by its first line."""
    rows = [(number, line.strip()) for number, line in lines(file)]
    rows = [(number, line) for number, line in rows if line and not line.startswith("#")]
    if not rows:
        raise InputError(f"{file} is empty: there is nothing to test with.")
    first = rows[0][1]
    if first.startswith(":") or (len(first.split()) == 4 and "\t" not in first):
        return Analogies(name, file, _sections(file, rows))
    return Pairs(name, file, [_pair(file, number, line) for number, line in rows])


def _sections(file: Path, rows: Iterable[tuple[int, str]]) -> list[Section]:
    sections: list[Section] = []
    for number, line in rows:
        if line.startswith(":"):
            sections.append(Section(line[1:].strip(), []))
            continue
        words = line.split()
        if len(words) != 4:
            raise InputError(
                f"{file}, line {number} has {len(words)} words, where an analogy has four (a is to b as c is to d)."
            )
        if not sections:
            sections.append(Section("", []))
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
