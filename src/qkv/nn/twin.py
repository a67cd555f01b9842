"""A twin of some modules: the same computation from weights that lie otherwise, for decoding.

Every linear layer is replaced by what a function makes of it (by_columns.py, int8.py); the rest is copied, and norms
and other parameters are shared. A twin has no gradients. It is made when it is first asked for, and again when a weight
has changed.
"""

import copy
from collections.abc import Callable, Sequence

from torch import Tensor, nn


class Twins:
    """Holds the twin of a network's modules; not a module itself, so that the twin is never saved."""

    def __init__(self, replaced: Callable[[nn.Linear], nn.Module]) -> None:
        self.replaced = replaced
        self.held: nn.ModuleList | None = None  # the twin, once it was asked for
        self._made_from: list[tuple[Tensor, Tensor, int]] = []  # a weight, what it held, and which change of it

    def __reduce__(self) -> tuple[type["Twins"], tuple[Callable[[nn.Linear], nn.Module]]]:
        return Twins, (self.replaced,)  # a copy begins without

    def of(self, modules: nn.ModuleList) -> nn.ModuleList:
        """Parameters must not be inference tensors: those do not count their changes."""
        weights = list(modules.parameters())
        if self.held is None or not self._is_fresh(weights):
            self.forget()
            self.held = _with_replaced(modules, self.replaced)
            # the memory of what it was made from is held, so that no other weight can come to lie there
            self._made_from = [(weight, weight.detach(), weight._version) for weight in weights]
        return self.held

    def forget(self) -> None:
        self.held, self._made_from = None, []

    def _is_fresh(self, weights: Sequence[Tensor]) -> bool:
        return len(weights) == len(self._made_from) and all(
            weight is before and weight.data_ptr() == held.data_ptr() and weight._version == version
            for weight, (before, held, version) in zip(weights, self._made_from, strict=True)
        )


def _with_replaced(modules: nn.ModuleList, replaced: Callable[[nn.Linear], nn.Module]) -> nn.ModuleList:
    twin = copy.deepcopy(modules, {id(parameter): parameter for parameter in modules.parameters()})
    for parent in list(twin.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, replaced(child))
    return twin
