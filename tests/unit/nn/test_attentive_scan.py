"""The fast loop against the equations, and the equations against numbers written out."""

import pytest
import torch
from torch import Tensor

from qkv.nn.recurrent import CELLS, Cell, Timeline
from qkv.nn.recurrent_scan import run_attentive, scan_attentive
from qkv.nn.source_attention import AdditiveScore, BilinearScore, DotScore, Score, Source

pytestmark = pytest.mark.usefixtures("one_thread")
SCORES: dict[str, type[Score]] = {"additive": AdditiveScore, "dot": DotScore, "bilinear": BilinearScore}
TARGETS, WIDTH, TOKEN = (2, 5, 1), 4, 3


class Given:
    def __init__(self, cell: str, score: str, dtype: torch.dtype = torch.float64) -> None:
        torch.manual_seed(0)
        self.cell: Cell = CELLS[cell](TOKEN + WIDTH, WIDTH).to(dtype)
        self.score = SCORES[score](WIDTH, WIDTH).to(dtype)
        self.x = torch.randn(sum(TARGETS), TOKEN, dtype=dtype, requires_grad=True)
        self.h = torch.randn(3, 4, WIDTH, dtype=dtype, requires_grad=True)
        self.first = tuple(torch.randn_like(part).mul_(0.3).requires_grad_() for part in self.cell.begin(len(TARGETS)))

    def source(self) -> Source:
        mask = torch.arange(4) < torch.tensor([[4], [1], [3]])
        return Source(self.h[:, 0], self.h, mask, self.score.keys(self.h))

    def leaves(self) -> list[Tensor]:
        return [self.x, self.h, *self.first, *self.cell.parameters(), *self.score.parameters()]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("cell", CELLS)
def test_fast_is_the_same(cell: str, score: str) -> None:
    """Values, and the gradients of all that goes in, of a sum in which every value counts differently."""
    given, found = Given(cell, score), []
    for run in (run_attentive, scan_attentive):
        out = run(given.cell, given.score, given.x, Timeline.of(TARGETS), given.source(), given.first)
        total = sum((part * torch.linspace(-1, 2, part.numel()).double().view_as(part)).sum() for part in out)
        assert isinstance(total, Tensor)
        found.append([*out, *torch.autograd.grad(total, given.leaves())])
    for ours, theirs in zip(*found, strict=True):
        assert bool(theirs.any())
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("cell", "score"), [("gru", "additive"), ("peephole", "bilinear"), ("rnn", "dot")])
def test_gradients_are_slopes(cell: str, score: str) -> None:
    given = Given(cell, score)

    def run(*_: Tensor) -> tuple[Tensor, Tensor]:
        return scan_attentive(given.cell, given.score, given.x, Timeline.of(TARGETS), given.source(), given.first)

    torch.autograd.gradcheck(run, given.leaves(), fast_mode=True)


def test_autocast_leaves_the_loop_alone() -> None:
    given = Given("gru", "additive", torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        hidden, contexts = scan_attentive(
            given.cell, given.score, given.x, Timeline.of(TARGETS), given.source(), given.first
        )
    exact, _ = run_attentive(given.cell, given.score, given.x, Timeline.of(TARGETS), given.source(), given.first)
    assert hidden.dtype == contexts.dtype == torch.float32
    torch.testing.assert_close(hidden, exact, atol=0.02, rtol=0.02)
    hidden.sum().backward()
    assert all(leaf.grad is not None for leaf in given.leaves())
