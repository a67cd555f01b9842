"""A model with the task it was fine-tuned for: examples in, results out, in bounded memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from qkv.data.batching import chunks
from qkv.data.examples import AnswerExample, ChoiceExample, Example, TextExample
from qkv.errors import InputError
from qkv.interop.keys import ARCHITECTURES
from qkv.interop.readers import Opened
from qkv.tasks.classify import kind_of_problem
from qkv.tasks.infer import infer
from qkv.tasks.model import TaskModel
from qkv.tasks.table import TASKS, AnyTask
from qkv.tasks.task import Calibration, Features, Scores
from qkv.tokenizer import Tokenizer

TOKENS_PER_BATCH = {"cpu": 4096}
TOKENS_PER_BATCH_ELSEWHERE = 65_536
EXAMPLES_PER_CHUNK, CHARACTERS_PER_CHUNK = 2048, 500_000
"""What is held at a time: enough that sorting by length pays, little enough to stream."""

FOREIGN = {"answer": {"settings": {"max_answer_tokens": 50, "no_answer": "yes", "scorer": "squad"}}}
"""What a folder that others fine-tuned does not say."""


@dataclass(frozen=True)
class Solver:
    model: TaskModel
    task: AnyTask
    tokenizer: Tokenizer
    max_length: int
    calibration: Calibration = field(default_factory=Calibration)
    precision: torch.dtype | None = None  # of matrix products; None: the weights' own

    @property
    def tokens_per_batch(self) -> int:
        return TOKENS_PER_BATCH.get(next(self.model.parameters()).device.type, TOKENS_PER_BATCH_ELSEWHERE)

    def features(self, examples: Sequence[Example]) -> Features:
        return self.task.features(self.tokenizer, examples, self.max_length, training=False)

    def scores(self, features: Features) -> Scores:
        return infer(self.model, features, self.tokens_per_batch, self.precision)

    def answers(self, examples: Sequence[Example]) -> list[Any]:
        """One result an example, in order."""
        features = self.features(examples)
        return self.task.decode(features, self.scores(features), self.model.extra_arrays(), self.calibration)

    def stream(
        self, examples: Iterable[Example], needs_labels: bool = False
    ) -> Iterator[tuple[list[Example], list[Any]]]:
        """Examples with their results, a part for every few thousand of them."""
        for chunk in chunks(examples, EXAMPLES_PER_CHUNK, characters, CHARACTERS_PER_CHUNK):
            self.task.check(chunk, needs_labels)
            yield chunk, self.answers(chunk)


def characters(example: Example) -> int:
    if isinstance(example, AnswerExample):
        return len(example.question) + len(example.text)
    if isinstance(example, ChoiceExample):
        return (len(example.text) + len(example.question)) * len(example.choices)
    return len(example.text) + (len(example.pair or "") if isinstance(example, TextExample) else 0)


def solver_of(folder: Opened, device: torch.device) -> Solver:
    """From a folder that `qkv finetune` wrote, or one of transformers with a head that a task here has."""
    name = folder.record.get("task") or task_of(folder)
    entry = TASKS[name]
    if entry.head not in folder.model.heads:
        raise InputError(f"{folder.path} says it is for '{name}' but has no {entry.head} head: it is damaged.")
    record = folder.record.get("task_record")
    if record is None:
        record = foreign_classifier(folder) if name == "classify" else FOREIGN.get(name, {})
    task = entry.restored(folder.labels, record)
    model = TaskModel(folder.model, entry.head, task.extra_tensors())
    with torch.no_grad():
        for key, value in folder.record.get("extra", {}).items():
            model.extra[key].copy_(torch.tensor(value))
    longest = int(folder.record.get("max_length") or min(entry.longest, folder.config.max_length))
    stored = folder.record.get("calibration") or {}
    calibration = Calibration(
        float(stored.get("temperature", 1.0)), dict(stored.get("thresholds") or {}), stored.get("abstain_below")
    )
    return Solver(model.to(device).eval(), task, folder.tokenizer, longest, calibration)


def foreign_classifier(folder: Opened) -> dict[str, Any]:
    """What the config.json of others says of a classifier. Whether it reads pairs it does not say."""
    kind = kind_of_problem(folder.carried.get("problem_type"), len(folder.labels))
    if kind == "regression" and len(folder.labels) != 1:
        raise InputError(
            f"{folder.path} is for regression with {len(folder.labels)} numbers at a time; qkv predicts one number."
        )
    return {"kind": kind, "paired": None if folder.config.segments > 1 else False}


def task_of(folder: Opened) -> str:
    """Which task a folder of transformers can do, by its head."""
    for name, entry in TASKS.items():
        if entry.head in folder.model.heads:
            return name
    classes = [name for name, known in ARCHITECTURES.items() if set(known.heads) & {e.head for e in TASKS.values()}]
    raise InputError(
        f"{folder.path} is a {folder.architecture}, which was not fine-tuned for a task: it cannot predict. Fine-tune "
        f"it: qkv finetune classify --model {folder.path} --train FILE --out RUN; or load one of {', '.join(classes)}."
    )


def extra_record(model: TaskModel) -> dict[str, Any]:
    """A task's own parameters as JSON: they are few, and their folder stays one that transformers loads."""
    return {name: np.asarray(value, np.float64).tolist() for name, value in model.extra_arrays().items()}
