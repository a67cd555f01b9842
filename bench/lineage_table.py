"""What the lines of bench/lineage.py come to: figures with intervals, and whether one step of the lineage is better
than the one before it.

The statistics of an example are added up over the seeds, so a figure is that of all seeds together; intervals are the
bootstrap over test examples, which says nothing of chance in training: beside them stands the deviation over the seeds.
A step is compared with the one before by the paired bootstrap over the same examples; the p of all comparisons of a
table are corrected together (Holm 1979).

Shapes: n examples, k statistics of each, D draws.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from lineage_runs import SETS, scored_part
from lineage_systems import SYSTEMS
from numpy.typing import NDArray

from qkv.metrics.intervals import Difference, bootstrap, paired_difference, wilson_interval

Floats = NDArray[np.float64]
DRAWS = 2_000
SURE = 0.05

FIGURES: dict[str, tuple[str, Callable[[Floats], Floats]]] = {
    "classify": ("accuracy", lambda sums: sums[:, 0] / sums[:, 1]),
    "tag": ("F1", lambda sums: 2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1)),
    "answer": ("F1", lambda sums: sums[:, 0] / sums[:, 2]),
}
"""By the kind of task: what it is called, and how it comes from sums of statistics (D, k)."""


class Cell(NamedTuple):
    value: float
    low: float
    high: float
    deviation: float | None  # over the seeds
    seeds: int
    rows: Floats  # (n, k), of all seeds


def cells(lines: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Cell]:
    """By set and system."""
    groups: dict[tuple[str, str], dict[int, Floats]] = {}
    for line in lines:
        if line.get("part") == "finetune" and "statistics" in line:
            rows = np.asarray(line["statistics"], np.float64)
            groups.setdefault((line["task"], line["system"]), {})[line["seed"]] = rows
    found = {}
    for (task, system), seeds in groups.items():
        metric = FIGURES[SETS[task].kind][1]
        rows = np.sum(list(seeds.values()), axis=0)
        each = [float(metric(one.sum(0)[None])[0]) for one in seeds.values()]
        low, high = bootstrap(rows, metric, draws=DRAWS)
        value = float(metric(rows.sum(0)[None])[0])
        found[task, system] = Cell(value, low, high, statistics.stdev(each) if len(each) > 1 else None, len(each), rows)
    return found


class Step(NamedTuple):
    """A system against the one before it in the lineage."""

    task: str
    earlier: str
    later: str
    difference: Difference
    p: float  # corrected for all comparisons of the table

    @property
    def is_sure(self) -> bool:
        return self.p < SURE


def steps(found: Mapping[tuple[str, str], Cell], systems: Sequence[str] = SYSTEMS) -> list[Step]:
    compared = []
    for task in SETS:
        present = [system for system in systems if (task, system) in found]
        for earlier, later in pairwise(present):
            a, b = found[task, later], found[task, earlier]
            # the same number of seeds, or sums would differ by that
            difference = paired_difference(a.rows / a.seeds, b.rows / b.seeds, FIGURES[SETS[task].kind][1], draws=DRAWS)
            compared.append((task, earlier, later, difference))
    corrected = holm([one[3].p for one in compared])
    return [Step(*one, p) for one, p in zip(compared, corrected, strict=True)]


def holm(values: Sequence[float]) -> list[float]:
    """
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    found, largest = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=lambda place: values[place])):
        largest = max(largest, min(1.0, values[place] * (len(values) - rank)))
        found[place] = largest
    return found


