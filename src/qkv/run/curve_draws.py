"""Which training examples each point of a learning curve gets.

A draw is one order of all examples, and a size is a beginning of it: within a draw the sizes are nested, as a file is
when it grows; between draws nothing is shared. The order brings every label early, and then each by its share, so that
a tenth of the file has about a tenth of each label's examples, and no label is missing that a model is asked for.
"""

from collections.abc import Sequence

import numpy as np

from qkv.data.batching import Integers

FEWEST = 8
"""Examples: fewer say nothing about a task, only about themselves."""


def sizes(shares: Sequence[float], available: int, labels: int) -> tuple[int, ...]:
    """How many examples each share is, none less than one of each label; equal ones are one.

    >>> sizes((0.1, 0.5, 1.0), 200, 3), sizes((0.1, 0.5, 1.0), 200, 77)
    ((20, 100, 200), (77, 100, 200))
    """
    least = max(labels, FEWEST)
    return tuple(sorted({min(available, max(least, round(share * available))) for share in shares}))


def drawn_order(labels: Sequence[Sequence[str]], seed: int, draw: int) -> Integers:
    """(n,) examples by number, given the labels of each: any `sizes` of them from the front are a good sample.

    >>> order = drawn_order([["a"]] * 90 + [["b"]] * 9 + [["c"]], seed=0, draw=0)
    >>> sorted(number // 90 for number in order[:20].tolist()).count(1)
    3
    """
    chance = np.random.default_rng(np.random.SeedSequence((seed, draw, 6)))
    shuffled = chance.permutation(len(labels))
    strata = [" ".join(sorted(set(found))) for found in labels]
    counts: dict[str, int] = {}
    for name in strata:
        counts[name] = counts.get(name, 0) + 1
    seen: set[str] = set()
    ranks = dict.fromkeys(counts, 0)
    places = np.empty(len(labels))
    for number, luck in zip(shuffled.tolist(), chance.random(len(labels)).tolist(), strict=True):
        name = strata[number]
        # the first to have a label come before all others, in the order they were drawn in
        new = not seen.issuperset(labels[number])
        seen.update(labels[number])
        places[number] = luck - 1 if new else (ranks[name] + luck) / counts[name]
        ranks[name] += 1
    return np.argsort(places, kind="stable")
