"""A batch of texts and their translations: two packed batches with a row each for every pair.

Target rows begin with the token that texts begin with, and `labels["next"]` has what follows each token, the end at
last. So the decoder reads [begin, y1 … yn] and is asked for [y1 … yn, end].

>>> batch = PairBatch.of([[7, 8, 3]], [[5, 6]], begin=2, end=3)
>>> batch.source.ids.tolist(), batch.target.ids.tolist(), batch.target.labels["next"].tolist()
([7, 8, 3], [2, 5, 6], [5, 6, 3])
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch

from qkv.batch import Batch

NEXT = "next"


@dataclass(frozen=True)
class PairBatch:
    source: Batch
    target: Batch  # row r is the translation of row r of the source

    def __post_init__(self) -> None:
        assert self.source.n_rows == self.target.n_rows, "every source has its target"

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], begin: int, end: int) -> Self:
        """From lists of ids: sources as the encoder reads them, targets as they are written, without begin and end."""
        labels = torch.tensor([token for row in targets for token in (*row, end)], dtype=torch.int64)
        target = Batch.of([[begin, *row] for row in targets], labels={NEXT: labels})
        return cls(Batch.of(sources), target)

    @property
    def n_rows(self) -> int:
        return self.target.n_rows

    @property
    def n_tokens(self) -> int:
        """Of the target: what is predicted."""
        return self.target.n_tokens

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        return type(self)(self.source.to(device, non_blocking), self.target.to(device, non_blocking))

    def pinned(self) -> Self:
        return type(self)(self.source.pinned(), self.target.pinned())
