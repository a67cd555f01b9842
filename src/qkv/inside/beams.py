"""Decoding, watched: every beginning that lived, what the network scored after it, and where it looked.

`generate` is called as for any translation, with a step that writes down what passes through it and a state that knows
which node of the tree each of its rows is. So what is shown is what happened, whatever the way of searching.

    node       a beginning: its last token, the node before it, and the log probability of its tokens
    scored     of a node that was gone on from: the best next tokens with their logits, and log Σ exp(z / T) over the
               vocabulary at every temperature T of TEMPERATURES, so that a share at any of them is one division away
    leaf       a node that nothing follows: a text that ended, or one that was given up

Shapes: Q rows, V vocabulary, S tokens of the source, N nodes that were gone on from, C best next tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from qkv.batch import Batch
from qkv.data.pair_languages import Languages
from qkv.generate.hypothesis import Hypothesis
from qkv.generate.options import GenerateConfig
from qkv.generate.search import generate
from qkv.models.decoding import DecoderState, EncoderDecoder, Stepped

State = TypeVar("State", bound=DecoderState)
TEMPERATURES = tuple(round(0.1 * number, 1) for number in range(1, 21))
"""From nearly certain to nearly even; 1 is the network's own."""
BEST = 10
"""Next tokens that are told of a node."""
NOWHERE = -1


@dataclass(frozen=True)
class Node:
    parent: int  # NOWHERE: nothing is written yet
    token: int
    length: int  # tokens written, this one included
    log_probability: float


@dataclass(frozen=True)
class Scored:
    ids: Tensor  # (C,) best first, of what may be written
    logits: Tensor  # (C,)
    log_totals: Tensor  # (TEMPERATURES,)
    attention: Tensor | None  # (S,): where it looked to choose what follows


class Watched(Generic[State]):
    """A decoder's state, and which node each of its rows is."""

    def __init__(self, state: State, nodes: Sequence[int]) -> None:
        self.state, self.nodes = state, nodes

    def select(self, rows: Tensor) -> "Watched[State]":
        return Watched(self.state.select(rows), [self.nodes[row] for row in rows.tolist()])


class Tree:
    """Grows with every step. Rows that count for nothing are copies of others, and make no nodes of their own."""

    def __init__(self, languages: Languages, config: GenerateConfig) -> None:
        self.nodes: list[Node] = []
        self.scored: list[Scored] = []  # of the nodes, as far as they were gone on from
        self._never = torch.tensor(sorted({*languages.never}), dtype=torch.int64)
        self._end, self._shortest, self._renormalise = languages.end, config.min_length, config.renormalise
        self._places: dict[tuple[int, int], int] = {}
        self._living: dict[int, Tensor] = {}  # (V,) log probabilities after each node of the last step

    def after(self, parent: int, token: int) -> int:
        """The node of a parent and one more token."""
        if (found := self._places.get((parent, token))) is not None:
            return found
        before = None if parent == NOWHERE else self.nodes[parent]
        length, total = (0, 0.0) if before is None else (before.length + 1, before.log_probability)
        if before is not None:
            total += float(self._living[parent][token])
        self.nodes.append(Node(parent, token, length, total))
        self._places[parent, token] = len(self.nodes) - 1
        return len(self.nodes) - 1

    def score(self, nodes: Sequence[int], logits: Tensor, attention: Tensor | None) -> None:
        """(Q, V) and (Q, S), of all rows of a step."""
        living: dict[int, Tensor] = {}
        for row, node in enumerate(nodes):
            if node in living:
                continue
            assert node == len(self.scored), "nodes are gone on from in the order of their numbers"
            own = logits[row].detach().float().cpu().clone()  # what is forbidden is written into the network's own
            allowed = own.index_fill(0, self._never, -torch.inf)
            if self._renormalise:
                own = allowed
            if self.nodes[node].length < self._shortest:
                allowed = allowed.index_fill(0, torch.tensor([self._end]), -torch.inf)
            living[node] = own.log_softmax(0)
            best = allowed.topk(min(BEST, int(allowed.isfinite().sum())))
            totals = torch.stack([(own / temperature).logsumexp(0) for temperature in TEMPERATURES])
            looked = None if attention is None else attention[row].detach().float().cpu()
            self.scored.append(Scored(best.indices, best.values, totals, looked))
        self._living = living

    def leaf(self, found: Hypothesis) -> int:
        """The node of a text that is done, which no step has gone on from; made where there is none."""
        node, written = 0, [*found.tokens, *([self._end] if found.finished else [])]
        for token in written[:-1]:
            node = self._places[node, token]
        key = node, written[-1]
        if key not in self._places:
            self.nodes.append(Node(*key, len(written), found.log_probability))
            self._places[key] = len(self.nodes) - 1
        return self._places[key]


def watched(
    network: EncoderDecoder[State], languages: Languages, source: Sequence[int], config: GenerateConfig
) -> tuple[Tree, list[Hypothesis]]:
    """One source, as `Languages.read` gives it: the tree, and the texts that won, best first."""
    batch = Batch.of([source])
    tree = Tree(languages, config)
    longest = config.limit(len(source))
    state = network.start(batch.ids, batch.packing, hypotheses=config.hypotheses, longest=longest)

    def step(tokens: Tensor, before: Watched[State]) -> Stepped[Watched[State]]:
        nodes = [tree.after(node, token) for node, token in zip(before.nodes, tokens.tolist(), strict=True)]
        found = network.step(tokens, before.state)
        tree.score(nodes, found.logits, found.attention)
        return Stepped(found.logits, Watched(found.state, nodes), found.attention)

    (found,) = generate(
        step,
        Watched(state, [NOWHERE] * config.hypotheses),
        torch.full((1,), languages.begin),
        languages.end,
        config,
        source_lengths=batch.lengths,
        never=languages.never,
    )
    return tree, found
