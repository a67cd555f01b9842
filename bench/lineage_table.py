"""What the lines of bench/lineage.py come to: figures with intervals, and whether one step of the lineage is better
than the one before it.

A figure is that of all seeds together. Its interval, and p of a difference, are of draws that take test examples and
seeds again (lineage_statistics.py says how, and what three seeds cannot say); ± is the deviation over the seeds. The p
of all steps are corrected together, and so are those of the side test (Holm 1979), where words alone are drawn again:
each system was trained once, so they say nothing of another training.

Lines that do not belong together, of two trainings or two budgets, are refused.

Shapes: S seeds, n examples, c groups of them, k statistics of each, D draws.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from lineage_runs import SETS, scored_part
from lineage_sides import BOTH, CUT, LEFT, NEITHER
from lineage_statistics import DRAWS, Floats, Metric, difference, figure, grouped, holm, interval
from lineage_systems import SYSTEMS

from qkv.errors import InputError
from qkv.metrics.intervals import Difference, paired_difference, wilson_interval

SURE = 0.05

FIGURES: dict[str, tuple[str, Metric]] = {
    "classify": ("accuracy", lambda sums: sums[:, 0] / sums[:, 1]),
    "tag": ("F1", lambda sums: 2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1)),
    "answer": ("F1", lambda sums: sums[:, 0] / sums[:, 2]),
}
"""By the kind of task: what it is called, and how it comes from sums of statistics (D, k)."""


def check_alike(lines: Iterable[Mapping[str, Any]]) -> None:
    """One comparison: each system trained once, all with one budget, and all given the same to learn and to score."""
    found: dict[str, dict[str, None]] = {}

    def same(what: str, value: Any) -> None:
        found.setdefault(what, {})[json.dumps(value)] = None

    for line in lines:
        if "error" in line or line.get("part") == "choose":
            continue
        if "weights" in line:
            same(f"the training of {line['system']}", line["weights"])
        if "budget" in line:
            same("the budget of trainings", line["budget"])
        if "settings" in line:
            settings = dict(line["settings"])
            weight = settings.pop("language_model_weight")
            same("what runs are given", settings)
            same(f"language_model_weight of {line['system']}", weight)
        if line.get("part") == "sides":
            same(f"hidden words in {line['language']}", [line["words"], line.get("held_out"), line.get("length")])
    for what, values in found.items():
        if len(values) > 1:
            raise InputError(
                f"The lines are of more than one comparison: {what} is {' and '.join(values)}. Give --lines and "
                "--before that belong together."
            )


class Cell(NamedTuple):
    value: float
    low: float
    high: float
    deviation: float | None  # over the seeds
    seeds: int
    examples: int
    rows: Floats  # (S, c, k)


def cells(lines: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Cell]:
    """By set and system."""
    groups: dict[tuple[str, str], dict[int, tuple[int, Floats]]] = {}
    for line in lines:
        if line.get("part") == "finetune" and "statistics" in line:
            rows = np.asarray(line["statistics"], np.float64)
            one = (len(rows), grouped(rows, line.get("groups")))
            groups.setdefault((line["task"], line["system"]), {})[line["seed"]] = one
    found = {}
    for (task, system), seeds in groups.items():
        metric = FIGURES[SETS[task].kind][1]
        rows = np.stack([one for _, one in seeds.values()])
        each = [figure(one[None], metric) for one in rows]
        deviation = statistics.stdev(each) if len(each) > 1 else None
        examples = next(iter(seeds.values()))[0]
        found[task, system] = Cell(
            *(figure(rows, metric), *interval(rows, metric), deviation, len(each), examples, rows)
        )
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
            rows = found[task, later].rows, found[task, earlier].rows
            compared.append((task, earlier, later, difference(*rows, FIGURES[SETS[task].kind][1])))
    corrected = holm([one[3].p for one in compared])
    return [Step(*one, p) for one, p in zip(compared, corrected, strict=True)]


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


def side_differences(sides: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    compared = [
        ({"language": language, "one": one, "other": other}, found)
        for language, ways in sides.items()
        for one, other in SIDE_PAIRS
        if (found := compared_sides(ways, one, other)) is not None
    ]
    corrected = holm([found.p for _, found in compared])
    return [
        {**names, **found._asdict(), "p_corrected": p} for (names, found), p in zip(compared, corrected, strict=True)
    ]


def failed(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Runs whose last try failed."""
    last = {}
    for line in lines:
        if line.get("part") in ("finetune", "choose"):
            weight = (line.get("settings") or {}).get("language_model_weight")
            key = (line["part"], line["task"], line["system"], line["seed"], weight)
            last[key if line["part"] == "choose" else key[:-1]] = line
    return [f"{one['task']} {one['system']} {one['seed']}: {one['error']}" for one in last.values() if "error" in one]


