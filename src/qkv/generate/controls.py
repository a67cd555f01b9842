"""What may not be written, and what is written less gladly: lengths, repetition, tokens that are no text.

All of it changes scores in place, before a token is chosen. With beams the scores are log probabilities, else logits,
as in transformers; they add up to 1 again if that is asked for (`renormalise`), and else do not.

Shapes: Q rows, T tokens so far, begin included, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from qkv.generate.options import GenerateConfig


class Controls:
    def __init__(self, config: GenerateConfig, end: int, never: Sequence[int], begin: Tensor) -> None:
        """`begin` (Q,) is the first token of every row; `never` are tokens that are not written at all."""
        self.repetition_penalty = config.repetition_penalty
        self.no_repeat = config.no_repeat
        self.min_length = config.min_length
        self.renormalise = config.renormalise
        self.end = end
        self.never = torch.tensor(sorted(set(never)), dtype=torch.int64, device=begin.device) if never else None
        self.remembers = self.repetition_penalty != 1 or self.no_repeat > 0
        self.history = begin[:, None]  # (Q, T); T stays 1 when nobody asks

    @property
    def changes_scores(self) -> bool:
        """Whether a token that may be written can have another score than the network gave it."""
        return self.repetition_penalty != 1

    def forbids_more(self, n_written: int) -> bool:
        """Whether more may be forbidden now than what is never written."""
        return self.no_repeat > 0 or n_written < self.min_length

    def forbid(self, scores: Tensor) -> None:
        """(Q, V), in place: what is never written."""
        if self.never is not None:
            scores.index_fill_(1, self.never, -torch.inf)

    def apply(self, scores: Tensor, n_written: int) -> None:
        """(Q, V), in place. `n_written` tokens stand in every row, begin not counted."""
        if self.remembers:
            # a mark that stands before texts, and may be the one that ends them, was not written
            ends = self.history[:, 0] == self.end
            own = scores[:, self.end].clone()  # (Q,)
            if self.repetition_penalty != 1:
                penalise(scores, self.history, self.repetition_penalty)
            if self.no_repeat:
                forbid_repeats(scores, self.history, self.no_repeat)
            scores[:, self.end] = torch.where(ends, own, scores[:, self.end])
        self.forbid(scores)
        if n_written < self.min_length:
            scores[:, self.end] = -torch.inf

    def follow(self, tokens: Tensor, rows: Tensor | None = None) -> None:
        """(Q',): tokens that were written. Row i goes on from what was row rows[i] (None: the rows stay)."""
        if self.remembers:
            kept = self.history if rows is None else self.history[rows]
            self.history = torch.cat([kept, tokens[:, None]], dim=1)


def penalise(scores: Tensor, history: Tensor, penalty: float) -> None:
    """Scores (Q, V) of tokens in the history (Q, T) are divided by the penalty, or multiplied where negative
    (CTRL: Keskar et al. 2019, section 4.1; the sign is transformers' addition)."""
    found = scores.gather(1, history)  # (Q, T)
    scores.scatter_(1, history, torch.where(found < 0, found * penalty, found / penalty))


def forbid_repeats(scores: Tensor, history: Tensor, n: int) -> None:
    """No token (Q, V) that would end a run of n tokens which stands in the history (Q, T) already."""
    if history.shape[1] < n:
        return
    runs = history.unfold(1, n, 1)  # (Q, T - n + 1, n)
    now = history[:, history.shape[1] - n + 1 :]  # (Q, n - 1), the start of the run that is being written
    same = (runs[:, :, :-1] == now[:, None]).all(dim=2)  # (Q, T - n + 1)
    # the smaller of the score and ±∞: a token may have ended one run of the same start and ten others
    limits = torch.full_like(same, torch.inf, dtype=scores.dtype).masked_fill_(same, -torch.inf)
    scores.scatter_reduce_(1, runs[:, :, -1], limits, "amin")
