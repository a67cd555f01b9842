"""Figures of an evaluation on a terminal."""

from collections.abc import Mapping
from typing import Any

import typer

NAMES = {
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "weighted_f1": "weighted F1",
    "mcc": "MCC",
    "f1": "F1",
    "em": "exact match",
    "samples_f1": "F1 by text",
    "subset_accuracy": "all labels right",
    "has_answer_em": "exact match, answered",
    "has_answer_f1": "F1, answered",
    "no_answer_em": "exact match, no answer",
    "no_answer_f1": "F1, no answer",
    "mean_absolute_error": "mean absolute error",
    "mean_squared_error": "mean squared error",
    "pearson": "Pearson",
    "spearman": "Spearman",
}
MOST_LABELS = 40
FEWEST = 20  # examples that a rule for not answering is looked for in


def print_result(result: Mapping[str, Any]) -> None:
    """What a fine-tuning run came to."""
    print_scores("held out", result["dev"])
    if result["test"]:
        typer.echo("")
        print_scores("test", result["test"])
    seeds = result["seeds"]
    if len(seeds["values"]) > 1:
        typer.echo(f"\n{len(seeds['values'])} seeds: {result['main']} {seeds['mean']:.4f} ± {seeds['deviation']:.4f}")
    if result["baseline"]:
        typer.echo(f"\nalways answering '{result['baseline']['label']}': {result['baseline'][result['main']]:.4f}")
    found = result["calibration"]
    if found:
        error = found["expected_calibration_error"]
        typer.echo(
            f"calibration error {error['before']:.3f} → {error['after']:.3f} (temperature {found['temperature']:.2f})"
        )
        if found["answered"] is None and (result["kind"] == "multi" or result["dev"]["examples"] < FEWEST):
            pass  # no rule was looked for
        elif found["answered"] is None:
            typer.echo(
                f"no threshold reaches {found['precision_target']:.0%} precision: let a person look at its answers"
            )
        else:
            typer.echo(
                f"at {found['precision_target']:.0%} precision it answers {found['answered']:.0%} by itself "
                f"(probability ≥ {found['abstain_below']:.2f})"
            )
    if result["dropped"] or result["mended"]:
        typer.echo(f"examples dropped: {result['dropped']:,}, mended: {result['mended']:,} (see faults.jsonl)")


def print_scores(name: str, scores: Mapping[str, Any]) -> None:
    from qkv.cli.terminal import bar, table

    rows = []
    for key, (low, high) in scores["intervals"].items():
        if key == "micro_f1" and scores.get("accuracy") == scores[key]:
            continue  # with one label a text they are the same
        ends = "–" if low is None or high is None else f"{low:.4f} – {high:.4f}"
        rows.append((NAMES.get(key, key.replace("_", " ")), f"{scores[key]:.4f}", ends))
    n = scores["examples"]
    table([f"{name}, {n:,} example{'' if n == 1 else 's'}", "", "95 % interval"], rows, right=(1,))
    labels = scores["labels"]
    if labels and len(labels) <= MOST_LABELS:
        typer.echo("")
        table(
            ["label", "examples", "precision", "recall", "F1", ""],
            [
                (
                    label,
                    f"{one['examples']:,}",
                    *(f"{one[name]:.3f}" for name in ("precision", "recall", "f1")),
                    bar(one["f1"], 16),
                )
                for label, one in labels.items()
            ],
            right=(1, 2, 3, 4),
        )
