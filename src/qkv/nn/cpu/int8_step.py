"""Tensors for the numba kernels of step_kernels.py: packed sources, attention to the cache, the 8-bit decoder step.

`PackedSources` is `SourceMemory` (nn/cpu/cache.py) without padding, with the same interface. `Int8Decoder` runs all
layers of a decoder in one call, for decoding in 8 bits with few rows. It needs numba (extra `fast`) and a network large
enough to be worth some seconds of compilation, once per machine; otherwise torch computes the same (nn/cpu/step.py).

Not here: gradients, GPUs.

Shapes: L layers, Q rows (hypotheses of all sources), C sources, N tokens of all of them, S tokens of the longest, T
capacity in tokens, H heads, K head width; for `Int8Decoder` R rows, D width, F inner width.
"""

import importlib
import os
from collections.abc import Sequence
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qkv.nn import block as layers
from qkv.nn.block import PostNormDecoderBlock, PreNormDecoderBlock
from qkv.nn.cpu.cache import TokenCache
from qkv.nn.cpu.precision import Int8Linear

OTHER_CPU_SETTINGS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")


def has_numba() -> bool:
    """Whether numba is installed and its compiler is enabled."""
    try:
        return find_spec("numba") is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"
    except ValueError:  # sys.modules holds a replacement without a spec
        return False


@cache
def has_half_precision() -> bool:
    """Whether kernels can convert half precision by a CPU instruction."""
    # when compiling for another CPU, numba would call a missing function
    if not has_numba() or any(os.environ.get(name) for name in OTHER_CPU_SETTINGS):
        return False
    try:
        return bool(importlib.import_module("llvmlite.binding").get_host_cpu_features().get("f16c"))
    except RuntimeError:  # CPU features unknown
        return False


def attend_to_past(
    new: tuple[Tensor, Tensor, Tensor], keys: Tensor, values: Tensor, length: int, scale: float | None
) -> Tensor:
    """Append the key and value (Q, H, K) of a new token after the first `length` cached ones (Q or more, T, H, K), and
    attend to all of them → (Q, H, K)"""
    # a local import: importing numba is slow
    from qkv.nn.cpu.step_kernels import compile_past_attention

    query = new[0]
    answer = torch.empty(query.shape, dtype=torch.float32)
    scores = np.empty((query.size(1), length + 1), np.float32)
    scale = query.size(2) ** -0.5 if scale is None else scale
    asked = tuple(one.contiguous().numpy() for one in new)
    compile_past_attention()(asked, as_bits(keys), as_bits(values), length, scale, scores, answer.numpy())
    return answer


class PackedSources:
    """Keys and values of every source, and the source of each row."""

    def __init__(
        self, memory: Sequence[Tensor], lengths: Sequence[int], owners: Sequence[int], longest: int | None = None
    ) -> None:
        """Per layer keys and values (N, 2, H, K) in single or half precision; tokens of each source; source of each
        row; width of the weights, if sources that have been dropped were longer."""
        self.memory, self.lengths, self.owners = tuple(memory), tuple(lengths), tuple(owners)
        self.longest = max(self.lengths, default=0) if longest is None else longest  # S
        self.begins = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)  # (C + 1,)
        self.owner = np.array(self.owners, np.int64)  # (Q,)

    @property
    def layers(self) -> tuple[tuple[Tensor], ...]:
        """The arguments of `attend` for each layer."""
        return tuple((one,) for one in self.memory)

    @cached_property
    def together(self) -> Tensor:
        """(L, N, 2, H, K), for kernels over all layers."""
        return torch.stack(self.memory)

    def attend(
        self, query: Tensor, memory: Tensor, *, scale: float | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Queries (Q, H, K), keys and values of a layer → outputs (Q, H, K) and weights (Q, H, S), zeros beyond a
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
        """Repeat each row `count` times, for several new tokens of it."""
        return self._of([owner for owner in self.owners for _ in range(count)])

    def select(self, rows: Sequence[int]) -> "PackedSources":
        """Row i becomes the former row rows[i]."""
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
    """Convert to half precision if all values fit; otherwise return them unchanged."""
    ends = torch.stack([end for one in memory if one.numel() for end in one.aminmax()] or [torch.zeros(())])
    return (
        [one.half() for one in memory] if bool((ends.abs() <= torch.finfo(torch.float16).max).all()) else list(memory)
    )


def as_bits(memory: Tensor) -> NDArray[Any]:
    """As an array for the kernels: half precision as 16-bit integers."""
    found = memory.numpy()
    return found.view(np.uint16) if memory.dtype == torch.float16 else found


_Block = PostNormDecoderBlock | PreNormDecoderBlock
FEW_ROWS = 8
"""Maximum number of rows for which this is faster than torch's kernels."""
_WORTH = 8_000_000
"""Minimum number of weights for which compilation is worthwhile."""
_BLOCK = 64
"""Layer inputs must be a multiple of this (PRODUCT_BYTES and LANES of compiled.py)."""


class Int8Decoder:
    """All layers of a decoder in 8 bits."""

    def __init__(self, blocks: Sequence[_Block], look: int) -> None:
        """`look`: the layer whose attention to the source is returned."""
        # a local import: importing numba is slow
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
        """x (R, D), which is overwritten → (R, D) of the last layer, and the attention to the source (R, H, S). Writes
        the new keys and values into `past`, but does not advance it."""
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
    """The cached decoder of these blocks, created if needed; None if it is unavailable or not worthwhile."""
    first = blocks[0]
    if first not in _DECODERS:
        usual = [block for block in blocks if is_supported(block)]
        if len(usual) < len(blocks) or count_weights(usual) < _WORTH or not has_numba():
            return None
        _DECODERS[first] = Int8Decoder(usual, look)
    return _DECODERS[first]


def count_decoder_bytes(blocks: Sequence[nn.Module]) -> int:
    """Memory of the cached decoder of these blocks, in bytes."""
    return _DECODERS[blocks[0]].bytes if blocks[0] in _DECODERS else 0


def is_supported(block: nn.Module) -> TypeGuard[_Block]:
    """Whether the kernel supports this layer."""
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
    return next(
        name for name, function in layers.ACTIVATION_FUNCTIONS.items() if function is block.feed_forward.activation
    )
