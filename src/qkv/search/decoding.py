"""What decoding asks of a network that writes one token after another: translation models, GPT, recurrent models.

A source is read once. Every source has one or more hypotheses, the texts begun so far; each is a row. A step takes the
last token of every row and gives scores for the next one, together with what the rows have to remember. Searching for
good texts among them is the business of search.py.

Shapes: N, M tokens of all source and target rows, R sources, Q rows (hypotheses of all sources), S tokens of the
longest source, D width, V vocabulary.
"""

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from torch import Tensor

from qkv.data.batch import Packing
from qkv.search.options import GenerateConfig


class DecoderState(Protocol):
    """What rows remember of their source and of their own text."""

    def select(self, rows: Tensor) -> Self:
        """(Q',): row i goes on from what was row rows[i]. One may go on twice, or not at all."""
        ...


_State = TypeVar("_State", bound=DecoderState)


class Stepped(NamedTuple, Generic[_State]):
    logits: Tensor  # (Q, V) of the next token
    state: _State
    attention: Tensor | None  # (Q, S): how much each source token was looked at, 0 beyond a row's end


class EncoderDecoder(Protocol[_State]):
    """A translation model, whatever it is made of. Row r of the target belongs to row r of the source."""

    def __call__(self, source: Tensor, source_packing: Packing, target: Tensor, target_packing: Packing) -> Tensor:
        """All at once, in training: (N,) and (M,) → (M, D), the vector after each target token, from which `scores`
        predicts the one that follows. No vector knows of tokens after its own."""
        ...

    def scores(self, hidden: Tensor) -> Tensor:
        """(…, D) → logits (…, V)"""
        ...

    def start(self, source: Tensor, source_packing: Packing, *, hypotheses: int = 1, longest: int = 512) -> _State:
        """Read the sources. Row r · hypotheses + j is hypothesis j of source r, with nothing written yet; none will be
        longer than `longest` tokens."""
        ...

    def step(self, tokens: Tensor, state: _State) -> Stepped[_State]:
        """(Q,), the token that was written last in every row (at first, the one that texts begin with)."""
        ...


# --- What decoding gives back, and how texts of different lengths are compared.
#
#     score(Y, X) = log P(Y | X) / lp(Y) + cp(X, Y)
#     lp(Y) = |Y|^α  or, as in GNMT (Wu et al. 2016, equation 14), ((5 + |Y|) / 6)^α
#
# |Y| counts the end. cp stands in search.py.
#
# Shapes: S tokens of a source.


@dataclass(frozen=True)
class Hypothesis:
    tokens: tuple[int, ...]  # without begin and end
    # the network's own for the tokens and, where there is one, the end, whatever else was forbidden or made likelier;
    # with `renormalise`, among all tokens but those that are never written
    log_probability: float
    score: float  # what hypotheses are ranked by
    finished: bool  # False: it stopped because it was too long, not because it was done
    # (n_tokens, S): what each token looked at, as wide as its source; tensors have no == that is true or false
    attention: Tensor | None = field(default=None, compare=False)


def normalise_score(log_probability: float, length: int, config: GenerateConfig) -> float:
    """`length` is that of the text with its end."""
    base = length if config.length_formula == "power" else (5 + length) / 6
    return float(log_probability / base**config.length_penalty)
