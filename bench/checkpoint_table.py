"""What runs of checkpoint_scores.py came to: a table over the seeds, and of each set the rate that did best."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from checkpoint_tasks import TASKS
from rich.console import Console
from rich.table import Table

RANDOM = "random"
HELD_OUT = "held out"
"""The part that --held-out takes from the training examples."""
ALWAYS = "always one"
"""The column of what always answering the most frequent training label reaches."""


def best_rates(lines: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Of each set the rate that did best on examples held out of train, on average over the seeds.

    >>> best_rates({"task": "mrpc", "lr": lr, "scores": {"held out": {"accuracy": score}}}
    ...            for lr, score in ((1e-4, .7), (3e-4, .9), (1e-4, .8)))
    {'mrpc': 0.0003}
    """
    found: dict[str, dict[float, list[float]]] = {}
    for line in lines:
        if HELD_OUT in line.get("scores", {}):
            score = line["scores"][HELD_OUT][TASKS[line["task"]].figures[0]]
            found.setdefault(line["task"], {}).setdefault(line["lr"], []).append(score)
    return {task: max(rates, key=lambda lr: statistics.fmean(rates[lr])) for task, rates in found.items()}


def show(lines: Iterable[dict[str, Any]]) -> None:
    """A row for each figure of each part, a column for each model."""
    runs = [line for line in lines if "error" not in line]
    models = sorted(dict.fromkeys(run["model"] for run in runs), key=lambda model: model == RANDOM)
    table = Table(title="in %, mean ± deviation over the seeds (how many)")
    for heading in ("set", "part", "examples", "figure", *models, ALWAYS, "epochs, lr", "seconds"):
        table.add_column(heading, justify="left" if heading in ("set", "part", "figure") else "right")
    for name, task in TASKS.items():
        for part in (*task.scored, HELD_OUT):
            for figure in task.figures:
                own = {model: [run for run in runs if _of(run, name, part, model)] for model in models}
                of_task = [run for group in own.values() for run in group]
                if not of_task:
                    continue
                always = (of_task[0]["always"] or {}).get(part) if figure == task.figures[0] else None
                settings = dict.fromkeys(f"{run['epochs']:g}, {run['lr']:g}" for run in of_task)
                seconds = [
                    f"{statistics.fmean(run['seconds'] for run in group):.0f}" for group in own.values() if group
                ]
                table.add_row(
                    name,
                    part,
                    f"{of_task[0]['examples'][part]:,}",
                    figure,
                    *(_cell([run["scores"][part][figure] for run in group]) for group in own.values()),
                    "" if always is None else f"{100 * always:.1f}",
                    "; ".join(settings),
                    " ".join(seconds),
                )
    Console(width=60 + 26 * (len(models) + 2)).print(table)
    for line in lines:
        if "error" in line:
            print(f"failed: {line['task']} {line['model']} {line['seed']}: {line['error']}")


def _of(run: dict[str, Any], task: str, part: str, model: str) -> bool:
    return run["task"] == task and run["model"] == model and part in run["scores"]


def _cell(values: Sequence[float]) -> str:
    """
    >>> _cell([0.81, 0.83]), _cell([0.5]), _cell([])
    ('82.00 ± 1.41 (2)', '50.00 (1)', '')
    """
    if not values:
        return ""
    spread = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.2f}{spread} ({len(values)})"
