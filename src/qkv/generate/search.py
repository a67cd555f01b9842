"""Texts for a batch of sources: one function, whatever the way of searching and whatever the network.

    state = model.start(source.ids, source.packing, hypotheses=config.hypotheses, longest=config.max_length)
    begin = torch.full((source.n_rows,), begin_id)
    found = generate(model.step, state, begin, end_id, config, source_lengths=source.lengths)
    found[r][0].tokens      the best text of source r

What this file does NOT do: read sources and turn tokens into text; or show a text while it grows, which stream.py does.

Shapes: R sources, S tokens of the longest source.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from qkv.errors import InputError
from qkv.generate.beam import beam_search
from qkv.generate.coverage import NO_ATTENTION, penalties
from qkv.generate.hypothesis import Hypothesis, normalised
from qkv.generate.options import GenerateConfig
from qkv.generate.stream import WrittenToken, stream
from qkv.models.decoding import DecoderState, Stepped

State = TypeVar("State", bound=DecoderState)


def generate(
    step: Callable[[Tensor, State], Stepped[State]],
    state: State,
    begin: Tensor,
    end: int,
    config: GenerateConfig,
    *,
    source_lengths: Sequence[int] | None = None,
    never: Sequence[int] = (),
    keys: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """The n best texts of every source, best first. Beam search may find fewer where the vocabulary is tiny.

    `state` has `config.hypotheses` rows for each source, and room for `config.limit` tokens in each.

    `begin` (R,): the token that comes before the text of a source; it counts as written where repetition is looked at,
    unless it is the end, which then stands before the text as a mark.
    `source_lengths`: tokens of each source; with them a table of attention is as wide as its source, without them as
    wide as the longest. `max_ratio` and `coverage_penalty` need them.
    `never`: tokens that are not written (padding and the like).
    `keys`: for drawing, a number that tells a source apart whatever batch it is in; else it is its place in this one.
    """
    assert begin.dim() == 1, "begin is one token for each source"
    if not len(begin):
        return []
    if source_lengths is None:
        assert not config.max_ratio and not config.coverage_penalty, "say how long the sources are: source_lengths"
    lengths: list[int | None] = [None] * len(begin) if source_lengths is None else [*source_lengths]
    limits = [config.limit(length) for length in lengths]
    if config.beams > 1:
        return beam_search(step, state, begin, end, config, limits, source_lengths=source_lengths, never=never)
    texts: list[list[WrittenToken]] = [[] for _ in range(len(begin) * config.hypotheses)]
    for written in stream(step, state, begin, end, config, limits, never=never, keys=keys):
        for one in written:
            texts[one.row].append(one)
    k = config.hypotheses
    found = [_hypothesis(text, end, config, lengths[row // k]) for row, text in enumerate(texts)]
    return [sorted(found[at : at + k], key=lambda one: -one.score) for at in range(0, len(found), k)]


def _hypothesis(
    text: Sequence[WrittenToken], end: int, config: GenerateConfig, source_length: int | None
) -> Hypothesis:
    finished = text[-1].token == end
    total = sum(one.log_probability for one in text)
    seen = [one.attention[:source_length] for one in text if one.attention is not None]
    attention = torch.stack(seen) if seen else None  # (tokens and end, S)
    score = normalised(total, len(text), config)
    if config.coverage_penalty:
        if attention is None:
            raise InputError(NO_ATTENTION)
        sums = attention.sum(dim=0, keepdim=True)
        score += float(penalties(sums, torch.ones_like(sums), config.coverage_penalty))
    tokens = tuple(one.token for one in text[: len(text) - finished])
    return Hypothesis(tokens, total, score, finished, None if attention is None else attention[: len(tokens)])
