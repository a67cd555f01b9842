"""Simple models of the training examples, to compare a fine-tuned one with.

- `ConstantBaseline` gives every example the same answer (`Task.constant_answer`): the most frequent label, the mean.
- `TextBaseline`, for classification, is a logistic regression (train/linear.py) on tf-idf: of words and pairs of words;
  of characters, their pairs and triples where a script has no spaces (Chinese, Japanese). Of a text pair, each text has
  its own columns, and so has what both contain. With several labels each has a fitted threshold, as in the model.
- `EntityBaseline`, for tagging, finds the labelled spans of training again by their letters: the longest match wins,
  with its most frequent label.

They return what a task's scorer reads, so that they get the same figures as the model.

Shapes: n examples, F columns, L labels.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple, Protocol
from unicodedata import normalize

import numpy as np

from qkv.data.labelled.examples import Span, TagExample, TextExample
from qkv.metrics.calibration import best_threshold_f1
from qkv.report.bilingual import Phrase
from qkv.tasks.table import AnyTask
from qkv.tasks.tag import TagTask
from qkv.tasks.task import PlainAnswer, Scorer
from qkv.tasks.texts import TextTask, linear_targets
from qkv.train.linear import Floats, LinearMap, SparseRows, fit_linear, fold_numbers, held_out_scores

CONSTANT = "constant"
MOST_CHARACTERS = 5_000_000
"""Of all training texts: with more, tf-idf would take minutes and is left out."""
_MOST_COLUMNS = 50_000  # the most frequent terms
_STRENGTH = 0.1  # of the penalty; rows have length 1
_TOLERANCE = 1e-3
_FOLDS = 3  # of the fit of thresholds

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_RUNS = re.compile(rf"([{_UNSPACED}]+)|([^{_UNSPACED}]+)")
_WORD = re.compile(r"\w+(?:['’]\w+)?")


def terms(text: str) -> list[str]:
    """Words and pairs of words; single characters, pairs and triples where a script has no spaces.

    >>> terms("No refund yet")
    ['no', 'refund', 'yet', 'no refund', 'refund yet']
    >>> terms("退款3天")
    ['退', '款', '退款', '3', '天']
    """
    found: list[str] = []
    for unspaced, spaced in _RUNS.findall(normalize("NFKC", text).lower()):
        if unspaced:
            found += unspaced
            found += [unspaced[at : at + 2] for at in range(len(unspaced) - 1)]
            found += [unspaced[at : at + 3] for at in range(len(unspaced) - 2)]
        else:
            words = _WORD.findall(spaced)
            found += words
            found += [f"{one} {other}" for one, other in pairwise(words)]
    return found


def _columns(example: TextExample) -> Counter[str]:
    if example.pair is None:
        return Counter(terms(example.text))
    first, second = Counter(terms(example.text)), Counter(terms(example.pair))
    sides = [("1 ", first), ("2 ", second), ("= ", first & second)]
    return Counter({side + term: n for side, found in sides for term, n in found.items()})


class Baseline(Protocol):
    @property
    def key(self) -> str: ...  # in files
    @property
    def name(self) -> Phrase: ...
    def answer(self, examples: Sequence[Any]) -> list[PlainAnswer]: ...


@dataclass(frozen=True)
class ConstantBaseline:
    name: Phrase
    constant: PlainAnswer
    key: str = CONSTANT

    def answer(self, examples: Sequence[Any]) -> list[PlainAnswer]:
        return [self.constant] * len(examples)


@dataclass(frozen=True)
class TextBaseline:
    task: TextTask
    numbers: Mapping[str, int]  # term → column
    rarity: Floats  # (F,) idf
    linear: LinearMap
    thresholds: Floats  # (L,) of the scores, where a label is given or not
    key: str = "tf-idf"

    @property
    def name(self) -> Phrase:
        return Phrase("tf-idf with logistic regression", "tf-idf 加逻辑回归")

    @classmethod
    def fit(cls, task: TextTask, examples: Sequence[TextExample]) -> "TextBaseline":
        found = [_columns(example) for example in examples]
        frequency = Counter(chain.from_iterable(found))
        kept = [term for term, _ in frequency.most_common(_MOST_COLUMNS)]
        numbers = {term: number for number, term in enumerate(kept)}
        rarity = np.log((1 + len(found)) / (1 + np.array([frequency[term] for term in kept], np.float64))) + 1
        rows = _rows(found, numbers, rarity)
        targets = linear_targets(task, examples)
        linear = fit_linear(rows, targets, _STRENGTH, tolerance=_TOLERANCE)
        thresholds = np.zeros(task.outputs)
        if task.fits_thresholds and len(found) > 1:  # by scores of examples that the fit did not use
            fold = fold_numbers([""] * len(found), min(_FOLDS, len(found)), 0)
            (scores,) = held_out_scores(rows, targets, [_STRENGTH], fold, tolerance=_TOLERANCE)
            best = best_threshold_f1(1 / (1 + np.exp(-scores)), task.targets(examples).numpy() > 0.5)
            thresholds = np.log(best) - np.log1p(-np.minimum(best, 1 - 1e-12))
        return cls(task, numbers, rarity, linear, thresholds)

    def answer(self, examples: Sequence[TextExample]) -> list[PlainAnswer]:
        scores = self.linear.scores(_rows(map(_columns, examples), self.numbers, self.rarity))  # (n, L)
        if self.task.kind == "multi":
            said = scores >= self.thresholds
            return [PlainAnswer(labels=tuple(self.task.labels[n] for n in np.flatnonzero(row))) for row in said]
        return [PlainAnswer(label=self.task.labels[n]) for n in scores.argmax(1).tolist()]


def _rows(found: Iterable[Counter[str]], numbers: Mapping[str, int], rarity: Floats) -> SparseRows:
    """tf-idf with 1 + ln of the counts, scaled to length 1."""
    columns: list[int] = []
    counts: list[int] = []
    sizes: list[int] = []
    for terms_of_text in found:
        known = [(numbers[term], n) for term, n in terms_of_text.items() if term in numbers]
        columns += [column for column, _ in known]
        counts += [n for _, n in known]
        sizes.append(len(known))
    place = np.array(columns, np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    values = (1 + np.log(np.array(counts, np.float64))) * rarity[place]
    row = np.repeat(np.arange(len(sizes)), sizes)
    length = np.sqrt(np.bincount(row, values**2, minlength=len(sizes)))
    return SparseRows(place, values / np.maximum(length[row], 1e-12), offsets, max(1, len(rarity)))


@dataclass(frozen=True)
class EntityBaseline:
    labels: Mapping[str, str]  # text of a span, folded → its most frequent label
    longest: Mapping[str, int]  # first character → the most characters of a span that begins so
    key: str = "dictionary"

    @property
    def name(self) -> Phrase:
        return Phrase("looking up the entities of the training data", "查训练集的实体词典")

    @classmethod
    def fit(cls, examples: Sequence[TagExample]) -> "EntityBaseline":
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for example in examples:
            for start, end, label in example.spans or ():
                counts[example.text[start:end].lower()][label] += 1
        longest: dict[str, int] = {}
        for text in counts:
            longest[text[0]] = max(longest.get(text[0], 0), len(text))
        # of labels that are equally frequent, the first by name
        labels = {text: min(found, key=lambda label: (-found[label], label)) for text, found in counts.items()}
        return cls(labels, longest)

    def answer(self, examples: Sequence[TagExample]) -> list[PlainAnswer]:
        return [PlainAnswer(spans=tuple(self._spans(example.text))) for example in examples]

    def _spans(self, text: str) -> list[Span]:
        found, begin, folded = [], 0, text.lower()
        if len(folded) != len(text):  # a few letters become two
            folded = text
        while begin < len(text):
            most = min(self.longest.get(folded[begin], 0), len(text) - begin) if _is_edge(folded, begin) else 0
            end = next(
                (
                    begin + size
                    for size in range(most, 0, -1)
                    if folded[begin : begin + size] in self.labels and _is_edge(folded, begin + size)
                ),
                None,
            )
            if end is not None:
                found.append(Span(begin, end, self.labels[folded[begin:end]]))
            begin = begin + 1 if end is None else end
        return found


_INSIDE = re.compile(rf"[^\W{_UNSPACED}]{{2}}")


def _is_edge(text: str, at: int) -> bool:
    """Whether no word of letters goes on across this place."""
    return not _INSIDE.match(text[max(0, at - 1) : at + 1])


def fit_baselines(task: AnyTask, examples: Sequence[Any]) -> list[Baseline]:
    """The baselines of a task, from its training examples; see `is_too_large` for what is left out."""
    found: list[Baseline] = []
    if (constant := task.constant_answer(examples)) is not None:
        found.append(ConstantBaseline(*constant))
    if isinstance(task, TagTask):
        found.append(EntityBaseline.fit(examples))
    if isinstance(task, TextTask) and not task.numbers and not is_too_large(task, examples):
        found.append(TextBaseline.fit(task, examples))
    return found


def score_constant(task: AnyTask, train: Sequence[Any], dev: Sequence[Any]) -> "BaselineScore | None":
    """The best constant answer of the training examples, scored on others."""
    constant = task.constant_answer(train)
    if constant is None:
        return None
    scores = BaselineScores(task, [ConstantBaseline(*constant)])
    scores.add(dev)
    return scores.result()[0]


def is_too_large(task: AnyTask, examples: Sequence[Any]) -> bool:
    """Whether there are too many texts for tf-idf."""
    return (
        isinstance(task, TextTask)
        and not task.numbers
        and sum(example.characters() for example in examples) > MOST_CHARACTERS
    )


class BaselineScores:
    """Scores of baselines on examples that stream by."""

    def __init__(self, task: AnyTask, baselines: Sequence[Baseline]) -> None:
        self.baselines = tuple(baselines)
        self._scorers: list[Scorer[Any, Any]] = [task.scorer() for _ in baselines]

    def add(self, examples: Sequence[Any]) -> None:
        for baseline, scorer in zip(self.baselines, self._scorers, strict=True):
            scorer.add(examples, baseline.answer(examples))

    def result(self) -> "tuple[BaselineScore, ...]":
        """In the order of the baselines, by the main metric."""
        found = []
        for baseline, scorer in zip(self.baselines, self._scorers, strict=True):
            scored = scorer.result(intervals=False)
            error = scored.values.get("mean_absolute_error", math.nan)
            found.append(BaselineScore(baseline.key, baseline.name, scored.value, error))
        return tuple(found)


class BaselineScore(NamedTuple):
    key: str
    name: Phrase
    value: float  # of the main metric
    error: float = math.nan  # mean absolute error, of numbers

    def to_dict(self) -> dict[str, Any]:
        error = {"mean_absolute_error": self.error} if math.isfinite(self.error) else {}
        return {"key": self.key, "name": self.name.en, "value": self.value, **error}
