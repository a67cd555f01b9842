"""Simple models of the training examples, to compare a fine-tuned one with.

- `ConstantBaseline` gives every example the same answer (`Task.constant_answer`): the most frequent label, the mean.
- `TextBaseline`, for classification, is a logistic regression (train/linear.py) on tf-idf, by the recipe that is usual
  with scikit-learn: TfidfVectorizer of words and pairs of words, or of one to three characters where the training texts
  are mostly of a script without spaces (Chinese, Japanese), and LogisticRegression(C=10). It differs where both scripts
  occur: texts, and runs within a text, are then cut by their own script. Of a text pair, each text has its own columns,
  and so has what both contain. With several labels each has a fitted threshold, as in the model.
- `EntityBaseline`, for tagging, finds the labelled spans of training again by their letters: the longest match wins,
  with its most frequent label.
- `OverlapBaseline`, for extractive answers, follows the sliding window with distance of MCTest (Richardson et al.
  2013), which SQuAD used too (Rajpurkar et al. 2016): in the sentence that shares most with the question, the words
  next to the shared ones. SQuAD's candidates are phrases of a parse; here they are runs without punctuation and without
  the question's own words, of as many words as a training answer has (median). In a script without spaces a word is a
  character, and pairs of them are compared.

They return what a task's scorer reads, so that they get the same figures as the model.

Shapes: n examples, T terms, L labels.
"""

import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from qkv.data.labelled.examples import AnswerExample, Span, TagExample, TextExample
from qkv.metrics.calibration import best_threshold_f1
from qkv.report.bilingual import Phrase
from qkv.tasks.answer import AnswerTask
from qkv.tasks.table import AnyTask
from qkv.tasks.tag import TagTask
from qkv.tasks.task import PlainAnswer, Scorer
from qkv.tasks.texts import TextTask, linear_targets
from qkv.text.segmenter import split_sentences
from qkv.train.linear import Classes, Floats, Integers, LinearMap, SparseRows, fit_linear, fold_numbers, held_out_scores

CONSTANT = "constant"
MOST_CHARACTERS = 5_000_000
"""Of all training texts: with more, tf-idf would take minutes and is left out."""
_MOST_SHARED = 50_000  # of the terms that several texts have, the most frequent
_MOST_ALONE = 20_000  # with more texts, terms of one text alone are left out
_STRENGTH = 0.1  # of the penalty: 1 / C of scikit-learn
_TOLERANCE = 1e-3
_FOLDS = 3  # of the fit of thresholds

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_RUNS = re.compile(rf"([{_UNSPACED}]+)|([^{_UNSPACED}]+)")
_WORD = re.compile(r"\b\w\w+\b")
_SPACES = re.compile(r"\s\s+")


def terms(text: str, by_character: bool) -> list[str]:
    """Words of at least two letters and pairs of words; or single characters, pairs and triples, spaces and punctuation
    among them. The words of a script without spaces are cut into characters too.

    >>> terms("No refund yet", False)
    ['no', 'refund', 'yet', 'no refund', 'refund yet']
    >>> terms("退款！", True)
    ['退', '款', '！', '退款', '款！', '退款！']
    """
    text = text.lower()
    if by_character:
        return _pieces(_SPACES.sub(" ", text))
    found: list[str] = []
    for unspaced, spaced in _RUNS.findall(text):
        if unspaced:
            found += _pieces(unspaced)
        else:
            words = _WORD.findall(spaced)
            found += words
            found += [f"{one} {other}" for one, other in pairwise(words)]
    return found


def _pieces(text: str) -> list[str]:
    pairs = [text[at : at + 2] for at in range(len(text) - 1)]
    return [*text, *pairs, *(text[at : at + 3] for at in range(len(text) - 2))]


def _is_unspaced(texts: Iterable[str]) -> bool:
    """Whether more than half of the characters belong to a script without spaces."""
    balance = 0
    for text in texts:
        balance += 2 * sum(len(unspaced) for unspaced, _ in _RUNS.findall(text)) - len(text)
    return balance > 0


