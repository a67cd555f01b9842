"""Linear layers in 8 bits, for an ONNX graph: each row of the input has a scale of its own, and each column of weights.

onnxruntime's own `quantize_dynamic` gives a whole tensor one scale, so that one token with a large number costs all
others their digits. Here the scale of a row x is max |x| / 127, computed in the graph:

    y = (round(x / s) · W) · s · t + b        s of each row, t of each column, the product in integers

After an activation that is never below −c (GELU: −0.17), numbers are counted from −c, and all 255 steps are of use; the
constant c · ΣW is then part of the bias.

CPUs without VNNI multiply unsigned by signed bytes in pairs of neighbours and add both into 16 bits, which overflow
(and stay at 32,767) where 255 · (w₁ + w₂) is larger: the same file would give other numbers there. The usual remedy,
weights of 7 bits, costs accuracy everywhere. Here the scale of a column is chosen so that no pair of neighbours of one
sign exceeds 128: 255 · 128 = 32,640. That costs little, since two large neighbours are rare, and is right on every CPU.

Shapes: N tokens, I inputs, O outputs.
"""

import platform
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qkv.api.export.nodes import Nodes

LARGEST_PAIR = 128
LOWEST = {"gelu": 0.1701, "gelu_tanh": 0.1701, "silu": 0.2785, "relu": 0.0}
"""Of activations that are never below the negative of a number, that number."""
CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")
VNNI = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})

Floats = NDArray[np.float32]


def quantise_columns(weight: Floats) -> tuple[NDArray[np.int8], Floats]:
    """(I, O) → integers (I, O) and the scale (O,) of each column; no two neighbours of one sign add up to over 128.

    >>> whole, scale = quantise_columns(np.array([[1.0], [1.0], [-0.5]], np.float32))
    >>> whole[:, 0].tolist(), round(float(scale[0]), 4)
    ([64, 64, -32], 0.0157)
    """
    rows, columns = weight.shape
    pairs = np.concatenate([weight, np.zeros((rows % 2, columns), np.float32)]).reshape(-1, 2, columns)
    of_one_sign = [np.maximum(sign * pairs, 0).sum(1).max(0) for sign in (1, -1)]
    # rounding adds up to half to each of the two
    scale = np.maximum.reduce([np.abs(weight).max(0) / 127, *(one / (LARGEST_PAIR - 1) for one in of_one_sign)])
    scale = np.where(scale == 0, 1, scale).astype(np.float32)
    return np.clip(np.rint(weight / scale), -127, 127).astype(np.int8), scale


def quantise_rows(table: Floats) -> tuple[NDArray[np.int8], Floats]:
    """(V, E) → integers (V, E) and the scale (V, 1) of each row."""
    scale = np.abs(table).max(1, keepdims=True) / 127
    scale = np.where(scale == 0, 1, scale).astype(np.float32)
    return np.rint(table / scale).astype(np.int8), scale


def linear_int8(nodes: Nodes, x: str, name: str, weight: Floats, bias: Floats, activation: str | None = None) -> str:
    """(N, I) → (N, O). `activation` names the function that x comes out of."""
    whole, scale = quantise_columns(weight)
    lowest = LOWEST.get(activation or "")
    if lowest is None:
        top = nodes.call("ReduceMax", nodes.call("Abs", x), axes=[-1], keepdims=1)  # (N, 1)
        steps, zero = 127.0, np.array(128, np.uint8)
    else:
        top = nodes.call("Add", nodes.call("ReduceMax", x, axes=[-1], keepdims=1), nodes.floats(lowest))
        steps, zero = 255.0, np.array(0, np.uint8)
        x = nodes.call("Add", x, nodes.floats(lowest))
        bias = bias - lowest * (whole.astype(np.float32) * scale).sum(0)
    of_row = nodes.call("Mul", nodes.call("Max", top, nodes.floats(1e-20)), nodes.floats(1 / steps))
    rounded = nodes.call("QuantizeLinear", nodes.call("Div", x, of_row), nodes.floats(1.0), nodes.constant(zero))
    product = nodes.call(
        "MatMulInteger",
        rounded,
        nodes.weight(f"{name}.int8", whole),
        nodes.constant(zero),
        nodes.constant(np.array(0, np.int8)),
    )
    product = nodes.call("Mul", nodes.call("Cast", product, to=nodes.onnx.TensorProto.FLOAT), of_row)
    product = nodes.call("Mul", product, nodes.weight(f"{name}.scale", scale))
    return nodes.call("Add", product, nodes.weight(f"{name}.int8_bias", bias.astype(np.float32)))


def look_up_int8(nodes: Nodes, ids: str, name: str, table: Floats) -> str:
    """Rows of a table that is stored in 8 bits."""
    whole, scale = quantise_rows(table)
    rows = nodes.call("Gather", nodes.weight(f"{name}.int8", whole), ids)
    of_rows = nodes.call("Gather", nodes.weight(f"{name}.scale", scale), ids)
    return nodes.call("Mul", nodes.call("Cast", rows, to=nodes.onnx.TensorProto.FLOAT), of_rows)


def describe_cpu() -> dict[str, object]:
    """The instructions that int8 depends on; `vnni` is None where they cannot be read."""
    file = Path("/proc/cpuinfo")
    if not file.is_file():
        return {"machine": platform.machine(), "flags": [], "vnni": None}
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    found = {word for line in lines if line.startswith(("flags", "Features")) for word in line.split()}
    return {
        "machine": platform.machine(),
        "flags": [flag for flag in CPU_FLAGS if flag in found],
        "vnni": bool(found & VNNI),
    }
