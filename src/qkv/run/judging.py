"""A model held against labelled examples: figures, and the examples that people want to see.

Examples stream by. What is kept is the scorer's counts, a few of the worst examples, and counts by length, so that a
file of any size is judged in the same memory.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.data.examples import AnswerExample, ChoiceExample, Example, TextExample
from qkv.errors import InputError
from qkv.report.finetune_facts import LengthBin, Shown
from qkv.run.finetune_data import label_counts
from qkv.tasks.table import AnyTask
from qkv.tasks.task import Judgement, Scored

SHOWN = 12  # of each kind
NUMBERS = 2_000  # drawn as a scatter
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Judged:
    scored: Scored
    hardest: tuple[Shown, ...]
    confident_errors: tuple[Shown, ...]
    by_length: tuple[LengthBin, ...]
    labels: dict[str, int]
    tokens: int
    longest: int
    windowed: int
    most_windows: int
    numbers: NDArray[np.float64] | None = None  # of regression


class Worst:
    """The few examples with the largest keys, first come first kept."""

    def __init__(self, size: int = SHOWN) -> None:
        self.size, self.count = size, 0
        self.kept: list[tuple[float, int, Shown]] = []

    def offer(self, key: float, make: Callable[[], Shown]) -> None:
        self.count += 1
        if len(self.kept) < self.size:
            heapq.heappush(self.kept, (key, -self.count, make()))
        elif key > self.kept[0][0]:
            heapq.heapreplace(self.kept, (key, -self.count, make()))

    def shown(self) -> tuple[Shown, ...]:
        return tuple(one for _, _, one in sorted(self.kept, key=lambda entry: (-entry[0], -entry[1])))


def judged(
    task: AnyTask,
    parts: Iterable[tuple[Sequence[Example], Sequence[Any]]],
    progress: Callable[[int], None] | None = None,
    keep: Callable[[Example, Any, Judgement], None] | None = None,
) -> Judged:
    """Examples with their results, a part at a time; `keep` is handed each, for whoever writes them down."""
    scorer = task.scorer()
    hardest, confident = Worst(), Worst()
    lengths: Counter[int] = Counter()
    rights: Counter[int] = Counter()
    labels: Counter[str] = Counter()
    tokens = longest = windowed = most_windows = 0
    numbers: list[tuple[float, float]] = []
    is_number = getattr(task, "kind", "") == "regression"
    for chunk, results in parts:
        scorer.add(chunk, results)
        labels.update(label_counts(chunk) if not is_number else {})
        for example, result in zip(chunk, results, strict=True):
            judgement = task.judge(example, result)
            show = _Show(example, result, judgement)
            if not judgement.right or is_number:
                hardest.offer(judgement.loss, show)
                confident.offer(0.0 if math.isnan(judgement.confidence) else judgement.confidence, show)
            place = int(np.searchsorted(LENGTHS, result.n_tokens))
            lengths[place] += 1
            rights[place] += judgement.right
            tokens += result.n_tokens
            longest = max(longest, result.n_tokens)
            windowed += result.n_windows > 1
            most_windows = max(most_windows, result.n_windows)
            if is_number and len(numbers) < NUMBERS:
                numbers.append((float(judgement.expected), float(result.value)))
            if keep is not None:
                keep(example, result, judgement)
        if progress is not None:
            progress(len(chunk))
    if not lengths:
        raise InputError("There is no example to judge the model by.")
    edges = (0, *LENGTHS, longest)
    return Judged(
        scorer.result(),
        hardest.shown(),
        () if is_number else confident.shown(),
        tuple(
            LengthBin(
                edges[place] + 1, min(edges[place + 1], longest) if place < len(LENGTHS) else longest, n, rights[place]
            )
            for place, n in sorted(lengths.items())
        ),
        dict(labels.most_common()),
        tokens,
        longest,
        windowed,
        most_windows,
        np.array(numbers) if numbers else None,
    )


@dataclass(frozen=True)
class _Show:
    """Makes what is shown, for the few that are kept."""

    example: Any
    result: Any
    judgement: Judgement

    def __call__(self) -> Shown:
        example = self.example
        pair = example.pair if isinstance(example, TextExample) else None
        if isinstance(example, AnswerExample | ChoiceExample):
            pair = example.question
        return Shown(
            Path(example.place.file).name,
            example.place.line,
            example.text,
            pair,
            self.judgement,
            self.result.n_tokens,
            self.result.n_windows,
        )
