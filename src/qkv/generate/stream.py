"""One token after another, each the likeliest (greedy) or drawn: an iterator, so that a text can be shown as it grows.

Every row is a text of its own, and leaves the batch when it is done.

Shapes: Q rows, V vocabulary, S tokens of the longest source.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from qkv.errors import InputError
from qkv.generate.controls import Controls
from qkv.generate.largest import largest, log_totals
from qkv.generate.options import GenerateConfig
from qkv.generate.rows import close_ranks
from qkv.generate.sampling import Draws
from qkv.models.decoding import DecoderState, Stepped

State = TypeVar("State", bound=DecoderState)


class WrittenToken(NamedTuple):
    """What one step wrote in one row."""

    row: int  # of the rows there were at first
    token: int  # also the end, if that is what was written
    log_probability: float  # by the network itself, whatever was made likelier; see Hypothesis
    attention: Tensor | None  # (S,)
    last: bool  # nothing more will be written in this row


def stream(
    step: Callable[[Tensor, State], Stepped[State]],
    state: State,
    begin: Tensor,
    end: int,
    config: GenerateConfig,
    limits: Sequence[int],
    *,
    never: Sequence[int] = (),
    keys: Sequence[int] | None = None,
) -> Iterator[list[WrittenToken]]:
    """What each step wrote, in the rows that are not done. Row r · hypotheses + j is hypothesis j of source r.

    `begin` (R,) is the token that comes before the text of a source, `limits` how much may be written for it, `never`
    tokens that are not written, `keys` what tells a source apart from those of other batches (see sampling.py).
    """
    k = config.hypotheses
    tokens = begin.repeat_interleave(k)  # (Q,)
    controls = Controls(config, end, never, tokens)
    draws = Draws(config, range(len(begin)) if keys is None else keys) if config.sample else None
    limits = [limit for limit in limits for _ in range(k)]
    rows = list(range(len(tokens)))  # which of the first rows each row is
    n_written = 0
    while rows:
        with torch.no_grad():
            logits, state, attention = stepped(step, tokens, state, n_written, k)
            logits = logits.float()  # (Q, V)
            if controls.renormalise:  # changes no choice, but what it was worth
                controls.forbid(logits)
            totals = log_totals(logits)  # (Q,)
            own = logits.clone() if controls.changes_scores else logits
            controls.apply(logits, n_written)
            tokens = largest(logits, 1)[1].squeeze(1) if draws is None else draws(logits)  # (Q,)
            likely = own.gather(1, tokens[:, None]).squeeze(1) - totals
            if controls.changes_scores:  # what is forbidden has to show all the same
                likely.masked_fill_(logits.gather(1, tokens[:, None]).squeeze(1).isneginf(), -torch.inf)
        n_written += 1
        written = []
        for place, (row, token, value) in enumerate(zip(rows, tokens.tolist(), likely.tolist(), strict=True)):
            check_value(value)
            looked = None if attention is None else attention[place]
            written.append(WrittenToken(row, token, value, looked, token == end or n_written == limits[row]))
        yield written
        controls.follow(tokens)
        kept = close_ranks([not one.last for one in written])
        if len(kept) < len(rows):
            rows = [rows[place] for place in kept]
            if rows:
                index = torch.tensor(kept, device=tokens.device)
                state, tokens = state.select(index), tokens[index]
                controls.history = controls.history[index]
            if draws is not None:
                draws.keep(kept)


def stepped(
    step: Callable[[Tensor, State], Stepped[State]], tokens: Tensor, state: State, n_written: int, k: int
) -> Stepped[State]:
    """A step. Should the first one fail, the likeliest reason is named: a state with another number of rows."""
    reason = f"Has the state rows for {k} hypotheses of each source ({len(tokens)} in all)? start(…, hypotheses={k})"
    try:
        found = step(tokens, state)
    except (RuntimeError, IndexError) as error:
        if not n_written:
            error.add_note(reason)
        raise
    assert len(found.logits) == len(tokens), reason
    return found


def check_value(value: float) -> None:
    """The log probability of what is to be written next."""
    if math.isnan(value):
        raise InputError("The network's scores are not numbers (nan): its weights are damaged, or training diverged.")
    if value == -math.inf:
        raise InputError(
            "Nothing is left that may be written: min_length, no_repeat and the forbidden tokens rule out all others."
        )
