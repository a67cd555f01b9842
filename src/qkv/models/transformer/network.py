"""The Transformer (Vaswani et al. 2017): an encoder reads the source at once, a decoder writes the target.

Post-norm with ReLU on embeddings × √D + sinusoidal positions, as in the paper; pre-norm, other activations and the
positions of Marian are settings, since published weights need them. The table of the target's words both reads and
scores them, and with one vocabulary for both languages the source is read with it too (§3.4).

Training computes all positions at once from packed rows, and the mask keeps each from those after it. `start` and
`step` write one new token a row (models/transformer/decoding.py). Tests hold the two equal.

What this file does NOT do: loss and label smoothing (models/transformer/objective.py), decoding, the search for a good
translation (search/).

Shapes: N, M tokens of all source and target rows, R sources, Q rows (hypotheses of all sources), S tokens of the
longest source, D width, H heads, K head width, V vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from qkv.data.batch import Batch, Packing
from qkv.models.transformer.config import PRESETS as PRESETS
from qkv.models.transformer.config import TransformerConfig as TransformerConfig
from qkv.models.transformer.decoding import TransformerDecoding, TransformerState
from qkv.nn.block import (
    FeedForward,
    PostNormBlock,
    PostNormDecoderBlock,
    PreNormBlock,
    PreNormDecoderBlock,
    project_source_for_all,
)
from qkv.nn.layers import AttentionKind, Layer, SourceMemories, run_blocks
from qkv.nn.multihead import Across, MultiHeadCrossAttention, MultiHeadSelfAttention, Packed
from qkv.nn.position import HalvedSinusoidalPositions, PositionEncoding, SinusoidalPositions
from qkv.nn.words import WordScores
from qkv.search.decoding import Stepped

Waves = SinusoidalPositions | HalvedSinusoidalPositions
_POSITIONS: dict[str, type[Waves]] = {"sinusoidal": SinusoidalPositions, "halved": HalvedSinusoidalPositions}
_BLOCKS = {"post": (PostNormBlock, PostNormDecoderBlock), "pre": (PreNormBlock, PreNormDecoderBlock)}


def alignment_layer(config: TransformerConfig) -> int:
    """The decoder layer whose attention is closest to an alignment: of many, the last but one (Garg et al. 2019, §4.1);
    of two or three, the last."""
    if config.alignment_layer is not None:
        return config.alignment_layer
    return config.decoder_layers - (1 if config.decoder_layers <= 3 else 2)


class Transformer(nn.Module):
    context: ClassVar[str] = "attention"  # what the decoder sees of the source, as a seq2seq's config calls it

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary_size, config.width)
        self.source_embedding = (
            None if config.source_vocabulary_size is None else nn.Embedding(config.source_vocabulary_size, config.width)
        )
        self.positions: Waves = _POSITIONS[config.positions](config.width)
        self.scale = config.width**0.5 if config.scaled else 1.0
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(_encoder_block(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(_decoder_block(config) for _ in range(config.decoder_layers))
        # pre-norm blocks leave their sums unnormalised
        last = (lambda: nn.LayerNorm(config.width, config.norm_epsilon)) if config.norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = last(), last()
        self.words = WordScores(config.vocabulary_size, config.width, tied=True)
        self.alignment_layer = alignment_layer(config)
        self.decoding = TransformerDecoding()
        self.apply(_initialise)

    def forward(self, source: Tensor, source_packing: Packing, target: Tensor, target_packing: Packing) -> Tensor:
        """(N,) and (M,) → (M, D), the vectors from which `scores` predicts the next target tokens."""
        encoded = self.encode(source, source_packing)  # (N, D)
        attend = Packed(*target_packing, part=True, causal=True)
        attend_to_source = Across(attend, Packed(*source_packing, part=True))
        x = self._embed(self._inputs(target, self._places(target_packing), self.embedding))  # (M, D)
        for block, memory in zip(self.decoder, project_source_for_all(list(self.decoder), encoded), strict=True):
            x, _ = block(x, memory, attend, attend_to_source)
        return self.decoder_norm(x)

    def encode(self, source: Tensor, packing: Packing, blocks: Sequence[nn.Module] | None = None) -> Tensor:
        """(N,) → (N, D)"""
        x = self._embed(self._inputs(source, self._places(packing), self._source_table))
        attend = Packed(*packing, part=True)  # batches of pairs differ in their number of rows
        for block in self.encoder if blocks is None else blocks:
            x, _ = block(x, attend)
        return self.encoder_norm(x)

    def layers(self, source: Batch, target: Batch | None = None) -> Iterator[Layer]:
        """Yield the encoder's layers, then the decoder's, if the batch has target tokens."""
        attend_in_source, encoded = Packed(*source.packing, part=True), None
        inputs = self._inputs(source.ids, self.positions(source.positions), self._source_table)
        for layer in run_blocks("encoder", self.encoder, self.encoder_norm, inputs, self.dropout, attend_in_source):
            yield layer
            encoded = layer.left  # (N, D)
        if target is None or encoded is None:
            return
        attend = Packed(*target.packing, part=True, causal=True)
        asking = SourceMemories(project_source_for_all(list(self.decoder), encoded), Across(attend, attend_in_source))
        inputs = self._inputs(target.ids, self.positions(target.positions), self.embedding)
        yield from run_blocks("decoder", self.decoder, self.decoder_norm, inputs, self.dropout, attend, asking)

    @property
    def attentions(self) -> tuple[AttentionKind, ...]:
        heads, deep = self.config.heads, self.config.decoder_layers
        return (
            AttentionKind("encoder", "encoder", "self", self.config.encoder_layers, heads),
            AttentionKind("decoder", "decoder", "self", deep, heads, is_causal=True),
            AttentionKind("cross", "decoder", "cross", deep, heads),
        )

    @property
    def position_encoding(self) -> PositionEncoding:
        return self.positions

    def fixed_context(self, source: Tensor, packing: Packing) -> None:
        """The decoder sees every token of the source."""

    def scores(self, hidden: Tensor) -> Tensor:
        """(…, D) → logits (…, V)"""
        return self.words(hidden, self.embedding.weight)

    def before_words(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The parts of the word scores x Eᵀ + b: x (M, D), E (V, D) and b (V,)."""
        return hidden, *self.words.parts(self.embedding.weight)

    @torch.no_grad()
    def start(
        self, source: Tensor, source_packing: Packing, *, hypotheses: int = 1, longest: int = 512
    ) -> TransformerState:
        """Read the sources (N,). Row r · hypotheses + j is hypothesis j of source r, still empty."""
        return self.decoding.start(self, source, source_packing, hypotheses, longest)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: TransformerState) -> Stepped[TransformerState]:
        """(Q,) the last token of every row → scores of the next, and its attention to the source."""
        return self.decoding.step(self, tokens, state)

    @property
    def _source_table(self) -> nn.Embedding:
        return self.embedding if self.source_embedding is None else self.source_embedding

    def _inputs(self, ids: Tensor, places: Tensor, table: nn.Embedding) -> dict[str, Tensor]:
        """(N,) ids and position vectors (N, D) → the summands and their sum, (N, D) each."""
        token = table(ids) * self.scale
        position = places.to(token.dtype)
        return {"token": token, "position": position, "sum": token + position}

    def _embed(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return self.dropout(inputs["sum"])

    def _places(self, packing: Packing) -> Tensor:
        """(N, D) position vectors, counted from 0 in every row."""
        waves = self.positions(torch.arange(packing.longest, device=packing.offsets.device))  # (S, D)
        starts, total = packing.offsets[:-1], sum(packing.lengths)
        starts = torch.repeat_interleave(starts, packing.offsets.diff(), output_size=total)
        return waves.index_select(0, torch.arange(total, device=starts.device) - starts)


def _encoder_block(config: TransformerConfig) -> nn.Module:
    return _BLOCKS[config.norm][0](
        MultiHeadSelfAttention(config.width, config.heads, dropout=config.attention_dropout),
        FeedForward(config.width, config.inner_width, config.activation),
        config.width,
        config.dropout,
        config.norm_epsilon,
    )


def _decoder_block(config: TransformerConfig) -> nn.Module:
    return _BLOCKS[config.norm][1](
        MultiHeadSelfAttention(config.width, config.heads, dropout=config.attention_dropout),
        MultiHeadCrossAttention(config.width, config.heads, dropout=config.attention_dropout),
        FeedForward(config.width, config.inner_width, config.activation),
        config.width,
        config.dropout,
        config.norm_epsilon,
    )


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        # × √D they are as strong as the positions, and as they are they score faintly
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