def _texts(example: TextExample) -> tuple[str, ...]:
    return (example.text,) if example.pair is None else (example.text, example.pair)


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


class _Counts(NamedTuple):
    """How often each text has which terms: one entry for each text and term."""

    rows: Integers
    terms: Integers
    counts: Integers
    n: int  # texts


@dataclass(frozen=True)
class _Vocabulary:
    """Terms, as columns of a linear model.

    The terms of one training text alone share a column, each with its share of the column's value: under a ridge
    penalty that is the same model as one with a column for each, with far fewer.
    """

    by_character: bool
    numbers: Mapping[str, int]  # term → number
    rarity: Floats  # (T,) idf
    columns: Integers  # (T,)
    shares: Floats  # (T,)
    width: int  # columns

    @classmethod
    def fit(cls, examples: Sequence[TextExample]) -> "tuple[_Vocabulary, SparseRows]":
        """From training examples; and their rows."""
        by_character = _is_unspaced(chain.from_iterable(map(_texts, examples)))
        numbers: dict[str, int] = {}
        found = _count(examples, by_character, lambda term: numbers.setdefault(term, len(numbers)))
        frequency = np.bincount(found.terms, minlength=len(numbers))
        order = np.argsort(-frequency, kind="stable")
        kept = (frequency == 1) & (found.n <= _MOST_ALONE)
        kept[order[: min(_MOST_SHARED, int((frequency > 1).sum()))]] = True
        if not kept.all():
            renumbered = np.cumsum(kept) - 1
            numbers = {term: int(renumbered[number]) for term, number in numbers.items() if kept[number]}
            of_kept = kept[found.terms]
            found = _Counts(found.rows[of_kept], renumbered[found.terms[of_kept]], found.counts[of_kept], found.n)
            frequency = frequency[kept]
        rarity = np.log((1 + found.n) / (1 + frequency)) + 1
        values = _scaled(found, rarity)
        columns, shares = np.cumsum(frequency > 1) - 1, np.ones(len(frequency))
        n_shared = int((frequency > 1).sum())
        alone = frequency[found.terms] == 1
        row = found.rows[alone]
        length = np.sqrt(np.bincount(row, values[alone] ** 2, minlength=found.n))
        columns[found.terms[alone]] = n_shared + row
        shares[found.terms[alone]] = values[alone] / length[row]
        # of a text's own terms one entry remains
        first = np.flatnonzero(alone)[np.unique(row, return_index=True)[1]]
        values[first] = length[found.rows[first]]
        left = ~alone
        left[first] = True
        vocabulary = cls(by_character, numbers, rarity, columns, shares, n_shared + found.n)
        return vocabulary, vocabulary._rows(found.rows[left], found.terms[left], values[left], found.n)

    def rows(self, examples: Sequence[TextExample]) -> SparseRows:
        """(n, width)"""
        found = _count(examples, self.by_character, self.numbers.get)
        values = _scaled(found, self.rarity) * self.shares[found.terms]
        return self._rows(found.rows, found.terms, values, found.n)

    def _rows(self, rows: Integers, terms_of_rows: Integers, values: Floats, n: int) -> SparseRows:
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]).astype(np.int64)
        return SparseRows(self.columns[terms_of_rows], values, offsets, self.width)


def _count(examples: Sequence[TextExample], by_character: bool, number_of: Callable[[str], int | None]) -> _Counts:
    """Terms that have a number."""
    numbers, counts, sizes = array("i"), array("i"), []
    for example in examples:
        before = len(numbers)
        for term, count in _terms_of(example, by_character).items():
            if (number := number_of(term)) is not None:
                numbers.append(number)
                counts.append(count)
        sizes.append(len(numbers) - before)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    return _Counts(rows, np.array(numbers, np.int64), np.array(counts, np.int64), len(sizes))


