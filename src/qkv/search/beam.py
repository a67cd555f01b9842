"""Beam search with the coverage penalty, and `generate`, the one function for all kinds of search.

    state = model.start(source.ids, source.packing, hypotheses=config.hypotheses, longest=config.max_length)
    begin = torch.full((source.n_rows,), begin_id)
    found = generate(model.step, state, begin, end_id, config, source_lengths=source.lengths)
    found[r][0].tokens      the best text of source r

Beam search keeps the k best partial texts of every source and extends all of them by one token per step. The best 2k
extensions are considered in order. One that ends is done if it is among the first k; of the others the first k are
kept. When k texts of a source have ended, the option `stopping` decides whether its search continues, by comparison
with the worst of the k:

    "estimate"  while the best partial text would beat it if it ended now. With length_penalty > 0 a longer text might
                still have won; this is the default of transformers
    "enough"    stop (transformers: early_stopping=True)
    "never"     while a partial text could still beat it with certain tokens up to the length limit

Partial texts are linked lists with shared prefixes. Candidates are few and are compared in plain Python, which on a CPU
is faster than tensors.

The coverage penalty of GNMT (Wu et al. 2016, equation 14) counts against texts that leave out a part of the source:

    cp(X, Y) = β Σ_i log min(1, Σ_j a_ji)          a_ji: the weight of text token j on source token i

It is added when a text has ended, since a partial text may still cover the rest.

Not here: sampling and streaming (sampling.py); encoding sources and decoding tokens.

Shapes: R sources still searched, k beams, Q = R · k rows, V vocabulary, S tokens of the longest source.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Optional, TypeVar

import torch
from torch import Tensor

from qkv.errors import InputError
from qkv.search.decoding import (
    DecoderState,
    Hypothesis,
    Stepped,
    close_ranks,
    compute_log_totals,
    find_largest,
    keep_places,
    normalise_score,
    run_step,
)
from qkv.search.options import Controls, GenerateConfig
from qkv.search.sampling import WrittenToken, check_value, stream_tokens

NO_ATTENTION = "coverage_penalty needs a network with attention to its source; this one has none."
FLOOR = 1e-6
"""Minimum coverage of a source token, so that the penalty of an uncovered one is finite."""


class Coverage:
    """The summed attention of all rows. Computes nothing if the penalty is 0."""

    def __init__(self, config: GenerateConfig, source_lengths: Sequence[int] | None) -> None:
        self.weight = config.coverage_penalty
        self.sums: Tensor | None = None  # (Q, S)
        self.real: Tensor | None = None  # (Q, S), False beyond a source's end
        self.lengths: list[int] = []
        if self.weight:
            assert source_lengths is not None, "the coverage penalty needs source_lengths"
            self.lengths = [length for length in source_lengths for _ in range(config.hypotheses)]

    def after(self, attention: Tensor | None) -> list[float] | None:
        """The attention of a step (Q, S) → the penalty of every row if it ended now; None without penalties."""
        if not self.weight:
            return None
        if attention is None:
            raise InputError(NO_ATTENTION)
        if self.sums is None or self.real is None:
            self.sums = torch.zeros_like(attention)
            lengths = torch.tensor(self.lengths, device=attention.device)[:, None]
            self.real = torch.arange(attention.shape[1], device=attention.device) < lengths
        self.sums = self.sums + attention
        return coverage_penalties(self.sums, self.real, self.weight).tolist()

    def select(self, rows: Tensor) -> None:
        if self.sums is not None and self.real is not None:
            self.sums, self.real = self.sums[rows], self.real[rows]


def coverage_penalties(sums: Tensor, real: Tensor, weight: float) -> Tensor:
    """(Q, S) summed attention and (Q, S) mask of real source tokens → (Q,), at most 0."""
    return weight * sums.clamp(FLOOR, 1.0).log().mul(real).sum(dim=1)


_State = TypeVar("_State", bound=DecoderState)


class Continuation(NamedTuple):
    """A partial text extended by one token."""

    value: float  # used for ranking: the log probability of the tokens, after the controls
    token: int
    row: int  # of the partial text
    own: float  # the log probability of the token by the network


class Link(NamedTuple):
    """The last token of a partial text, linked to the token before."""

    before: Optional["Link"]
    token: int
    row: int  # of the step that generated the token
    value: float
    log_probability: float  # of the tokens so far, by the network


class EndedText(NamedTuple):
    score: float
    last: Link
    finished: bool


@dataclass
class Search:
    """The search for one source."""

    place: int  # index of the source
    limit: int  # tokens
    alive: list[Link]  # k at most, in the order of its rows
    ended: list[EndedText] = field(default_factory=list)  # k at most, best first
    best: float = 0.0  # value of `alive`

    def lengthen(
        self,
        candidates: Sequence[Continuation],
        penalties: Sequence[float] | None,
        length: int,
        end: int,
        config: GenerateConfig,
    ) -> None:
        """Extend by candidates, best first, to texts of `length` tokens. `penalties` are by row."""
        k = config.beams
        before, self.alive = self.alive, []
        for rank, (value, token, row, own) in enumerate(candidates):
            if value == -math.inf or len(self.alive) == k:
                break
            link = before[row % k]
            link = Link(link, token, row, value, link.log_probability + own)
            if token != end and length < self.limit:
                self.alive.append(link)
            elif rank < k:
                score = normalise_score(value, length, config) + (penalties[row] if penalties else 0)
                self.ended.append(EndedText(score, link, token == end))
        self.best = self.alive[0].value if self.alive else -math.inf
        self.alive = [self.alive[place] for place in keep_places([link.row % k for link in self.alive])]
        self.ended.sort(key=lambda one: -one.score)
        del self.ended[k:]
        if not self.alive and not self.ended:
            check_value(candidates[0].value)

    def filled(self, k: int) -> list[Link]:
        """`alive` padded to k rows; the extra rows have value -∞."""
        return self.alive + [self.alive[0]._replace(value=-math.inf)] * (k - len(self.alive))

    def goes_on(self, length: int, config: GenerateConfig) -> bool:
        if not self.alive:
            return False
        if len(self.ended) < config.beams:
            return True
        if config.stopping == "enough":
            return False
        far = config.stopping == "never" and config.length_penalty > 0
        return normalise_score(self.best, self.limit if far else length, config) > self.ended[-1].score


@torch.no_grad()
def beam_search(
    step: Callable[[Tensor, _State], Stepped[_State]],
    state: _State,
    begin: Tensor,
    end: int,
    config: GenerateConfig,
    limits: Sequence[int],
    *,
    source_lengths: Sequence[int] | None = None,
    never: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """The n best texts of every source, best first; fewer if no more exist. Arguments as of `generate`."""
    k = config.beams
    tokens = begin.repeat_interleave(k)  # (Q,)
    controls = Controls(config, end, never, tokens)
    coverage = Coverage(config, source_lengths)
    nothing = Link(None, end, 0, 0.0, 0.0)
    searches = [Search(place, limit, [nothing] * k) for place, limit in enumerate(limits)]
    values = torch.full((len(tokens),), -torch.inf, device=begin.device)  # (Q,)
    values[::k] = 0  # the rows of a source start equal: use one of them
    looked: list[Tensor | None] = []  # step by step: (Q, S)
    results: list[list[Hypothesis]] = [[] for _ in searches]
    while True:
        logits, state, attention = run_step(step, tokens, state, len(looked), k)
        found = rank_continuations(logits.float(), values, controls, len(looked), k)
        penalties = coverage.after(attention)
        looked.append(attention)
        stays = []
        for search, candidates in zip(searches, found, strict=True):
            search.lengthen(candidates, penalties, len(looked), end, config)
            stays.append(search.goes_on(len(looked), config))
            if not stays[-1]:
                length = None if source_lengths is None else source_lengths[search.place]
                results[search.place] = [_make_hypothesis(one, looked, length) for one in search.ended[: config.n_best]]
        n_rows = len(searches) * k
        searches = [searches[place] for place in close_ranks(stays)]
        if not searches:
            return results
        links = [link for search in searches for link in search.filled(k)]
        rows = [link.row for link in links]
        tokens = torch.tensor([link.token for link in links], device=begin.device)
        values = torch.tensor([link.value for link in links], device=begin.device)
        moved = None if rows == list(range(n_rows)) else torch.tensor(rows, device=begin.device)
        if moved is not None:
            state = state.select(moved)
            coverage.select(moved)
        controls.follow(tokens, moved)


def rank_continuations(
    logits: Tensor, values: Tensor, controls: Controls, n_written: int, k: int
) -> list[list[Continuation]]:
    """Logits (Q, V) and values so far (Q,) → the best 2k continuations of every source, best first."""
    if controls.changes_scores:
        log_probabilities = logits - _totals(logits)
        scores = log_probabilities.clone()
        controls.apply(scores, n_written)
        best, tokens = find_largest(scores, 2 * k)  # (Q, 2k)
        if controls.renormalise:
            best = best - _totals(scores)
            controls.forbid(log_probabilities)
            log_probabilities -= _totals(log_probabilities)
        own = log_probabilities.gather(1, tokens)
    else:
        if controls.renormalise:
            controls.forbid(logits)
        totals = _totals(logits)
        controls.apply(logits, n_written)
        best, tokens = find_largest(logits, 2 * k)
        own = best - totals
        # avoid a second pass over the vocabulary where possible
        again = controls.renormalise and controls.forbids_more(n_written)
        best = best - _totals(logits) if again else own
    n = best.shape[1]
    best = best + values[:, None]
    top, places = best.view(-1, k * n).topk(min(2 * k, k * n))  # (R, 2k)
    chosen = places + torch.arange(0, best.numel(), k * n, device=places.device)[:, None]  # among all of best
    table = zip(
        top.tolist(),
        tokens.reshape(-1)[chosen].tolist(),
        (chosen // n).tolist(),
        own.reshape(-1)[chosen].tolist(),
        strict=True,
    )
    found = [[Continuation(*one) for one in zip(*lists, strict=True)] for lists in table]
    for candidates in found:
        if math.isnan(candidates[0].value):
            check_value(math.nan)
    return found


def _totals(scores: Tensor) -> Tensor:
    """(Q, 1): log-sum-exp, finite even if all tokens are forbidden, so that their scores stay -∞ and not NaN."""
    return compute_log_totals(scores)[:, None].clamp(min=torch.finfo(scores.dtype).min)


def _make_hypothesis(ended: EndedText, looked: Sequence[Tensor | None], source_length: int | None) -> Hypothesis:
    links: list[Link] = []
    link = ended.last
    while link.before is not None:
        links.append(link)
        link = link.before
    links.reverse()
    written = links[:-1] if ended.finished else links
    attention = None
    if looked[0] is not None:
        # all steps, then without the end token: a text without tokens has a table without rows
        rows = [one[link.row, :source_length] for one, link in zip(looked, links, strict=False) if one is not None]
        attention = torch.stack(rows)[: len(written)]
    return Hypothesis(
        tuple(link.token for link in written), ended.last.log_probability, ended.score, ended.finished, attention
    )


def generate(
    step: Callable[[Tensor, _State], Stepped[_State]],
    state: _State,
    begin: Tensor,
    end: int,
    config: GenerateConfig,
    *,
    source_lengths: Sequence[int] | None = None,
    never: Sequence[int] = (),
    keys: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """The n best texts of every source, best first. Beam search may find fewer with a tiny vocabulary.

    `state` has `config.hypotheses` rows per source, with capacity for `config.limit` tokens each.

    `begin` (R,): the token before the text of a source; it counts as generated for the repetition options, unless it is
    the end token.
    `source_lengths`: tokens of each source; attention is then as wide as its source, otherwise as the longest.
    `max_ratio` and `coverage_penalty` need them.
    `never`: tokens that are never generated (padding etc.).
    `keys`: for sampling, a number per source that is independent of the batch; default: its index in the batch.
    """
    assert begin.dim() == 1, "begin is one token per source"
    if not len(begin):
        return []
    if source_lengths is None:
        assert not config.max_ratio, "max_ratio needs source_lengths"
        assert not config.coverage_penalty, "coverage_penalty needs source_lengths"
    lengths: list[int | None] = [None] * len(begin) if source_lengths is None else [*source_lengths]
    limits = [config.limit(length) for length in lengths]
    if config.beams > 1:
        return beam_search(step, state, begin, end, config, limits, source_lengths=source_lengths, never=never)
    texts: list[list[WrittenToken]] = [[] for _ in range(len(begin) * config.hypotheses)]
    for written in stream_tokens(step, state, begin, end, config, limits, never=never, keys=keys):
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
    score = normalise_score(total, len(text), config)
    if config.coverage_penalty:
        if attention is None:
            raise InputError(NO_ATTENTION)
        sums = attention.sum(dim=0, keepdim=True)
        score += float(coverage_penalties(sums, torch.ones_like(sums), config.coverage_penalty))
    tokens = tuple(one.token for one in text[: len(text) - finished])
    return Hypothesis(tokens, total, score, finished, None if attention is None else attention[: len(tokens)])
