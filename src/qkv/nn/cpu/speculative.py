"""How far ahead to guess: the next tokens are proposed by a cheap network and judged by the real one, all at once.

Reading weights from memory is what a step costs when one text is written. A network of 8 bits reads a quarter, and says
mostly the same. So it writes a few tokens ahead, and the real network reads them together, which costs little more than
reading one: as long as its own choice was proposed, its scores are there already; what was proposed after another
choice is forgotten (Leviathan et al. 2023; Chen et al. 2023). Nothing that is written depends on the proposals: every
score is the real network's.

How many are proposed depends on how often proposals were right of late.

Shapes: C tokens that were guessed, S tokens of a source that is looked at, V vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Costs(NamedTuple):
    """As shares of a step of the real network, about, on two cores of a CPU: they decide how far ahead is guessed."""

    draft: float  # a step of 8 bits
    read: float  # the real network for more than one token
    read_more: float  # and for each of them


GPT_2_COSTS = Costs(0.4, 1.5, 0.08)
TRANSLATION_COSTS = Costs(0.3, 1.0, 0.06)  # in the size of the Transformer's paper
DRAFT_LENGTHS = (0, 3, 7, 15)
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

    def __init__(self, costs: Costs = GPT_2_COSTS) -> None:
        self.costs = costs
        self.right = 0.95  # share of proposals
        self._idle = 0

    def saw(self, right: bool) -> None:
        self.right += RATE * (right - self.right)

    def count(self) -> int:
        """How many tokens to propose now."""
        best = max(DRAFT_LENGTHS, key=lambda count: expected_speed(count, self.right, self.costs))
        self._idle = 0 if best else self._idle + 1
        if self._idle > PATIENCE:
            self._idle = 0
            return DRAFT_LENGTHS[1]
        return best


def expected_speed(count: int, right: float, costs: Costs = GPT_2_COSTS) -> float:
    """Tokens for what a step costs, if this many are proposed and this share is right.

    >>> expected_speed(0, 0.5)
    1.0
    """
    if not count:
        return 1.0
    expected = sum(right**place for place in range(count + 1))
    return expected / (costs.draft * count + costs.read + costs.read_more * (count + 1))


class Draft(NamedTuple):
    """Tokens that may come next in a single row, and what would come after each: their keys and values are written."""

    tokens: list[int]
    logits: Tensor  # (C, V)
    looks: Tensor | None  # (C, S), where a source is looked at


class _Past(Protocol):
    """A cache of keys and values."""

    length: int

    @property
    def room(self) -> int: ...
    def advance(self) -> None: ...


class Speculation(NamedTuple):
    """What comes after a token, and what was guessed beyond it."""

    logits: Tensor  # (1, V)
    look: Tensor | None  # (1, S)
    draft: Draft | None


def draft_and_verify(
    token: Tensor,
    past: _Past,
    pace: Pace,
    draft: Draft | None,
    propose: Callable[[Tensor], Tensor],
    judge: Callable[[Tensor], tuple[Tensor, Tensor | None]],
) -> Speculation:
    """A step of a single row (1,): from what was guessed, if this token was.

    `propose` has the cheap network's scores of what follows one token, `judge` the real one's for several in a row, and
    where each looked; neither goes on to them.
    """
    if draft is not None:
        is_right = draft.tokens[0] == int(token)
        pace.saw(is_right)
        if is_right:
            past.advance()
            return _take_first(draft.tokens, draft.logits, draft.looks)
    begin, guessed = past.length, [token]
    for _ in range(min(pace.count(), past.room - 1)):
        guessed.append(propose(guessed[-1]).argmax(dim=1))
        past.advance()
    past.length = begin
    logits, looks = judge(torch.cat(guessed))  # over the keys that guessing wrote
    past.advance()
    return _take_first(torch.cat(guessed).tolist(), logits, looks)


def _take_first(tokens: list[int], logits: Tensor, looks: Tensor | None) -> Speculation:
    """Of tokens with their scores, the first, which is written; the others stay guessed."""
    rest = Draft(tokens[1:], logits[1:], None if looks is None else looks[1:])
    return Speculation(logits[:1], None if looks is None else looks[:1], rest if rest.tokens else None)
