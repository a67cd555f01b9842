"""Beam search: of every source the few best beginnings are kept, and each step lengthens all of them by one token.

The 2k best continuations of k beginnings are looked at, best first. One that ends is done if it is among the first k;
of those that do not, the first k go on. Sooner or later a source has k texts that are done, and the question is whether
to go on (option `stopping`; the worst of the k must be beaten):
    "estimate"  while the best beginning would be good enough if it ended here. With length_penalty > 0 a longer one
                might still have won; this is what transformers does when nothing is said
    "enough"    no (transformers: early_stopping=True)
    "never"     while a beginning could still win if it wrote nothing but certain tokens up to the length limit

Which tokens a beginning consists of is kept as a chain of links, so that beginnings in common are held once. What is
compared is little, and is compared in plain Python: on a CPU that is quicker than the same with tensors.

Shapes: R sources that are still searched, k beams, Q = R · k rows, V vocabulary, S tokens of the longest source.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Optional, TypeVar

import torch
from torch import Tensor

from qkv.generate.controls import Controls
from qkv.generate.coverage import Coverage
from qkv.generate.hypothesis import Hypothesis, normalised
from qkv.generate.largest import largest, log_totals
from qkv.generate.options import GenerateConfig
from qkv.generate.rows import close_ranks, keep_places
from qkv.generate.stream import check_value, stepped
from qkv.models.decoding import DecoderState, Stepped

State = TypeVar("State", bound=DecoderState)


class Continuation(NamedTuple):
    """A beginning, lengthened by one token."""

    value: float  # what beginnings are ranked by: the log probability of their tokens, after the controls
    token: int
    row: int  # of the beginning
    own: float  # the log probability of the token by the network itself


class Link(NamedTuple):
    """The last token of a beginning, and what came before."""

    before: Optional["Link"]
    token: int
    row: int  # that the network was in when it wrote the token
    value: float
    log_probability: float  # of the tokens up to here, by the network itself


class Ended(NamedTuple):
    score: float
    last: Link
    finished: bool


@dataclass
class Search:
    """The search for one source."""

    place: int  # among the sources there were at first
    limit: int  # tokens
    alive: list[Link]  # k at most, in the order of its rows
    ended: list[Ended] = field(default_factory=list)  # k at most, best first
    best: float = 0.0  # value of those alive

    def lengthen(
        self,
        candidates: Sequence[Continuation],
        penalties: Sequence[float] | None,
        length: int,
        end: int,
        config: GenerateConfig,
    ) -> None:
        """Candidates come best first; texts are `length` tokens long with theirs. `penalties` are those of the rows."""
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
                score = normalised(value, length, config) + (penalties[row] if penalties else 0)
                self.ended.append(Ended(score, link, token == end))
        self.best = self.alive[0].value if self.alive else -math.inf
        self.alive = [self.alive[place] for place in keep_places([link.row % k for link in self.alive])]
        self.ended.sort(key=lambda one: -one.score)
        del self.ended[k:]
        if not self.alive and not self.ended:
            check_value(candidates[0].value)

    def filled(self, k: int) -> list[Link]:
        """Every source keeps k rows. Where there are fewer beginnings, some rows count for nothing."""
        return self.alive + [self.alive[0]._replace(value=-math.inf)] * (k - len(self.alive))

    def goes_on(self, length: int, config: GenerateConfig) -> bool:
        if not self.alive:
            return False
        if len(self.ended) < config.beams:
            return True
        if config.stopping == "enough":
            return False
        far = config.stopping == "never" and config.length_penalty > 0
        return normalised(self.best, self.limit if far else length, config) > self.ended[-1].score


@torch.no_grad()
def beam_search(
    step: Callable[[Tensor, State], Stepped[State]],
    state: State,
    begin: Tensor,
    end: int,
    config: GenerateConfig,
    limits: Sequence[int],
    *,
    source_lengths: Sequence[int] | None = None,
    never: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """The n best texts of every source, best first; fewer where there are no more. Arguments as those of `generate`."""
    k = config.beams
    tokens = begin.repeat_interleave(k)  # (Q,)
    controls = Controls(config, end, never, tokens)
    coverage = Coverage(config, source_lengths)
    nothing = Link(None, end, 0, 0.0, 0.0)
    searches = [Search(place, limit, [nothing] * k) for place, limit in enumerate(limits)]
    values = torch.full((len(tokens),), -torch.inf, device=begin.device)  # (Q,)
    values[::k] = 0  # the rows of a source begin alike: one of them will do
    looked: list[Tensor | None] = []  # step by step: (Q, S)
    results: list[list[Hypothesis]] = [[] for _ in searches]
    while True:
        logits, state, attention = stepped(step, tokens, state, len(looked), k)
        found = continuations(logits.float(), values, controls, len(looked), k)
        penalties = coverage.after(attention)
        looked.append(attention)
        stays = []
        for search, candidates in zip(searches, found, strict=True):
            search.lengthen(candidates, penalties, len(looked), end, config)
            stays.append(search.goes_on(len(looked), config))
            if not stays[-1]:
                length = None if source_lengths is None else source_lengths[search.place]
                results[search.place] = [_text(one, looked, length) for one in search.ended[: config.n_best]]
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


def continuations(
    logits: Tensor, values: Tensor, controls: Controls, n_written: int, k: int
) -> list[list[Continuation]]:
    """(Q, V) and (Q,), what the rows have so far → the best 2k lengthened beginnings of every source, best first."""
    if controls.changes_scores:
        log_probabilities = logits - _totals(logits)
        scores = log_probabilities.clone()
        controls.apply(scores, n_written)
        best, tokens = largest(scores, 2 * k)  # (Q, 2k)
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
        best, tokens = largest(logits, 2 * k)
        own = best - totals
        # to look through the vocabulary once more takes its time
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
    """(Q, 1). Where all is forbidden it is finite, so that what is forbidden stays -∞ and does not become nan."""
    return log_totals(scores)[:, None].clamp(min=torch.finfo(scores.dtype).min)


def _text(ended: Ended, looked: Sequence[Tensor | None], source_length: int | None) -> Hypothesis:
    links: list[Link] = []
    link = ended.last
    while link.before is not None:
        links.append(link)
        link = link.before
    links.reverse()
    written = links[:-1] if ended.finished else links
    attention = None
    if looked[0] is not None:
        # all steps, then without that of the end: a text of no tokens has a table of no rows
        rows = [one[link.row, :source_length] for one, link in zip(looked, links, strict=False) if one is not None]
        attention = torch.stack(rows)[: len(written)]
    return Hypothesis(
        tuple(link.token for link in written), ended.last.log_probability, ended.score, ended.finished, attention
    )
