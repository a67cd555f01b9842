"""What a Transformer computes with when it decodes, and what its rows remember from one step to the next.

Shapes: Q rows (hypotheses of all sources), D width, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.data.batch import Packing, pad
from qkv.errors import InputError, did_you_mean
from qkv.nn.block import (
    ACTIVATIONS,
    FeedForward,
    PostNormBlock,
    PostNormDecoderBlock,
    PreNormBlock,
    PreNormDecoderBlock,
    memories,
)
from qkv.nn.cpu.cache import SourceMemory, TokenCache
from qkv.nn.cpu.compiler import has_half
from qkv.nn.cpu.int8 import bytes_of, int8_alike, unavailable
from qkv.nn.cpu.int8_step import FEW, FewRows, PackedSources, attend_to_past, bytes_beside, few_rows, halved
from qkv.nn.cpu.speculative import OF_TRANSLATION, Draft, Pace, guessing
from qkv.nn.cpu.step import Function, PostNormStep, PreNormStep, decoder_step, direct
from qkv.nn.cpu.weight_layout import Twins, by_columns, is_of_use, packed
from qkv.nn.fused import Across, Packed
from qkv.nn.multihead import MultiHeadCrossAttention, MultiHeadSelfAttention
from qkv.nn.position import HalvedSinusoidalPositions, SinusoidalPositions
from qkv.nn.word_scores import WordScores
from qkv.search.decoding import Stepped

Sources = SourceMemory | PackedSources


class Layers(NamedTuple):
    """What decoding computes with."""

    encoder: Sequence[nn.Module]
    decoder: Sequence[PostNormStep | PreNormStep]
    words: Function  # (…, D) → (…, V)
    few_rows: FewRows | None = None  # all of the decoder for a few rows, where that is faster
    guessing: "Layers | None" = None  # what guesses ahead, where something does

    @property
    def compiled(self) -> bool:
        """Whether sources are asked by compiled kernels."""
        return any(one is not None and one.few_rows is not None for one in (self, self.guessing))


class TransformerState:
    """What the rows remember. A state is gone on from once: its cache is written in place."""

    def __init__(
        self, past: TokenCache, source: Sources, layers: Layers, pace: Pace, draft: Draft | None = None
    ) -> None:
        self.past, self.source, self.layers = past, source, layers
        self.pace, self.draft = pace, draft
        self._is_used = False

    def select(self, rows: Tensor) -> "TransformerState":
        """(Q',): row i goes on from what was row rows[i]. One may go on twice, or not at all."""
        self.use()
        chosen, before = rows.tolist(), self.past.rows
        self.past.select(chosen)
        # what was guessed stands behind what was written, and is not moved with it
        draft = self.draft if chosen == list(range(before)) else None
        return TransformerState(self.past, self.source.select(chosen), self.layers, self.pace, draft)

    def follow(self, draft: Draft | None = None) -> "TransformerState":
        return TransformerState(self.past, self.source, self.layers, self.pace, draft)

    def use(self) -> None:
        assert not self._is_used, "this state was gone on from already; go on from the one that it gave"
        self._is_used = True


# --- The Transformer (Vaswani et al. 2017): an encoder reads the source at once, a decoder writes the target.
#
# Post-norm with ReLU on embeddings × √D + sinusoidal positions, as in the paper; pre-norm, other activations and the
# positions of Marian are settings, since published weights need them. The table of the target's words both reads and
# scores them, and with one vocabulary for both languages the source is read with it too (§3.4).
#
# Training computes all positions at once from packed rows, and the mask keeps each from those after it. Decoding
# keeps
# keys and values (nn/cpu/cache.py) and computes one new token a row (nn/cpu/step.py). Tests hold the two equal. On a
# CPU
# decoding may be in 8 bits (nn/cpu/int8.py), which is faster and nearly the same; or 8 bits guess ahead and the
# weights judge
# (nn/cpu/speculative.py), which is faster for a single text, and the same. Training knows neither.
#
# What this file does NOT do: loss and label smoothing (models/transformer/objective.py), the search for a good
# translation
# (generate/).
#
# Shapes: N, M tokens of all source and target rows, R sources, Q rows (hypotheses of all sources), S tokens of the
# longest source, D width, H heads, K head width, V vocabulary.

_POSITIONS = {"sinusoidal": SinusoidalPositions, "halved": HalvedSinusoidalPositions}
_PRECISIONS = ("fp32", "int8", "drafted")
_BLOCKS = {"post": (PostNormBlock, PostNormDecoderBlock), "pre": (PreNormBlock, PreNormDecoderBlock)}


@dataclass(frozen=True)
class TransformerConfig:
    vocabulary_size: int  # of the target
    source_vocabulary_size: int | None = None  # None: one vocabulary, and one table, for both
    encoder_layers: int = 6
    decoder_layers: int = 6
    width: int = 512
    heads: int = 8
    inner_width: int = 2_048
    max_length: int = 512  # of a text in tokens; the waves go on for ever, but what was learned does not
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation: str = "relu"
    norm: str = "post"  # or "pre"
    norm_epsilon: float = 1e-5
    positions: str = "sinusoidal"  # or "halved", as Marian has them
    scaled: bool = True  # embeddings × √D
    alignment_layer: int | None = None  # whose look at the source `step` gives; None: see `alignment_layer`

    def __post_init__(self) -> None:
        for name, known in (("activation", ACTIVATIONS), ("norm", _BLOCKS), ("positions", _POSITIONS)):
            if (value := getattr(self, name)) not in known:
                raise InputError(f"Unknown {name} '{value}'.{did_you_mean(value, known)} Known: {', '.join(known)}.")
        for name in (
            "vocabulary_size",
            "source_vocabulary_size",
            "encoder_layers",
            "decoder_layers",
            "width",
            "heads",
            "inner_width",
            "max_length",
        ):
            if (value := getattr(self, name)) is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}.")
        if self.width % self.heads:
            raise InputError(f"width {self.width} is not divisible by {self.heads} heads.")
        if self.width % 2:
            raise InputError(f"width {self.width} is odd, and positions are pairs of sine and cosine.")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= (value := getattr(self, name)) < 1:
                raise InputError(f"{name} is a share from 0 to less than 1, not {value}.")
        if self.alignment_layer is not None and not 0 <= self.alignment_layer < self.decoder_layers:
            raise InputError(
                f"alignment_layer counts the decoder's layers, 0 to {self.decoder_layers - 1}; "
                f"{self.alignment_layer} is none of them."
            )

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        if name not in PRESETS:
            raise InputError(f"Unknown size '{name}'.{did_you_mean(name, PRESETS)} Known: {', '.join(PRESETS)}.")
        return cls(**(PRESETS[name] | changes))


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"encoder_layers": 2, "decoder_layers": 2, "width": 128, "heads": 4, "inner_width": 512},
    "small": {"encoder_layers": 3, "decoder_layers": 3, "width": 256, "heads": 4, "inner_width": 1_024},
    "base": {"encoder_layers": 6, "decoder_layers": 6, "width": 512, "heads": 8, "inner_width": 2_048},
    "big": {
        "encoder_layers": 6,
        "decoder_layers": 6,
        "width": 1_024,
        "heads": 16,
        "inner_width": 4_096,
        "dropout": 0.3,
    },
}


