"""The masked language model (Devlin et al. 2019, §3.1 task 1): hide some tokens, predict them from both sides.

Of all ordinary tokens 15 % are chosen; of those 80 % become [MASK], 10 % another random token and 10 % stay as they
are, so that the model must keep a good idea of every token, not only of the hidden ones. Special tokens are never
chosen, and nor is [UNK], which nobody wants predicted.

With whole words (Cui et al. 2021 for Chinese), what is chosen is a word, all its pieces or characters together. Words
are taken in random order until the budget is used up, and the one that crosses it is taken with the probability that
makes the expectation come out. Only a row so short that 15 % of it is less than a word has more: one word is taken.

Everything is vectorised over a batch; a draw is a function of the generator alone.

Shapes: N tokens of all rows, R rows, M chosen tokens.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.data.ranges import ranges
from qkv.errors import InputError

MASK, RANDOM, KEPT = 0, 1, 2
"""How a chosen token was treated; the order of `MaskingConfig.treatment`."""


@dataclass(frozen=True)
class MaskingConfig:
    rate: float = 0.15
    treatment: tuple[float, ...] = (0.8, 0.1, 0.1)  # [MASK], another token, kept
    whole_words: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise InputError(f"rate is a share between 0 and 1, not {self.rate}.")
        if len(self.treatment) != 3 or min(self.treatment) < 0 or abs(sum(self.treatment) - 1) > 1e-6:
            raise InputError(
                f"treatment is three shares ([MASK], random, kept) that add up to 1, not {self.treatment}."
            )


class Masked(NamedTuple):
    ids: NDArray[np.int64]  # (N,) with the chosen tokens treated
    chosen: NDArray[np.int64]  # (M,) where, in ascending order
    targets: NDArray[np.int64]  # (M,) what stood there
    treatment: NDArray[np.int8]  # (M,) MASK, RANDOM or KEPT


@dataclass(frozen=True)
class Vocabulary:
    """What masking has to know of a tokenizer."""

    size: int
    mask_id: int
    special_ids: frozenset[int]  # [UNK] among them

    @cached_property
    def is_ordinary(self) -> NDArray[np.bool_]:
        """By id."""
        found = np.ones(self.size, np.bool_)
        found[list(self.special_ids)] = False
        return found

    @cached_property
    def ordinary(self) -> NDArray[np.int64]:
        """Ids that a random token is drawn from, ascending."""
        return np.flatnonzero(self.is_ordinary)


def mask_tokens(
    ids: NDArray[np.int64],
    row_of_token: NDArray[np.int64],
    unit_starts: NDArray[np.bool_] | None,
    vocabulary: Vocabulary,
    config: MaskingConfig,
    draw: np.random.Generator,
) -> Masked:
    """`unit_starts` (N,) is True where a word begins; None chooses token by token."""
    eligible = vocabulary.is_ordinary[ids]  # (N,)
    chosen = _chosen(eligible, row_of_token, unit_starts, config.rate, draw)
    targets = ids[chosen]
    treatment = np.searchsorted(np.cumsum(config.treatment[:2]), draw.random(len(chosen)), side="right")
    replaced = ids.copy()
    replaced[chosen[treatment == MASK]] = vocabulary.mask_id
    at_random = treatment == RANDOM
    replaced[chosen[at_random]] = _another(targets[at_random], vocabulary.ordinary, draw)
    return Masked(replaced, chosen, targets, treatment.astype(np.int8))


def _chosen(
    eligible: NDArray[np.bool_],
    row_of_token: NDArray[np.int64],
    unit_starts: NDArray[np.bool_] | None,
    rate: float,
    draw: np.random.Generator,
) -> NDArray[np.int64]:
    """(M,) which tokens are to be predicted, ascending."""
    if unit_starts is None:
        begins = np.flatnonzero(eligible)  # (units,)
        sizes = np.ones(len(begins), np.int64)
    else:
        # what follows a special token, or opens a row, opens a unit even if a word was cut there
        opens = unit_starts.copy()
        opens[:1] = True
        opens[1:] |= ~eligible[:-1]
        opens[1:] |= row_of_token[1:] != row_of_token[:-1]
        begins = np.flatnonzero(opens & eligible)
        sizes = np.add.reduceat(eligible, begins, dtype=np.int64) if len(begins) else begins
    if not len(begins):
        return begins
    unit_rows = row_of_token[begins]
    opens_row = np.diff(unit_rows, prepend=-1) != 0
    first, row = np.flatnonzero(opens_row), np.cumsum(opens_row) - 1

    # a random order within every row, by one number each: sorting by two takes several times as long
    order = np.argsort(unit_rows << 32 | draw.integers(0, 1 << 32, len(begins)))
    ordered_sizes = sizes[order]
    used = np.cumsum(ordered_sizes) - ordered_sizes  # tokens of units before this one …
    used -= used[first][row]  # … in its own row
    budget = (rate * np.add.reduceat(sizes, first))[row]
    taken = draw.random(len(begins)) * ordered_sizes < budget - used  # surely, if it fits whole
    taken[first] |= ~np.logical_or.reduceat(taken, first)  # at least one a row
    units_taken = np.sort(order[taken])
    return ranges(begins[units_taken], sizes[units_taken])


def _another(originals: NDArray[np.int64], ordinary: NDArray[np.int64], draw: np.random.Generator) -> NDArray[np.int64]:
    """A random ordinary token for each, never the same one."""
    picks = draw.integers(0, max(1, len(ordinary) - 1), len(originals))
    places = np.searchsorted(ordinary, originals)
    return ordinary[picks + (picks >= places)]
