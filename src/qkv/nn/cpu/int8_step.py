"""Keys and values of sources end to end, and the compiled ways to ask them and the past (step_kernels.py).

`PackedSources` is what `SourceMemory` (nn/cpu/cache.py) is, for a CPU with numba: without padding. Both are asked
alike, and both leave out sources that nobody asks any more when they are the half.

What this file does NOT do: gradients, GPUs.

Shapes: L layers, Q rows (hypotheses of all sources), C sources, N tokens of all of them, S tokens of the longest, T
tokens that there is room for, H heads, K head width.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qkv.nn import block as layers
from qkv.nn.block import PostNormDecoderBlock, PreNormDecoderBlock
from qkv.nn.cpu.cache import TokenCache
from qkv.nn.cpu.compiler import LARGEST_HALF, has_numba
from qkv.nn.cpu.int8 import Int8Linear


def attend_to_past(
    new: tuple[Tensor, Tensor, Tensor], keys: Tensor, values: Tensor, length: int, scale: float | None
) -> Tensor:
    """Query, key and value (Q, H, K) of a new token: written behind the first `length` of keys and values (Q or more,
    T, H, K), and asked with them → (Q, H, K)"""
    # here, since numba takes its time to be imported
    from qkv.nn.cpu.step_kernels import compile_past_attention

    query = new[0]
    answer = torch.empty(query.shape, dtype=torch.float32)
    scores = np.empty((query.size(1), length + 1), np.float32)
    scale = query.size(2) ** -0.5 if scale is None else scale
    asked = tuple(one.contiguous().numpy() for one in new)
    compile_past_attention()(asked, as_bits(keys), as_bits(values), length, scale, scores, answer.numpy())
    return answer


class PackedSources:
    """Keys and values of every source, and which source each row asks."""

    def __init__(
        self, memory: Sequence[Tensor], lengths: Sequence[int], owners: Sequence[int], longest: int | None = None
    ) -> None:
        """Per layer keys and values (N, 2, H, K), of single or of half precision; the tokens of each source; which
        source each row has; how wide weights are, where there were longer sources once."""
        self.memory, self.lengths, self.owners = tuple(memory), tuple(lengths), tuple(owners)
        self.longest = max(self.lengths, default=0) if longest is None else longest  # S
        self.begins = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)  # (C + 1,)
        self.owner = np.array(self.owners, np.int64)  # (Q,)

    @property
    def layers(self) -> tuple[tuple[Tensor], ...]:
        """What `attend` is handed, layer by layer."""
        return tuple((one,) for one in self.memory)

    @cached_property
    def together(self) -> Tensor:
        """(L, N, 2, H, K), for those who go through all layers at once."""
        return torch.stack(self.memory)

    def attend(
        self, query: Tensor, memory: Tensor, *, scale: float | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Queries (Q, H, K), keys and values of a layer → answers (Q, H, K) and weights (Q, H, S), zeros beyond a
        source's end."""
        from qkv.nn.cpu.step_kernels import compile_source_attention

        assert dropout == 0, "a memory is for decoding, not for training"
        answer = torch.empty(query.shape, dtype=torch.float32)
        weights = torch.zeros(*query.shape[:2], self.longest, dtype=torch.float32)
        scale = query.size(2) ** -0.5 if scale is None else scale
        asked = query.contiguous().numpy(), as_bits(memory), self.begins, self.owner
        compile_source_attention()(*asked, scale, weights.numpy(), answer.numpy())
        return answer, weights

    def several(self, count: int) -> "PackedSources":
        """So many rows in the place of each: for the next few tokens of it."""
        return self._of([owner for owner in self.owners for _ in range(count)])

    def select(self, rows: Sequence[int]) -> "PackedSources":
        """Row i becomes what row rows[i] was."""
        owners = tuple(self.owners[row] for row in rows)
        if owners == self.owners:
            return self
        asked = sorted(set(owners))
        if 2 * len(asked) > len(self.lengths) or not asked:
            return self._of(owners)
        number = {source: new for new, source in enumerate(asked)}
        kept = torch.cat([torch.arange(*self.begins[source : source + 2].tolist()) for source in asked])
        memory = [one.index_select(0, kept) for one in self.memory]
        lengths = [self.lengths[source] for source in asked]
        return PackedSources(memory, lengths, [number[owner] for owner in owners], self.longest)

    def _of(self, owners: Sequence[int]) -> "PackedSources":
        found = PackedSources(self.memory, self.lengths, owners, self.longest)
        if "together" in self.__dict__:
            found.together = self.together
        return found


def to_half(memory: Sequence[Tensor]) -> list[Tensor]:
    """In half precision, if all of it is small enough; as it is, if something is not."""
    ends = torch.stack([end for one in memory if one.numel() for end in one.aminmax()] or [torch.zeros(())])
    return [one.half() for one in memory] if bool((ends.abs() <= LARGEST_HALF).all()) else list(memory)


def as_bits(memory: Tensor) -> NDArray[Any]:
    """As the kernels take it."""
    found = memory.numpy()
    return found.view(np.uint16) if memory.dtype == torch.float16 else found


# --- What the compiled step of a decoder (step_kernels.py) computes with: its weights in order, a place to work.
#
# It is for decoding in 8 bits, for a text or the beams of one, where numba is installed (extra `fast`) and the
# network is
# large enough to be worth some seconds of compiling, once on a machine. Everything else is torch's (nn/cpu/step.py),
# and gives the same.
#
# Shapes: R rows, D width, F inner width, H heads, S tokens of the longest source.

