"""The interface between search and networks that generate token by token, and the result of a search.

A source is encoded once. Every source has one or more hypotheses, its partial texts; each is a row. A step takes the
last token of every row and returns the scores of the next one and the new state. Hypotheses of different lengths are
compared by

    score(Y, X) = log P(Y | X) / lp(Y) + cp(X, Y)
    lp(Y) = |Y|^α  or, as in GNMT (Wu et al. 2016, equation 14), ((5 + |Y|) / 6)^α

where |Y| includes the end token and cp is the coverage penalty of search.py.

Shapes: N, M tokens of all source and target rows, R sources, Q rows (hypotheses of all sources), S tokens of the
longest source, D width, V vocabulary.
"""

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

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
