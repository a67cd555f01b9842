"""Decoding with a Transformer: the layers it uses, and the state of rows between steps.

Keys and values are kept (nn/cpu/cache.py), and a step computes one new token a row (nn/cpu/step.py). On a CPU it may be
in 8 bits, or 8 bits guess ahead (nn/cpu/precision.py).

Shapes: N tokens of all source rows, R sources, Q rows (hypotheses of all sources), C tokens of a row that are read at
once, S tokens of the longest source, D width, H heads, K head width, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.data.batch import Packing, pad
from qkv.nn.block import PostNormDecoderBlock, PreNormDecoderBlock
from qkv.nn.cpu.cache import SourceMemory, TokenCache
from qkv.nn.cpu.int8_step import (
    FEW_ROWS,
    Int8Decoder,
    PackedSources,
    attend_to_past,
    count_decoder_bytes,
    find_int8_decoder,
    has_half_precision,
    to_half,
)
from qkv.nn.cpu.precision import (
    Twins,
    can_store_by_columns,
    check_weights,
    count_int8_bytes,
    pack_linear,
    quantise_alike,
    store_by_columns,
)
from qkv.nn.cpu.speculative import TRANSLATION_COSTS, Draft, Pace, draft_and_verify
from qkv.nn.cpu.step import Function, PostNormStep, PreNormStep, bind_weights, make_decoder_step
from qkv.nn.position import PositionEncoding
from qkv.nn.words import WordScores
from qkv.search.decoding import Stepped

Sources = SourceMemory | PackedSources


class DecodingLayers(NamedTuple):
    """The layers used for decoding."""

    encoder: Sequence[nn.Module]
    decoder: Sequence[PostNormStep | PreNormStep]
    words: Function  # (…, D) → (…, V)
    few_rows: Int8Decoder | None = None  # all of the decoder for a few rows, where that is faster
    guessing: "DecodingLayers | None" = None  # what guesses ahead, where something does

    @property
    def compiled(self) -> bool:
        """Whether compiled kernels attend to the sources."""
        return any(one is not None and one.few_rows is not None for one in (self, self.guessing))


class TransformerState:
    """The state of the rows. It may be advanced only once: its cache is written in place."""

    def __init__(
        self, past: TokenCache, source: Sources, layers: DecodingLayers, pace: Pace, draft: Draft | None = None
    ) -> None:
        self.past, self.source, self.layers = past, source, layers
        self.pace, self.draft = pace, draft
        self._is_used = False

    def select(self, rows: Tensor) -> "TransformerState":
        """(Q',): row i continues the former row rows[i]; a row may be taken twice, or not at all."""
        self.use()
        chosen, before = rows.tolist(), self.past.rows
        self.past.select(chosen)
        # guesses are after the written tokens, and are not moved along
        draft = self.draft if chosen == list(range(before)) else None
        return TransformerState(self.past, self.source.select(chosen), self.layers, self.pace, draft)

    def follow(self, draft: Draft | None = None) -> "TransformerState":
        return TransformerState(self.past, self.source, self.layers, self.pace, draft)

    def use(self) -> None:
        assert not self._is_used, "this state was advanced already; use the one that it returned"
        self._is_used = True


class TransformerNetwork(Protocol):
    """The parts of the network that decoding needs."""

    training: bool

    @property
    def embedding(self) -> nn.Embedding: ...
    @property
    def encoder(self) -> nn.ModuleList: ...
    @property
    def decoder(self) -> nn.ModuleList: ...
    @property
    def decoder_norm(self) -> nn.Module: ...
    @property
    def positions(self) -> PositionEncoding: ...
    @property
    def words(self) -> WordScores: ...
    @property
    def scale(self) -> float: ...
    @property
    def alignment_layer(self) -> int: ...
    def encode(self, source: Tensor, packing: Packing, blocks: Sequence[nn.Module] | None = None) -> Tensor: ...
    def parameters(self) -> Iterator[nn.Parameter]: ...


class TransformerDecoding(nn.Module):
    """Decoding for a network. It has no weights of its own: it caches the network's weights in other layouts, and drops
    them when the network is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.precision = "fp32"  # see nn/cpu/precision.py
        self._by_columns, self._int8 = Twins(store_by_columns), Twins(quantise_alike)
        self._words_of_one, self._words = Twins(store_by_columns), Twins(pack_linear)
        self._wave_table: Tensor | None = None

    def train(self, mode: bool = True) -> Self:
        for twins in (self._by_columns, self._int8, self._words_of_one, self._words):
            twins.forget()  # whatever is done to the weights in between
        return super().train(mode)

    def start(
        self, network: TransformerNetwork, source: Tensor, source_packing: Packing, hypotheses: int, longest: int
    ) -> TransformerState:
        """See `Transformer.start`."""
        assert not network.training, "dropout would blur what is decoded: call eval() first"
        lengths = source_packing.lengths
        layers = self._layers(network, len(lengths) * hypotheses)
        encoded = network.encode(source, source_packing, layers.encoder)  # (N, D)
        row_sources = [number for number in range(len(lengths)) for _ in range(hypotheses)]
        remembered = [step.remembered(encoded) for step in layers.decoder]  # (N, 2, H, K) each
        like = remembered[0]
        source_memory: Sources
        if layers.compiled:
            if self.precision == "int8" and len(row_sources) > FEW_ROWS and has_half_precision():
                # read in half the time; for fewer rows it is not read often enough
                remembered = to_half(remembered)
                like = remembered[0]
            source_memory = PackedSources(remembered, lengths, row_sources)
        else:
            source_memory = _in_rectangles(remembered, source_packing, row_sources)
        ask = None if layers.few_rows is None else attend_to_past
        past = TokenCache(len(network.decoder), len(row_sources), longest, like, ask)
        return TransformerState(past, source_memory, layers, Pace(TRANSLATION_COSTS))

    def step(self, network: TransformerNetwork, tokens: Tensor, state: TransformerState) -> Stepped[TransformerState]:
        """See `Transformer.step`."""
        state.use()
        if state.layers.guessing is not None and len(tokens) == 1:
            return self._guessing(network, tokens, state)
        logits, look = self._read(network, tokens, state.past, state.source, state.layers)
        state.past.advance()
        return Stepped(logits, state.follow(), look)

    def _read(
        self,
        network: TransformerNetwork,
        tokens: Tensor,
        past: TokenCache,
        source: Sources,
        layers: DecodingLayers,
        count: int = 1,
    ) -> tuple[Tensor, Tensor | None]:
        """The next tokens (Q · C,) of every row → (Q · C, V) and attention (Q · C, S), without advancing the state."""
        places = self._waves(network, past.length, tokens.device, count)  # (C, D)
        x = functional.embedding(tokens, network.embedding.weight)  # (Q · C, D)
        if count > 1:
            places, source = places.repeat(past.rows, 1), source.several(count)
        x = x * network.scale + places.to(x.dtype)
        look: Tensor | None = None  # (Q · C, H, S)
        if layers.few_rows is not None and count == 1 and len(tokens) <= FEW_ROWS:
            assert isinstance(source, PackedSources), "what is worth this kernel is worth the other ones"
            x, look = layers.few_rows(x, past, source)
        else:
            ways = past.next_token() if count == 1 else past.next_tokens(count)
            for number, (block, memory, attend) in enumerate(zip(layers.decoder, source.layers, ways, strict=True)):
                x, weights = block(x, memory, attend, source.attend)
                look = weights if number == network.alignment_layer else look
        logits = layers.words(network.decoder_norm(x))
        return logits, None if look is None else look.mean(1)

    def _guessing(
        self, network: TransformerNetwork, tokens: Tensor, state: TransformerState
    ) -> Stepped[TransformerState]:
        """A step of a single row (1,)."""
        past, source, layers, cheap = state.past, state.source, state.layers, state.layers.guessing
        assert cheap is not None
        found = draft_and_verify(
            *(tokens, past, state.pace, state.draft),
            lambda token: self._read(network, token, past, source, cheap)[0],
            lambda some: self._read(network, some, past, source, layers, len(some)),
        )
        return Stepped(found.logits, state.follow(found.draft), found.look)

    def int8_bytes(self) -> int:
        """Memory of the 8-bit weights, in addition to the model's own; 0 if they were never used."""
        if self._int8.held is None:
            return 0
        return count_int8_bytes(self._int8.held) + count_decoder_bytes(decoder_blocks(self._int8.held))

    def _layers(self, network: TransformerNetwork, rows: int) -> DecodingLayers:
        """`rows` is their number at the start."""
        words = nn.Linear(network.embedding.embedding_dim, network.embedding.num_embeddings, device="meta")
        words.weight, words.bias = network.embedding.weight, network.words.bias
        near = None
        if self.precision != "fp32":
            check_weights(network)
            twin = list(self._int8.of(nn.ModuleList([*network.encoder, *network.decoder, words])))
            n = len(network.encoder)
            blocks, few = twin[n:-1], find_int8_decoder(twin[n:-1], network.alignment_layer)
            near = DecodingLayers(twin[:n], [make_decoder_step(block) for block in blocks], bind_weights(twin[-1]), few)
            if self.precision == "int8":
                return near
        decoder, last = network.decoder, nn.ModuleList([words])
        if can_store_by_columns(nn.ModuleList([decoder, last])):
            # several guesses are verified at a time
            twins = self._words_of_one if rows == 1 and near is None else self._words
            decoder, last = self._by_columns.of(decoder), twins.of(last)
        steps = [make_decoder_step(block) for block in decoder]
        return DecodingLayers(list(network.encoder), steps, bind_weights(last[0]), guessing=near)

    def _waves(self, network: TransformerNetwork, place: int, device: torch.device, count: int = 1) -> Tensor:
        """(C, D) position vectors. A table of them is cached, and doubled if it is too short."""
        table = self._wave_table  # looked up once: another thread may put its own, shorter one there at any moment
        if table is None or len(table) < place + count or table.device != device:
            length = 64
            while length < place + count:
                length *= 2
            with torch.inference_mode(False):  # it stays, and may come to be used or copied in other ways
                table = network.positions(torch.arange(length, device=device))  # (length, D)
            self._wave_table = table
        return table[place : place + count]


def decoder_blocks(modules: nn.ModuleList) -> list[nn.Module]:
    return [block for block in modules if isinstance(block, PostNormDecoderBlock | PreNormDecoderBlock)]


def _in_rectangles(remembered: Sequence[Tensor], packing: Packing, row_sources: Sequence[int]) -> SourceMemory:
    """Keys and values (N, 2, H, K) of every layer, padded to the longest source."""
    mask = None
    if min(packing.lengths) < packing.longest:
        real = torch.ones(len(remembered[0]), dtype=torch.bool, device=remembered[0].device)
        mask = pad(real, packing, False)  # (R, S)
    sides = [(_in_a_rectangle(one[:, 0], packing, 2), _in_a_rectangle(one[:, 1], packing, 1)) for one in remembered]
    return SourceMemory(sides, mask, row_sources)


def _in_a_rectangle(packed_rows: Tensor, packing: Packing, place: int) -> Tensor:
    """(N, H, K) → (R, H, S, K) with place 1, (R, H, K, S) with 2: the axis of the tokens; padded with zeros."""
    if packed_rows.device.type != "cpu":
        return pad(packed_rows, packing).movedim(1, place + 1).contiguous()
    heads, width = packed_rows.shape[1:]
    shape = (heads, packing.longest, width) if place == 1 else (heads, width, packing.longest)
    found = packed_rows.new_zeros(len(packing.lengths), *shape)
    # row by row: only what is there is copied, and once
    for row, to in zip(packed_rows.split(list(packing.lengths)), found.unbind(), strict=True):
        to.narrow(place, 0, len(row)).copy_(row.movedim(0, place))
    return found
