"""Multiple choice: which of several choices answers a question about a text (BERT §4.4).

    [CLS] part of the text [SEP] question choice [SEP]      one row for each choice and each part of the text
    [CLS] question [SEP] choice [SEP]                       where there is no text
    start part of the text question delimiter choice extract      of a GPT (Radford et al. 2018, §3.3)

The choice's tokens follow the question's, with nothing between: the question's own mark parts them. Both stand whole
in every window of the text. Windows are cut for the longest choice, so that all choices are held against the same parts
of the text. The score of a choice is the plain mean over its windows, and the probabilities are the softmax over the
choices of the example, of which there may be any number from two. In training at most 4 windows of a text are read,
drawn anew in every epoch, the same for every choice; in prediction all are.

What the temperature divides: the scores of the choices, before the softmax.

Shapes: E examples, R rows, U units (examples) of a batch, K the most choices among them.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from qkv.config import merge
from qkv.data.batch import Batch, Integers
from qkv.data.corpus.shards import ranges
from qkv.data.labelled.examples import ChoiceExample, Fault
from qkv.data.windows import Windowed, cut_windows
from qkv.errors import InputError
from qkv.metrics.intervals import wilson_interval
from qkv.report.bilingual import Phrase
from qkv.tasks.answer_features import check_room, name_place
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
from qkv.train.loop import Term

_Floats = NDArray[np.float64]
TRAIN_WINDOWS = 4  # of a long text, in one epoch
SLOT, WINDOWS, TARGET = "slot", "windows", "target"
"""The labels of a batch: (R,) the unit and choice of a row as u · K + k; (U, K) its windows, 0 where there is no such
choice; (U,) the right one."""


@dataclass(frozen=True)
class ChoiceSettings:
    overlap: int = 128  # tokens that two windows share; never more than a third of a window

    def __post_init__(self) -> None:
        if self.overlap < 0:
            raise InputError(f"overlap must be 0 or more, not {self.overlap}.")


@dataclass(frozen=True)
class ChoiceResult:
    choice: int  # counted from 0
    text: str  # of the choice
    probability: float
    probabilities: tuple[float, ...]  # of all choices, in their order
    n_tokens: int  # of the text with the question and the longest choice
    n_windows: int
    abstained: bool = False  # less sure than the model was found to need
    n_unknown: int = 0  # tokens that stand for what the vocabulary lacks

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"probabilities": list(self.probabilities)}

    def shown(self, example: ChoiceExample) -> list[ShownPart]:
        weighed = zip(example.choices, self.probabilities, strict=True)
        return [ShownPart(example.question)] + [
            ShownPart(f"\n    {share:6.1%}  {choice}", "bold" if number == self.choice else "dim")
            for number, (choice, share) in enumerate(weighed)
        ]


class ChoiceFeatures:
    """Rows in the order of examples, then choices, then windows; a unit of training is an example.

    To `Windowed` every row is a text of its own that fits, because the windows of all choices must be the same.
    """

    def __init__(self, tokenizer: Tokenizer, examples: Sequence[ChoiceExample], max_length: int, overlap: int) -> None:
        self.examples = examples
        overlap, marks = min(overlap, max_length // 3), tokenizer.marks
        ids = _encoded_once(tokenizer, (text for e in examples for text in (e.text, e.question, *e.choices)))
        first: list[list[int]] = []
        second: list[list[int]] = []
        n_tokens, n_windows = [], []
        for number, example in enumerate(examples, 1):
            moving, before = ids[example.text], ids[example.question]
            if not moving:
                moving, before = before, []
            longest = len(before) + max(len(ids[choice]) for choice in example.choices)
            what = f"{name_place(example.place, number)}: the question with its longest choice"
            check_room(longest, len(moving), max_length, overlap, marks, what)
            windows = _windows(moving, max_length - marks.around_pair - longest, overlap)
            asked, beside = (before, []) if marks.leftward else ([], before)  # which side the question stands on
            for choice in example.choices:
                first += [window + asked for window in windows]
                second += [beside + ids[choice]] * len(windows)
            n_tokens.append(len(moving) + longest + marks.around_pair)
            n_windows.append(len(windows))
        self._ids = ids
        self.n_tokens: Integers = np.array(n_tokens, np.int64)  # (E,)
        self.n_windows: Integers = np.array(n_windows, np.int64)  # (E,) of each choice
        self.n_choices: Integers = np.fromiter((len(e.choices) for e in examples), np.int64, count=len(examples))
        self.row_counts: Integers = self.n_choices * self.n_windows  # (E,)
        self.first_row: Integers = np.cumsum(self.row_counts) - self.row_counts  # (E,)
        self.targets: Integers | None = None
        if all(example.answer is not None for example in examples):
            self.targets = np.array([example.answer for example in examples], np.int64)
        self.rows = Windowed(
            first,
            second,
            marks,
            max_length=max_length,
            overlap=0,
        )
        # windows of a text are equally long, so each costs a share of the example
        tokens = np.add.reduceat(self.rows.lengths, self.first_row) if len(examples) else self.row_counts
        self.unit_tokens: Integers = tokens * np.minimum(self.n_windows, TRAIN_WINDOWS) // self.n_windows

    def count_token(self, number: int | None) -> Integers:
        """In the text, the question and the choice that has it most often."""
        counts = {text: 0 if number is None else ids.count(number) for text, ids in self._ids.items()}
        found = [counts[e.text] + counts[e.question] + max(counts[one] for one in e.choices) for e in self.examples]
        return np.array(found, np.int64)

    def faults(self) -> list[Fault]:
        return []

    def batch(self, units: Integers, draw: np.random.Generator) -> Batch:
        assert self.targets is not None, "training needs labels"
        choices, windows = self.n_choices[units], self.n_windows[units]
        read = np.minimum(windows, TRAIN_WINDOWS)  # (U,)
        # (U · read,) which windows of each unit, then the same ones for each of its choices
        chosen = [
            np.arange(n) if n == k else np.sort(draw.choice(n, k, False)) for n, k in zip(windows, read, strict=True)
        ]
        parts = [
            first + (np.arange(k)[:, None] * n + which).reshape(-1)
            for first, k, n, which in zip(self.first_row[units], choices, windows, chosen, strict=True)
        ]
        rows = np.concatenate(parts)
        most = int(choices.max())
        slots = ranges(np.arange(len(units)) * most, choices)  # u · K + k of every choice
        slot = np.repeat(slots, np.repeat(read, choices))  # (R,)
        count = np.where(np.arange(most) < choices[:, None], read[:, None], 0)  # (U, K)
        order = np.argsort(self.rows.lengths[rows], kind="stable")  # a CPU attends rows of equal length together
        labels = {
            SLOT: torch.from_numpy(slot[order]),
            WINDOWS: torch.from_numpy(count),
            TARGET: torch.from_numpy(self.targets[units]),
        }
        return self.rows.collate(rows[order], labels)

    def pooled(self, scores: Scores) -> _Floats:
        """(R, 1) → (E, K), the mean over the windows of each choice; −inf where there is no such choice."""
        if not len(self.examples):
            return np.empty((0, 0))
        found = np.full((len(self.examples), int(self.n_choices.max())), -np.inf)
        windows = np.repeat(self.n_windows, self.n_choices)  # of every choice
        sums = np.add.reduceat(scores[:, 0].astype(np.float64), np.cumsum(windows) - windows)
        found[np.arange(found.shape[1]) < self.n_choices[:, None]] = sums / windows
        return found


class ChoiceObjective:
    weights: Mapping[str, float] = {"choice": 1.0}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"choice": batch.labels[TARGET].numel()}

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Term]:
        assert isinstance(model, TaskModel)
        windows, targets = batch.labels[WINDOWS], batch.labels[TARGET]  # (U, K), (U,)
        scores = model.scores(batch).float().squeeze(-1)  # (R,)
        sums = scores.new_zeros(windows.numel()).index_add(0, batch.labels[SLOT], scores).view_as(windows)
        means = (sums / windows.clamp(min=1)).masked_fill(windows == 0, -math.inf)
        loss = functional.cross_entropy(means, targets, reduction="sum")
        return {"choice": Term(loss, (means.detach().argmax(-1) == targets).sum())}


class ChoiceScorer:
    def __init__(self) -> None:
        self.right = self.n = 0

    def add(self, examples: Sequence[ChoiceExample], results: Sequence[ChoiceResult]) -> None:
        for example, result in zip(examples, results, strict=True):
            assert example.answer is not None, "scoring needs answers"
            self.right += result.choice == example.answer
            self.n += 1

    def result(self, intervals: bool = True) -> Scored:
        accuracy = self.right / self.n if self.n else 0.0
        ends = {"accuracy": wilson_interval(self.right, self.n)} if intervals else {}
        return Scored("accuracy", {"accuracy": accuracy}, ends, self.n)


class ChoiceTask(Task[ChoiceExample, ChoiceResult]):
    name = "choice"
    head = "choice"
    example = ChoiceExample
    unit = "question"
    kind = ""
    paired = True
    labels = ()
    outputs = 1
    main = "accuracy"

    def __init__(self, settings: ChoiceSettings) -> None:
        self.settings = settings

    @classmethod
    def learn(cls, examples: Sequence[ChoiceExample], settings: ChoiceSettings, tokenizer: Tokenizer) -> "ChoiceTask":
        if not examples:
            raise InputError("There is no training example: nothing to learn from.")
        return cls(settings)

    @classmethod
    def restored(cls, labels: Sequence[str], record: Mapping[str, Any]) -> "ChoiceTask":
        """Restore the task from the record of a saved folder."""
        return cls(merge(ChoiceSettings(), record.get("settings", {}), "qkv.json"))

    def record(self) -> dict[str, Any]:
        return {"settings": asdict(self.settings)}

    def check(self, examples: Sequence[ChoiceExample], needs_labels: bool = True) -> None:
        for number, example in enumerate(examples, 1):
            here, n = name_place(example.place, number), len(example.choices)
            if n < 2:
                raise InputError(f"{here}: {n} choice{'s' * (n != 1)}; there must be at least two to choose from.")
            if example.answer is None:
                if needs_labels:
                    raise InputError(f"{here}: it is not said which of the {n} choices is right. Give the answer.")
            elif not 0 <= example.answer < n:
                raise InputError(f"{here}: choice {example.answer} is right, it says, but they run from 0 to {n - 1}.")

    def features(
        self, tokenizer: Tokenizer, examples: Sequence[ChoiceExample], max_length: int, training: bool
    ) -> ChoiceFeatures:
        return ChoiceFeatures(tokenizer, examples, max_length, self.settings.overlap)

    def objective(self, class_weights: Sequence[float] | None = None) -> ChoiceObjective:
        assert class_weights is None, "choices have no classes"
        return ChoiceObjective()

    def decode(
        self,
        features: ChoiceFeatures,
        scores: Scores,
        extra: Mapping[str, NDArray[np.float32]],
        calibration: Calibration,
    ) -> list[ChoiceResult]:
        probabilities = np.exp(_log_softmax(features.pooled(scores) / calibration.temperature))  # (E, K)
        sure = calibration.abstain_below or 0.0
        results = []
        for e, example in enumerate(features.examples):
            given = probabilities[e, : len(example.choices)].tolist()
            best = int(np.argmax(given))
            sizes = int(features.n_tokens[e]), int(features.n_windows[e])
            results.append(
                ChoiceResult(best, example.choices[best], given[best], tuple(given), *sizes, given[best] < sure)
            )
        return results

    def scorer(self) -> ChoiceScorer:
        return ChoiceScorer()

    def judge(self, example: ChoiceExample, result: ChoiceResult) -> Judgement:
        assert example.answer is not None
        return Judgement(
            example.choices[example.answer],
            result.text,
            example.answer == result.choice,
            result.probability,
            -math.log(max(result.probabilities[example.answer], 1e-12)),
        )

    def constant_answer(self, examples: Sequence[ChoiceExample]) -> ConstantAnswer:
        """The place at which the right choice stands most often."""
        place = Counter(int(example.answer or 0) for example in examples).most_common(1)[0][0]
        name = Phrase(f"always taking choice {place + 1}", f"总选第 {place + 1} 项")
        return ConstantAnswer(name, PlainAnswer(choice=place))

    def weighed(
        self, features: ChoiceFeatures, scores: Scores, result: ChoiceResult, calibration: Calibration
    ) -> Weighed:
        """The score and the probability of every choice, in the order they were given."""
        listed = [
            {"text": text, "probability": round_result(probability), "said": number == result.choice}
            for number, (text, probability) in enumerate(
                zip(features.examples[0].choices, result.probabilities, strict=True)
            )
        ]
        arrays = {
            "scores": features.pooled(scores)[0].astype(np.float32),
            "probabilities": np.array(result.probabilities, np.float32),
        }
        return Weighed({"choices": listed, "abstained": result.abstained}, arrays)

    def losses(
        self,
        features: ChoiceFeatures,
        scores: Scores,
        extra: Mapping[str, NDArray[np.float32]],
        temperature: float,
    ) -> _Floats:
        assert features.targets is not None, "losses need labels"
        return -_log_softmax(features.pooled(scores) / temperature)[np.arange(len(features.targets)), features.targets]

    def confidences(self, examples: Sequence[ChoiceExample], results: Sequence[ChoiceResult]) -> Sure:
        return Sure(
            np.array([result.probability for result in results], np.float64),
            np.array([e.answer == r.choice for e, r in zip(examples, results, strict=True)], bool),
            np.arange(len(results)),
        )


def _encoded_once(tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, list[int]]:
    distinct = list(dict.fromkeys(texts))
    return dict(zip(distinct, tokenizer.encode_ids(distinct), strict=True))


def _windows(ids: list[int], size: int, overlap: int) -> list[list[int]]:
    if len(ids) <= size:
        return [ids]
    pieces = cut_windows([len(ids)], size, min(overlap, size - 1))
    return [ids[start:end] for start, end in zip(pieces.starts.tolist(), pieces.ends.tolist(), strict=True)]


def _log_softmax(scores: _Floats) -> _Floats:
    """Along the last axis; −inf stays what it is."""
    shifted = scores - scores.max(-1, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


CHOICE = Makers(lambda *_: ChoiceTask, ChoiceTask.learn, ChoiceTask.restored)
