"""What decoding asks of a network that writes one token after another: translation models here, GPT later.

A source is read once. Every source has one or more hypotheses, the texts begun so far; each is a row. A step takes the
last token of every row and gives scores for the next one, together with what the rows have to remember. Searching for
good texts among them is the business of generate/.

Shapes: N, M tokens of all source and target rows, R sources, Q rows (hypotheses of all sources), S tokens of the
longest source, D width, V vocabulary.
"""

from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from torch import Tensor

from qkv.batch import Packing


class DecoderState(Protocol):
    """What rows remember of their source and of their own text."""

    def select(self, rows: Tensor) -> Self:
        """(Q',): row i goes on from what was row rows[i]. One may go on twice, or not at all."""
        ...


State = TypeVar("State", bound=DecoderState)


class Stepped(NamedTuple, Generic[State]):
    logits: Tensor  # (Q, V) of the next token
    state: State
    attention: Tensor | None  # (Q, S): how much each source token was looked at, 0 beyond a row's end


class EncoderDecoder(Protocol[State]):
    """A translation model, whatever it is made of. Row r of the target belongs to row r of the source."""

    def __call__(self, source: Tensor, source_packing: Packing, target: Tensor, target_packing: Packing) -> Tensor:
        """All at once, in training: (N,) and (M,) → (M, D), the vector after each target token, from which `scores`
        predicts the one that follows. No vector knows of tokens after its own."""
        ...

    def scores(self, hidden: Tensor) -> Tensor:
        """(…, D) → logits (…, V)"""
        ...

    def start(self, source: Tensor, source_packing: Packing, *, hypotheses: int = 1, longest: int = 512) -> State:
        """Read the sources. Row r · hypotheses + j is hypothesis j of source r, with nothing written yet; none will be
        longer than `longest` tokens."""
        ...

    def step(self, tokens: Tensor, state: State) -> Stepped[State]:
        """(Q,), the token that was written last in every row (at first, the one that texts begin with)."""
        ...
