"""The coverage penalty of GNMT (Wu et al. 2016, equation 14): against texts that leave a part of the source out.

    cp(X, Y) = β Σ_i log min(1, Σ_j a_ji)          a_ji: how much token j of the text looked at source token i

It is added when a text has ended. Before that, what a text has not looked at it may still come to.

Shapes: R sources, Q rows, S tokens of the longest source.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from qkv.errors import InputError
from qkv.generate.options import GenerateConfig

NO_ATTENTION = "coverage_penalty needs a network with attention to its source; this one has none."
FLOOR = 1e-6
"""The least coverage of a source token: one that nothing looked at costs a text much, but not everything."""


class Coverage:
    """What the texts of all rows have looked at so far. Where the penalty is 0, nothing is computed."""

    def __init__(self, config: GenerateConfig, source_lengths: Sequence[int] | None) -> None:
        self.weight = config.coverage_penalty
        self.sums: Tensor | None = None  # (Q, S)
        self.real: Tensor | None = None  # (Q, S), False beyond a source's end
        self.lengths: list[int] = []
        if self.weight:
            assert source_lengths is not None, "the coverage penalty asks how long the sources are: source_lengths"
            self.lengths = [length for length in source_lengths for _ in range(config.hypotheses)]

    def after(self, attention: Tensor | None) -> list[float] | None:
        """(Q, S), what a step looked at → the penalty of every row's text, if it ended there. None: no penalties."""
        if not self.weight:
            return None
        if attention is None:
            raise InputError(NO_ATTENTION)
        if self.sums is None or self.real is None:
            self.sums = torch.zeros_like(attention)
            lengths = torch.tensor(self.lengths, device=attention.device)[:, None]
            self.real = torch.arange(attention.shape[1], device=attention.device) < lengths
        self.sums = self.sums + attention
        return penalties(self.sums, self.real, self.weight).tolist()

    def select(self, rows: Tensor) -> None:
        if self.sums is not None and self.real is not None:
            self.sums, self.real = self.sums[rows], self.real[rows]


def penalties(sums: Tensor, real: Tensor, weight: float) -> Tensor:
    """(Q, S), what each source token was looked at in sum, and which of them there are → (Q,), 0 at best."""
    return weight * sums.clamp(FLOOR, 1.0).log().mul(real).sum(dim=1)
