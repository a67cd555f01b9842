"""What the kernels that numba compiles (extra `fast`) share: how they are compiled, and what they call.

numba takes its time to be imported, so this file is imported where a kernel is wanted (compiler.py says whether it can
be had), and by kernels. What it compiles is not kept on disk by itself, but inside of the kernels that are: after a
change here, delete their files in __pycache__, since numba looks at a kernel's own file alone.

What this file does NOT do: know torch. Without numba it can be imported, and nothing more.
"""

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.models.compiler import LARGEST_HALF

Floats = NDArray[np.float32]

# It has no types.
numba: Any = importlib.import_module("numba") if find_spec("numba") else None
SETTINGS = {
    "nogil": True,
    "error_model": "numpy",
    # sums in any order, so that they can be taken sixteen at a time; a number that is none stays none
    "fastmath": {"nsz", "arcp", "contract", "afn", "reassoc"},
}
INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # never called from Python: less to compile
compiled: Callable[[Any], Any] = numba.njit(**INNER, **SETTINGS) if numba else lambda function: function
zero, one, half = np.float32(0), np.float32(1), np.float32(0.5)


def _exp(x: np.float32) -> np.float32:
    """eˣ, which the library computes for one number at a time: 2ⁿ · eʳ with n whole, and a polynomial for |r| < 0.35
    (coefficients of Moshier's Cephes library). Within a unit in the last place or so."""
    x = min(max(x, LOWEST), HIGHEST)
    n = np.rint(x * LOG2_E)
    r = x - n * LN_2_MOST - n * LN_2_REST
    p = ((((E_7 * r + E_6) * r + E_5) * r + E_4) * r + E_3) * r + half
    return (p * r * r + r + one) * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


LOWEST, HIGHEST, LOG2_E = np.float32(-87), np.float32(88), np.float32(1.44269504)
LN_2_MOST, LN_2_REST = np.float32(0.693359375), np.float32(-2.12194440e-4)
E_7, E_6, E_5 = np.float32(1.9875691e-4), np.float32(1.3981999e-3), np.float32(8.3334519e-3)
E_4, E_3 = np.float32(4.1665796e-2), np.float32(1.6666665e-1)
# in the order that is written: else the two halves of log 2 would be added up first, and rounded
exp = numba.njit(nogil=True, error_model="numpy", fastmath={"contract", "nnan", "nsz"})(_exp) if numba else _exp


def _most(x: Floats, lanes: Floats) -> np.float32:
    """The largest of (n,), none of which is no number, with a place to work (LANES,)."""
    for lane in range(LANES):
        lanes[lane] = -np.inf
    whole = x.size // LANES * LANES
    for begin in range(0, whole, LANES):  # a compiler takes the largest of neighbours one by one, these side by side
        for lane in range(LANES):
            lanes[lane] = max(lanes[lane], x[begin + lane])
    most = lanes[0]
    for lane in range(LANES):
        most = max(most, lanes[lane])
    for place in range(whole, x.size):
        most = max(most, x[place])
    return most


LANES = 64
# numbers that are none are not thought of: sixteen can be compared at a time
most_of = numba.njit(nogil=True, fastmath={"nnan", "nsz"})(_most) if numba else _most


def _weighed(scores: Floats, length: int) -> None:
    """softmax, in place"""
    most = scores[0]
    for t in range(length):
        most = max(most, scores[t])
    total = zero
    for t in range(length):
        scores[t] = exp(scores[t] - most)
        total += scores[t]
    for t in range(length):
        scores[t] /= total


weighed = compiled(_weighed)


def _wide(typing: Any, x: Any) -> Any:
    """A number of single precision as it is; 16 bits as a number of half precision, made single."""
    ir, types = importlib.import_module("llvmlite.ir"), numba.types

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (bits,) = arguments
        if signature.args[0] == types.float32:
            return bits
        return builder.fpext(builder.bitcast(bits, ir.HalfType()), ir.FloatType())

    return types.float32(x), code


def _kept(typing: Any, x: Any, like: Any) -> Any:
    """The other way: a number of single precision as an array of such a type keeps it; the largest one that half
    precision knows, if it is larger."""
    ir, types = importlib.import_module("llvmlite.ir"), numba.types

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, _ = arguments
        if signature.args[1].dtype == types.float32:
            return number
        for compared, limit in (("<", -LARGEST_HALF), (">", LARGEST_HALF)):
            end = ir.Constant(ir.FloatType(), limit)
            # a number that is none compares with nothing, and stays
            number = builder.select(builder.fcmp_ordered(compared, number, end), end, number)
        return builder.bitcast(builder.fptrunc(number, ir.HalfType()), ir.IntType(16))

    return like.dtype(types.float32, like), code


intrinsic: Any = importlib.import_module("numba.extending").intrinsic if numba else lambda function: function
wide, kept = intrinsic(_wide), intrinsic(_kept)
