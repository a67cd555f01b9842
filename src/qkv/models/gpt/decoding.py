"""Decoding with a GPT: the layers it uses, and the state of rows between steps.

Keys and values are kept (nn/cpu/cache.py): a prompt is read once, and a step computes one new token a row
(nn/cpu/step.py). On a CPU it may be in 8 bits, or 8 bits guess ahead (nn/cpu/precision.py).

Shapes: N tokens of all prompts, R prompts, Q rows (hypotheses of all prompts), C tokens of a row that are read at once,
D width, H heads, K head width, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.data.batch import Packing
from qkv.nn.cpu.cache import TextCache
from qkv.nn.cpu.precision import (
    Twins,
    can_store_by_columns,
    check_weights,
    count_int8_bytes,
    quantise,
    store_by_columns,
)
from qkv.nn.cpu.speculative import Draft, Pace, draft_and_verify
from qkv.nn.cpu.step import Function, PostNormCausalStep, PreNormCausalStep, bind_weights, make_causal_step
from qkv.nn.multihead import MultiHeadSelfAttention
from qkv.nn.position import LearnedPositions
from qkv.search.decoding import Stepped


class WritingLayers(NamedTuple):
    """The layers used for decoding."""

    blocks: Sequence[nn.Module]  # for prompts
    steps: Sequence[PostNormCausalStep | PreNormCausalStep]
    words: Function  # (…, D) → (…, V)
    guessing: "WritingLayers | None" = None  # what guesses ahead, where something does


class GPTState:
    """The state of the rows. It may be advanced only once: its cache is written in place."""

    def __init__(self, past: TextCache, layers: WritingLayers, pace: Pace, draft: Draft | None = None) -> None:
        self.past, self.layers, self.pace, self.draft = past, layers, pace, draft
        self._is_used = False

    def select(self, rows: Tensor) -> "GPTState":
        """(Q',): row i continues the former row rows[i]; a row may be taken twice, or not at all."""
        self.use()
        chosen, before = rows.tolist(), self.past.rows
        self.past.select(chosen)
        # guesses are after the written tokens, and are not moved along
        return self.follow(self.draft if chosen == list(range(before)) else None)

    def follow(self, draft: Draft | None = None) -> "GPTState":
        return GPTState(self.past, self.layers, self.pace, draft)

    def use(self) -> None:
        assert not self._is_used, "this state was advanced already; use the one that it returned"
        self._is_used = True


class GPTNetwork(Protocol):
    """The parts of the network that decoding needs."""

    training: bool

    @property
    def embedding(self) -> nn.Embedding: ...
    @property
    def position(self) -> LearnedPositions: ...
    @property
    def blocks(self) -> nn.ModuleList: ...
    @property
    def norm(self) -> nn.Module: ...
    @property
    def scored_with(self) -> Tensor: ...
    def embed(self, ids: Tensor, positions: Tensor) -> Tensor: ...
    def parameters(self) -> Iterator[nn.Parameter]: ...


class GPTDecoding(nn.Module):
    """Decoding for a network. It has no weights of its own: it caches the network's weights in other layouts, and drops
    them when the network is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.precision = "fp32"  # see nn/cpu/precision.py
        self._by_columns, self._int8 = Twins(store_by_columns), Twins(quantise)

    def train(self, mode: bool = True) -> Self:
        for twins in (self._by_columns, self._int8):
            twins.forget()  # whatever is done to the weights in between
        return super().train(mode)

    def start(
        self,
        network: GPTNetwork,
        prompt: Tensor,
        prompt_packing: Packing,
        positions: Tensor,
        hypotheses: int,
        longest: int,
    ) -> GPTState:
        """See `GPT.start`; `positions` (N,) of the prompts' tokens."""
        assert not network.training, "dropout would blur what is written: call eval() first"
        layers = self._layers(network)
        lengths = [length - 1 for length in prompt_packing.lengths]
        attention = layers.blocks[0].attention
        assert isinstance(attention, MultiHeadSelfAttention)
        shape = (attention.heads, attention.head_width)
        past = TextCache(len(layers.blocks), lengths, longest, shape, network.embedding.weight, hypotheses)
        if any(lengths):
            read = torch.ones(len(prompt), dtype=torch.bool)
            read[torch.tensor(prompt_packing.lengths).cumsum(0) - 1] = False
            chosen = read.nonzero().squeeze(1).to(prompt.device)
            x = network.embed(prompt[chosen], positions[chosen])
            for block, attend in zip(layers.blocks, past.prompts(), strict=True):
                x, _ = block(x, attend)
        return GPTState(past, layers, Pace())

    def step(self, network: GPTNetwork, tokens: Tensor, state: GPTState) -> Stepped[GPTState]:
        """See `GPT.step`."""
        state.use()
        if state.layers.guessing is not None and len(tokens) == 1:
            return self._guessing(network, tokens, state)
        logits = self._read(network, tokens, state.past, state.layers)
        state.past.advance()
        return Stepped(logits, state.follow(), None)

    def _read(
        self, network: GPTNetwork, tokens: Tensor, past: TextCache, layers: WritingLayers, count: int = 1
    ) -> Tensor:
        """The next tokens (Q · C,) of every row → (Q · C, V), without advancing the state."""
        places = past.positions if count == 1 else past.positions + torch.arange(count, device=tokens.device)
        x = functional.embedding(tokens, network.embedding.weight) + network.position.weight[places]
        for step, attend in zip(layers.steps, past.next_tokens(count), strict=True):
            x = step(x, attend)
        return layers.words(network.norm(x))

    def _guessing(self, network: GPTNetwork, tokens: Tensor, state: GPTState) -> Stepped[GPTState]:
        """A step of a single row (1,)."""
        past, layers, cheap = state.past, state.layers, state.layers.guessing
        assert cheap is not None
        found = draft_and_verify(
            *(tokens, past, state.pace, state.draft),
            lambda token: self._read(network, token, past, cheap),
            lambda some: (self._read(network, some, past, layers, len(some)), None),
        )
        return Stepped(found.logits, state.follow(found.draft), None)

    def int8_bytes(self) -> int:
        """Memory of the 8-bit weights, in addition to the model's own; 0 if they were never used."""
        return 0 if self._int8.held is None else count_int8_bytes(self._int8.held)

    def _layers(self, network: GPTNetwork) -> WritingLayers:
        table = network.scored_with
        words = nn.Linear(table.size(1), table.size(0), bias=False, device="meta")
        words.weight = table
        modules = nn.ModuleList([*network.blocks, words])
        near = None
        if self.precision != "fp32":
            check_weights(network)
            *blocks, last = self._int8.of(modules)
            near = WritingLayers(blocks, [make_causal_step(block) for block in blocks], bind_weights(last))
            if self.precision == "int8":
                return near
        if can_store_by_columns(modules):
            modules = self._by_columns.of(modules)
        *blocks, last = modules
        return WritingLayers(
            list(network.blocks), [make_causal_step(block) for block in blocks], bind_weights(last), near
        )
