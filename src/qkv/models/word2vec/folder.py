"""Word vectors and where they are stored: a folder of word2vec, or a file of the C tool or GloVe (files.py).

`WordVectors` finds neighbours, similarities (cosines) and analogies. An analogy, a is to b as c is to ?, is the word d
that is best by one of two rules, the words of the question left out (Levy and Goldberg 2014, "Linguistic Regularities
in Sparse and Explicit Word Representations"):

    add        cos(d, b) − cos(d, a) + cos(d, c)              3CosAdd, king − man + woman
    multiply   cos(d, b) · cos(d, c) / (cos(d, a) + ε)        3CosMul, each cosine moved to 0 … 1

The vectors are never copied to be scaled: they may be a view of the file.

Shapes: V words, D width, Q questions, N words of a block, U distinct words of the questions.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from heapq import nlargest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.errors import InputError, did_you_mean
from qkv.models.family import LOOKS_UP, Facts, Loading, Opened
from qkv.models.folders.hub import known_languages
from qkv.models.folders.own import WEIGHTS, OwnFolder, save_folder
from qkv.models.plain.config import describe_vectors
from qkv.models.plain.folder import open_below
from qkv.models.word2vec.files import is_writable, read_vector_file, write_vector_file
from qkv.text.segmenter import are_chinese_words
from qkv.text.tokenizer import Tokenizer
from qkv.text.vocabulary import HALF, half_character
from qkv.text.wordpiece import SPECIAL

_Floats = NDArray[np.float32]

MODEL_TYPE, TABLE = "word2vec", "embedding"
BLOCK, QUESTIONS = 2048, 32
"""Words and questions that are scored at once: few enough for a processor's cache, where the time goes into moving
numbers about. numpy does it, since the threads of torch wait for each other in pieces as small as these."""
_SMALLEST = 1e-6
"""ε of 3CosMul, against division by zero; gensim's."""


class Neighbour(NamedTuple):
    word: str
    score: float


def add_cosines(a: _Floats, b: _Floats, c: _Floats) -> _Floats:
    return b - a + c


def multiply_cosines(a: _Floats, b: _Floats, c: _Floats) -> _Floats:
    # (1 + cos) / 2 in place of every cosine, the halves taken together
    return (1 + b) * (1 + c) / (2 * (1 + a) + 4 * _SMALLEST)


ANALOGY_METHODS: dict[str, Callable[[_Floats, _Floats, _Floats], _Floats]] = {
    "add": add_cosines,
    "multiply": multiply_cosines,
}


