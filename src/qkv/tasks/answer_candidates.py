"""The best spans of every question, over all windows of its passage.

A span runs from a token of the passage to the same or a later one, at most `longest` tokens, within one window. Its
score is the start score of its first token plus the end score of its last. A span that lies in several windows counts
with its best score; spans of the same characters are one. The score of no answer is what [CLS] gets, start plus end, in
the window where it gets least: a passage answers a question if any of its windows does (BERT §4.3).

The search is exact, and no Python loop touches a row: the n best spans of a window begin at the n tokens whose own best
span is best, so only these are looked at in full.

Shapes: E examples, R rows, N tokens of all rows, K candidates an example; B rows of a group, T tokens of its longest.
"""

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from qkv.data.batching import Integers, plan
from qkv.data.ranges import ranges
from qkv.tasks.answer_features import AnswerFeatures
from qkv.tasks.task import Scores

Floats = NDArray[np.float64]
_TOKENS = 1 << 15  # of a group of rows that is searched at once; bounds memory, changes no result


@dataclass(frozen=True)
class Candidates:
    """Best first; where an example has fewer than K, the rest have score −inf. Spans are characters of the passage."""

    starts: Integers  # (E, K)
    ends: Integers  # (E, K)
    scores: Floats  # (E, K)
    nothing: Floats  # (E,) the score of no answer


def candidates(features: AnswerFeatures, scores: Scores, longest: int, n_best: int) -> Candidates:
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
    found = Candidates(
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
) -> tuple[Integers, Integers, Integers, Floats]:
    """The `n_best` best spans of every row: its number, first and last token, and score.

    `starts` and `ends` hold the rows' scores end to end; `sizes` (R,) says how many tokens each row has.

    >>> row, first, last, score = best_spans(np.float32([1, 5, 0, 3]), np.float32([5, 0, 2, 9]), np.array([3, 1]), 2, 2)
    >>> [tuple(map(int, each)) for each in zip(row, first, last, score)]
    [(0, 1, 2, 7), (0, 0, 0, 6), (1, 0, 0, 12)]
    """
    begins = np.cumsum(sizes) - sizes
    found: list[tuple[Integers, Integers, Integers, Floats]] = []
    for group in plan(sizes, _TOKENS):
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


def _largest(values: Floats, n: int) -> Integers:
    """(B, T) → (B, n) where the n largest of every row stand, in no order."""
    if n == values.shape[1]:
        return np.broadcast_to(np.arange(n), values.shape).copy()
    return np.argpartition(values, -n, axis=1)[:, -n:]
