"""The interface between search and networks that generate token by token, the result of a search, and its helpers.

A source is encoded once. Every source has one or more hypotheses, its partial texts; each is a row. A step takes the
last token of every row and returns the scores of the next one and the new state. Hypotheses of different lengths are
compared by

    score(Y, X) = log P(Y | X) / lp(Y) + cp(X, Y)
    lp(Y) = |Y|^α  or, as in GNMT (Wu et al. 2016, equation 14), ((5 + |Y|) / 6)^α

where |Y| includes the end token and cp is the coverage penalty of beam.py.

Shapes: N, M tokens of all source and target rows, R sources, Q rows (hypotheses of all sources), S tokens of the
longest source, D width, V vocabulary.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor

from qkv.data.batch import Packing
from qkv.search.options import GenerateConfig


class DecoderState(Protocol):
    """The state of all rows: their sources and their texts so far."""

    def select(self, rows: Tensor) -> Self:
        """(Q',): row i becomes the former row rows[i]; rows may be repeated or dropped."""
        ...


_State = TypeVar("_State", bound=DecoderState)


class Stepped(NamedTuple, Generic[_State]):
    logits: Tensor  # (Q, V) of the next token
    state: _State
    attention: Tensor | None  # (Q, S): weights on the source tokens, 0 beyond a row's end


def run_step(
    step: Callable[[Tensor, _State], Stepped[_State]], tokens: Tensor, state: _State, n_written: int, k: int
) -> Stepped[_State]:
    """Run a step; an error in the first one gets a note about its likeliest cause, a wrong number of rows."""
    reason = f"Has the state rows for {k} hypotheses of each source ({len(tokens)} in all)? start(…, hypotheses={k})"
    try:
        found = step(tokens, state)
    except (RuntimeError, IndexError) as error:
        if not n_written:
            error.add_note(reason)
        raise
    assert len(found.logits) == len(tokens), reason
    return found


class EncoderDecoder(Protocol[_State]):
    """A translation model of any architecture. Row r of the target belongs to row r of the source."""

    def __call__(self, source: Tensor, source_packing: Packing, target: Tensor, target_packing: Packing) -> Tensor:
        """For training: (N,) and (M,) → (M, D), the vector at each target token, from which `scores` predicts the next
        one. A vector does not depend on later tokens."""
        ...

    def scores(self, hidden: Tensor) -> Tensor:
        """(…, D) → logits (…, V)"""
        ...

    def start(self, source: Tensor, source_packing: Packing, *, hypotheses: int = 1, longest: int = 512) -> _State:
        """Encode the sources. Row r · hypotheses + j is hypothesis j of source r, initially empty and at most `longest`
        tokens long."""
        ...

    def step(self, tokens: Tensor, state: _State) -> Stepped[_State]:
        """(Q,): the last token of every row (at first the begin token)."""
        ...


@dataclass(frozen=True)
class Hypothesis:
    tokens: tuple[int, ...]  # without begin and end
    # by the network, for the tokens and the end token if there is one, before penalties and constraints; with
    # `renormalise`, among all tokens that may be generated
    log_probability: float
    score: float  # used for ranking
    finished: bool  # False: stopped by the length limit
    # (n_tokens, S): weights on the source, as wide as the source; not compared, since == of tensors is not a bool
    attention: Tensor | None = field(default=None, compare=False)


def normalise_score(log_probability: float, length: int, config: GenerateConfig) -> float:
    """The log probability divided by the length penalty; `length` includes the end token."""
    base = length if config.length_formula == "power" else (5 + length) / 6
    return float(log_probability / base**config.length_penalty)


# --- Helpers of the searches: row orders that move few rows, and the largest scores of a large vocabulary on a CPU.
#
# A row that moves takes its keys and values along, so `close_ranks` and `keep_places` keep most rows in place.
#
# torch's topk and argmax copy and sort whole rows, and logsumexp writes a second table; on a CPU both cost a good part
# of the network's last product. Here rows are scanned in blocks: the k largest scores are in the k blocks with the
# largest maxima. A GPU uses torch's functions. If the network decodes with compiled kernels (nn/cpu/int8_step.py),
# numba is already imported and a few rows use its kernels too.
#
# Shapes: Q rows, V vocabulary, n blocks of b scores, k largest.


def close_ranks(stays: Sequence[bool]) -> list[int]:
    """The order of the rows that stay: rows from the end fill the gaps, the others do not move.

    >>> close_ranks([True, False, True, True, True])
    [0, 4, 2, 3]
    """
    n = sum(stays)
    last = [place for place in range(n, len(stays)) if stays[place]]
    return [place if stays[place] else last.pop() for place in range(n)]


def keep_places(wanted: Sequence[int]) -> list[int]:
    """An order of the items in which each is at its wanted index, unless an earlier item wants the same.

    >>> keep_places([2, 2, 0])  # the first item stays at 2, the last at 0, the other moves
    [2, 1, 0]
    """
    order = [-1] * len(wanted)
    moving = []
    for item, place in enumerate(wanted):
        if place < len(order) and order[place] < 0:
            order[place] = item
        else:
            moving.append(item)
    return [item if item >= 0 else moving.pop() for item in order]


_BLOCK = 64
_SMALL = 4096
"""Up to this vocabulary size torch's functions are as fast."""
_TOGETHER = 4
"""Rows exponentiated at a time, so that they stay in the CPU cache."""
_FEW = 8
"""Maximum number of rows for the compiled kernels."""


def find_largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(Q, V) → values and indices (Q, k), largest first: `scores.topk(k)` except for the order of ties."""
    V = scores.shape[1]
    k = min(k, V)
    if scores.device.type != "cpu" or max(_SMALL, k * _BLOCK) >= V:
        return _top(scores, k)
    if _is_compiled_for(scores):
        from qkv.nn.cpu import step_kernels

        values, places = scores.new_empty(len(scores), k), torch.empty(len(scores), k, dtype=torch.int64)
        step_kernels.compile_largest()(scores.numpy(), values.numpy(), places.numpy())
        return values, places
    whole = V // _BLOCK * _BLOCK
    maxima = scores[:, :whole].unflatten(1, (-1, _BLOCK)).amax(dim=2)  # (Q, n)
    if whole < V:
        maxima = torch.cat([maxima, scores[:, whole:].amax(dim=1, keepdim=True)], dim=1)
    blocks = _top(maxima, k)[1]  # (Q, k)
    places = (blocks[:, :, None] * _BLOCK + torch.arange(_BLOCK)).flatten(1)  # (Q, k · b)
    found = scores.gather(1, places.clamp(max=V - 1)).masked_fill_(places >= V, -torch.inf)
    values, among = _top(found, k)
    # with too few scores above -∞, an index beyond the vocabulary may appear: any score of -∞ will do
    return values, places.gather(1, among).clamp_(max=V - 1)


def _top(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    if k == 1:
        values, places = scores.max(dim=1, keepdim=True)
        return values, places
    found = scores.topk(k)
    return found.values, found.indices


def compute_log_totals(logits: Tensor) -> Tensor:
    """(Q, V) → (Q,): log-sum-exp, which turns logits into log probabilities."""
    if logits.device.type != "cpu" or logits.shape[1] <= _SMALL:
        return logits.logsumexp(dim=1)
    if _is_compiled_for(logits):
        from qkv.nn.cpu import step_kernels

        totals = logits.new_empty(len(logits))
        step_kernels.compile_log_totals()(logits.numpy(), totals.numpy())
        return totals
    largest_of = logits.amax(dim=1, keepdim=True)  # (Q, 1)
    largest_of.masked_fill_(largest_of.isinf(), 0)  # ∞ - ∞ would be NaN
    # a few rows at a time, so that each is read from memory once
    parts = zip(logits.split(_TOGETHER), largest_of.split(_TOGETHER), strict=True)
    sums = [(rows - most).exp_().sum(dim=1) for rows, most in parts]
    return torch.cat(sums).log_() + largest_of.squeeze(1)


def _is_compiled_for(scores: Tensor) -> bool:
    if getattr(sys.modules.get("qkv.nn.cpu.compiled"), "numba", None) is None:
        return False
    is_plain = scores.dtype == torch.float32 and scores.is_contiguous() and not scores.requires_grad
    return is_plain and len(scores) <= _FEW