class WordVectors:
    """Safe to use from several threads; nothing changes after construction."""

    def __init__(
        self,
        words: Sequence[str],
        vectors: Tensor,
        source: str = "The vectors",
        notes: Sequence[str] = (),
        fold: Callable[[str], str] = str.lower,
        unseen: Iterable[str] = (),
        languages: str = "",
    ) -> None:
        """`fold` normalises a word that is not found as typed: "King" if all words are lower case.

        `languages`, where they are known, are named when a word is not among the words. `unseen` are words that the
        source knows and training never met: they have no vector, and are not among `words`.
        """
        if len(words) != len(vectors):
            raise ValueError(f"{len(words)} words and {len(vectors)} vectors: each word needs its vector.")
        self.words = list(words)
        self.vectors = vectors.detach().cpu().float()  # (V, D)
        self.source = source
        self.notes = tuple(notes)
        self.rows = {word: row for row, word in enumerate(self.words)}
        self._fold = fold
        self._unseen, self._languages = frozenset(unseen), languages
        lengths = torch.cat([part.norm(dim=1) for part in self.vectors.split(BLOCK)]) if words else torch.zeros(0)
        # a vector of zeros is like nothing
        self._scale = torch.where(lengths > 0, 1 / lengths.clamp_min(1e-30), 0.0)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def width(self) -> int:
        return self.vectors.shape[1]

    def find(self, word: str) -> int | None:
        """The row of a word as typed, or as this vocabulary spells it; None if it has none."""
        row = self.rows.get(word)
        if row is None and (half := HALF.search(word)):
            raise half_character(half[0])
        return self.rows.get(self._fold(word)) if row is None else row

    def row(self, word: str) -> int:
        row = self.find(word)
        if row is None and not self._unseen.isdisjoint((word, self._fold(word))):
            raise InputError(
                f"{word!r} has no vector in {self.source}: it was never seen in training, or too seldom (min_count)."
            )
        if row is None:
            near = near_spellings(word, self.words)
            hint = f" Near it: {', '.join(near)}." if near else ""
            known = f" These are words in {self._languages}." if self._languages else ""
            raise InputError(f"{word!r} is not among the {len(self):,} words of {self.source}.{hint}{known}")
        return row

    def __getitem__(self, word: str) -> Tensor:
        """The vector (D) of a word."""
        return self.vectors[self.row(word)]

    def similarity(self, first: str, second: str) -> float:
        one, other = self._unit(torch.tensor([self.row(first), self.row(second)]))
        return float(one @ other)

    def neighbours(self, word: str, k: int = 10) -> list[Neighbour]:
        """The k most similar words, best first."""
        row = self._directed(word)
        scores = self.vectors @ self._unit(torch.tensor([row]))[0] * self._scale  # V
        return self._best(scores, [row], k)

    def analogy(self, a: str, b: str, c: str, k: int = 5, method: str = "add") -> list[Neighbour]:
        """a is to b as c is to ?: the k best words. For man, king, woman: queen."""
        combine = check_method(method)
        rows = [self._directed(word) for word in (a, b, c)]
        scores = self.vectors @ self._unit(torch.tensor(rows)).T * self._scale[:, None]  # V, 3
        return self._best(torch.from_numpy(combine(*scores.T.numpy())), rows, k)

    def answers(
        self,
        questions: Tensor,
        method: str = "add",
        most: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Tensor:
        """(Q, 3) rows of a, b, c → (Q) row of the best d: many questions at once, in products of blocks.

        `most`: only so many words, from the first on, can be the answer. `progress` gets the number of words scored.
        """
        combine = check_method(method)
        distinct, places = questions.unique(return_inverse=True)  # U and (Q, 3)
        known, where, asked = self._unit(distinct).numpy(), places.numpy(), questions.numpy()
        best = np.full(len(asked), -np.inf, np.float32)
        found = np.zeros(len(asked), np.int64)
        last = min(len(self), most or len(self))
        for start in range(0, last, BLOCK):
            stop = min(start + BLOCK, last)
            cosines = known @ self.vectors[start:stop].numpy().T * self._scale[start:stop].numpy()  # U, N
            for first in range(0, len(asked), QUESTIONS):
                part = slice(first, first + QUESTIONS)
                scores = combine(*(cosines[place] for place in where[part].T))  # questions of the part, N
                # the words of a question are no answer to it
                question, word = ((asked[part] >= start) & (asked[part] < stop)).nonzero()
                scores[question, asked[part][question, word] - start] = -np.inf
                place = scores.argmax(1)
                value = scores[np.arange(len(scores)), place]
                better = value > best[part]
                best[part] = np.where(better, value, best[part])
                found[part] = np.where(better, place + start, found[part])
            if progress is not None:
                progress(stop - start)
        return torch.from_numpy(found)

    def cosines(self, pairs: Tensor) -> Tensor:
        """(P, 2) rows → (P) the cosine of the two words of each pair."""
        return (self._unit(pairs[:, 0]) * self._unit(pairs[:, 1])).sum(1)

    def save(self, path: str | os.PathLike[str]) -> list[str]:
        """Write a file of the C tool by its suffix (.txt, .vec, .bin, also compressed), or a folder if there is no
        suffix.

        Returns the words that were left out: a space, which ends a word in such a file, and in a folder what is called
        like a special token.
        """
        target = Path(path)
        is_kept = is_writable if target.suffix else _is_token
        left_out = [word for word in self.words if not is_kept(word)]
        words = [word for word in self.words if is_kept(word)] if left_out else self.words
        vectors = self.vectors[[self.rows[word] for word in words]] if left_out else self.vectors
        if target.suffix:
            write_vector_file(target, words, vectors)
            return left_out
        tokenizer = tokenizer_of_words(words)
        table = torch.cat([torch.zeros(len(SPECIAL), self.width), vectors])
        config = {"vocabulary_size": len(table), "width": self.width}
        record = {"converted_from": Path(self.source).name, "words": len(words)}
        save_folder(target, MODEL_TYPE, config, {TABLE: table}, tokenizer, record)
        return left_out

    def _directed(self, word: str) -> int:
        """The row of a word whose vector is not zero, as files of others may have."""
        row = self.row(word)
        if not self._scale[row]:
            raise InputError(f"The vector of {word!r} in {self.source} is all zeros: no word is like it.")
        return row

    def _unit(self, rows: Tensor) -> Tensor:
        return self.vectors[rows] * self._scale[rows, None]

    def _best(self, scores: Tensor, but: Sequence[int], k: int) -> list[Neighbour]:
        if k < 1:
            raise InputError(f"The number of words to show is {k}; it must be at least 1.")
        scores[list(but)] = -torch.inf
        value, row = scores.topk(min(k, len(self) - len(set(but))))
        return [Neighbour(self.words[row], value) for value, row in zip(value.tolist(), row.tolist(), strict=True)]


def tokenizer_of_words(words: Sequence[str]) -> Tokenizer:
    """A tokenizer that finds these words in a text, also Chinese ones of several 汉字; others are left out.

    >>> tokenizer_of_words(["king", "New York", "[PAD]"]).vocabulary["king"]
    5
    """
    kept = [word for word in words if _is_token(word)]
    return Tokenizer.from_vocabulary([*SPECIAL, *kept], "word", segmenter="rjieba" if are_chinese_words(kept) else None)


def look_up_tokens(tokenizer: Tokenizer, vectors: WordVectors) -> tuple[Tensor, Tensor]:
    """(V, D), the vector of every token that has one and zeros for the others; and (V,), which tokens have one.

    A token is looked up as written, then as the vectors would write it (`WordVectors.find`): "Paris" of a cased
    tokenizer gets the vector of "paris", where there are no others. A special token is looked up as written only: a
    word "[unk]" of a text is not "[UNK]".
    """
    found: dict[int, int] = {}
    for token, id in tokenizer.vocabulary.items():
        row = vectors.rows.get(token) if id in tokenizer.special_ids else vectors.find(token)
        if row is not None:
            found[id] = row
    table, known = torch.zeros(tokenizer.size, vectors.width), torch.zeros(tokenizer.size, dtype=torch.bool)
    table[list(found)] = vectors.vectors[list(found.values())]
    known[list(found)] = True
    return table, known


def _is_token(word: str) -> bool:
    return is_writable(word) and word not in SPECIAL


def check_method(name: str) -> Callable[[_Floats, _Floats, _Floats], _Floats]:
    if name not in ANALOGY_METHODS:
        raise InputError(
            f"There is no method '{name}', only {', '.join(ANALOGY_METHODS)}.{did_you_mean(name, ANALOGY_METHODS)}"
        )
    return ANALOGY_METHODS[name]


def near_spellings(word: str, words: Sequence[str], n: int = 3) -> list[str]:
    """The words with the most similar spelling; of equals the more frequent (earlier) first.

    >>> near_spellings("quen", ["the", "queen", "king", "quean", "猫"])
    ['queen', 'quean']
    >>> near_spellings("计算器", ["电", "计算机", "计时器", "器"])
    ['计算机', '计时器']
    >>> near_spellings("New York", ["the", "new", "network", "york"])
    ['new', 'york']
    """
    wanted = word.lower()
    if len(parts := wanted.split()) > 1:
        # few vocabularies have words with spaces: written together, or else the parts of it
        for spellings in ({"_".join(parts), "-".join(parts), "".join(parts)}, set(parts)):
            if found := [other for other in words if other.lower() in spellings]:
                return found[:n]
    letters, least = set(wanted), 0.6 if len(wanted) > 2 else 0.5
    spread = max(1, len(wanted) // 3)
    # filter first: comparing is slow, and there may be a million words
    alike = [
        (other, row)
        for row, other in enumerate(words)
        if abs(len(other) - len(wanted)) <= spread and 2 * len(letters.intersection(other.lower())) >= len(letters)
    ]
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)  # SequenceMatcher caches the second text
    scored: list[tuple[float, int, str]] = []
    for other, row in alike:
        matcher.set_seq1(other.lower())
        if matcher.quick_ratio() >= least and (ratio := matcher.ratio()) >= least:
            scored.append((ratio, -row, other))
    return [other for _, _, other in nlargest(n, scored)]


# --- Where they come from: a folder, or a file.


class _Table(ABC):
    """One vector per word: `LooksUp`, and `Feeds` without a language model (models/family.py)."""

    features: None = None

    @abstractmethod
    def vectors(self, most: int | None = None) -> WordVectors:
        """Return the vectors of the first `most` words."""

    def weights(self) -> dict[str, Tensor]:
        return {}

    def table(self, tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
        return look_up_tokens(tokenizer, self.vectors())

    def check_tokenizer(self, given: Tokenizer, name: str) -> None:
        """Accept any tokenizer: vectors are found by the spelling of a word."""
        return


class VectorFile(_Table):
    """A file of the C tool or GloVe, read on first use."""

    model_type = MODEL_TYPE

    def __init__(self, place: Path) -> None:
        self.place = place

    def vectors(self, most: int | None = None) -> WordVectors:
        return self._all if most is None else self._read(most)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """A file has words and no tokenizer."""
        return tokenizer_of_words(self._all.words)

    @property
    def width(self) -> int:
        return self._all.width

    @cached_property
    def _all(self) -> WordVectors:
        return self._read(None)

    def _read(self, most: int | None) -> WordVectors:
        found = read_vector_file(self.place, most)
        return WordVectors(found.words, found.vectors, str(self.place), found.notes)


@dataclass(frozen=True)
class StoredTable(_Table):
    """The table of a folder: one row per token."""

    folder: OwnFolder
    matrix: Tensor

    @property
    def place(self) -> Path:
        return self.folder.path

    @property
    def model_type(self) -> str:
        return self.folder.model_type

    @property
    def tokenizer(self) -> Tokenizer:
        return self.folder.tokenizer

    @property
    def width(self) -> int:
        return self.matrix.shape[1]

    def vectors(self, most: int | None = None) -> WordVectors:
        tokenizer, table = self.tokenizer, self.matrix
        is_seen = torch.cat([part.any(dim=1) for part in table.split(BLOCK)]).tolist()
        named = {word: row for word, row in tokenizer.vocabulary.items() if row not in tokenizer.special_ids}
        kept = {word: row for word, row in named.items() if is_seen[row]}
        rows = torch.tensor(list(kept.values())[:most], dtype=torch.long)
        if not len(rows):
            raise InputError(f"{self.place} has no words with a vector beside the special tokens.")
        first, last = int(rows[0]), int(rows[-1])
        # without gaps, as in every vocabulary of ours, a view is enough
        vectors = table[first : last + 1] if last - first + 1 == len(rows) else table[rows]
        unseen = [word for word in named if word not in kept]
        return WordVectors(
            list(kept)[:most],
            vectors,
            str(self.place),
            fold=_speller(tokenizer),
            unseen=unseen,
            languages=known_languages(self.place),
        )


def open_stored_table(folder: OwnFolder, name: str = TABLE) -> StoredTable:
    """The matrix of this name in a folder; a folder of word2vec has no other."""
    is_alone = name != TABLE or set(folder.stored) == {name}
    if not is_alone or name not in folder.stored or len(folder.stored[name].shape) != 2:
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in folder.stored.items())
        raise InputError(
            f"{folder.path / WEIGHTS} holds {shapes}, where one matrix {name} belongs, with a row per word."
        )
    if folder.tokenizer.size > len(table := folder.tensors[name]):
        raise InputError(
            f"{folder.path}: the tokenizer has {folder.tokenizer.size:,} words, but the matrix {len(table):,} rows. "
            "The tokenizer belongs to another model."
        )
    return StoredTable(folder, table)


def words_of(below: _Table, loading: Loading) -> _Table:
    """The ability LOOKS_UP of a table."""
    return below


def _speller(tokenizer: Tokenizer) -> Callable[[str], str]:
    """How a tokenizer normalises a word: lower case, accents removed, if it does so."""
    normalizer = tokenizer.backend.normalizer
    if normalizer is None:
        return str
    return lambda word: "".join(normalizer.normalize_str(word).split())


# Opening

_OWN = {LOOKS_UP: words_of}


def open_word2vec(folder: OwnFolder, facts: Facts, loading: Loading) -> Opened:
    return open_below(facts, open_stored_table(folder), _OWN, loading)


def open_vectors(file: Path, loading: Loading) -> Opened:
    """Open a file in the format of the C tool or GloVe."""
    return open_below(describe_vectors(file), VectorFile(file), _OWN, loading)
