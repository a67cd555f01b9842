"""How far ahead to guess: the next tokens are proposed by a cheap network and judged by the real one, all at once.

Reading weights from memory is what a step costs when one text is written. A network of 8 bits reads a quarter, and says
mostly the same. So it writes a few tokens ahead, and the real network reads them together, which costs little more than
reading one: as long as its own choice was proposed, its scores are there already; what was proposed after another
choice is forgotten (Leviathan et al. 2023; Chen et al. 2023). Nothing that is written depends on the proposals: every
score is the real network's.

This file decides how many to propose, from how often proposals were right of late.
"""

from typing import NamedTuple


class Costs(NamedTuple):
    """As shares of a step of the real network, about, on two cores of a CPU: they decide how far ahead is guessed."""

    draft: float  # a step of 8 bits
    read: float  # the real network for more than one token
    read_more: float  # and for each of them


OF_GPT_2 = Costs(0.4, 1.5, 0.08)
OF_TRANSLATION = Costs(0.3, 1.0, 0.06)  # in the size of the Transformer's paper
COUNTS = (0, 3, 7, 15)
RATE = 0.05
PATIENCE = 32
"""Tokens after which it is tried again, where guessing did not pay."""


class Pace:
    """
    >>> pace = Pace()
    >>> pace.count()                  # nothing is known yet
    7
    >>> for _ in range(100): pace.saw(True)
    >>> pace.count()
    15
    >>> for _ in range(40): pace.saw(False)
    >>> pace.count()
    0
    """

    def __init__(self, costs: Costs = OF_GPT_2) -> None:
        self.costs = costs
        self.right = 0.95  # share of proposals
        self._idle = 0

    def saw(self, right: bool) -> None:
        self.right += RATE * (right - self.right)

    def count(self) -> int:
        """How many tokens to propose now."""
        best = max(COUNTS, key=lambda count: worth(count, self.right, self.costs))
        self._idle = 0 if best else self._idle + 1
        if self._idle > PATIENCE:
            self._idle = 0
            return COUNTS[1]
        return best


def worth(count: int, right: float, costs: Costs = OF_GPT_2) -> float:
    """Tokens for what a step costs, if this many are proposed and this share is right.

    >>> worth(0, 0.5)
    1.0
    """
    if not count:
        return 1.0
    expected = sum(right**place for place in range(count + 1))
    return expected / (costs.draft * count + costs.read + costs.read_more * (count + 1))
