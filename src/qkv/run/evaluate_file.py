"""A saved model held against a labelled file, alone or beside another one."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.atomic import replaced_file
from qkv.data.examples import Example
from qkv.data.labelled import labelled
from qkv.data.shard_file import sha256_of
from qkv.errors import InputError
from qkv.metrics.answers import SCORERS
from qkv.metrics.intervals import paired_difference
from qkv.metrics.numbers import correlation, moments
from qkv.run.finish import scored_dict
from qkv.run.judging import judged
from qkv.run.load import load
from qkv.run.predict_file import record
from qkv.tasks.answer import Answer
from qkv.tasks.answer_scorer import accepted_texts
from qkv.tasks.single_label import SingleLabel
from qkv.tasks.table import AnyTask
from qkv.tasks.task import Judgement

Floats = NDArray[np.float64]
FAULTS = 50  # told in full
KINDS = {"single": "one label a text", "multi": "any number of labels", "regression": "a number"}


def evaluate_file(
    run: str | Path,
    file: str | Path,
    *,
    against: str | Path | None = None,
    out: Path | None = None,
    columns: Mapping[str, str] | None = None,
    format: str | None = None,
    separator: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Figures of `run` on `file`; with `against`, whether the other model is really worse."""
    model = load(run, device=device, threads=threads)
    task = model.solver.task
    other = None
    if against is not None:  # before the first is evaluated: that may take long
        other = load(against, device=device, threads=threads)
        check_comparable(run, task, against, other.solver.task)
    trained = model.record.get("config", {}).get("data", {})
    if separator is None:
        separator = trained.get("separator")  # as in training
    source = labelled(file, task.name, columns=columns, format=format, separator=separator)
    known = trained.get("train_sha256")
    is_training = known is not None and sha256_of(source.path) == known
    examples = Singles(source) if isinstance(task, SingleLabel) else source
    mine: list[tuple[float, ...]] = []

    def keep(example: Example, result: Any, judgement: Judgement) -> None:
        if other is not None:
            mine.append(statistics(task, example, result, judgement))

    if out is None:
        found = judged(task, model.answer_stream(examples, needs_labels=True), progress, keep)
    else:
        with replaced_file(out) as part, part.open("w", encoding="utf-8", newline="\n") as lines:

            def write(example: Example, result: Any, judgement: Judgement) -> None:
                keep(example, result, judgement)
                verdict = {"expected": judgement.expected, "right": judgement.right}
                lines.write(json.dumps(record(example, result) | verdict, ensure_ascii=False) + "\n")

            found = judged(task, model.answer_stream(examples, needs_labels=True), progress, write)
    faults = source.faults
    document: dict[str, Any] = {
        "run": str(run),
        "file": str(file),
        "task": task.name,
        "scores": scored_dict(found.scored),
        "tokens": found.tokens,
        "longest": found.longest,
        "windowed": found.windowed,
        "most_windows": found.most_windows,
        "dropped": sum(fault.action == "dropped" for fault in faults),
        "mended": sum(fault.action == "mended" for fault in faults),
        "faults": [f"{fault.place}: {fault.message} ({fault.action})" for fault in faults[:FAULTS]],
        "against": None,
        "is_training_file": is_training,
    }
    if other is not None:
        theirs: list[tuple[float, ...]] = []
        judged(
            other.solver.task,
            other.answer_stream(examples, needs_labels=True),
            progress,
            lambda example, result, judgement: theirs.append(statistics(task, example, result, judgement)),
        )
        document["against"] = {
            "run": str(against),
            "figure": found.scored.main,
            **compared(task, np.array(mine), np.array(theirs)),
        }
    return document


@dataclass(frozen=True)
class Singles:
    """Examples whose label is one, also where the file writes it as a list of one."""

    source: Iterable[Any]

    def __iter__(self) -> Iterator[Any]:
        for example in self.source:
            label = example.label
            yield replace(example, label=label[0]) if isinstance(label, tuple) and len(label) == 1 else example


def check_comparable(run: str | Path, task: AnyTask, against: str | Path, other: AnyTask) -> None:
    """Whether two models answer the same kind of question: only then have they a figure in common."""
    names = [(str(run), _in_words(task)), (str(against), _in_words(other))]
    reads = [getattr(one, "paired", None) for one in (task, other)]
    if names[0][1] == names[1][1] and None not in reads and reads[0] != reads[1]:
        names = [
            (name, f"{words} of {'pairs' if paired else 'single texts'}")
            for (name, words), paired in zip(names, reads, strict=True)
        ]
    if names[0][1] != names[1][1]:
        raise InputError(
            f"{names[1][0]} is a model for {names[1][1]}, and {names[0][0]} one for {names[0][1]}: only two models for "
            "the same task can be compared. Give --against another model that was fine-tuned for it."
        )


def _in_words(task: AnyTask) -> str:
    # a tagger's kind is how it decodes, which is what one may want to compare
    kind = KINDS.get(getattr(task, "kind", ""))
    return f"'{task.name}' ({kind})" if kind else f"'{task.name}'"


def statistics(task: AnyTask, example: Any, result: Any, judgement: Judgement) -> tuple[float, ...]:
    """Of one example, what the main figure is computed from.

    (points, 1) for a mean, (right, answered, expected) for an F1, (expected, answered) for a correlation. `task` is
    the first model's for both: answers are counted by one and the same rule.
    """
    kind = getattr(task, "kind", "")
    if task.name == "tag":
        wanted, said = {tuple(span) for span in example.spans}, {(e.start, e.end, e.label) for e in result.entities}
        return float(len(wanted & said)), float(len(said)), float(len(wanted))
    if kind == "multi":
        labels = {example.label} if isinstance(example.label, str) else set(example.label)
        return float(len(labels & set(result.labels))), float(len(result.labels)), float(len(labels))
    if kind == "regression":
        return float(example.label), float(result.value)
    if isinstance(task, Answer):
        return float(SCORERS[task.settings.scorer][1](result.text, accepted_texts(example))), 1.0
    return float(judgement.right), 1.0


def compared(task: AnyTask, mine: Floats, theirs: Floats) -> dict[str, float | None]:
    """The other model's figure, and the difference from the first one's: the paired bootstrap over examples.

    None where a figure cannot be said, as a correlation with answers that are all alike.
    """
    metric: Callable[[Floats], Floats] = _mean if mine.shape[1] == 2 else _f1
    if getattr(task, "kind", "") == "regression":
        mine, theirs, metric = moments(*mine.T), moments(*theirs.T), correlation
    found = {"value": float(metric(theirs.sum(0)[None])[0]), **paired_difference(mine, theirs, metric)._asdict()}
    if math.isnan(found["difference"]):
        found["p"] = math.nan
    return {name: number if math.isfinite(number) else None for name, number in found.items()}


def _mean(sums: Floats) -> Floats:
    return np.asarray(sums[:, 0] / sums[:, 1])


def _f1(sums: Floats) -> Floats:
    below = sums[:, 1] + sums[:, 2]
    return np.divide(2 * sums[:, 0], below, out=np.zeros(len(below)), where=below > 0)
