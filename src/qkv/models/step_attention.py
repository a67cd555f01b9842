"""Keys and values of sources end to end, and the compiled ways to ask them and the past (step_kernel.py).

`PackedSources` is what `SourceMemory` (nn/cache.py) is, for a CPU with numba: without padding. Both are asked
alike, and both leave out sources that nobody asks any more when they are the half.

What this file does NOT do: gradients, GPUs.

Shapes: L layers, Q rows (hypotheses of all sources), C sources, N tokens of all of them, S tokens of the longest, T
tokens that there is room for, H heads, K head width.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.models.compiler import LARGEST_HALF


def attend_to_past(
    new: tuple[Tensor, Tensor, Tensor], keys: Tensor, values: Tensor, length: int, scale: float | None
) -> Tensor:
    """Query, key and value (Q, H, K) of a new token: written behind the first `length` of keys and values (Q or more,
    T, H, K), and asked with them → (Q, H, K)"""
    # here, since numba takes its time to be imported
    from qkv.models.step_kernel import to_past

    query = new[0]
    answer = torch.empty(query.shape, dtype=torch.float32)
    scores = np.empty((query.size(1), length + 1), np.float32)
    scale = query.size(2) ** -0.5 if scale is None else scale
    asked = tuple(one.contiguous().numpy() for one in new)
    to_past()(asked, bits(keys), bits(values), length, scale, scores, answer.numpy())
    return answer


class PackedSources:
    """Keys and values of every source, and which source each row asks."""

    def __init__(
        self, memory: Sequence[Tensor], lengths: Sequence[int], owners: Sequence[int], longest: int | None = None
    ) -> None:
        """Per layer keys and values (N, 2, H, K), of single or of half precision; the tokens of each source; which
        source each row has; how wide weights are, where there were longer sources once."""
        self.memory, self.lengths, self.owners = tuple(memory), tuple(lengths), tuple(owners)
        self.longest = max(self.lengths, default=0) if longest is None else longest  # S
        self.begins = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)  # (C + 1,)
        self.owner = np.array(self.owners, np.int64)  # (Q,)

    @property
    def layers(self) -> tuple[tuple[Tensor], ...]:
        """What `attend` is handed, layer by layer."""
        return tuple((one,) for one in self.memory)

    @cached_property
    def together(self) -> Tensor:
        """(L, N, 2, H, K), for those who go through all layers at once."""
        return torch.stack(self.memory)

    def attend(
        self, query: Tensor, memory: Tensor, *, scale: float | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Queries (Q, H, K), keys and values of a layer → answers (Q, H, K) and weights (Q, H, S), zeros beyond a
        source's end."""
        from qkv.models.step_kernel import to_source

        assert dropout == 0, "a memory is for decoding, not for training"
        answer = torch.empty(query.shape, dtype=torch.float32)
        weights = torch.zeros(*query.shape[:2], self.longest, dtype=torch.float32)
        scale = query.size(2) ** -0.5 if scale is None else scale
        asked = query.contiguous().numpy(), bits(memory), self.begins, self.owner
        to_source()(*asked, scale, weights.numpy(), answer.numpy())
        return answer, weights

    def several(self, count: int) -> "PackedSources":
        """So many rows in the place of each: for the next few tokens of it."""
        return self._of([owner for owner in self.owners for _ in range(count)])

    def select(self, rows: Sequence[int]) -> "PackedSources":
        """Row i becomes what row rows[i] was."""
        owners = tuple(self.owners[row] for row in rows)
        if owners == self.owners:
            return self
        asked = sorted(set(owners))
        if 2 * len(asked) > len(self.lengths) or not asked:
            return self._of(owners)
        number = {source: new for new, source in enumerate(asked)}
        kept = torch.cat([torch.arange(*self.begins[source : source + 2].tolist()) for source in asked])
        memory = [one.index_select(0, kept) for one in self.memory]
        lengths = [self.lengths[source] for source in asked]
        return PackedSources(memory, lengths, [number[owner] for owner in owners], self.longest)

    def _of(self, owners: Sequence[int]) -> "PackedSources":
        found = PackedSources(self.memory, self.lengths, owners, self.longest)
        if "together" in self.__dict__:
            found.together = self.together
        return found


def halved(memory: Sequence[Tensor]) -> list[Tensor]:
    """In half precision, if all of it is small enough; as it is, if something is not."""
    ends = torch.stack([end for one in memory if one.numel() for end in one.aminmax()] or [torch.zeros(())])
    return [one.half() for one in memory] if bool((ends.abs() <= LARGEST_HALF).all()) else list(memory)


def bits(memory: Tensor) -> NDArray[Any]:
    """As the kernels take it."""
    found = memory.numpy()
    return found.view(np.uint16) if memory.dtype == torch.float16 else found
