"""The two sets that layers are probed with: parts of speech of CoNLL-2003, and words in context (WiC).

Part of speech is the second column of CoNLL-2003: a matter of grammar. WiC (Pilehvar and Camacho-Collados 2019) asks
whether one word means the same in two sentences: a matter of sense, which no vector that is the same everywhere can
answer.
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random

from qkv.errors import InputError

OUTSIDE = "-DOCSTART-"


@dataclass(frozen=True)
class Tagged:
    words: list[str]
    tags: list[str]


@dataclass(frozen=True)
class Pair:
    """A word at two places."""

    word: str
    first: list[str]
    second: list[str]
    places: tuple[int, int]
    same: bool


def read_tagged(path: Path) -> list[Tagged]:
    """Sentences of CoNLL-2003 with the part of speech of every word; lines between documents are left out."""
    found: list[Tagged] = []
    words: list[str] = []
    tags: list[str] = []
    for number, line in enumerate([*_lines(path), ""], 1):
        fields = line.split()
        if not fields or fields[0] == OUTSIDE:
            if words:
                found.append(Tagged(words, tags))
            words, tags = [], []
        elif len(fields) < 2:
            raise InputError(f"{path}, line {number}: a word and its part of speech belong here, not {line!r}.")
        else:
            words.append(fields[0])
            tags.append(fields[1])
    return found


def some(sentences: list[Tagged], words: int | None, seed: int = 0) -> list[Tagged]:
    """Sentences drawn from all of them until they hold so many words."""
    if words is None:
        return sentences
    found, total = [], 0
    for sentence in Random(seed).sample(sentences, len(sentences)):
        if total >= words:
            break
        found.append(sentence)
        total += len(sentence.words)
    return found


def read_pairs(folder: Path, part: str) -> list[Pair]:
    """Of `part`.data.txt and `part`.gold.txt: word, its kind, places such as 2-1, both sentences; T where it means the
    same."""
    data, gold = folder / f"{part}.data.txt", folder / f"{part}.gold.txt"
    lines, answers = _lines(data), _lines(gold)
    if len(lines) != len(answers):
        raise InputError(f"{data} has {len(lines)} lines and {gold.name} {len(answers)}: each pair needs its answer.")
    found = []
    for number, (line, answer) in enumerate(zip(lines, answers, strict=True), 1):
        fields = line.split("\t")
        if len(fields) != 5 or answer not in ("T", "F"):
            raise InputError(f"{data}, line {number}: five fields, and T or F in {gold.name}, are due.")
        first, second = (sentence.split() for sentence in fields[3:])
        one, other = map(int, fields[2].split("-"))
        for place, sentence in ((one, first), (other, second)):
            if place >= len(sentence):
                raise InputError(f"{data}, line {number}: there is no word {place} in '{' '.join(sentence)}'.")
        found.append(Pair(fields[0], first, second, (one, other), answer == "T"))
    return found


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise InputError(f"There is no file {path}. Give the folder of the data with --data.")
    return path.read_text(encoding="utf-8").splitlines()
