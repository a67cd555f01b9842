"""Figures of a reader: exact match and F1, as SQuAD or CMRC counts them (see metrics/answers.py), from 0 to 1.

Where some questions have an answer and some have none, each kind is also counted by itself. F1 has a bootstrap interval
over questions, exact match the interval of a share, which F1 has, too, where it is 0 or 1.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from qkv.data.examples import AnswerExample
from qkv.metrics.answers import SCORERS
from qkv.metrics.intervals import bootstrap, wilson_interval
from qkv.tasks.task import Scored


class Spoken(Protocol):
    """What is scored; "" is no answer."""

    @property
    def text(self) -> str: ...


class Weighed(Protocol):
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


def no_answer_threshold(scorer: str, examples: Sequence[AnswerExample], results: Sequence[Weighed]) -> float:
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
