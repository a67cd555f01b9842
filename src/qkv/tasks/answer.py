"""Extractive question answering: the span of a passage that answers a question, or no answer (BERT §4.2 and §4.3).

Rows and targets are in answer_features.py. The loss of a row is the mean cross entropy of the first and the last token
of the answer, over all tokens of the row; [CLS] means "no answer here".

A span has at most `longest` tokens within one window; its score is start score plus end score. A span in several
windows keeps its best score. The score of no answer is that of [CLS], minimised over the windows (BERT §4.3). The
search is exact and vectorised: the n best spans of a window begin at the n tokens whose own best span is best.

Probabilities are the softmax over the `n_best` spans and, where allowed, no answer; the temperature divides these
scores. The model abstains if no answer is the most probable, or reaches the fitted threshold "no_answer". An answer is
always a substring of the passage: `text == passage[start:end]`.

Exact match and F1 are those of SQuAD or CMRC (metrics/spans.py), from 0 to 1, in total and for questions with and
without an answer. F1 has a bootstrap interval over questions, exact match the interval of a share.

Shapes: E examples, R rows, N tokens of all rows, C tokens of a passage, K candidates of an example; B rows of a group,
T tokens of its longest.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from qkv.config import merge
from qkv.data.batch import Batch, Integers, plan_batches
from qkv.data.corpus.shards import ranges
from qkv.data.labelled.examples import AnswerExample
from qkv.errors import InputError, did_you_mean
from qkv.metrics.intervals import bootstrap, wilson_interval
from qkv.metrics.spans import SCORERS
from qkv.report.bilingual import Phrase
from qkv.tasks.answer_features import END, START, AnswerFeatures, name_place
from qkv.tasks.task import (
    Calibration,
    ConstantAnswer,
    Judgement,
    Makers,
    PlainAnswer,
    Scored,
    Scores,
    ShownPart,
    Sure,
    Task,
    Weighed,
    round_result,
)
from qkv.tasks.transfer import TaskModel
from qkv.text.tokenizer import Tokenizer
from qkv.text.wordpiece import CHINESE
from qkv.train.loop import Term

_Floats = NDArray[np.float64]
_TOKENS = 1 << 15  # of a group of rows that is searched at once; bounds memory, changes no result


@dataclass(frozen=True)
class SpanCandidates:
    """Best first; where an example has fewer than K, the rest have score −inf. Spans are characters of the passage."""

    starts: Integers  # (E, K)
    ends: Integers  # (E, K)
    scores: _Floats  # (E, K)
    nothing: _Floats  # (E,) the score of no answer


def find_candidates(features: AnswerFeatures, scores: Scores, longest: int, n_best: int) -> SpanCandidates:
    rows, passages = features.rows, features.passages
    row_ends = np.cumsum(rows.lengths)
    row_begins = row_ends - rows.lengths
    sizes = rows.b.lengths
    places = ranges(row_begins + rows.b_begins(np.arange(len(rows))), sizes)  # the passage's tokens of every row
    row, first, last, score = best_spans(scores[places, 0], scores[places, 1], sizes, longest, n_best)

    example = rows.examples[row]
    begin = passages.begins[features.passage_of[example]] + rows.b.starts[row]
    start, end = passages.starts[begin + first], passages.ends[begin + last]
    chosen = np.lexsort((-score, end, start, example))  # spans of the same characters side by side, the best first
    new = np.ones(len(chosen), bool)
    new[1:] = np.any([np.diff(each[chosen]) != 0 for each in (example, start, end)], axis=0)
    chosen = chosen[new]
    chosen = chosen[np.lexsort((end[chosen], start[chosen], -score[chosen], example[chosen]))]
    rank = np.arange(len(chosen)) - np.searchsorted(example[chosen], example[chosen])
    chosen, rank = chosen[rank < n_best], rank[rank < n_best]

    shape = (rows.n_examples, n_best)
    found = SpanCandidates(
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int64),
        np.full(shape, -np.inf),
        np.minimum.reduceat(scores[row_begins + features.nothing].sum(-1, dtype=np.float64), rows.first_row)
        if rows.n_examples
        else np.empty(0),
    )
    at = example[chosen], rank
    found.starts[at], found.ends[at], found.scores[at] = start[chosen], end[chosen], score[chosen]
    return found


def best_spans(
    starts: NDArray[np.float32], ends: NDArray[np.float32], sizes: Integers, longest: int, n_best: int
) -> tuple[Integers, Integers, Integers, _Floats]:
    """The `n_best` best spans of every row: its number, first and last token, and score.

    `starts` and `ends` hold the rows' scores end to end; `sizes` (R,) says how many tokens each row has.

    >>> row, first, last, score = best_spans(np.float32([1, 5, 0, 3]), np.float32([5, 0, 2, 9]), np.array([3, 1]), 2, 2)
    >>> [tuple(map(int, each)) for each in zip(row, first, last, score)]
    [(0, 1, 2, 7), (0, 0, 0, 6), (1, 0, 0, 12)]
    """
    begins = np.cumsum(sizes) - sizes
    found: list[tuple[Integers, Integers, Integers, _Floats]] = []
    for group in plan_batches(sizes, _TOKENS):
        group = group[sizes[group] > 0]
        if not len(group):
            continue
        size = sizes[group]
        T = int(size.max())
        width = min(longest, T)
        at = np.repeat(np.arange(len(group)), size), ranges(np.zeros_like(size), size)
        places = ranges(begins[group], size)
        start = np.full((len(group), T), -np.inf)
        end = np.full((len(group), T + width - 1), -np.inf)
        start[at], end[at] = starts[places], ends[places]
        reach = sliding_window_view(end, width, axis=1)  # (B, T, width) the ends that each start may have
        few = min(n_best, T)
        first = _largest(start + reach.max(-1), few)  # (B, few)
        rows = np.arange(len(group))[:, None]
        spans = (start[rows, first][..., None] + reach[rows, first]).reshape(len(group), -1)  # (B, few · width)
        best = _largest(spans, min(n_best, spans.shape[1]))  # (B, ≤ n_best)
        score = np.take_along_axis(spans, best, 1)
        first = np.take_along_axis(first, best // width, 1)
        real = np.isfinite(score)
        found.append(
            (np.broadcast_to(group[:, None], best.shape)[real], first[real], (first + best % width)[real], score[real])
        )
    if not found:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing, np.empty(0)
    row, first, last, score = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((last, first, -score, row))
    return row[order], first[order], last[order], score[order]


def _largest(values: _Floats, n: int) -> Integers:
    """(B, T) → (B, n) where the n largest of every row stand, in no order."""
    if n == values.shape[1]:
        return np.broadcast_to(np.arange(n), values.shape).copy()
    return np.argpartition(values, -n, axis=1)[:, -n:]


# Scores.


class Spoken(Protocol):
    """What is scored; "" is no answer."""

    @property
    def text(self) -> str: ...


class WeighedSpans(Protocol):
    """A result that says how likely no answer is, and what else it would say."""

    @property
    def no_answer_probability(self) -> float: ...
    @property
    def n_best(self) -> Sequence[Spoken]: ...


def is_right(scorer: str, text: str, accepted: Sequence[str]) -> bool:
    """Exact match.

    >>> is_right("squad", "the Cat", ["cat"]), is_right("cmrc", "", []), is_right("cmrc", "北京", [])
    (True, True, False)
    """
    return text in accepted or SCORERS[scorer][0](text, accepted) == 1.0


def accepted_texts(example: AnswerExample) -> list[str]:
    """Each once; people often agree on an answer."""
    return list(dict.fromkeys([*(answer.text for answer in example.answers or ()), *example.others]))


class AnswerScorer:
    def __init__(self, scorer: str) -> None:
        self.exact, self.f1 = SCORERS[scorer]
        # (is there an answer, exact, F1): how often. Values of F1 are fractions of small numbers, so few are distinct.
        self.counts: Counter[tuple[bool, float, float]] = Counter()

    def add(self, examples: Sequence[AnswerExample], results: Sequence[Spoken]) -> None:
        for example, result in zip(examples, results, strict=True):
            assert example.answers is not None, "scoring needs answers"
            accepted = accepted_texts(example)
            exact = self.exact(result.text, accepted)
            self.counts[bool(accepted), exact, 1.0 if exact == 1.0 else self.f1(result.text, accepted)] += 1

    def result(self, intervals: bool = True) -> Scored:
        kinds = {has_answer for has_answer, _, _ in self.counts}
        values: dict[str, float] = {}
        ends: dict[str, tuple[float, float]] = {}
        parts = {"": kinds} | ({"has_answer_": {True}, "no_answer_": {False}} if len(kinds) == 2 else {})
        for prefix, wanted in parts.items():
            held = {key: count for key, count in sorted(self.counts.items()) if key[0] in wanted}
            n = sum(held.values())
            right = sum(round(exact) * count for (_, exact, _), count in held.items())
            values[prefix + "em"] = right / n if n else 0.0
            statistics = np.array([[f1, 1.0] for _, _, f1 in held]).reshape(-1, 2)
            counts = np.array(list(held.values()), np.int64)
            values[prefix + "f1"] = float(counts @ statistics[:, 0] / n) if n else 0.0
            if not intervals:
                continue
            ends[prefix + "em"] = wilson_interval(right, n)
            if values[prefix + "f1"] in (0.0, 1.0):  # every draw agrees, which does not make it certain
                ends[prefix + "f1"] = wilson_interval(round(values[prefix + "f1"]) * n, n)
            else:
                ends[prefix + "f1"] = bootstrap(statistics, lambda sums: sums[:, 0] / sums[:, 1], counts=counts)
        return Scored(main="f1", values=values, intervals=ends, n=self.counts.total())


def no_answer_threshold(scorer: str, examples: Sequence[AnswerExample], results: Sequence[WeighedSpans]) -> float:
    """From which probability of no answer nothing should be said, so that F1 over these examples is largest.

    It lies halfway between two probabilities that were seen; above 1: always say something. Of several that are equally
    good the largest is taken, which leaves the fewest questions unanswered.
    """
    f1 = SCORERS[scorer][1]
    likely = np.array([result.no_answer_probability for result in results], np.float64)
    gained = np.empty(len(results))  # by saying nothing instead of the best span
    for index, (example, result) in enumerate(zip(examples, results, strict=True)):
        accepted = accepted_texts(example)
        best = result.n_best[0].text if result.n_best else ""
        gained[index] = f1("", accepted) - f1(best, accepted)
    order = np.argsort(-likely, kind="stable")
    likely = np.concatenate([[2.0], likely[order], [0.0]])
    gained = np.concatenate([[0.0], np.cumsum(gained[order])])
    between = np.flatnonzero(likely[:-1] > likely[1:])  # a threshold fits only between two that differ
    best = between[np.argmax(gained[between])]
    return float((likely[best] + likely[best + 1]) / 2)


# The task.

NO_ANSWER = "no_answer"
"""The key in `Calibration.thresholds`."""
_NOTHING = "∅"
"""How "there is no answer" is written for people."""
_LEAST = 1e-6
"""What an answer outside the candidates is taken to have been given: its own probability is not known."""
MOST_SPANS = 8  # of the candidates, in look
_LENGTHS = (30, 200)  # between these lies the learned limit on the tokens of an answer
_chinese = re.compile(f"[{CHINESE}]")


@dataclass(frozen=True)
class AnswerSettings:
    overlap: int = 128  # tokens that two windows share; never more than a third of a window
    max_answer_tokens: int | None = None  # None: what covers 99.5 % of the training answers, 30 to 200
    n_best: int = 20
    no_answer: str = "auto"  # yes, no; auto: yes if training has questions without an answer
    scorer: str = "auto"  # squad (words), cmrc (汉字 by character); auto: cmrc if most training answers have 汉字

    def __post_init__(self) -> None:
        for name, known in (("no_answer", ("auto", "yes", "no")), ("scorer", ("auto", "squad", "cmrc"))):
            value = getattr(self, name)
            if value not in known:
                raise InputError(f"Unknown {name} '{value}'.{did_you_mean(value, known)} Known: {', '.join(known)}.")
        if self.overlap < 0:
            raise InputError(f"overlap must be 0 or more, not {self.overlap}.")
        if self.n_best < 1 or (self.max_answer_tokens is not None and self.max_answer_tokens < 1):
            raise InputError("n_best and max_answer_tokens must be at least 1.")


class AnswerCandidate(NamedTuple):
    text: str
    start: int
    end: int
    probability: float


@dataclass(frozen=True)
class AnswerResult:
    """`text == passage[start:end]`; no answer is "" at 0."""

    text: str
    start: int
    end: int
    probability: float  # of what was answered, "nothing" included
    no_answer_probability: float  # 0 where no answer is not allowed
    n_best: tuple[AnswerCandidate, ...]  # spans only, likeliest first
    n_tokens: int
    n_windows: int
    abstained: bool = False  # less sure than the model was found to need
    n_unknown: int = 0  # tokens that stand for what the vocabulary lacks

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"n_best": [candidate._asdict() for candidate in self.n_best]}

    def shown(self, example: AnswerExample) -> list[ShownPart]:
        said = [ShownPart("the text does not say", "yellow")]
        if self.text:
            said = [ShownPart(self.text, "bold"), ShownPart(f"  [{self.start}:{self.end}]")]
        return [ShownPart(f"{example.question}\n    "), *said, ShownPart(f"  {self.probability:.1%}")]


class AnswerObjective:
    weights: Mapping[str, float] = {"answer": 1.0}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"answer": batch.n_rows}

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Term]:
        assert isinstance(model, TaskModel)
        scores = batch.pad(model.scores(batch).float(), -math.inf)  # (R, T, 2)
        start, end = (self._losses(scores[..., side], batch.labels[name]) for side, name in ((0, START), (1, END)))
        found = scores.detach().argmax(1)  # (R, 2)
        right = (found[:, 0] == batch.labels[START]) & (found[:, 1] == batch.labels[END])
        return {"answer": Term((start + end) / 2, right.sum())}

    def _losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(scores, targets, reduction="sum")


class AnswerTask(Task[AnswerExample, AnswerResult]):
    """`settings` have nothing left to be decided: `learn` decides it."""

    name = "answer"
    head = "span"
    example = AnswerExample
    unit = "question"
    kind = ""
    paired = True
    labels = ()
    outputs = 2
    main = "f1"

    def __init__(self, settings: AnswerSettings) -> None:
        if settings.max_answer_tokens is None or "auto" in (settings.no_answer, settings.scorer):
            raise InputError(
                "Of an encoder that was not trained, max_answer_tokens, no_answer and scorer must be given: "
                "there are no examples to decide them from."
            )
        self.settings = settings
        self.longest = settings.max_answer_tokens
        self.no_answer = self.fits_thresholds = settings.no_answer == "yes"

    @classmethod
    def learn(cls, examples: Sequence[AnswerExample], settings: AnswerSettings, tokenizer: Tokenizer) -> "AnswerTask":
        """The task with what its settings left open decided from the training examples."""
        texts = [example.answers[0].text for example in examples if example.answers]
        if not texts:
            raise InputError(
                f"None of the {len(examples):,} training questions has an answer: there is nothing to point at."
            )
        longest, no_answer, scorer = settings.max_answer_tokens, settings.no_answer, settings.scorer
        if longest is None:
            sizes = [len(ids) for ids in tokenizer.encode_ids(texts)]
            longest = int(np.clip(np.quantile(sizes, 0.995, method="higher"), *_LENGTHS))
        if no_answer == "auto":
            no_answer = "yes" if len(texts) < len(examples) else "no"
        if scorer == "auto":
            scorer = "cmrc" if 2 * sum(bool(_chinese.search(text)) for text in texts) > len(texts) else "squad"
        return cls(replace(settings, max_answer_tokens=longest, no_answer=no_answer, scorer=scorer))

    @classmethod
    def restored(cls, labels: Sequence[str], record: Mapping[str, Any]) -> "AnswerTask":
        """Restore the task from the record of a saved folder."""
        return cls(merge(AnswerSettings(), record.get("settings", {}), "qkv.json"))

    def record(self) -> dict[str, Any]:
        return {"settings": asdict(self.settings)}

    def check(self, examples: Sequence[AnswerExample], needs_labels: bool = True) -> None:
        for number, example in enumerate(examples, 1):
            if example.answers is None:
                if needs_labels:
                    raise InputError(
                        f"{name_place(example.place, number)}: the question {example.question!r} has no list of "
                        "answers. Give its answers, or an empty list where the text does not answer it."
                    )
                continue
            for start, text in example.answers:
                if not text:
                    raise InputError(
                        f"{name_place(example.place, number)}: an answer is empty. Where the text does not answer the "
                        "question, the list of answers is empty."
                    )
                if start < 0 or example.text[start : start + len(text)] != text:
                    found = example.text[max(start, 0) : max(start, 0) + len(text)]
                    raise InputError(
                        f"{name_place(example.place, number)}: the answer {text!r} does not stand at character {start} "
                        f"of the text; {found!r} does. Correct the offset (`qkv check` lists all that are wrong)."
                    )

    def features(
        self, tokenizer: Tokenizer, examples: Sequence[AnswerExample], max_length: int, training: bool
    ) -> AnswerFeatures:
        features = AnswerFeatures(tokenizer, examples, max_length, self.settings.overlap)
        if training and examples and not len(features.units):
            raise InputError(
                f"None of the {len(examples):,} training answers can be learned: they are longer than a window of "
                f"{max_length} tokens, or the tokenizer has no token for them. Allow longer windows (max_length), or "
                "give a model whose vocabulary fits the language."
            )
        return features

    def objective(self, class_weights: Sequence[float] | None = None) -> AnswerObjective:
        assert class_weights is None, "spans have no classes"
        return AnswerObjective()

    def decode(
        self,
        features: AnswerFeatures,
        scores: Scores,
        extra: Mapping[str, NDArray[np.float32]],
        calibration: Calibration,
    ) -> list[AnswerResult]:
        found = self._candidates(features, scores)
        nothing = found.nothing[:, None] if self.no_answer else np.full((len(found.nothing), 1), -np.inf)
        probabilities = _softmax(np.concatenate([found.scores, nothing], 1) / calibration.temperature)  # (E, K + 1)
        rows, results = features.rows, []
        for e, example in enumerate(features.examples):
            n = int(np.isfinite(found.scores[e]).sum())
            spans = zip(
                found.starts[e, :n].tolist(), found.ends[e, :n].tolist(), probabilities[e].tolist(), strict=False
            )
            n_best = tuple(AnswerCandidate(example.text[start:end], start, end, given) for start, end, given in spans)
            nothing_given = float(probabilities[e, -1])
            said = self._said(n_best, nothing_given, calibration.thresholds.get(NO_ANSWER))
            abstained = said.probability < (calibration.abstain_below or 0.0)
            sizes = int(rows.n_tokens[e]), int(rows.n_windows[e])
            results.append(AnswerResult(*said, nothing_given, n_best, *sizes, abstained))
        return results

    def _candidates(self, features: AnswerFeatures, scores: Scores) -> SpanCandidates:
        """Searched once for the same scores: calibration asks again for every fold and temperature."""
        key = hashlib.blake2b(scores.tobytes()).digest(), self.settings
        if features.memo.get("key") != key:
            features.memo = {
                "key": key,
                "candidates": find_candidates(features, scores, self.longest, self.settings.n_best),
            }
        return features.memo["candidates"]

    def _said(self, n_best: Sequence[AnswerCandidate], nothing: float, threshold: float | None) -> AnswerCandidate:
        """The best span or, where it is allowed and likelier or likely enough, nothing."""
        best = n_best[0] if n_best else AnswerCandidate("", 0, 0, 0.0)
        says_nothing = nothing > best.probability if threshold is None else nothing >= threshold
        return AnswerCandidate("", 0, 0, nothing) if self.no_answer and says_nothing else best

    def scorer(self) -> AnswerScorer:
        return AnswerScorer(self.settings.scorer)

    def judge(self, example: AnswerExample, result: AnswerResult) -> Judgement:
        assert example.answers is not None
        accepted = accepted_texts(example)
        if accepted:
            given = sum(one.probability for one in result.n_best if is_right(self.settings.scorer, one.text, accepted))
        else:
            given = result.no_answer_probability
        return Judgement(
            " / ".join(accepted) or _NOTHING,
            result.text or _NOTHING,
            is_right(self.settings.scorer, result.text, accepted),
            result.probability,
            -math.log(max(given, _LEAST)),
        )

    def statistics(self, example: AnswerExample, result: AnswerResult, judgement: Judgement) -> tuple[float, ...]:
        return float(SCORERS[self.settings.scorer][1](result.text, accepted_texts(example))), 1.0

    def thresholds(self, examples: Sequence[AnswerExample], results: Sequence[AnswerResult]) -> dict[str, float]:
        return {NO_ANSWER: no_answer_threshold(self.settings.scorer, examples, results)}

    def constant_answer(self, examples: Sequence[AnswerExample]) -> ConstantAnswer | None:
        name = Phrase("always answering that there is no answer", "总答没有答案")
        return ConstantAnswer(name, PlainAnswer()) if self.no_answer else None

    def weighed(
        self, features: AnswerFeatures, scores: Scores, result: AnswerResult, calibration: Calibration
    ) -> Weighed:
        """For every token of the passage how likely the answer starts there, and ends there; and the best spans.

        An answer's probability is a softmax over spans, whose score is start plus end over the temperature. If every
        span were allowed, that would be the product of two softmaxes over tokens: these are what is shown under the
        words, with [CLS], which stands for no answer, among them where a passage need not answer. A token that lies in
        several windows counts with its best score, as its spans do, and no answer with its worst
        (answer.py).
        """
        ends, nothing = self._ends(features, scores)
        considered = ends if nothing is None else np.concatenate([nothing[:, None], ends], 1)  # (2, C), or one more
        chances = _softmax(considered / calibration.temperature).astype(np.float32)
        tokens = chances if nothing is None else chances[:, 1:]
        said = {name: getattr(result, name) for name in ("text", "start", "end", "probability", "abstained")}
        best = result.n_best[:MOST_SPANS]
        head = {
            "answer": said | {"probability": round_result(result.probability)},
            "spans": [one._asdict() | {"probability": round_result(one.probability)} for one in best],
            "nothing": None
            if nothing is None
            else {
                "probability": round_result(result.no_answer_probability),
                "start": round_result(float(chances[0, 0])),
                "end": round_result(float(chances[1, 0])),
                "said_from": calibration.thresholds.get(NO_ANSWER),
            },
        }
        spans = np.stack([features.passages.starts, features.passages.ends], 1).astype(np.int32)
        return Weighed(head, {"start": tokens[0], "end": tokens[1], "tokens": spans})

    def _ends(self, features: AnswerFeatures, scores: Scores) -> tuple[_Floats, _Floats | None]:
        """(2, C) start and end scores of the passage's tokens; and (2,) of no answer, where there may be none."""
        rows = features.rows
        begins = np.cumsum(rows.lengths) - rows.lengths  # (R,) of the rows in the scores
        places = ranges(begins + rows.b_begins(np.arange(len(rows))), rows.b.lengths)
        found = np.full((len(features.passages.starts), 2), -np.inf)  # (C, 2)
        np.maximum.at(found, ranges(rows.b.starts, rows.b.lengths), scores[places].astype(np.float64))
        if not self.no_answer:
            return found.T, None
        least = scores[begins + features.nothing].astype(np.float64)  # (R, 2)
        return found.T, least[least.sum(1).argmin()]

    def losses(
        self,
        features: AnswerFeatures,
        scores: Scores,
        extra: Mapping[str, NDArray[np.float32]],
        temperature: float,
    ) -> _Floats:
        """(E,) −log of what the right candidates have together.

        Right is a candidate whose text is an accepted answer as the scorer reads it; no answer, where there is none.
        Where no candidate is right, the first accepted answer joins them with its own score. One that has none, because
        no token or no window holds it, is taken to have been given a millionth at every temperature.
        """
        found = self._candidates(features, scores)
        if "right" not in features.memo:
            features.memo["right"] = self._held_against(features, scores, found)
        logits, right = features.memo["right"]  # (E, K + 2) both
        every = _log_sum(logits / temperature)
        with np.errstate(invalid="ignore"):  # −inf from −inf, where there is neither; replaced at once
            losses = every - _log_sum(np.where(right, logits / temperature, -np.inf))
        return np.where(np.isfinite(losses), losses, -math.log(_LEAST))

    def _held_against(
        self, features: AnswerFeatures, scores: Scores, found: SpanCandidates
    ) -> tuple[_Floats, NDArray[np.bool_]]:
        """Scores of the candidates, of no answer and of the accepted answer; and which of them are right."""
        assert features.labelled, "losses need labels"
        right = np.zeros((len(features.examples), self.settings.n_best + 2), bool)
        for e, example in enumerate(features.examples):
            accepted = accepted_texts(example)
            if not accepted:
                right[e, -2] = self.no_answer
                continue
            for k in np.flatnonzero(np.isfinite(found.scores[e])).tolist():
                text = example.text[found.starts[e, k] : found.ends[e, k]]
                right[e, k] = is_right(self.settings.scorer, text, accepted)
        missed = features.answered & ~right.any(1)
        right[:, -1] = missed
        own = np.where(missed, self._own_scores(features, scores), -np.inf)
        nothing = found.nothing if self.no_answer else np.full(len(found.nothing), -np.inf)
        return np.concatenate([found.scores, nothing[:, None], own[:, None]], 1), right

    def _own_scores(self, features: AnswerFeatures, scores: Scores) -> _Floats:
        """(E,) what the first accepted answer got in its best window; −inf where no window holds it."""
        rows = np.flatnonzero(features.holds)
        begins = (np.cumsum(features.rows.lengths) - features.rows.lengths)[rows]
        start, end = (begins + target[rows] for target in features.targets)
        own = np.full(len(features.examples), -np.inf)
        np.maximum.at(own, features.rows.examples[rows], scores[start, 0].astype(np.float64) + scores[end, 1])
        return own

    def confidences(self, examples: Sequence[AnswerExample], results: Sequence[AnswerResult]) -> Sure:
        """One for each question: how sure of what was answered, and whether that is right to the letter."""
        right = [
            is_right(self.settings.scorer, result.text, accepted_texts(example))
            for example, result in zip(examples, results, strict=True)
        ]
        confidence = np.array([result.probability for result in results], np.float64)
        return Sure(confidence, np.array(right, bool), np.arange(len(results)))


def _softmax(scores: _Floats) -> _Floats:
    """Along the last axis; rows of −inf throughout become 0."""
    with np.errstate(invalid="ignore"):
        weights = np.nan_to_num(np.exp(scores - scores.max(-1, keepdims=True)))
    return weights / np.maximum(weights.sum(-1, keepdims=True), np.finfo(np.float64).tiny)


def _log_sum(scores: _Floats) -> _Floats:
    """log Σ exp along the last axis; −inf where all are."""
    largest = scores.max(-1)
    base = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        return base + np.log(np.exp(scores - base[:, None]).sum(-1))


_FOREIGN = {"settings": {"max_answer_tokens": 50, "no_answer": "yes", "scorer": "squad"}}
ANSWER = Makers(lambda *_: AnswerTask, AnswerTask.learn, AnswerTask.restored, lambda *_: _FOREIGN)