_Block = PostNormDecoderBlock | PreNormDecoderBlock
FEW_ROWS = 8
"""Rows up to which this is faster than torch's kernels."""
_WORTH = 8_000_000
"""Weights of the layers from which on it is worth compiling."""
_BLOCK = 64
"""Inputs are a multiple of these (compiled.py, and LANES of compiled.py)."""


class Int8Decoder:
    """All layers of a decoder in 8 bits."""

    def __init__(self, blocks: Sequence[_Block], look: int) -> None:
        """`look`: the layer whose look at the source is wanted."""
        # here, since numba takes its time to be imported
        from qkv.nn.cpu.step_kernels import ACTIVATION_ORDER, DecoderWeights, StepSettings, compile_step

        parts = [[layer.parts() for layer in _products(block)] for block in blocks]
        weights = [torch.cat([one.weight.flatten() for one in of]) for of in parts]
        table, at_weight, at_output = [], 0, 0
        for one in parts[0]:
            table.append([one.weight.size(1), at_weight, at_output])
            at_weight, at_output = at_weight + one.weight.numel(), at_output + one.weight.size(0)
        norms = [
            torch.stack([torch.stack([norm.weight, norm.bias]) for norm in _norms(block)]).detach() for block in blocks
        ]
        self.weights = DecoderWeights(
            torch.stack(weights).numpy(),
            torch.stack([torch.cat([one.scale for one in of]) for of in parts]).numpy(),
            torch.stack([torch.cat([one.weight.sum(1, dtype=torch.int32) for one in of]) for of in parts]).numpy(),
            torch.stack([torch.cat([one.bias for one in of]) for of in parts]).numpy(),
            np.array(table),
            torch.stack(norms).numpy(),
        )
        first = blocks[0]
        own, source = first.attention, first.cross_attention
        self.inner = first.feed_forward.up.out_features
        self.head_width = own.head_width
        self.settings = StepSettings(
            own.head_width**-0.5 if own.scale is None else own.scale,
            source.head_width**-0.5 if source.scale is None else source.scale,
            first.attention_norm.eps,
            ACTIVATION_ORDER.index(_activation(first)),
            isinstance(first, PreNormDecoderBlock),
            _products(first)[0].is_narrow,
            look,
        )
        self._run = compile_step()

    @property
    def bytes(self) -> int:
        return self.weights.weight.nbytes + self.weights.scale.nbytes

    def __call__(self, x: Tensor, past: TokenCache, source: PackedSources) -> tuple[Tensor, Tensor]:
        """x (R, D), which is written over → (R, D) of the last layer, and the heads' looks (R, H, S). What is new is
        written into the past, which is not advanced."""
        from qkv.nn.cpu.step_kernels import PastKeys, Scratch, SourceKeys

        keys, values = past.with_room()
        (rows, width), heads = x.shape, keys.size(3)
        inner, longest = heads * self.head_width, source.longest
        scratch = Scratch(
            x.numpy(),
            np.empty((rows, width), np.float32),
            np.empty(rows * max(width, inner, self.inner), np.uint8),
            np.empty((rows, 3 * inner), np.float32),
            np.empty((rows, inner), np.float32),
            np.empty((rows, self.inner), np.float32),
            np.empty(max(past.length + 1, longest), np.float32),
            np.zeros((rows, heads, longest), np.float32),
        )
        asked = SourceKeys(as_bits(source.together), source.begins, source.owner)
        written = PastKeys(as_bits(keys), as_bits(values), past.length)
        self._run(self.weights, self.settings, scratch, written, asked)
        return x, torch.from_numpy(scratch.looks)


_DECODERS: "WeakKeyDictionary[nn.Module, Int8Decoder]" = WeakKeyDictionary()


def find_int8_decoder(blocks: Sequence[nn.Module], look: int) -> Int8Decoder | None:
    """The same for the same blocks, as long as they are there; None where it cannot be had, or is not worth it."""
    first = blocks[0]
    if first not in _DECODERS:
        usual = [block for block in blocks if is_supported(block)]
        if len(usual) < len(blocks) or count_weights(usual) < _WORTH or not has_numba():
            return None
        _DECODERS[first] = Int8Decoder(usual, look)
    return _DECODERS[first]


def count_decoder_bytes(blocks: Sequence[nn.Module]) -> int:
    """Memory of what was made of these blocks."""
    return _DECODERS[blocks[0]].bytes if blocks[0] in _DECODERS else 0


def is_supported(block: nn.Module) -> TypeGuard[_Block]:
    """Whether the kernel knows such a layer."""
    if not isinstance(block, PostNormDecoderBlock | PreNormDecoderBlock):
        return False
    return all(isinstance(layer, Int8Linear) and layer.in_features % _BLOCK == 0 for layer in _linear(block))


def count_weights(blocks: Sequence[_Block]) -> int:
    return sum(layer.in_features * layer.out_features for block in blocks for layer in _products(block))


def _linear(block: _Block) -> list[nn.Module]:
    """In the order of PRODUCTS."""
    own, source, feed_forward = block.attention, block.cross_attention, block.feed_forward
    return [own.qkv, own.out, source.query, source.out, feed_forward.up, feed_forward.down]


def _products(block: _Block) -> list[Int8Linear]:
    return [layer for layer in _linear(block) if isinstance(layer, Int8Linear)]


def _norms(block: _Block) -> tuple[nn.LayerNorm, nn.LayerNorm, nn.LayerNorm]:
    return block.attention_norm, block.cross_attention_norm, block.feed_forward_norm


def _activation(block: _Block) -> str:
    return next(name for name, function in layers.ACTIVATIONS.items() if function is block.feed_forward.activation)