def _terms_of(example: TextExample, by_character: bool) -> Counter[str]:
    found = [Counter(terms(text, by_character or _is_unspaced([text]))) for text in _texts(example)]
    if len(found) == 1:
        return found[0]
    first, second = found
    sides = [("1 ", first), ("2 ", second), ("= ", first & second)]
    return Counter({side + term: n for side, found in sides for term, n in found.items()})


def _scaled(found: _Counts, rarity: Floats) -> Floats:
    """Counts times idf, each text scaled to length 1."""
    values = found.counts * rarity[found.terms]
    length = np.sqrt(np.bincount(found.rows, values**2, minlength=found.n))
    return values / length[found.rows]


@dataclass(frozen=True)
class TextBaseline:
    task: TextTask
    vocabulary: _Vocabulary
    linear: LinearMap
    thresholds: Floats  # (L,) of the scores, where a label is given or not
    key: str = "tf-idf"

    @property
    def name(self) -> Phrase:
        return Phrase("tf-idf with logistic regression", "tf-idf 加逻辑回归")

    @classmethod
    def fit(cls, task: TextTask, examples: Sequence[TextExample]) -> "TextBaseline":
        vocabulary, rows = _Vocabulary.fit(examples)
        targets = linear_targets(task, examples)
        # two columns of a softmax with twice the penalty are one column of a sigmoid
        strength = _STRENGTH * 2 if isinstance(targets, Classes) and targets.outputs == 2 else _STRENGTH
        unit = 2 / math.sqrt(max(1, len(examples)))
        linear = fit_linear(rows, targets, strength, tolerance=_TOLERANCE, bias_unit=unit)
        thresholds = np.zeros(task.outputs)
        if task.fits_thresholds and len(examples) > 1:  # by scores of examples that the fit did not use
            fold = fold_numbers([""] * len(examples), min(_FOLDS, len(examples)), 0)
            (scores,) = held_out_scores(rows, targets, [strength], fold, tolerance=_TOLERANCE, bias_unit=unit)
            best = best_threshold_f1(1 / (1 + np.exp(-scores)), task.targets(examples).numpy() > 0.5)
            thresholds = np.log(best) - np.log1p(-np.minimum(best, 1 - 1e-12))
        return cls(task, vocabulary, linear, thresholds)

    def scores(self, examples: Sequence[TextExample]) -> Floats:
        """(n, L)"""
        return self.linear.scores(self.vocabulary.rows(examples))

    def answer(self, examples: Sequence[TextExample]) -> list[PlainAnswer]:
        scores = self.scores(examples)
        if self.task.kind == "multi":
            said = scores >= self.thresholds
            return [PlainAnswer(labels=tuple(self.task.labels[n] for n in np.flatnonzero(row))) for row in said]
        return [PlainAnswer(label=self.task.labels[n]) for n in scores.argmax(1).tolist()]


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


