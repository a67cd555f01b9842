"""The weights of a model in the 16 bits of products, all cast at once when a step begins.

Weights are learned in 32 bits. Cast one by one where they are used, as autocast does, each costs a launch, and a small
step has little else to do. Inside of

    with halves:
        loss = …

`half` gives copies that were refreshed together on the way in; which ones are wanted it learns in the first step. They
are as good as the weights are still: nothing may change these before the block ends.

What this file does NOT do: gradients, which are those of the weights (fast.py, sublayer.py).
"""

import threading
from typing import Self

import torch
from torch import Tensor, nn

_HERE = threading.local()  # a trainer in another thread has weights, and steps, of its own


class Halves:
    """Copies of what was asked for, between the steps too."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}  # under the weight's id; held here, it stays the weight's

    def __enter__(self) -> Self:
        if self._copies:
            weights, copies = zip(*self._copies.values(), strict=True)
            with torch.no_grad():
                torch._foreach_copy_(copies, weights)
        _HERE.halves = self
        return self

    def __exit__(self, *problem: object) -> None:
        _HERE.halves = None

    def of(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        found = self._copies.get(id(weight))
        if found is None or found[1].dtype != dtype:
            found = self._copies[id(weight)] = weight, weight.detach().to(dtype)
        return found[1]


def half(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight in the type of products; without its gradient, for a `torch.autograd.Function` has one of its own."""
    if weight.dtype == dtype:
        return weight
    halves: Halves | None = getattr(_HERE, "halves", None)
    # what is no parameter is another tensor in every step
    return weight.to(dtype) if halves is None or not isinstance(weight, nn.Parameter) else halves.of(weight, dtype)
