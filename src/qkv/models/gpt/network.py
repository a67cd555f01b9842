"""GPT: a Transformer with causal attention that predicts the next token.

Post-norm as in GPT (Radford et al. 2018), pre-norm with one more norm at the end as in GPT-2 (Radford et al. 2019).
Learned positions are added to the tokens; the table that reads tokens also scores them (tied).

Training computes all positions at once from packed rows, and none sees what comes after it. `start` reads a prompt
once, and `step` writes one new token a row (models/gpt/decoding.py). Tests hold the two equal.

    state = model.start(prompt.ids, prompt.packing, longest=50)
    logits, state, _ = model.step(last_tokens_of_the_prompts, state)

What this file does NOT do: the loss (models/gpt/objective.py), the choice of what is written (search/), fine-tuning.

Shapes: N tokens of all rows, M of them, Q rows (hypotheses of all prompts), D width, V vocabulary.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.data.batch import Batch, Packing
from qkv.models.gpt.config import PRESETS as PRESETS
from qkv.models.gpt.config import GPTConfig as GPTConfig
from qkv.models.gpt.decoding import GPTDecoding, GPTState
from qkv.nn.block import FeedForward, PostNormBlock, PreNormBlock
from qkv.nn.gpu import layers
from qkv.nn.gpu.pre_norm import block_stack
from qkv.nn.layers import Layer, run_blocks
from qkv.nn.multihead import MultiHeadSelfAttention, Packed
from qkv.nn.position import LearnedPositions
from qkv.search.decoding import Stepped

_BLOCKS = {"post": PostNormBlock, "pre": PreNormBlock}


class GPT(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary_size, config.width)
        self.position = LearnedPositions(config.max_length, config.width)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.blocks = nn.ModuleList(_block(config, number) for number in range(config.layers))
        # pre-norm blocks leave their sums unnormalised
        self.norm = nn.LayerNorm(config.width, config.norm_epsilon) if config.order == "pre" else nn.Identity()
        self.table = None if config.tied else nn.Parameter(torch.empty(config.vocabulary_size, config.width))
        self.decoding = GPTDecoding()
        self._initialise()

    def forward(
        self, ids: Tensor, packing: Packing, positions: Tensor | None = None, *, only: Tensor | None = None
    ) -> Tensor:
        """(N,) → (N, D), the vector after each token, from which `scores` predicts the next.

        `positions` (N,) are counted from 0 in every row if they are not given. `only` (M,) names the tokens whose
        vectors will be read: the answer is then (M, D), and most of the last layer is not computed for the others.
        """
        attend = Packed(*packing, causal=True)
        x = self.embed(ids, positions_of(packing) if positions is None else positions)  # (N, D)
        return block_stack(list(self.blocks), self.norm, x, attend, only)

    def layers(self, batch: Batch) -> Iterator[Layer]:
        inputs = parts_in_place(self.embedding, self.position, batch.ids, batch.positions)
        attend = Packed(*batch.packing, causal=True)
        return run_blocks("decoder", self.blocks, self.norm, inputs, self.dropout, attend)

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """(N,) each → (N, D)"""
        return self.dropout(tokens_in_place(self.embedding, self.position, ids, positions))

    @property
    def scored_with(self) -> Tensor:
        """(V, D)"""
        return self.embedding.weight if self.table is None else self.table

    def scores(self, hidden: Tensor) -> Tensor:
        """(…, D) → logits (…, V)"""
        return functional.linear(hidden, self.scored_with)

    def before_words(self, hidden: Tensor) -> tuple[Tensor, Tensor, None]:
        """The parts of the word scores x Eᵀ: x (M, D), E (V, D), without bias."""
        return hidden, self.scored_with, None

    @torch.no_grad()
    def start(self, prompt: Tensor, prompt_packing: Packing, *, hypotheses: int = 1, longest: int) -> GPTState:
        """Read all but the last token of every prompt (N,). Row r · hypotheses + j is hypothesis j of prompt r; at most
        `longest` tokens will be written in each. The first `step` takes the last tokens of the prompts."""
        most = self.config.max_length + 1 - prompt_packing.longest  # the token that is written last is never read
        assert longest <= most, f"{longest} tokens are to be written, and there are positions for {most}"
        return self.decoding.start(self, prompt, prompt_packing, positions_of(prompt_packing), hypotheses, longest)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: GPTState) -> Stepped[GPTState]:
        """(Q,) the last token of every row → scores of the next."""
        return self.decoding.step(self, tokens, state)

    def _initialise(self) -> None:
        """Normal weights, zero biases. What is added to the residual path is drawn smaller the more layers add to it,
        as GPT-2's was (§2.3), where nothing but the last norm keeps the sum in bounds."""
        std = self.config.initial_std
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                is_added = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
                shrunk = (2 * self.config.layers) ** -0.5 if is_added and self.config.order == "pre" else 1.0
                nn.init.normal_(parameter, std=std * shrunk)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)


def tokens_in_place(tokens: nn.Embedding, places: LearnedPositions, ids: Tensor, positions: Tensor) -> Tensor:
    """E[token] + P[position]: (N,) each → (N, D)"""
    if torch.is_grad_enabled() and layers.has_kernels(tokens.weight):
        return layers.embed_without_segments(ids, positions, tokens.weight, places.weight)
    return parts_in_place(tokens, places, ids, positions)["sum"]


def parts_in_place(tokens: nn.Embedding, places: LearnedPositions, ids: Tensor, positions: Tensor) -> dict[str, Tensor]:
    """The summands and their sum: (N,) each → (N, D) each"""
    token, position = tokens(ids), places(positions)
    return {"token": token, "position": position, "sum": token + position}


def positions_of(packing: Packing) -> Tensor:
    """(N,), counted from 0 in every row."""
    offsets, total = packing.offsets, sum(packing.lengths)
    starts = torch.repeat_interleave(offsets[:-1].long(), offsets.diff(), output_size=total)
    return torch.arange(total, device=offsets.device) - starts


def _block(config: GPTConfig, number: int) -> nn.Module:
    head_width = config.width // config.heads
    scale = (head_width**-0.5 if config.scaled else 1.0) / (number + 1 if config.scaled_by_layer else 1)
    return _BLOCKS[config.order](
        MultiHeadSelfAttention(config.width, config.heads, scale=scale, dropout=config.attention_dropout),
        FeedForward(config.width, config.inner_width, config.activation),
        config.width,
        config.dropout,
        config.norm_epsilon,
    )
