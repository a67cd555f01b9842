"""Holding examples out of a labelled file: each label by its share, and nothing that belongs together on both sides.

Examples of one group stay together: of a user, a document, an article where the file says so, and else of one text, so
that a sentence that stands twice in a file is never trained on and tested with.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

_space = re.compile(r"\s+")


def fold_text(text: str) -> str:
    """A text as people compare it: full and half width, capitals and spaces make no difference.

    >>> folded("ＡＢＣ  hello\\tWorld ") == folded("abc Hello world")
    True
    """
    return _space.sub(" ", normalize("NFKC", text)).strip().casefold()


def _goals(counts: Counter[str], share: float) -> dict[str, int]:
    """How many of each stratum: its share rounded down, and what is missing to the share of all goes to those that
    lost most by rounding, so that many small strata do not add up to more than was asked for."""
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
    """(n,) True for the examples to hold out: about `share` of every stratum, `most` in all, whole groups only.

    A stratum keeps at least one example on the training side. The same arguments give the same answer everywhere.
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
    # groups larger than any goal: then the smallest that leaves something to learn from goes past it
    for place in sorted(order.tolist(), key=lambda number: len(members[names[number]])):
        if chosen.any():
            break
        here = members[names[place]]
        adds = Counter(strata[number] for number in here)
        if can_go(adds):
            chosen[here] = True
            taken.update(adds)
    return chosen
