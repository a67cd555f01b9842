"""Rows of different lengths, in the order of time: first the first tokens of all rows, then their second ones, …

The longest row comes first, so that the rows which have a t-th token are always the first ones, and a loop over time
works on slices. No token is added, so none has to be kept from doing harm. Read in reverse, a row begins with its last
token.

>>> timeline = Timeline.of((2, 3))                                     # rows a b and p q r, end to end
>>> "".join("abpqr"[place] for place in timeline.order.tolist()), timeline.sizes
('paqbr', (2, 2, 1))
>>> "".join("abpqr"[place] for place in Timeline.of((2, 3), reverse=True).order.tolist())
'rbqap'

Shapes: R rows, N tokens of all rows, T tokens of the longest row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Timeline:
    order: Tensor  # (N,) where each token, by time, lies among rows end to end
    inverse: Tensor  # (N,) and back
    rows: Tensor  # (R,) the rows, the longest first
    rows_inverse: Tensor  # (R,)
    last: Tensor  # (R,) where the last token of each sorted row lies, by time
    sizes: tuple[int, ...]  # (T,) how many rows have a t-th token

    @staticmethod
    def of(lengths: tuple[int, ...], *, reverse: bool = False, device: torch.device | str = "cpu") -> "Timeline":
        """Of rows with these lengths; they are known on the host, so that no device is asked."""
        return _timeline(tuple(lengths), reverse, torch.device(device))

    @property
    def is_even(self) -> bool:
        """Whether all rows have the same length."""
        return self.sizes[0] == self.sizes[-1]

    def by_time(self, x: Tensor) -> Tensor:
        """(N, …) rows end to end → by time"""
        return _permute(x, self.order, self.inverse)

    def by_row(self, x: Tensor) -> Tensor:
        """(N, …) by time → rows end to end"""
        return _permute(x, self.inverse, self.order)

    def sorted(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """(R, …) each, the longest row first"""
        return tuple(part.index_select(0, self.rows) for part in state)

    def unsorted(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(part.index_select(0, self.rows_inverse) for part in state)

    def before(self, first: Tensor, values: Tensor) -> Tensor:
        """(N, …) by time → what was there a step before; `first` (R, …) before the first one."""
        parts, begin = [first], 0
        for size, following in zip(self.sizes[:-1], self.sizes[1:], strict=True):
            parts.append(values[begin : begin + following])
            begin += size
        return torch.cat(parts)


@lru_cache(maxsize=16)  # the layers and directions of a network ask for the same one
@torch.inference_mode(False)  # whoever asks first, it must serve training too
def _timeline(lengths: tuple[int, ...], reverse: bool, device: torch.device) -> Timeline:
    sizes = torch.tensor(lengths)
    assert lengths and bool((sizes > 0).all()), "a row has at least one token"
    sizes, rows = sizes.sort(descending=True, stable=True)
    begins = (torch.tensor((0, *lengths[:-1])).cumsum(0))[rows]
    time = torch.arange(int(sizes[0]))[:, None]
    there = time < sizes  # (T, R)
    order = (begins + (sizes - 1 - time if reverse else time))[there]  # (N,)
    at_time = there.sum(1)
    begins_of_time = at_time.cumsum(0) - at_time
    last = begins_of_time[sizes - 1] + torch.arange(len(lengths))
    return Timeline(
        order.to(device),
        order.argsort().to(device),
        rows.to(device),
        rows.argsort().to(device),
        last.to(device),
        tuple(at_time.tolist()),
    )


class _Permuted(torch.autograd.Function):
    """A gather whose gradient is a gather too; torch's would add up where nothing meets."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(order, inverse)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        order, inverse = ctx.saved_tensors
        return _permute(gradient, inverse, order), None, None


_permute: Callable[[Tensor, Tensor, Tensor], Tensor] = _Permuted.apply
