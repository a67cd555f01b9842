"""Muon (Jordan et al. 2024) for the matrices between hidden layers, AdamW for everything else, as one optimizer.

A gradient's momentum is a matrix whose few large singular values drown the many small ones. Muon keeps its singular
vectors and sets all singular values to about 1, by a few rounds of a polynomial in the matrix (Newton–Schulz), which
is nothing but products:

    momentum ← μ momentum + (1 − μ) gradient
    weight   ← weight − rate · 0.2 √max(rows, columns) · orthogonal((1 − μ) gradient + μ momentum)

The factor makes a step as large as one of AdamW (Liu et al. 2025, §2.2), so that rate and decay carry over.

Matrices of equal shape are stacked, one on its side with one that stands, and go through every product together: a
GPU would wait longer for hundreds of small products to be launched than it takes to compute them.

What this file does NOT do: say which weights are such matrices. The caller does (run/matrices.py).
"""

from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor

MOMENTUM = 0.95
ROUNDS = 5
# the slope at 0 is as steep as it can be while all singular values still end near 1, between about 0.7 and 1.2
POLYNOMIAL = (3.4445, -4.7750, 2.0315)

Pair = tuple[Tensor, Tensor]  # a weight and where it should go


class Muon(torch.optim.Optimizer):
    """Groups of parameters with "matrices", how many lie on top of each other in each; 0 in a group leaves it to AdamW.

    One optimizer and not two, so that a gradient that overflows (fp16) is left out of both.
    """

    def __init__(self, groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float], epsilon: float) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        rest = [group for group in self.param_groups if not group["matrices"]]
        # the same groups and the same state, seen by another optimizer; one without parameters is refused by torch
        self.rest = torch.optim.AdamW(rest, lr=lr, betas=betas, eps=epsilon, fused=True) if rest else None
        if self.rest is not None:
            self.rest.state = self.state

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        assert closure is None, "no part of the loop asks for the loss again"
        if self.rest is not None:
            self.rest.step()
        for group in self.param_groups:
            if group["matrices"]:
                self._turn(group)
        return None

    def _turn(self, group: dict[str, Any]) -> None:
        """One step of the group's matrices."""
        weights: list[Tensor] = [weight for weight in group["params"] if weight.grad is not None]
        if not weights:
            return
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for weight in weights:
            if "momentum" not in self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        momenta = [self.state[weight]["momentum"] for weight in weights]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        directions = torch._foreach_lerp(gradients, momenta, MOMENTUM)  # Nesterov's: a look ahead
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])

        def parts(tensors: list[Tensor] | tuple[Tensor, ...]) -> list[Tensor]:
            return [part for tensor in tensors for part in tensor.chunk(group["matrices"])]

        by_shape: dict[tuple[int, int], tuple[list[Pair], list[Pair]]] = {}
        for weight, direction in zip(parts(weights), parts(directions), strict=True):
            rows, columns = weight.shape
            lying, standing = by_shape.setdefault((min(rows, columns), max(rows, columns)), ([], []))
            (lying if rows <= columns else standing).append((weight, direction))
        for (_, longer), (lying, standing) in by_shape.items():
            turned = orthogonal(torch.stack([one for _, one in lying] + [one.mT for _, one in standing]))  # (G, A, B)
            # laid out like their weights, so that one kernel adds them all
            changes = [*turned[: len(lying)].unbind(), *turned[len(lying) :].mT.contiguous().unbind()]
            rate = group["lr"] * 0.2 * longer**0.5
            torch._foreach_add_([weight for weight, _ in lying + standing], changes, alpha=-rate)


def orthogonal(matrices: Tensor) -> Tensor:
    """(G, A, B) with A ≤ B → the same, with the singular vectors of each and singular values of about 1.

    In bf16 on a GPU: the polynomial forgives its rounding, since the next round corrects it.
    """
    a, b, c = POLYNOMIAL
    dtype = torch.bfloat16 if matrices.is_cuda else matrices.dtype
    sizes = torch.linalg.matrix_norm(matrices, keepdim=True)  # of Frobenius: no singular value is larger
    x = (matrices / sizes.clamp(min=1e-7)).to(dtype)
    for _ in range(ROUNDS):
        square = x @ x.mT  # (G, A, A)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)