_TOKEN = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+(?:[.,'’-][^\W{_UNSPACED}]+)*|[^\w\s]")
_CHARACTER = re.compile(f"[{_UNSPACED}]")
_MOST_PASSAGES = 2_000  # of training, to count in how many of them a term is


class _Sentence(NamedTuple):
    """Words, characters of a script without spaces, and punctuation, with what is compared of them."""

    spans: list[tuple[int, int]]  # of the tokens, in the passage
    is_word: list[bool]  # by token
    terms: list[tuple[str, int, int]]  # and its first and last token

    @classmethod
    def of(cls, text: str, start: int, end: int) -> "_Sentence":
        tokens = list(_TOKEN.finditer(text, start, end))
        words = [token[0].lower() for token in tokens]
        unspaced = [_CHARACTER.match(word) is not None for word in words]
        is_word = [word[0].isalnum() for word in words]
        found = [(word, at, at) for at, word in enumerate(words) if is_word[at] and not unspaced[at]]
        found += [
            (words[at - 1] + words[at], at - 1, at) for at in range(1, len(words)) if unspaced[at - 1] and unspaced[at]
        ]
        return cls([token.span() for token in tokens], is_word, found)

    def shared(self, wanted: set[str]) -> set[int]:
        """Tokens of terms that are wanted."""
        return {at for term, first, last in self.terms if term in wanted for at in (first, last)}


@dataclass(frozen=True)
class OverlapBaseline:
    frequency: Mapping[str, int]  # of the passages of training, how many have a term
    passages: int
    length: int  # of an answer, in tokens
    key: str = "overlap"

    @property
    def name(self) -> Phrase:
        return Phrase("the words next to those of the question", "取问题用词旁边的词语")

    @classmethod
    def fit(cls, examples: Sequence[AnswerExample]) -> "OverlapBaseline":
        frequency: Counter[str] = Counter()
        passages = list(dict.fromkeys(example.text for example in examples))
        passages = passages[:: max(1, math.ceil(len(passages) / _MOST_PASSAGES))]
        for text in passages:
            frequency.update({term for term, _, _ in _Sentence.of(text, 0, len(text)).terms})
        answers = [example.answers[0].text for example in examples if example.answers]
        sizes = [sum(_Sentence.of(text, 0, len(text)).is_word) for text in answers]
        return cls(frequency, len(passages), max(1, int(np.median(sizes))) if sizes else 1)

    def answer(self, examples: Sequence[AnswerExample]) -> list[PlainAnswer]:
        sentences: dict[str, list[_Sentence]] = {}  # a passage often has several questions
        found = []
        for example in examples:
            if example.text not in sentences:
                spans = split_sentences(example.text)
                sentences[example.text] = [_Sentence.of(example.text, *span) for span in spans]
            start, end = self._span(example.question, sentences[example.text])
            found.append(PlainAnswer(text=example.text[start:end]))
        return found

    def _span(self, question: str, sentences: Sequence[_Sentence]) -> tuple[int, int]:
        wanted = {term for term, _, _ in _Sentence.of(question, 0, len(question)).terms}
        overlaps = [sum(map(self._rarity, {term for term, _, _ in one.terms} & wanted)) for one in sentences]
        best, span = -1.0, (0, 0)
        if not overlaps:
            return span
        sentence = sentences[overlaps.index(max(overlaps))]
        weights = np.zeros(len(sentence.spans))  # of the tokens
        for term, first, last in sentence.terms:
            weights[[first, last]] += self._rarity(term) / (1 + last - first)
        shared = sentence.shared(wanted)
        marks = np.array(sorted(shared), np.int64)
        is_free = [word and at not in shared for at, word in enumerate(sentence.is_word)]
        for first in np.flatnonzero(is_free).tolist():
            last = first + self.length
            if last > len(is_free) or not all(is_free[first:last]):  # a shorter run counts as a whole
                if first and is_free[first - 1]:
                    continue
                last = next((at for at in range(first, len(is_free)) if not is_free[at]), len(is_free))
            distance = np.where(marks < first, first - marks, marks - last + 1)
            value = float((weights[marks] / (1 + distance)).sum() + weights[first:last].mean())
            if value > best:
                best, span = value, (sentence.spans[first][0], sentence.spans[last - 1][1])
        return span

    def _rarity(self, term: str) -> float:
        return math.log((1 + self.passages) / (1 + self.frequency.get(term, 0)))


def fit_baselines(task: AnyTask, examples: Sequence[Any]) -> list[Baseline]:
    """The baselines of a task, from its training examples; see `is_too_large` for what is left out."""
    found: list[Baseline] = []
    if (constant := task.constant_answer(examples)) is not None:
        found.append(ConstantBaseline(*constant))
    if isinstance(task, TagTask):
        found.append(EntityBaseline.fit(examples))
    if isinstance(task, AnswerTask):
        found.append(OverlapBaseline.fit(examples))
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
