"""Stratified held-out splits of labelled files that keep groups together.

A group is a user, document or article if the file states it, and otherwise a text, so that a repeated sentence is never
in both training and held-out examples.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

_space = re.compile(r"\s+")


def fold_text(text: str) -> str:
    """Normalise full width, case and white space, for comparisons.

    >>> fold_text("ＡＢＣ  hello\\tWorld ") == fold_text("abc Hello world")
    True
    """
    return _space.sub(" ", normalize("NFKC", text)).strip().casefold()


def _goals(counts: Counter[str], share: float) -> dict[str, int]:
    """Return the number of held-out examples of each stratum: its share rounded down, and the remainder to the strata
    with the largest fractions, so that the total is right even with many small strata."""
    exact = {name: share * n for name, n in counts.items()}
    goals = {name: min(int(value), counts[name] - 1) for name, value in exact.items()}
    missing = max(1, round(share * counts.total())) - sum(goals.values())
    by_loss = sorted(exact, key=lambda name: (int(exact[name]) - exact[name], name))
    for name in by_loss:
        if missing > 0 and goals[name] < counts[name] - 1:
            goals[name] += 1
            missing -= 1
    return goals


def choose_held_out(
    groups: Sequence[Hashable], strata: Sequence[str], share: float, seed: int, most: int
) -> NDArray[np.bool_]:
    """(n,) True for held-out examples: about `share` of every stratum, at most `most`, whole groups only.

    At least one example of each stratum stays for training. Deterministic for the same arguments.
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for number, group in enumerate(groups):
        members[group].append(number)
    counts = Counter(strata)
    share = min(share, most / max(1, len(groups)))
    goals = _goals(counts, share)
    taken: Counter[str] = Counter()
    chosen = np.zeros(len(groups), dtype=bool)
    names = sorted(members, key=lambda group: members[group][0])
    order = np.random.default_rng(np.random.SeedSequence((seed, len(groups)))).permutation(len(names))

    def can_go(adds: Counter[str]) -> bool:
        return all(taken[name] + n < counts[name] for name, n in adds.items())

    for place in order.tolist():
        here = members[names[place]]
        adds = Counter(strata[number] for number in here)
        if can_go(adds) and all(taken[name] + n <= goals[name] for name, n in adds.items()):
            chosen[here] = True
            taken.update(adds)
    # if all groups exceed the goals, hold out the smallest that leaves training examples
    for place in sorted(order.tolist(), key=lambda number: len(members[names[number]])):
        if chosen.any():
            break
        here = members[names[place]]
        adds = Counter(strata[number] for number in here)
        if can_go(adds):
            chosen[here] = True
            taken.update(adds)
    return chosen