def alignment_layer(config: TransformerConfig) -> int:
    """The decoder layer whose look at the source comes nearest to an alignment: where there are many, the last but one
    (Garg et al. 2019, §4.1), of two or three the last, since the first still sees little more than the words."""
    if config.alignment_layer is not None:
        return config.alignment_layer
    return config.decoder_layers - (1 if config.decoder_layers <= 3 else 2)


class Transformer(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary_size, config.width)
        self.source_embedding = (
            None if config.source_vocabulary_size is None else nn.Embedding(config.source_vocabulary_size, config.width)
        )
        self.positions = _POSITIONS[config.positions](config.width)
        self.scale = config.width**0.5 if config.scaled else 1.0
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(_encoder_block(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(_decoder_block(config) for _ in range(config.decoder_layers))
        # pre-norm blocks leave their sums unnormalised
        last = (lambda: nn.LayerNorm(config.width, config.norm_epsilon)) if config.norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = last(), last()
        self.words = WordScores(config.vocabulary_size, config.width, tied=True)
        self.alignment_layer = alignment_layer(config)
        self.precision = "fp32"  # of decoding
        self._by_columns, self._int8 = Twins(by_columns), Twins(int8_alike)
        self._words_of_one, self._words = Twins(by_columns), Twins(packed)
        self._wave_table: Tensor | None = None
        self.apply(_initialise)

    def train(self, mode: bool = True) -> Self:
        for twins in (self._by_columns, self._int8, self._words_of_one, self._words):
            twins.forget()  # whatever is done to the weights in between
        return super().train(mode)

    def forward(self, source: Tensor, source_packing: Packing, target: Tensor, target_packing: Packing) -> Tensor:
        """(N,) and (M,) → (M, D), the vector after each target token, from which `scores` predicts the next."""
        encoded = self.encode(source, source_packing)  # (N, D)
        attend = Packed(*target_packing, part=True, causal=True)
        attend_to_source = Across(attend, Packed(*source_packing, part=True))
        x = self._embed(target, self._places(target_packing), self.embedding)  # (M, D)
        for block, memory in zip(self.decoder, memories(list(self.decoder), encoded), strict=True):
            x, _ = block(x, memory, attend, attend_to_source)
        return self.decoder_norm(x)

    def encode(self, source: Tensor, packing: Packing, blocks: Sequence[nn.Module] | None = None) -> Tensor:
        """(N,) → (N, D)"""
        table = self.embedding if self.source_embedding is None else self.source_embedding
        x = self._embed(source, self._places(packing), table)
        attend = Packed(*packing, part=True)  # batches of pairs differ in their number of rows
        for block in self.encoder if blocks is None else blocks:
            x, _ = block(x, attend)
        return self.encoder_norm(x)

    def scores(self, hidden: Tensor) -> Tensor:
        """(…, D) → logits (…, V)"""
        return self.words(hidden, self.embedding.weight)

    def before_words(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the scores of words are made of, x Eᵀ + b: x (M, D), E (V, D) and b (V,)."""
        return hidden, *self.words.parts(self.embedding.weight)

    @torch.no_grad()
    def start(
        self, source: Tensor, source_packing: Packing, *, hypotheses: int = 1, longest: int = 512
    ) -> TransformerState:
        """Read the sources (N,). Row r · hypotheses + j is hypothesis j of source r, with nothing written yet."""
        assert not self.training, "dropout would blur what is decoded: call eval() first"
        lengths = source_packing.lengths
        layers = self._layers(len(lengths) * hypotheses)
        encoded = self.encode(source, source_packing, layers.encoder)  # (N, D)
        row_sources = [number for number in range(len(lengths)) for _ in range(hypotheses)]
        remembered = [step.remembered(encoded) for step in layers.decoder]  # (N, 2, H, K) each
        like = remembered[0]
        source_memory: Sources
        if layers.compiled:
            if self.precision == "int8" and len(row_sources) > FEW and has_half():
                # read in half the time; for fewer rows it is not read often enough
                remembered = halved(remembered)
                like = remembered[0]
            source_memory = PackedSources(remembered, lengths, row_sources)
        else:
            source_memory = _in_rectangles(remembered, source_packing, row_sources)
        ask = None if layers.few_rows is None else attend_to_past
        past = TokenCache(len(self.decoder), len(row_sources), longest, like, ask)
        return TransformerState(past, source_memory, layers, Pace(OF_TRANSLATION))

    @torch.no_grad()
    def step(self, tokens: Tensor, state: TransformerState) -> Stepped[TransformerState]:
        """(Q,), the token that was written last in every row → scores of the next, and where this one looked."""
        state.use()
        if state.layers.guessing is not None and len(tokens) == 1:
            return self._guessing(tokens, state)
        logits, look = self._read(tokens, state.past, state.source, state.layers)
        state.past.advance()
        return Stepped(logits, state.follow(), look)

    def _read(
        self, tokens: Tensor, past: TokenCache, source: Sources, layers: Layers, count: int = 1
    ) -> tuple[Tensor, Tensor | None]:
        """The next tokens (Q · C,) of every row → (Q · C, V) and looks (Q · C, S), without going on to them."""
        places = self._waves(past.length, tokens.device, count)  # (C, D)
        x = functional.embedding(tokens, self.embedding.weight)  # (Q · C, D)
        if count > 1:
            places, source = places.repeat(past.rows, 1), source.several(count)
        x = x * self.scale + places.to(x.dtype)
        look: Tensor | None = None  # (Q · C, H, S)
        if layers.few_rows is not None and count == 1 and len(tokens) <= FEW:
            assert isinstance(source, PackedSources), "what is worth this kernel is worth the other ones"
            x, look = layers.few_rows(x, past, source)
        else:
            ways = past.next_token() if count == 1 else past.next_tokens(count)
            for number, (block, memory, attend) in enumerate(zip(layers.decoder, source.layers, ways, strict=True)):
                x, weights = block(x, memory, attend, source.attend)
                look = weights if number == self.alignment_layer else look
        logits = layers.words(self.decoder_norm(x))
        return logits, None if look is None else look.mean(1)

    def _guessing(self, tokens: Tensor, state: TransformerState) -> Stepped[TransformerState]:
        """A step of a single row (1,)."""
        past, source, layers, cheap = state.past, state.source, state.layers, state.layers.guessing
        assert cheap is not None
        found = guessing(
            *(tokens, past, state.pace, state.draft),
            lambda token: self._read(token, past, source, cheap)[0],
            lambda some: self._read(some, past, source, layers, len(some)),
        )
        return Stepped(found.logits, state.follow(found.draft), found.look)

    def set_precision(self, precision: str) -> Self:
        """Of decoding: "fp32" is exact; "int8" is faster on a CPU, and nearly the same; "drafted" is exact, and faster
        on a CPU where one text alone is written, without beams. Training does not change."""
        check_precision(precision)
        self.precision = precision
        return self

    def int8_bytes(self) -> int:
        """Memory of the weights in 8 bits, beside the model's own; 0 if nothing was decoded with them."""
        if self._int8.held is None:
            return 0
        return bytes_of(self._int8.held) + bytes_beside(list(self._int8.held)[len(self.encoder) : -1])

    def _layers(self, rows: int) -> Layers:
        """`rows`: how many there are at first."""
        words = nn.Linear(self.config.width, self.config.vocabulary_size, device="meta")
        words.weight, words.bias = self.embedding.weight, self.words.bias
        near = None
        if self.precision != "fp32":
            _check_weights(self)
            twin = list(self._int8.of(nn.ModuleList([*self.encoder, *self.decoder, words])))
            n = len(self.encoder)
            blocks, few = twin[n:-1], few_rows(twin[n:-1], self.alignment_layer)
            near = Layers(twin[:n], [decoder_step(block) for block in blocks], direct(twin[-1]), few)
            if self.precision == "int8":
                return near
        decoder, last = self.decoder, nn.ModuleList([words])
        if is_of_use(nn.ModuleList([decoder, last])):
            # guesses are judged several at a time
            twins = self._words_of_one if rows == 1 and near is None else self._words
            decoder, last = self._by_columns.of(decoder), twins.of(last)
        return Layers(list(self.encoder), [decoder_step(block) for block in decoder], direct(last[0]), guessing=near)

    def _waves(self, place: int, device: torch.device, count: int = 1) -> Tensor:
        """(C, D): the positions of some tokens. A table of them is kept, and doubled when it is too short."""
        table = self._wave_table  # looked up once: another thread may put its own, shorter one there at any moment
        if table is None or len(table) < place + count or table.device != device:
            length = 64
            while length < place + count:
                length *= 2
            with torch.inference_mode(False):  # it stays, and may come to be used or copied in other ways
                table = self.positions(torch.arange(length, device=device))  # (length, D)
            self._wave_table = table
        return table[place : place + count]

    def _embed(self, ids: Tensor, places: Tensor, table: nn.Embedding) -> Tensor:
        """(N,) and what stands for their positions (N, D) → (N, D)"""
        x = table(ids)
        return self.dropout(x * self.scale + places.to(x.dtype))

    def _places(self, packing: Packing) -> Tensor:
        """(N, D): the waves of all positions, counted from 0 in every row."""
        waves = self.positions(torch.arange(packing.longest, device=packing.offsets.device))  # (S, D)
        starts, total = packing.offsets[:-1], sum(packing.lengths)
        starts = torch.repeat_interleave(starts, packing.offsets.diff(), output_size=total)
        return waves.index_select(0, torch.arange(total, device=starts.device) - starts)


def _in_rectangles(remembered: Sequence[Tensor], packing: Packing, row_sources: Sequence[int]) -> SourceMemory:
    """Keys and values (N, 2, H, K) of every layer, each source padded to the longest."""
    mask = None
    if min(packing.lengths) < packing.longest:
        real = torch.ones(len(remembered[0]), dtype=torch.bool, device=remembered[0].device)
        mask = pad(real, packing, False)  # (R, S)
    sides = [(_in_a_rectangle(one[:, 0], packing, 2), _in_a_rectangle(one[:, 1], packing, 1)) for one in remembered]
    return SourceMemory(sides, mask, row_sources)


def _in_a_rectangle(packed_rows: Tensor, packing: Packing, place: int) -> Tensor:
    """(N, H, K) → (R, H, S, K) with place 1, (R, H, K, S) with 2: where the tokens come to stand; zeros where there are
    none."""
    if packed_rows.device.type != "cpu":
        return pad(packed_rows, packing).movedim(1, place + 1).contiguous()
    heads, width = packed_rows.shape[1:]
    shape = (heads, packing.longest, width) if place == 1 else (heads, width, packing.longest)
    found = packed_rows.new_zeros(len(packing.lengths), *shape)
    # row by row: only what is there is copied, and once
    for row, to in zip(packed_rows.split(list(packing.lengths)), found.unbind(), strict=True):
        to.narrow(place, 0, len(row)).copy_(row.movedim(0, place))
    return found


def check_precision(precision: str) -> None:
    """Whether there is such a thing, and here."""
    if precision not in _PRECISIONS:
        hint = did_you_mean(precision, _PRECISIONS)
        raise InputError(f"Unknown precision '{precision}'.{hint} Known: {', '.join(_PRECISIONS)}.")
    if precision != "fp32" and (reason := unavailable()) is not None:
        raise InputError(f"{precision} cannot be had: {reason}. Use fp32.")


def _check_weights(model: Transformer) -> None:
    """Whether products of 8 bits can be made of them."""
    for weight in model.parameters():
        if weight.device.type != "cpu" or weight.dtype != torch.float32 or weight.is_inference():
            raise InputError(
                f"int8 is made from fp32 weights on a CPU; these are {weight.dtype} on {weight.device}. "
                "Use --device cpu, or fp32."
            )


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