def sides_of(lines: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """By language, then by system and side: top-1 with its interval."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for line in lines:
        if line.get("part") != "sides":
            continue
        right = int(np.sum(line["right"]))
        low, high = wilson_interval(right, line["words"])
        key = f"{line['system']} {line['side']}"
        found.setdefault(line["language"], {})[key] = {
            "system": line["system"],
            "side": line["side"],
            "accuracy": line["accuracy"],
            "low": low,
            "high": high,
            "words": line["words"],
            "right": line["right"],
        }
    return found


def compared_sides(found: Mapping[str, Mapping[str, Any]], one: str, other: str) -> Difference | None:
    """Of the same words, one way to guess them against another."""
    if one not in found or other not in found:
        return None
    rows = [np.array([[value, 1.0] for value in found[name]["right"]]) for name in (one, other)]
    return paired_difference(rows[0], rows[1], lambda sums: sums[:, 0] / sums[:, 1], draws=DRAWS)


SIDE_PAIRS = (
    ("bert both", "gpt left"),
    ("bert left", "gpt left"),
    ("bert both", "bert left"),
    ("elmo both", "elmo left"),
)


def summed_up(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All that the page and the picture need, without the single examples: for JSON."""
    found = cells(lines)
    failed = [f"{line['task']} {line['system']} {line['seed']}: {line['error']}" for line in lines if "error" in line]
    sides = sides_of(lines)
    return {
        "pretrain": {line["system"]: _plain(line, "part") for line in lines if line.get("part") == "pretrain"},
        "latency": [_plain(line, "part") for line in lines if line.get("part") == "latency"],
        "finetune": [
            {
                "task": task,
                "part": scored_part(task),
                "figure": FIGURES[SETS[task].kind][0],
                "system": system,
                **{key: value for key, value in cell._asdict().items() if key != "rows"},
                "examples": len(cell.rows),
            }
            for (task, system), cell in found.items()
        ],
        "steps": [
            {
                "task": one.task,
                "earlier": one.earlier,
                "later": one.later,
                **one.difference._asdict(),
                "p_corrected": one.p,
            }
            for one in steps(found)
        ],
        "sides": {
            language: [{key: value for key, value in one.items() if key != "right"} for one in ways.values()]
            for language, ways in sides.items()
        },
        "side_differences": [
            {"language": language, "one": one, "other": other, **difference._asdict()}
            for language, ways in sides.items()
            for one, other in SIDE_PAIRS
            if (difference := compared_sides(ways, one, other)) is not None
        ],
        "failed": failed,
    }


def _plain(line: Mapping[str, Any], *left_out: str) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in left_out}


def markdown(summary: Mapping[str, Any]) -> str:
    """The tables of docs/lineage.md."""
    systems = [name for name in SYSTEMS if any(one["system"] == name for one in summary["finetune"])]
    by_key = {(one["task"], one["system"]): one for one in summary["finetune"]}
    lines = [f"| set | {' | '.join(systems)} |", f"|---|{'---|' * len(systems)}"]
    for task in SETS:
        present = [by_key.get((task, system)) for system in systems]
        if not any(present):
            continue
        first = next(one for one in present if one)
        lines.append(f"| {task} {first['part']}, {first['figure']} | {' | '.join(map(_figure, present))} |")
    if summary["steps"]:
        lines += ["", "| set | step | difference | p |", "|---|---|---|---|"]
    for one in summary["steps"]:
        sure = "**" if one["p_corrected"] < SURE else ""
        lines.append(
            f"| {one['task']} | {one['earlier']} → {one['later']} | {sure}{100 * one['difference']:+.1f}{sure} "
            f"[{100 * one['low']:+.1f}, {100 * one['high']:+.1f}] | {one['p_corrected']:.3f} |"
        )
    for language, ways in summary["sides"].items():
        lines += ["", f"| {language}, top-1 of {ways[0]['words']:,} words | left | both sides |", "|---|---|---|"]
        for system in dict.fromkeys(one["system"] for one in ways):
            own = {one["side"]: one for one in ways if one["system"] == system}
            lines.append(f"| {system} | {_side(own.get('left') or own.get('neither'))} | {_side(own.get('both'))} |")
            if "left, cut" in own:
                lines.append(f"| {system}, cut after the blank | {_side(own['left, cut'])} | |")
    if summary["latency"]:
        lines += ["", "| | device | ms a text | texts a second | parameters |", "|---|---|---|---|---|"]
    for one in summary["latency"]:
        lines.append(
            f"| {one['system']} | {one['device']} | {one['milliseconds']:.1f} | {one['texts_per_second']:,.0f} | "
            f"{one['parameters']:,} |"
        )
    lines += [f"\nfailed: {one}" for one in summary["failed"]]
    return "\n".join(lines) + "\n"


def _figure(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ""
    deviation = "" if one["deviation"] is None else f" ± {100 * one['deviation']:.1f}"
    return f"{100 * one['value']:.1f} [{100 * one['low']:.1f}, {100 * one['high']:.1f}]{deviation} ({one['seeds']})"


def _side(one: Mapping[str, Any] | None) -> str:
    return "" if one is None else f"{100 * one['accuracy']:.1f} [{100 * one['low']:.1f}, {100 * one['high']:.1f}]"
