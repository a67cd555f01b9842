"""One token after another, the likeliest or drawn by chance, and a text that is shown while it grows."""

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from qkv.errors import InputError
from qkv.search.decoding import DecoderState, Stepped
from qkv.search.largest import close_ranks, compute_log_totals, find_largest
from qkv.search.options import Controls, GenerateConfig

# --- Drawing a token by chance: temperature, the k likeliest (Fan et al. 2018), the nucleus (Holtzman et al. 2020).
#
# A row's draws follow from the seed, from its own key and from its own scores. Which other rows stand in the batch, and
# where, changes nothing.
#
# Shapes: Q rows, V vocabulary.

LOWEST_TEMPERATURE = 1e-30


class Draws:
    def __init__(self, config: GenerateConfig, keys: Sequence[int]) -> None:
        """`keys` tell sources apart, whatever batch they are in; each has as many rows as there are hypotheses."""
        self.config = config
        self.chances = [Random(f"{config.seed} {key} {j}") for key in keys for j in range(config.hypotheses)]

    def __call__(self, logits: Tensor) -> Tensor:
        """(Q, V) → (Q,): one token a row."""
        return pick_tokens(filtered(logits, self.config), [chance.random() for chance in self.chances])

    def keep(self, rows: Sequence[int]) -> None:
        self.chances = [self.chances[row] for row in rows]


def filtered(logits: Tensor, config: GenerateConfig) -> Tensor:
    """(Q, V): those of tokens that may be drawn, at the temperature; the others are -∞."""
    # the largest become 0, and stay 0 however small the temperature is; below COLDEST a float32 would be 0 itself
    logits = (logits - logits.amax(dim=1, keepdim=True)) / max(config.temperature, LOWEST_TEMPERATURE)
    if config.top_k is not None and config.top_k < logits.shape[1]:
        least = logits.topk(config.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if config.top_p < 1:
        ascending, order = logits.sort(dim=1)
        # what the tokens up to this one have together; a token stays unless the likelier ones are enough
        unlikely = ascending.softmax(dim=1).cumsum(dim=1) <= 1 - config.top_p
        unlikely[:, -1] = False
        logits = logits.masked_fill(torch.zeros_like(unlikely).scatter_(1, order, unlikely), -torch.inf)
    return logits


def pick_tokens(logits: Tensor, chances: Sequence[float]) -> Tensor:
    """(Q,): the token on which the chance (0 ≤ chance < 1) falls, when each is as wide as it is likely."""
    widths = logits.double().softmax(dim=1).cumsum(dim=1)
    at = torch.tensor(chances, dtype=torch.float64, device=logits.device)[:, None] * widths[:, -1:]
    # the first token that reaches beyond the point; one of no width never does
    return torch.searchsorted(widths, at, right=True).squeeze(1).clamp_(max=logits.shape[1] - 1)


# --- A text that is shown while it grows: tokens in, whole characters out.
#
# Decoding token by token would lose the spaces between words, which stand in neither of them, and break characters
# whose bytes lie in two tokens (byte-level vocabularies cut 😀 into up to four). So some tokens before are decoded
# along, and bytes that are no character yet are held back until they are one, or until nothing more comes.
#
# >>> words = {1: "a", 2: " b", 3: " c"}
# >>> growing = GrowingText(lambda ids: "".join(words[id] for id in ids).strip(), before=[1])
# >>> [growing.add(2), growing.add(3), growing.rest()]
# [' b', ' c', '']

REPLACEMENT = "\ufffd"  # what stands for bytes that are no character
CONTEXT = 16  # tokens that are decoded along
MOST_DECODED = 64  # tokens that are decoded at most, unless all are held back


class GrowingText:
    def __init__(self, decode: Callable[[Sequence[int]], str], before: Sequence[int] = ()) -> None:
        """`before` is what the text goes on from: it is not shown, but a space between the two is."""
        self.decode = decode
        self.ids = list(before[-CONTEXT:])
        self.shown = decode(self.ids) if self.ids else ""  # of what the tokens make

    def add(self, token: int) -> str:
        """What can be shown since."""
        self.ids.append(token)
        whole = self.decode(self.ids)
        found = self._since(whole.rstrip(REPLACEMENT))
        if len(self.ids) > MOST_DECODED and self.shown == whole:
            self.ids = self.ids[-CONTEXT:]
            self.shown = self.decode(self.ids)
        return found

    def rest(self) -> str:
        """What was held back, as it is: nothing more comes."""
        return self._since(self.decode(self.ids)) if self.ids else ""

    def _since(self, text: str) -> str:
        if len(text) <= len(self.shown):
            return ""
        found, self.shown = text[len(self.shown) :], text
        return found


def decode_continuation(decode: Callable[[Sequence[int]], str], before: Sequence[int], tokens: Sequence[int]) -> str:
    """The same of a text that is there already, with the space in front of it if there is one."""
    if not before:
        return decode(tokens)
    return decode([*before, *tokens])[len(decode(before)) :]


# --- One token after another, each the likeliest (greedy) or drawn: an iterator, so that a text can be shown as it
# grows.
#
# Every row is a text of its own, and leaves the batch when it is done.
#
# Shapes: Q rows, V vocabulary, S tokens of the longest source.

_State = TypeVar("_State", bound=DecoderState)


class WrittenToken(NamedTuple):
    """What one step wrote in one row."""

    row: int  # of the rows there were at first
    token: int  # also the end, if that is what was written
    log_probability: float  # by the network itself, whatever was made likelier; see Hypothesis
    attention: Tensor | None  # (S,)
    last: bool  # nothing more will be written in this row


def stream_tokens(
    step: Callable[[Tensor, _State], Stepped[_State]],
    state: _State,
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
    tokens that are not written, `keys` what tells a source apart from those of other batches (see stream.py).
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
            logits, state, attention = run_step(step, tokens, state, n_written, k)
            logits = logits.float()  # (Q, V)
            if controls.renormalise:  # changes no choice, but what it was worth
                controls.forbid(logits)
            totals = compute_log_totals(logits)  # (Q,)
            own = logits.clone() if controls.changes_scores else logits
            controls.apply(logits, n_written)
            tokens = find_largest(logits, 1)[1].squeeze(1) if draws is None else draws(logits)  # (Q,)
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


def run_step(
    step: Callable[[Tensor, _State], Stepped[_State]], tokens: Tensor, state: _State, n_written: int, k: int
) -> Stepped[_State]:
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
