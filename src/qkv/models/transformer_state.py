"""What a Transformer computes with when it decodes, and what its rows remember from one step to the next.

Shapes: Q rows (hypotheses of all sources), D width, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from qkv.models.few_rows import FewRows
from qkv.models.step_attention import PackedSources
from qkv.nn.cache import SourceMemory, TokenCache
from qkv.nn.decoder_step import Function, PostNormStep, PreNormStep
from qkv.nn.drafts import Draft, Pace

Sources = SourceMemory | PackedSources


class Layers(NamedTuple):
    """What decoding computes with."""

    encoder: Sequence[nn.Module]
    decoder: Sequence[PostNormStep | PreNormStep]
    words: Function  # (…, D) → (…, V)
    few_rows: FewRows | None = None  # all of the decoder for a few rows, where that is faster
    guessing: "Layers | None" = None  # what guesses ahead, where something does

    @property
    def compiled(self) -> bool:
        """Whether sources are asked by compiled kernels."""
        return any(one is not None and one.few_rows is not None for one in (self, self.guessing))


class TransformerState:
    """What the rows remember. A state is gone on from once: its cache is written in place."""

    def __init__(
        self, past: TokenCache, source: Sources, layers: Layers, pace: Pace, draft: Draft | None = None
    ) -> None:
        self.past, self.source, self.layers = past, source, layers
        self.pace, self.draft = pace, draft
        self._is_used = False

    def select(self, rows: Tensor) -> "TransformerState":
        """(Q',): row i goes on from what was row rows[i]. One may go on twice, or not at all."""
        self.use()
        chosen, before = rows.tolist(), self.past.rows
        self.past.select(chosen)
        # what was guessed stands behind what was written, and is not moved with it
        draft = self.draft if chosen == list(range(before)) else None
        return TransformerState(self.past, self.source.select(chosen), self.layers, self.pace, draft)

    def follow(self, draft: Draft | None = None) -> "TransformerState":
        return TransformerState(self.past, self.source, self.layers, self.pace, draft)

    def use(self) -> None:
        assert not self._is_used, "this state was gone on from already; go on from the one that it gave"
        self._is_used = True
