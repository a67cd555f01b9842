"""What the compiled step of a decoder (few_rows_kernel.py) computes with: its weights in order, a place to work.

It is for decoding in 8 bits, for a text or the beams of one, where numba is installed (extra `fast`) and the network is
large enough to be worth some seconds of compiling, once on a machine. Everything else is torch's (nn/decoder_step.py),
and gives the same.

Shapes: R rows, D width, F inner width, H heads, S tokens of the longest source.
"""

from collections.abc import Sequence
from typing import TypeGuard
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from qkv.models.compiler import has_numba
from qkv.models.step_attention import PackedSources, bits
from qkv.nn import block as layers
from qkv.nn.cache import TokenCache
from qkv.nn.decoder_block import PostNormDecoderBlock, PreNormDecoderBlock
from qkv.nn.int8 import Int8Linear

Block = PostNormDecoderBlock | PreNormDecoderBlock
FEW = 8
"""Rows up to which this is faster than torch's kernels."""
WORTH = 8_000_000
"""Weights of the layers from which on it is worth compiling."""
BLOCK = 64
"""Inputs are a multiple of these (byte_products.py, and LANES of compiled.py)."""


class FewRows:
    """All layers of a decoder in 8 bits."""

    def __init__(self, blocks: Sequence[Block], look: int) -> None:
        """`look`: the layer whose look at the source is wanted."""
        # here, since numba takes its time to be imported
        from qkv.models.few_rows_kernel import ACTIVATIONS, Settings, Weights, kernel

        parts = [[layer.parts() for layer in _products(block)] for block in blocks]
        weights = [torch.cat([one.weight.flatten() for one in of]) for of in parts]
        table, at_weight, at_output = [], 0, 0
        for one in parts[0]:
            table.append([one.weight.size(1), at_weight, at_output])
            at_weight, at_output = at_weight + one.weight.numel(), at_output + one.weight.size(0)
        norms = [
            torch.stack([torch.stack([norm.weight, norm.bias]) for norm in _norms(block)]).detach() for block in blocks
        ]
        self.weights = Weights(
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
        self.settings = Settings(
            own.head_width**-0.5 if own.scale is None else own.scale,
            source.head_width**-0.5 if source.scale is None else source.scale,
            first.attention_norm.eps,
            ACTIVATIONS.index(_activation(first)),
            isinstance(first, PreNormDecoderBlock),
            _products(first)[0].is_narrow,
            look,
        )
        self._run = kernel()

    @property
    def bytes(self) -> int:
        return self.weights.weight.nbytes + self.weights.scale.nbytes

    def __call__(self, x: Tensor, past: TokenCache, source: PackedSources) -> tuple[Tensor, Tensor]:
        """x (R, D), which is written over → (R, D) of the last layer, and the heads' looks (R, H, S). What is new is
        written into the past, which is not advanced."""
        from qkv.models.few_rows_kernel import Past, Scratch, Source

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
        asked = Source(bits(source.together), source.begins, source.owner)
        written = Past(bits(keys), bits(values), past.length)
        self._run(self.weights, self.settings, scratch, written, asked)
        return x, torch.from_numpy(scratch.looks)


_made: "WeakKeyDictionary[nn.Module, FewRows]" = WeakKeyDictionary()


def few_rows(blocks: Sequence[nn.Module], look: int) -> FewRows | None:
    """The same for the same blocks, as long as they are there; None where it cannot be had, or is not worth it."""
    first = blocks[0]
    if first not in _made:
        usual = [block for block in blocks if fits(block)]
        if len(usual) < len(blocks) or weights_of(usual) < WORTH or not has_numba():
            return None
        _made[first] = FewRows(usual, look)
    return _made[first]


def bytes_beside(blocks: Sequence[nn.Module]) -> int:
    """Memory of what was made of these blocks."""
    return _made[blocks[0]].bytes if blocks[0] in _made else 0


def fits(block: nn.Module) -> TypeGuard[Block]:
    """Whether the kernel knows such a layer."""
    if not isinstance(block, PostNormDecoderBlock | PreNormDecoderBlock):
        return False
    return all(isinstance(layer, Int8Linear) and layer.in_features % BLOCK == 0 for layer in _linear(block))


def weights_of(blocks: Sequence[Block]) -> int:
    return sum(layer.in_features * layer.out_features for block in blocks for layer in _products(block))


def _linear(block: Block) -> list[nn.Module]:
    """In the order of PRODUCTS."""
    own, source, feed_forward = block.attention, block.cross_attention, block.feed_forward
    return [own.qkv, own.out, source.query, source.out, feed_forward.up, feed_forward.down]


def _products(block: Block) -> list[Int8Linear]:
    return [layer for layer in _linear(block) if isinstance(layer, Int8Linear)]


def _norms(block: Block) -> tuple[nn.LayerNorm, nn.LayerNorm, nn.LayerNorm]:
    return block.attention_norm, block.cross_attention_norm, block.feed_forward_norm


def _activation(block: Block) -> str:
    return next(name for name, function in layers.ACTIVATIONS.items() if function is block.feed_forward.activation)
