"""The one setting of bench/lineage.py that is chosen: what GPT's loss of the next word counts while a task is learned.

Radford et al. (2018) have 0.5, and found that it helps large sets and not small ones; of a model that was trained for
minutes it may only take strength away. The rule, written down before any run: GPT learns SST-2 once with each of
WEIGHTS, seed 0, from its training file without a tenth (5,000 examples at most); what has the higher accuracy on those
is taken for all sets and seeds. Of equals it is the first, the paper's. No dev or test part is looked at. Nothing is
chosen for the other systems. Phrases of one sentence stand on both sides of that split, which flatters both alike.
"""

from dataclasses import replace

from lineage_lines import Lines
from lineage_runs import Run

WEIGHTS = (0.5, 0.0)
SYSTEM, SET, SEED = "gpt", "sst2", 0


def choices(run: Run) -> list[Run]:
    """The runs that decide, for a GPT that such a run is of."""
    return [replace(run, part="choose", task=SET, seed=SEED, language_model_weight=weight) for weight in WEIGHTS]


def left_of(runs: list[Run], lines: Lines) -> list[Run]:
    return [run for run in runs if not lines.has(**run.key)]


def chosen(runs: list[Run], lines: Lines) -> float | None:
    """None until all of them are done."""
    found = [lines.of(**run.key) for run in runs]
    if not all(found):
        return None
    scores = [each[-1]["scores"]["accuracy"] for each in found]
    return WEIGHTS[scores.index(max(scores))]
