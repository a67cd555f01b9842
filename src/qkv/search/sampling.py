"""Greedy decoding and sampling as an iterator of tokens, and text that can be displayed while it is generated.

Sampling: temperature, top-k (Fan et al. 2018), nucleus (Holtzman et al. 2020). The samples of a row depend on the seed,
on its key and on its scores, not on the other rows of the batch.

`GrowingText`: decoding token by token would lose the spaces between words and break characters whose bytes are in
several tokens (byte-level vocabularies split 😀 into up to four). Some preceding tokens are therefore decoded along,
and incomplete bytes are held back until the character is complete or the text ends.

>>> words = {1: "a", 2: " b", 3: " c"}
>>> growing = GrowingText(lambda ids: "".join(words[id] for id in ids).strip(), before=[1])
>>> [growing.add(2), growing.add(3), growing.rest()]
[' b', ' c', '']

Shapes: Q rows, V vocabulary, S tokens of the longest source.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from qkv.errors import InputError
from qkv.search.decoding import DecoderState, Stepped, close_ranks, compute_log_totals, find_largest, run_step
from qkv.search.options import Controls, GenerateConfig

LOWEST_TEMPERATURE = 1e-30


class Draws:
    def __init__(self, config: GenerateConfig, keys: Sequence[int]) -> None:
        """`keys`: one number per source, independent of the batch; each source has `config.hypotheses` rows."""
        self.config = config
        self.chances = [Random(f"{config.seed} {key} {j}") for key in keys for j in range(config.hypotheses)]

    def __call__(self, logits: Tensor) -> Tensor:
        """(Q, V) → (Q,): one token per row."""
        return pick_tokens(filtered(logits, self.config), [chance.random() for chance in self.chances])

    def keep(self, rows: Sequence[int]) -> None:
        self.chances = [self.chances[row] for row in rows]


def filtered(logits: Tensor, config: GenerateConfig) -> Tensor:
    """(Q, V): logits divided by the temperature; -∞ for tokens outside top-k and top-p."""
    # the maximum becomes 0 and stays 0 at any temperature; LOWEST_TEMPERATURE is still above 0 in float32
    logits = (logits - logits.amax(dim=1, keepdim=True)) / max(config.temperature, LOWEST_TEMPERATURE)
    if config.top_k is not None and config.top_k < logits.shape[1]:
        least = logits.topk(config.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if config.top_p < 1:
        ascending, order = logits.sort(dim=1)
        # cumulative probability up to each token; a token stays unless the likelier ones reach top_p
        unlikely = ascending.softmax(dim=1).cumsum(dim=1) <= 1 - config.top_p
        unlikely[:, -1] = False
        logits = logits.masked_fill(torch.zeros_like(unlikely).scatter_(1, order, unlikely), -torch.inf)
    return logits


def pick_tokens(logits: Tensor, chances: Sequence[float]) -> Tensor:
    """(Q,): inverse-CDF sampling with uniform numbers `chances` (0 ≤ chance < 1)."""
    exact = torch.float32 if logits.device.type == "mps" else torch.float64  # an Apple GPU has no float64
    widths = logits.to(exact).softmax(dim=1).cumsum(dim=1)
    at = torch.tensor(chances, dtype=exact, device=logits.device)[:, None] * widths[:, -1:]
    # the first token whose cumulative probability exceeds the point; one of probability 0 never does
    return torch.searchsorted(widths, at, right=True).squeeze(1).clamp_(max=logits.shape[1] - 1)


REPLACEMENT = "\ufffd"  # decoded incomplete bytes
CONTEXT = 16  # preceding tokens decoded along
MOST_DECODED = 64  # maximum number of tokens decoded at a time, unless all are held back


class GrowingText:
    def __init__(self, decode: Callable[[Sequence[int]], str], before: Sequence[int] = ()) -> None:
        """`before`: the prompt; it is not displayed, but a space after it is."""
        self.decode = decode
        self.ids = list(before[-CONTEXT:])
        self.shown = decode(self.ids) if self.ids else ""  # displayed prefix of the decoded tokens

    def add(self, token: int) -> str:
        """The new text that can be displayed."""
        self.ids.append(token)
        whole = self.decode(self.ids)
        found = self._since(whole.rstrip(REPLACEMENT))
        if len(self.ids) > MOST_DECODED and self.shown == whole:
            self.ids = self.ids[-CONTEXT:]
            self.shown = self.decode(self.ids)
        return found

    def rest(self) -> str:
        """The text held back, at the end of the tokens."""
        return self._since(self.decode(self.ids)) if self.ids else ""

    def _since(self, text: str) -> str:
        if len(text) <= len(self.shown):
            return ""
        found, self.shown = text[len(self.shown) :], text
        return found


def decode_continuation(decode: Callable[[Sequence[int]], str], before: Sequence[int], tokens: Sequence[int]) -> str:
    """The text of `tokens` after `before`, with the leading space if there is one."""
    if not before:
        return decode(tokens)
    return decode([*before, *tokens])[len(decode(before)) :]


_State = TypeVar("_State", bound=DecoderState)


class WrittenToken(NamedTuple):
    """The token that one step generated in one row."""

    row: int  # index among the initial rows
    token: int  # may be the end token
    log_probability: float  # by the network; see Hypothesis
    attention: Tensor | None  # (S,)
    last: bool  # the row is done


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
    """The tokens of each step, for the rows that are not done; finished rows leave the batch. Row r · hypotheses + j is
    hypothesis j of source r.

    `begin` (R,): the token before the text of a source; `limits`: maximum number of tokens per source; `never`: tokens
    that are never generated; `keys`: a number per source that is independent of the batch.
    """
    k = config.hypotheses
    tokens = begin.repeat_interleave(k)  # (Q,)
    controls = Controls(config, end, never, tokens)
    draws = Draws(config, range(len(begin)) if keys is None else keys) if config.sample else None
    limits = [limit for limit in limits for _ in range(k)]
    rows = list(range(len(tokens)))  # initial index of each row
    n_written = 0
    while rows:
        with torch.no_grad():
            logits, state, attention = run_step(step, tokens, state, n_written, k)
            logits = logits.float()  # (Q, V)
            if controls.renormalise:  # changes probabilities, not the choice
                controls.forbid(logits)
            totals = compute_log_totals(logits)  # (Q,)
            own = logits.clone() if controls.changes_scores else logits
            controls.apply(logits, n_written)
            tokens = find_largest(logits, 1)[1].squeeze(1) if draws is None else draws(logits)  # (Q,)
            likely = own.gather(1, tokens[:, None]).squeeze(1) - totals
            if controls.changes_scores:  # so that `check_value` finds a forbidden token
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


def check_value(value: float) -> None:
    """Raise InputError if the log probability of the next token is NaN or -∞."""
    if math.isnan(value):
        raise InputError("The network's scores are NaN: its weights are damaged, or training diverged.")
    if value == -math.inf:
        raise InputError("No token is allowed: min_length, no_repeat and the forbidden tokens rule out all of them.")
