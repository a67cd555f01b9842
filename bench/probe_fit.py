"""A linear probe: multinomial logistic regression on vectors that stay as they are (Alain and Bengio 2017).

What a probe can read off a layer is there for the taking: no layer of its own could have computed it. Features are
brought to mean 0 and deviation 1 by what the training part says; the strength of the L2 penalty is the one that does
best on a held-out part, of a few.

Shapes: N examples, D features, C classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)
"""Of the mean loss: more where features are many and examples few."""
STEPS = 60
"""Of L-BFGS, which is where the loss of such a problem has long stopped moving."""


@dataclass(frozen=True)
class Probe:
    mean: Tensor  # (D,)
    scale: Tensor  # (D,)
    weight: Tensor  # (C, D)
    bias: Tensor  # (C,)
    penalty: float

    def answers(self, x: Tensor) -> Tensor:
        """(N, D) → (N,)"""
        return functional.linear((x - self.mean) * self.scale, self.weight, self.bias).argmax(-1)


def fitted(x: Tensor, y: Tensor, classes: int, penalty: float) -> Probe:
    """The problem is convex: there is one answer, wherever one begins."""
    mean, deviation = x.mean(0), x.std(0)
    scale = torch.where(deviation > 1e-6, 1 / deviation.clamp_min(1e-6), 0.0)  # a feature that never moves says nothing
    x = (x - mean) * scale
    weight = torch.zeros(classes, x.size(1), device=x.device, requires_grad=True)
    bias = torch.zeros(classes, device=x.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=STEPS, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        found = functional.cross_entropy(functional.linear(x, weight, bias), y) + penalty / 2 * weight.square().sum()
        found.backward()
        return found

    optimizer.step(loss)
    return Probe(mean, scale, weight.detach(), bias.detach(), penalty)


def best(train: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor], classes: int) -> Probe:
    """Fitted to `train`, with the penalty that does best on `held_out`."""
    probes = [fitted(*train, classes, penalty) for penalty in PENALTIES]
    return max(probes, key=lambda probe: (right(probe, *held_out), probe.penalty))


def right(probe: Probe, x: Tensor, y: Tensor) -> int:
    """How many of (N, D) it answers as (N,) says"""
    return int((probe.answers(x) == y).sum())


def threshold(scores: Tensor, labels: Tensor) -> float:
    """The value that parts (N,) scores best: of those above it most are 1, of the others 0.

    >>> threshold(torch.tensor([0.0, 1.0, 0.25, 0.75]), torch.tensor([0, 1, 0, 1]))
    0.5
    """
    order = scores.argsort()
    scores, labels = scores[order].double(), labels[order].long()
    ones = labels.sum()
    before = torch.cat([labels.new_zeros(1), labels.cumsum(0)])  # ones among the lowest k
    places = torch.arange(len(labels) + 1, device=labels.device)
    correct = (places - before) + (ones - before)  # zeros below, ones above
    ends = torch.cat([scores[:1] - 1, (scores[1:] + scores[:-1]) / 2, scores[-1:] + 1])
    apart = torch.cat([torch.tensor([True]), scores.diff().cpu() > 0, torch.tensor([True])])  # none between equals
    return float(ends[torch.where(apart.to(correct.device), correct, -1).argmax()])
