"""The parameters of layers by name and shape, without torch: a folder is compared with them before a network is built.

    linear(4, 3)                    {"weight": (3, 4), "bias": (3,)}
    parts(dense=linear(4, 4))       {"dense.weight": (4, 4), "dense.bias": (4,)}

Names and their order are those of `named_parameters` of the modules in this package; tests hold the two equal. The
names of activations and of recurrent cells are here too, for the configs that check them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Shapes = dict[str, tuple[int, ...]]

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "tanh")
"""The keys of `ACTIVATION_FUNCTIONS` (block.py)."""


class CellSizes(NamedTuple):
    """The class variables of a cell (recurrent.py)."""

    blocks: int
    has_memory: bool = False
    state_bias: bool = False
    peepholes: int = 0


CELL_SIZES = {
    "rnn": CellSizes(1),
    "lstm": CellSizes(4, has_memory=True),
    "peephole": CellSizes(4, has_memory=True, peepholes=3),
    "coupled": CellSizes(3, has_memory=True),
    "gru": CellSizes(3, state_bias=True),
}
"""The keys are those of `CELLS` (recurrent.py)."""


def parts(named: Mapping[str, Shapes] | None = None, **more: Shapes) -> Shapes:
    """The parameters of modules in a module."""
    return {
        f"{part}.{name}": shape for part, shapes in {**(named or {}), **more}.items() for name, shape in shapes.items()
    }


def numbered(modules: Sequence[Shapes]) -> Shapes:
    """The parameters of a list of modules."""
    return parts({str(number): shapes for number, shapes in enumerate(modules)})


def linear(inputs: int, outputs: int, bias: bool = True) -> Shapes:
    return {"weight": (outputs, inputs)} | ({"bias": (outputs,)} if bias else {})


def norm(width: int) -> Shapes:
    return {"weight": (width,), "bias": (width,)}


def table(rows: int, width: int) -> Shapes:
    return {"weight": (rows, width)}


def block(width: int, inner_width: int, pre_norm: bool = False, asks_source: bool = False) -> Shapes:
    """A block of the Transformer; of a decoder that `asks_source` with three sublayers."""
    sublayers = {"attention": parts(qkv=linear(width, 3 * width), out=linear(width, width))}
    if asks_source:
        sublayers["cross_attention"] = parts(
            query=linear(width, width), key_value=linear(width, 2 * width), out=linear(width, width)
        )
    sublayers["feed_forward"] = parts(up=linear(width, inner_width), down=linear(inner_width, width))
    ordered: dict[str, Shapes] = {}
    for name, shapes in sublayers.items():
        both = {f"{name}_norm": norm(width), name: shapes}
        ordered |= both if pre_norm else dict(reversed(both.items()))
    return parts(ordered)


def cell(kind: str, inputs: int, width: int) -> Shapes:
    sizes = CELL_SIZES[kind]
    own: Shapes = {"peepholes": (sizes.peepholes, width)} if sizes.peepholes else {}
    gates = sizes.blocks * width
    return own | parts(from_input=linear(inputs, gates), from_state=linear(width, gates, sizes.state_bias))


def word_scores(vocabulary: int, width: int, tied: bool) -> Shapes:
    return {"bias": (vocabulary,)} | ({} if tied else {"table": (vocabulary, width)})