def summed_up(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All that the page and the picture need, without the single examples: for JSON."""
    check_alike(lines)
    # in the order of the lineage, whatever was run first; a guess that reads nothing stands before all
    lines = sorted(lines, key=lambda line: SYSTEMS.index(name) if (name := line.get("system")) in SYSTEMS else -1)
    found, sides = cells(lines), sides_of(lines)
    return {
        "pretrain": {line["system"]: _plain(line, "part") for line in lines if line.get("part") == "pretrain"},
        "choose": [
            {"language_model_weight": line["settings"]["language_model_weight"], "scores": line["scores"]}
            for line in lines
            if line.get("part") == "choose" and "error" not in line
        ],
        "latency": [_plain(line, "part") for line in lines if line.get("part") == "latency"],
        "finetune": [
            {
                "task": task,
                "part": scored_part(task),
                "figure": FIGURES[SETS[task].kind][0],
                "system": system,
                **{key: value for key, value in cell._asdict().items() if key != "rows"},
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
        "sides": {language: [_plain(one, "right") for one in ways.values()] for language, ways in sides.items()},
        "side_differences": side_differences(sides),
        "failed": failed(lines),
    }


def _plain(line: Mapping[str, Any], *left_out: str) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in left_out}


def markdown(summary: Mapping[str, Any]) -> str:
    """The tables of docs/lineage.md."""
    lines = []
    if summary["pretrain"]:
        lines += ["| | parameters | seconds | steps | tokens a second |", "|---|---|---|---|---|"]
        lines += [_training(summary["pretrain"][name]) for name in SYSTEMS if name in summary["pretrain"]] + [""]
    systems = [name for name in SYSTEMS if any(one["system"] == name for one in summary["finetune"])]
    by_key = {(one["task"], one["system"]): one for one in summary["finetune"]}
    lines += [f"| set | {' | '.join(systems)} |", f"|---|{'---|' * len(systems)}"]
    for task in SETS:
        present = [by_key.get((task, system)) for system in systems]
        if not any(present):
            continue
        first = next(one for one in present if one)
        lines.append(f"| {task} {first['part']}, {first['figure']} | {' | '.join(map(_figure, present))} |")
    if summary["steps"]:
        lines += ["", "| set | step | difference | p |", "|---|---|---|---|"]
    lines += [f"| {one['task']} | {one['earlier']} → {one['later']} | {_compared(one)} |" for one in summary["steps"]]
    for one in summary["choose"]:
        weight, score = one["language_model_weight"], one["scores"]["accuracy"]
        lines += ["", f"gpt, language_model_weight {weight:g}: {100 * score:.1f} of held-out training examples"]
    for language, ways in summary["sides"].items():
        words = f"{ways[0]['words']:,} words"
        lines += ["", f"| {language}, top-1 of {words} | neither side | left | both sides |", "|---|---|---|---|"]
        for system in dict.fromkeys(one["system"] for one in ways):
            own = {one["side"]: one for one in ways if one["system"] == system}
            lines.append(f"| {system} | {' | '.join(_side(own.get(side)) for side in (NEITHER, LEFT, BOTH))} |")
            if CUT in own:
                lines.append(f"| {system}, cut after the blank | | {_side(own[CUT])} | |")
    if summary["side_differences"]:
        lines += ["", "| hidden words | | difference | p |", "|---|---|---|---|"]
    for one in summary["side_differences"]:
        lines.append(f"| {one['language']} | {one['other']} → {one['one']} | {_compared(one)} |")
    if summary["latency"]:
        lines += ["", "| | device | ms a text | texts a second | parameters |", "|---|---|---|---|---|"]
    for one in summary["latency"]:
        lines.append(
            f"| {one['system']} | {one['device']} | {one['milliseconds']:.1f} | {one['texts_per_second']:,.0f} | "
            f"{one['parameters']:,} |"
        )
    lines += [f"\nfailed: {one}" for one in summary["failed"]]
    return "\n".join(lines) + "\n"


def _training(one: Mapping[str, Any]) -> str:
    rate = f"{one['tokens_per_second']:,.0f}" if one.get("tokens_per_second") else ""
    return f"| {one['system']} | {one['parameters']:,} | {one['seconds']:,.0f} | {one['steps']:,} | {rate} |"


def _compared(one: Mapping[str, Any]) -> str:
    sure = "**" if one["p_corrected"] < SURE else ""
    between = f"[{100 * one['low']:+.1f}, {100 * one['high']:+.1f}]"
    return f"{sure}{100 * one['difference']:+.1f}{sure} {between} | {one['p_corrected']:.3f}"


def _figure(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ""
    deviation = "" if one["deviation"] is None else f" ± {100 * one['deviation']:.1f}"
    return f"{100 * one['value']:.1f} [{100 * one['low']:.1f}, {100 * one['high']:.1f}]{deviation} ({one['seeds']})"


def _side(one: Mapping[str, Any] | None) -> str:
    return "" if one is None else f"{100 * one['accuracy']:.1f} [{100 * one['low']:.1f}, {100 * one['high']:.1f}]"
