"""The batches of fine-tuning: a pure function of (seed, step), cut by a budget of tokens.

An epoch goes once through all units in an order of its own. It is cut into the same number of steps every time, at the
places where the tokens so far pass the next equal share, so that a step costs about the same whatever its texts, and a
run seeks to any step by a division.

Shapes: U units.
"""

import numpy as np

from qkv.batch import Batch
from qkv.data.batching import Integers
from qkv.objectives.epochs import Epochs
from qkv.tasks.task import Features


class TrainingBatches:
    """Step → the batches of that step; more than one where a step is larger than what is run at once."""

    def __init__(self, features: Features, tokens_per_step: int, tokens_at_once: int, seed: int) -> None:
        self.features, self.seed, self.tokens_at_once = features, seed, tokens_at_once
        self.tokens = int(features.unit_tokens.sum())
        units = len(features.unit_tokens)
        self.steps_per_epoch = max(1, min(units, round(self.tokens / tokens_per_step)))
        self.epoch = Epochs(self._draw_epoch)

    def __call__(self, step: int) -> list[Batch]:
        epoch, within = divmod(step, self.steps_per_epoch)
        order, cuts = self.epoch(epoch)
        units = order[cuts[within] : cuts[within + 1]]
        draw = np.random.default_rng(np.random.SeedSequence((self.seed, epoch, within, 3)))
        return [self.features.batch(part, draw) for part in self._parts(units)]

    def _draw_epoch(self, epoch: int) -> tuple[Integers, Integers]:
        shuffle = np.random.default_rng(np.random.SeedSequence((self.seed, epoch, 4)))
        order = shuffle.permutation(len(self.features.unit_tokens))
        return order, even_cuts(self.features.unit_tokens[order], self.steps_per_epoch)

    def _parts(self, units: Integers) -> list[Integers]:
        reach = np.cumsum(self.features.unit_tokens[units])
        parts, begin, before = [], 0, 0
        while begin < len(units):
            end = max(begin + 1, int(np.searchsorted(reach, before + self.tokens_at_once, side="right")))
            parts.append(units[begin:end])
            begin, before = end, int(reach[end - 1])
        return parts


def even_cuts(tokens: Integers, steps: int) -> Integers:
    """(steps + 1,) where to cut a sequence of units so that every part has about as many tokens, and none is empty.

    >>> even_cuts(np.array([5, 1, 1, 1, 1, 1]), 2).tolist()
    [0, 1, 6]
    """
    reach = np.cumsum(tokens)
    goals = reach[-1] * np.arange(1, steps) / steps
    cuts = np.concatenate([[0], np.searchsorted(reach, goals), [len(tokens)]]).astype(np.int64)
    number = np.arange(steps + 1)
    # at least one unit a part: from the left, then from the right
    cuts = np.maximum.accumulate(np.maximum(cuts, number) - number) + number
    return np.minimum(cuts, len(tokens) - (steps - number))
