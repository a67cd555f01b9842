"""The best evaluation of a run and the weights it was made with: what is kept, and when to give up."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass
class Best:
    """The best evaluation so far, with the weights it was made with."""

    step: int = 0
    value: float = -math.inf
    waited: int = 0  # evaluations since, in which the loss did not fall either
    lowest: float = math.inf  # loss
    weights: dict[str, Tensor] = field(default_factory=dict)

    def offer(self, step: int, value: float, loss: float, weights: Mapping[str, Tensor]) -> None:
        falls, self.lowest = loss < self.lowest, min(loss, self.lowest)
        if value > self.value:
            self.step, self.value, self.waited = step, value, 0
            # a copy on the host: it is read once, at the end, and must not move with the model
            self.weights = {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()}
        else:
            # on few examples a figure stands still while the model still learns
            self.waited = 0 if falls else self.waited + 1

    def state(self) -> dict[str, Any]:
        value, lowest = self.value if self.weights else None, self.lowest if math.isfinite(self.lowest) else None
        return {"step": self.step, "value": value, "waited": self.waited, "lowest": lowest}
