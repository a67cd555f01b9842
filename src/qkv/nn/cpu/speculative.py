"""Speculative decoding (Leviathan et al. 2023; Chen et al. 2023): a cheap network drafts tokens, the full one verifies.

With a single text a step is bound by reading the weights. The 8-bit network reads a quarter of them and mostly agrees.
It drafts a few tokens, and the full network scores them in one pass, which costs little more than one token. Tokens
after the first disagreement are discarded. The output does not depend on the draft: every score is the full network's.

The draft length follows the recent acceptance rate (`Pace`).

Shapes: C drafted tokens, S tokens of the source, V vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Costs(NamedTuple):
    """Approximate costs relative to one step of the full network on two CPU cores; they determine the draft length."""

    draft: float  # an 8-bit step
    read: float  # the full network on several tokens: fixed part
    read_more: float  # and per token


GPT_2_COSTS = Costs(0.4, 1.5, 0.08)
TRANSLATION_COSTS = Costs(0.3, 1.0, 0.06)  # Transformer base
DRAFT_LENGTHS = (0, 3, 7, 15)
RATE = 0.05
PATIENCE = 32
"""Tokens after which drafting is retried when it did not pay."""


class Pace:
    """Chooses the draft length from a moving average of the acceptance rate.

    >>> pace = Pace()
    >>> pace.count()                  # before any observation
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
        self.right = 0.95  # acceptance rate
        self._idle = 0

    def saw(self, right: bool) -> None:
        self.right += RATE * (right - self.right)

    def count(self) -> int:
        """The number of tokens to draft now."""
        best = max(DRAFT_LENGTHS, key=lambda count: expected_speed(count, self.right, self.costs))
        self._idle = 0 if best else self._idle + 1
        if self._idle > PATIENCE:
            self._idle = 0
            return DRAFT_LENGTHS[1]
        return best


def expected_speed(count: int, right: float, costs: Costs = GPT_2_COSTS) -> float:
    """Expected tokens per cost of one step, for this draft length and acceptance rate.

    >>> expected_speed(0, 0.5)
    1.0
    """
    if not count:
        return 1.0
    expected = sum(right**place for place in range(count + 1))
    return expected / (costs.draft * count + costs.read + costs.read_more * (count + 1))


class Draft(NamedTuple):
    """Drafted tokens of a single row, with the full network's scores after each; their keys and values are cached."""

    tokens: list[int]
    logits: Tensor  # (C, V)
    looks: Tensor | None  # (C, S), attention to the source


class _Past(Protocol):
    """A cache of keys and values."""

    length: int

    @property
    def room(self) -> int: ...
    def advance(self) -> None: ...


class Speculation(NamedTuple):
    """The scores after a token, and the rest of the draft."""

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
    """One step of a single row (1,), from the draft if it contains this token.

    `propose` returns the cheap network's scores after one token, `judge` the full network's scores after several
    consecutive tokens and their attention to the source; neither advances the cache.
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
    logits, looks = judge(torch.cat(guessed))  # overwrites the draft's keys and values
    past.advance()
    return _take_first(torch.cat(guessed).tolist(), logits, looks)


def _take_first(tokens: list[int], logits: Tensor, looks: Tensor | None) -> Speculation:
    """Split off the first token, which is accepted; the others remain a draft."""
    rest = Draft(tokens[1:], logits[1:], None if looks is None else looks[1:])
    return Speculation(logits[:1], None if looks is None else looks[:1], rest if rest.tokens else None)
