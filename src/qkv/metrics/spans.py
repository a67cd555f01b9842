"""Metrics of spans: answers (exact match and F1, as the official scorers of SQuAD and CMRC 2018), and entities.

Both take the maximum over all accepted answers. For a question without an accepted answer only "" is right.

SQuAD (evaluate-v2.0.py; evaluate-v1.1.py gives the same if an accepted answer is not empty after normalisation):
lower case, no ASCII punctuation, no articles, white space normalised; F1 of the words, in any order.

CMRC 2018 (cmrc2018_evaluate.py, v5): lower case, without its own list of punctuation; F1 of the longest common run of
segments, where a segment is a 汉字 or a word of another script. The official script finds those words with NLTK's
`word_tokenize`; `_words` does the same without NLTK's sentence model: a full stop inside the answer stays with its word
("Terry A. Gates"), one at the end is separate.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from qkv.metrics.classes import Counts
from qkv.metrics.intervals import FloatArray, IntegerArray, bootstraps, wilson_interval

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def squad_normalize(text: str) -> str:
    """
    >>> squad_normalize("The Duke's  an-swer, (a) 1.5!")
    'dukes answer 15'
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def squad_exact(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if the normalised prediction equals a normalised answer, else 0."""
    return float(squad_normalize(prediction) in _normalize(answers))


def squad_f1(prediction: str, answers: Sequence[str]) -> float:
    """
    >>> squad_f1("the cat on a mat", ["cat", "a black cat"])  # {cat, on, mat} with {cat}: 2 · 1 / (3 + 1)
    0.5
    """
    said = squad_normalize(prediction).split()
    return max(_words_f1(said, answer.split()) for answer in _normalize(answers))


def _normalize(answers: Sequence[str]) -> list[str]:
    """Normalise answers and drop empty ones; [""] if none is left."""
    return [normal for answer in answers if (normal := squad_normalize(answer))] or [""]


def _words_f1(said: list[str], wanted: list[str]) -> float:
    if not said or not wanted:
        return float(said == wanted)
    shared = (Counter(said) & Counter(wanted)).total()
    return _f1(shared, len(said), len(wanted))


def _f1(shared: int, said: int, wanted: int) -> float:
    # by precision and recall, as the official scripts do, for the same rounding
    if not shared:
        return 0.0
    precision, recall = shared / said, shared / wanted
    return 2 * precision * recall / (precision + recall)


# CMRC 2018. The script's list also has "……", two characters that never match a single one, so "…" is kept.
_LEFT_OUT = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_SEGMENT = re.compile("([\u4e00-\u9fa5])")  # the script's own range; rarer 汉字 are part of words


def cmrc_exact(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if the prediction equals an answer, ignoring case and punctuation but not inner spaces; else 0."""
    said = _without_punctuation(prediction)
    return float(any(said == _without_punctuation(answer) for answer in answers or ("",)))


def cmrc_f1(prediction: str, answers: Sequence[str]) -> float:
    """
    >>> cmrc_f1("在1998年", ["1998年"])  # 在 | 1998 | 年 with 1998 | 年: 2 · 2 / (3 + 2)
    0.8
    """
    said = cmrc_segments(prediction)
    if not answers:
        return float(not said)
    return max(_segments_f1(said, cmrc_segments(answer)) for answer in answers)


def cmrc_segments(text: str) -> list[str]:
    """Split into single 汉字 and words of other scripts, without punctuation.

    >>> cmrc_segments("《Harry Potter》第3部，25%")
    ['harry', 'potter', '第', '3', '部', '25', '%']
    """
    found: list[str] = []
    for place, piece in enumerate(_SEGMENT.split(_without_punctuation(text))):
        found.extend([piece] if place % 2 else _words(piece))  # odd positions are the 汉字
    return found


def _without_punctuation(text: str) -> str:
    # strip first, as in the script: spaces next to removed punctuation stay
    return text.lower().strip().translate(_LEFT_OUT)


def _segments_f1(said: list[str], wanted: list[str]) -> float:
    """F1 of the longest common substring of segments (not subsequence, although the script calls it LCS)."""
    run = SequenceMatcher(None, wanted, said, autojunk=False).find_longest_match()
    return _f1(run.size, len(said), len(wanted))


# Penn Treebank tokenization, as far as needed after CMRC's punctuation is removed.
_OPENING = re.compile(r"""(?<=[ (\[{<])(?:"|'')""")
_CLOSING = re.compile(r"''|\"")
_LAST_STOP = re.compile(r"(?<=[^.])\.(?=[\])}>'»\s]*$)")
_ALONE = re.compile(r"\.{2,}|``|''|,(?!\d)|[;@#$%&?!()\[\]{}<>«»‘„\u2012-\u2015]")
_CLITIC = re.compile(r"(?<=[^'])(?:'(?:s|m|d|ll|re|ve)?|n't)$")
_QUOTED = re.compile(r"'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)")
_JOINED = {
    "cannot": ("can", "not"),
    "d'ye": ("d", "'ye"),
    "gimme": ("gim", "me"),
    "gonna": ("gon", "na"),
    "gotta": ("got", "ta"),
    "lemme": ("lem", "me"),
    "more'n": ("more", "'n"),
    "wanna": ("wan", "na"),
    "'tis": ("'t", "is"),
    "'twas": ("'t", "was"),
}


def _words(text: str) -> list[str]:
    """
    >>> _words('"lloyd\\'s", 1,000 (u.s.) inc.')
    ['``', 'lloyd', "'s", "''", ',', '1,000', '(', 'u.s.', ')', 'inc', '.']
    """
    if text.isalnum():  # the usual case
        return [text]
    if text.startswith('"'):
        text = "`` " + text[1:]
    text = _CLOSING.sub(" '' ", _OPENING.sub(" `` ", text))
    text = _LAST_STOP.sub(" . ", text)
    found: list[str] = []
    for word in _ALONE.sub(lambda mark: f" {mark[0]} ", text).split():
        if word == "''":
            found.append(word)
            continue
        if len(word) > 1 and _QUOTED.match(word) and word not in _JOINED:
            found.append("'")
            word = word[1:]
        clitic = _CLITIC.search(word)
        if clitic:
            found.extend((word[: clitic.start()], clitic[0]))
        else:
            found.extend(_JOINED.get(word, (word,)))
    return found


SCORERS: dict[str, tuple[Callable[[str, Sequence[str]], float], Callable[[str, Sequence[str]], float]]] = {
    "squad": (squad_exact, squad_f1),
    "cmrc": (cmrc_exact, cmrc_f1),
}
"""Exact match and F1 by name, both functions of (prediction, accepted answers)."""


# --- Entity-level metrics: exact match of labelled spans.
#
# `find_chunks` reads tags as conlleval does, the scorer of the CoNLL shared tasks (Tjong Kim Sang, 2004-01-26): it
# accepts every sequence, also those that its scheme forbids, such as "I-PER" after "O". The original knows B, I, O and
# E; S and M, of later schemes, are read as in later versions of it.
#
# `EntityCounts` compares spans of any unit (words, characters).

SCHEMES = {"IOB1": "IOB", "IOB2": "IOB", "BIOES": "IOBES", "BMES": "OBMES"}
"""The first letters of tags. IOB1 and IOB2 differ in how they are written, not in how conlleval reads them."""


class EntityChunk(NamedTuple):
    start: int
    end: int  # exclusive
    label: str


def find_chunks(tags: Sequence[str], scheme: str = "IOB2") -> list[EntityChunk]:
    """Return the spans of one sentence's tags, in order; they never overlap.

    A chunk begins at B and S; at I, M and E that follow O, E or S; and wherever the label changes. It ends before O, B
    and S, after E and S, and wherever the label changes. The label is the part of a tag after the first "-".

    >>> [tuple(chunk) for chunk in find_chunks("O I-PER I-PER B-PER I-LOC O".split(), "IOB1")]
    [(1, 3, 'PER'), (3, 4, 'PER'), (4, 5, 'LOC')]
    """
    if scheme not in SCHEMES:
        raise ValueError(f"Scheme '{scheme}' is not one of {', '.join(SCHEMES)}.")
    letters = SCHEMES[scheme]
    found: list[EntityChunk] = []
    begin, open_label, closed = 0, "", True  # closed: no open chunk before this tag
    for place, tag in enumerate(tags):
        letter, _, label = tag.partition("-")
        if letter not in letters or len(letter) != 1:
            raise ValueError(f"Tag '{tag}' does not begin with one of {', '.join(letters)}, as scheme {scheme} needs.")
        if not closed and (letter in "OBS" or label != open_label):
            found.append(EntityChunk(begin, place, open_label))
            closed = True
        if letter == "O":
            continue
        if closed:
            begin, open_label, closed = place, label, False
        if letter in "ES":
            found.append(EntityChunk(begin, place + 1, open_label))
            closed = True
    if not closed:
        found.append(EntityChunk(begin, len(tags), open_label))
    return found


class EntityScore(NamedTuple):
    """Quotients with a divisor of 0 are 0, as in conlleval."""

    precision: float
    recall: float
    f1: float
    right: int
    answered: int
    expected: int


class EntityCounts:
    """Accumulates counts over documents. A span is right if its start, end and label are.

    Documents with equal counts are stored once, to save memory.

    >>> counts = EntityCounts()
    >>> counts.add(expected=[(0, 2, "PER"), (5, 6, "LOC")], answered=[(0, 2, "PER"), (5, 7, "LOC")])
    >>> counts.micro()
    EntityScore(precision=0.5, recall=0.5, f1=0.5, right=1, answered=2, expected=2)
    """

    def __init__(self) -> None:
        self._documents: Counter[tuple[tuple[str, int, int, int], ...]] = Counter()

    def add(self, expected: Iterable[tuple[int, int, str]], answered: Iterable[tuple[int, int, str]]) -> None:
        """Add one document. Spans may overlap; duplicates count once."""
        # plain tuples, so that spans of different classes compare equal
        wanted = {(span[0], span[1], span[2]) for span in expected}
        said = {(span[0], span[1], span[2]) for span in answered}
        right, given, due = (Counter(label for _, _, label in spans) for spans in (wanted & said, said, wanted))
        labels = sorted(given.keys() | due.keys())
        self._documents[tuple((label, right[label], given[label], due[label]) for label in labels)] += 1

    @property
    def documents(self) -> int:
        return self._documents.total()

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels that were expected or answered, sorted."""
        return tuple(sorted({label for document in self._documents for label, *_ in document}))

    def micro(self) -> EntityScore:
        """Return the score over all entities: conlleval's overall figures."""
        rows, counts, _ = self._table()
        right, answered, expected = (int(n) for n in (counts @ rows).reshape(3, -1).sum(1))
        return _score(right, answered, expected)

    def per_label(self) -> dict[str, EntityScore]:
        rows, counts, labels = self._table()
        sums = (counts @ rows).reshape(3, -1)
        return {label: _score(*(int(n) for n in sums[:, place])) for place, label in enumerate(labels)}

    def macro_f1(self) -> float:
        """Return the mean F1 of all labels that were expected or answered."""
        each = self.per_label().values()
        return sum(score.f1 for score in each) / len(each) if each else 0.0

    def values(self) -> dict[str, float]:
        micro = self.micro()
        return {
            "f1": micro.f1,
            "precision": micro.precision,
            "recall": micro.recall,
            "macro_f1": self.macro_f1(),
        }

    def intervals(self, draws: int = 1000, seed: int = 0) -> dict[str, tuple[float, float]]:
        """Return 95 % intervals by the names of `values`: the bootstrap over documents.

        If all entities were right, every draw agrees; then the lower end is Wilson's, with each entity as a trial. If
        none was right, the upper end is Wilson's, over the answered entities for precision and the expected ones for
        the others.
        """
        rows, counts, labels = self._table()

        def of_sums(sums: FloatArray) -> Counts:
            right, answered, expected = np.moveaxis(sums.reshape(len(sums), 3, len(labels)), 1, 0)
            return Counts(right, answered, expected)

        figures = {
            "f1": lambda sums: of_sums(sums).micro_f1,
            "precision": lambda sums: of_sums(sums).micro_precision,
            "recall": lambda sums: of_sums(sums).micro_recall,
            "macro_f1": lambda sums: of_sums(sums).macro_f1,
        }
        found = bootstraps(rows, figures, counts=counts, draws=draws, seed=seed)
        micro = self.micro()
        if micro.right and micro.right == micro.answered == micro.expected:
            low = wilson_interval(micro.right, micro.right)[0]
            return dict.fromkeys(found, (low, 1.0))
        if not micro.right and (micro.answered or micro.expected):
            trials = dict.fromkeys(found, micro.expected or micro.answered) | {"precision": micro.answered}
            return {name: wilson_interval(0, trials[name]) for name in found}
        return found

    def _table(self) -> tuple[FloatArray, IntegerArray, tuple[str, ...]]:
        """Return distinct documents as (n, 3·L) of right, answered, expected; the count of each; the labels."""
        labels = self.labels
        places = {label: place for place, label in enumerate(labels)}
        rows = np.zeros((len(self._documents), 3, len(labels)))
        for row, document in zip(rows, self._documents, strict=True):
            for label, *numbers in document:
                row[:, places[label]] = numbers
        counts = np.fromiter(self._documents.values(), np.int64, len(self._documents))
        return rows.reshape(len(rows), 3 * len(labels)), counts, labels


def _score(right: int, answered: int, expected: int) -> EntityScore:
    return EntityScore(
        right / answered if answered else 0.0,
        right / expected if expected else 0.0,
        2 * right / (answered + expected) if answered + expected else 0.0,
        right,
        answered,
        expected,
    )
