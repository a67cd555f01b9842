"""A twin of some modules: the same computation from weights that lie otherwise, for decoding.

Every linear layer is replaced by what a function makes of it and its name (by_columns.py, int8.py); the rest is copied,
and norms and other parameters are shared. A twin has no gradients. It is made when it is first asked for, and again
when a weight has changed.
"""

import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor, nn


class Origin(NamedTuple):
    weight: Tensor
    memory: Tensor  # what it held
    version: int  # which change of it


Replaced = Callable[[nn.Linear, str], nn.Module]


class Twins:
    """Holds the twin of a network's modules; not a module itself, so that the twin is never saved."""

    def __init__(self, replaced: Replaced) -> None:
        self.replaced = replaced
        # the twin, once it was asked for, and what it was made from; set together, since several threads may ask
        self._made: tuple[nn.ModuleList, list[Origin]] | None = None

    def __reduce__(self) -> tuple[type["Twins"], tuple[Replaced]]:
        return Twins, (self.replaced,)  # a copy begins without

    def of(self, modules: nn.ModuleList) -> nn.ModuleList:
        """Parameters must not be inference tensors: those do not count their changes."""
        weights = list(modules.parameters())
        made = self._made
        if made is None or not _is_fresh(made[1], weights):
            made = None
            self.forget()  # before the next is made: two would not fit everywhere
            # the memory of what it is made from is held, so that no other weight can come to lie there
            origins = [Origin(weight, weight.detach(), weight._version) for weight in weights]
            made = self._made = _with_replaced(modules, self.replaced), origins
        return made[0]

    @property
    def held(self) -> nn.ModuleList | None:
        return None if self._made is None else self._made[0]

    def forget(self) -> None:
        self._made = None


def _is_fresh(origins: Sequence[Origin], weights: Sequence[Tensor]) -> bool:
    return len(weights) == len(origins) and all(
        weight is origin.weight and weight.data_ptr() == origin.memory.data_ptr() and weight._version == origin.version
        for weight, origin in zip(weights, origins, strict=True)
    )


def _with_replaced(modules: nn.ModuleList, replaced: Replaced) -> nn.ModuleList:
    twin = copy.deepcopy(modules, {id(parameter): parameter for parameter in modules.parameters()})
    for parent in list(twin.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, replaced(child, name))
    return twin
