"""Which source each row of a search is written from, so that rows of one source share what is known of it.

A source's rows are put side by side, in a rectangle of sources × their rows: then all of them ask it in one product,
and nothing of it is copied for any of them. Sources that nobody asks any more stay until they are the half, since
leaving them out is a copy of all the others.

What this file does NOT do: hold anything of a source (source_attention.py, cache.py).

Shapes: Q rows, R sources, W rows of the source that has most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class SourceRows:
    """
    >>> rows = SourceRows.of([0, 0, 2], 3)                        # of source 1 none is left
    >>> rows.width, rows.grouped(torch.tensor([[5.0], [6.0], [7.0]]))[..., 0].tolist()
    (2, [[5.0, 6.0], [0.0, 0.0], [7.0, 0.0]])
    >>> rows.flat(rows.grouped(torch.tensor([[5.0], [6.0], [7.0]])))[:, 0].tolist()
    [5.0, 6.0, 7.0]
    """

    owners: tuple[int, ...]  # (Q,) on the host
    sources: int  # R
    width: int  # W
    places: Tensor | None  # (Q,) in the flattened rectangle; None: rows fill it, in their order
    device: torch.device

    @staticmethod
    def of(owners: Sequence[int], sources: int, device: torch.device | str = "cpu") -> "SourceRows":
        taken, places = [0] * sources, []
        for owner in owners:
            places.append((owner, taken[owner]))
            taken[owner] += 1
        width = max(taken, default=0)
        flat = [owner * width + place for owner, place in places]
        is_full = flat == list(range(sources * width))
        where = None if is_full else torch.tensor(flat, dtype=torch.int64, device=device)
        return SourceRows(tuple(owners), sources, width, where, torch.device(device))

    @cached_property
    def owner(self) -> Tensor:
        """(Q,)"""
        return torch.tensor(self.owners, dtype=torch.int64, device=self.device)

    def grouped(self, x: Tensor) -> Tensor:
        """(Q, …) → (R, W, …), zeros where a source has fewer rows than another"""
        if self.places is not None:
            x = x.new_zeros(self.sources * self.width, *x.shape[1:]).index_copy(0, self.places, x)
        return x.unflatten(0, (self.sources, self.width))

    def flat(self, x: Tensor) -> Tensor:
        """(R, W, …) → (Q, …)"""
        x = x.flatten(0, 1)
        return x if self.places is None else x.index_select(0, self.places)

    def select(self, rows: Sequence[int]) -> tuple["SourceRows", Tensor | None]:
        """Row i becomes what row rows[i] was. With it the sources to go on with, where it is time to leave some out.

        >>> rows, kept = SourceRows.of([0, 1, 2], 3).select([0, 1])
        >>> rows.owners, kept
        ((0, 1), None)
        >>> rows, kept = rows.select([1])
        >>> rows.owners, rows.sources, kept
        ((0,), 1, tensor([1]))
        """
        owners = tuple(self.owners[row] for row in rows)
        if owners == self.owners:
            return self, None
        asked = sorted(set(owners))
        if 2 * len(asked) > self.sources or not asked:
            return SourceRows.of(owners, self.sources, self.device), None
        number = {source: new for new, source in enumerate(asked)}
        left = SourceRows.of([number[owner] for owner in owners], len(asked), self.device)
        return left, torch.tensor(asked, dtype=torch.int64, device=self.device)
