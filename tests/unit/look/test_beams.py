"""The tree of a search that is followed on paper, and that watching it changes nothing."""

import pytest
import torch
from torch import Tensor

from qkv.data.batch import Packing
from qkv.data.pairs.batching import Languages
from qkv.look.translating import NO_PARENT, TEMPERATURES, watch_search
from qkv.search.decoding import Stepped
from qkv.search.options import GenerateConfig
from tests.support.folders import make_tokenizer

BEGIN, END, A, B = 0, 1, 2, 3
CHANCES = {  # of END, A and B after the last token
    BEGIN: (0.1, 0.6, 0.3),
    A: (0.2, 0.2, 0.6),
    B: (0.7, 0.2, 0.1),
}


class Rows:
    """A state that only knows how many rows there are."""

    def select(self, rows: Tensor) -> "Rows":
        return self


class OnPaper:
    """A network that looks at the last token alone."""

    def start(self, source: Tensor, source_packing: Packing, *, hypotheses: int = 1, longest: int = 512) -> Rows:
        return Rows()

    def step(self, tokens: Tensor, state: Rows) -> Stepped[Rows]:
        table = [[0.0, *CHANCES[token]] for token in tokens.tolist()]
        return Stepped(torch.tensor(table).log(), state, torch.eye(4)[tokens])

    def scores(self, hidden: Tensor) -> Tensor:
        return hidden

    def __call__(self, source: Tensor, source_packing: Packing, target: Tensor, target_packing: Packing) -> Tensor:
        raise AssertionError("nothing is trained here")


def languages() -> Languages:
    tokenizer = make_tokenizer()
    return Languages(tokenizer, tokenizer, BEGIN, END, END, (BEGIN,))


def test_on_paper() -> None:
    """Two beams: A (0.6) and B (0.3); then A B (0.36) goes on and B ends (0.21), A ends being the worse (0.12); …"""
    config = GenerateConfig(beams=2, n_best=2, max_length=3, length_penalty=0.0)
    tree, found = watch_search(OnPaper(), languages(), [A, B, A, END], config)
    by_path: dict[tuple[int, ...], int] = {}
    for number, node in enumerate(tree.nodes):
        before = next((path for path, place in by_path.items() if place == node.parent), ())
        by_path[(*before, node.token)] = number
    assert tree.nodes[0].parent == NO_PARENT and tree.nodes[0].length == 0
    probabilities = {
        path: torch.tensor(tree.nodes[place].log_probability).exp().item() for path, place in by_path.items()
    }
    assert probabilities[BEGIN, A] == pytest.approx(0.6) and probabilities[BEGIN, B] == pytest.approx(0.3)
    assert probabilities[BEGIN, A, B] == pytest.approx(0.36)
    assert [one.tokens for one in found] == [(A, B), (B,)]
    leaves = [tree.leaf(one) for one in found]
    assert [tree.nodes[leaf].token for leaf in leaves] == [END, END] and leaves == [tree.leaf(one) for one in found]
    assert tree.nodes[leaves[0]].parent == by_path[BEGIN, A, B]
    first = tree.scored[0]
    assert (
        first.ids.tolist() == [A, B, END] and first.attention is not None and first.attention.tolist() == [1, 0, 0, 0]
    )
    assert first.logits.exp().tolist() == pytest.approx([0.6, 0.3, 0.1])
    assert first.log_totals[TEMPERATURES.index(1.0)] == pytest.approx(0, abs=1e-6)
    half = TEMPERATURES.index(0.5)  # squares
    assert first.log_totals[half].exp() == pytest.approx(0.36 + 0.09 + 0.01, abs=1e-6)


def test_greedy_is_a_path() -> None:
    tree, found = watch_search(OnPaper(), languages(), [A, END], GenerateConfig(max_length=6))
    assert [node.token for node in tree.nodes] == [BEGIN, A, B] and found[0].tokens == (A, B)
    assert [node.parent for node in tree.nodes] == [NO_PARENT, 0, 1] and tree.leaf(found[0]) == 3


def test_a_text_that_was_stopped_ends_in_its_last_token() -> None:
    tree, found = watch_search(OnPaper(), languages(), [A, END], GenerateConfig(max_length=2, min_length=1))
    assert not found[0].finished and found[0].tokens == (A, B)
    leaf = tree.nodes[tree.leaf(found[0])]
    assert (leaf.token, leaf.length, leaf.parent) == (B, 2, 1) and END not in tree.scored[0].ids.tolist()
