"""A saved model held against a labelled file, alone or beside another one."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from qkv.atomic import replaced_file
from qkv.data.examples import Example
from qkv.data.labelled import labelled
from qkv.errors import InputError
from qkv.metrics.answers import SCORERS
from qkv.metrics.intervals import paired_difference
from qkv.run.finish import scored_dict
from qkv.run.judging import judged
from qkv.run.load import load
from qkv.run.predict_file import record
from qkv.run.solver import Solver
from qkv.tasks.answer import Answer
from qkv.tasks.single_label import SingleLabel
from qkv.tasks.task import Judgement

FAULTS = 50  # told in full


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
    solver = load(run, device=device, threads=threads).solver
    source = labelled(file, solver.task.name, columns=columns, format=format, separator=separator)
    examples = Singles(source) if isinstance(solver.task, SingleLabel) else source
    mine: list[tuple[float, ...]] = []

    def keep(example: Example, result: Any, judgement: Judgement) -> None:
        if against is not None:
            mine.append(statistics(solver, example, result))

    if out is None:
        found = judged(solver.task, solver.stream(examples, needs_labels=True), progress, keep)
    else:
        with replaced_file(out) as part, part.open("w", encoding="utf-8", newline="\n") as lines:

            def write(example: Example, result: Any, judgement: Judgement) -> None:
                keep(example, result, judgement)
                verdict = {"expected": judgement.expected, "right": judgement.right}
                lines.write(json.dumps(record(example, result) | verdict, ensure_ascii=False) + "\n")

            found = judged(solver.task, solver.stream(examples, needs_labels=True), progress, write)
    faults = source.faults
    document: dict[str, Any] = {
        "run": str(run),
        "file": str(file),
        "task": solver.task.name,
        "scores": scored_dict(found.scored),
        "tokens": found.tokens,
        "longest": found.longest,
        "windowed": found.windowed,
        "most_windows": found.most_windows,
        "dropped": sum(fault.action == "dropped" for fault in faults),
        "mended": sum(fault.action == "mended" for fault in faults),
        "faults": [f"{fault.place}: {fault.message} ({fault.action})" for fault in faults[:FAULTS]],
        "against": None,
    }
    if against is not None:
        document["against"] = _compared(solver, mine, against, examples, device, threads, progress)
    return document


@dataclass(frozen=True)
class Singles:
    """Examples whose label is one, also where the file writes it as a list of one."""

    source: Iterable[Any]

    def __iter__(self) -> Iterator[Any]:
        for example in self.source:
            label = example.label
            yield replace(example, label=label[0]) if isinstance(label, tuple) and len(label) == 1 else example


def _compared(
    solver: Solver,
    mine: list[tuple[float, ...]],
    against: str | Path,
    source: Any,
    device: str,
    threads: int | None,
    progress: Callable[[int], None] | None,
) -> dict[str, Any]:
    other = load(against, device=device, threads=threads).solver
    if other.task.name != solver.task.name or len(mine[0]) == 0:
        raise InputError(
            f"{against} is a model for '{other.task.name}', and the first one for '{solver.task.name}': "
            "only two models for the same task can be compared."
        )
    theirs: list[tuple[float, ...]] = []
    judged(
        other.task,
        other.stream(source, needs_labels=True),
        progress,
        lambda example, result, judgement: theirs.append(statistics(other, example, result)),
    )
    metric = _f1 if len(mine[0]) == 3 else _mean
    difference = paired_difference(np.array(mine), np.array(theirs), metric)
    value = float(metric(np.array(theirs).sum(0)[None])[0])
    return {"run": str(against), "value": value, **difference._asdict()}


def statistics(solver: Solver, example: Any, result: Any) -> tuple[float, ...]:
    """Of one example, what the main figure is a function of: (points, 1), or (right, answered, expected) for an F1.

    A number's points are minus its error, because a correlation is not a sum over examples.
    """
    task = solver.task
    judgement = task.judge(example, result)
    if task.name == "tag":
        wanted, said = {tuple(span) for span in example.spans}, {(e.start, e.end, e.label) for e in result.entities}
        return float(len(wanted & said)), float(len(said)), float(len(wanted))
    if getattr(task, "kind", "") == "multi":
        labels = {example.label} if isinstance(example.label, str) else set(example.label)
        return float(len(labels & set(result.labels))), float(len(result.labels)), float(len(labels))
    if isinstance(task, Answer):
        accepted = [answer.text for answer in example.answers]
        return float(SCORERS[task.settings.scorer][1](result.text, accepted)), 1.0
    if getattr(task, "kind", "") == "regression":
        return -judgement.loss, 1.0
    return float(judgement.right), 1.0


def _mean(sums: Any) -> Any:
    return sums[:, 0] / sums[:, 1]


def _f1(sums: Any) -> Any:
    below = sums[:, 1] + sums[:, 2]
    return np.divide(2 * sums[:, 0], below, out=np.zeros(len(below)), where=below > 0)
