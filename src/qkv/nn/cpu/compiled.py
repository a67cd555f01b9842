"""Shared parts of the numba kernels (extra `fast`): compiler settings, exp, softmax, half precision, byte products.

Importing numba is slow, so this file is imported only where a kernel is needed (`has_numba` in int8_step.py says
whether it can be). Functions here are inlined into the kernels' disk caches: after a change here delete the kernels'
files in __pycache__, since numba checks only the file of the kernel itself.

Byte products: s = Σ_i x_i w_i with x from 0 to 255 and w from -128 to 127. VNNI multiplies and adds 32 pairs in one
instruction, which compilers do not find (they widen every byte first and are ten times slower), so the LLVM intrinsic
is called by name. CPUs without it use the loop. Sums are integers below 2³¹, so both give the same result.

Independent of torch. Without numba the module can be imported, but not used.

Shapes: I inputs.
"""

import importlib
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float32s = NDArray[np.float32]
LARGEST_HALF = float(np.finfo(np.float16).max)

# numba has no type hints
numba: Any = importlib.import_module("numba") if find_spec("numba") else None
KERNEL_SETTINGS = {
    "nogil": True,
    "error_model": "numpy",
    # sums in any order, so that they can be vectorised; NaN is preserved
    "fastmath": {"nsz", "arcp", "contract", "afn", "reassoc"},
}
INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # never called from Python: less to compile
compile_inner: Callable[[Any], Any] = numba.njit(**INNER, **KERNEL_SETTINGS) if numba else lambda function: function


def compile_cached(function: Callable[..., Any]) -> Any:
    """The function compiled; cached on disk next to its file, or in numba's own folder, if one of them is writable."""
    try:
        return numba.njit(cache=True, **KERNEL_SETTINGS)(function)
    except RuntimeError:  # neither is
        return numba.njit(**KERNEL_SETTINGS)(function)


ZERO, ONE, HALF = np.float32(0), np.float32(1), np.float32(0.5)


def _exp(x: np.float32) -> np.float32:
    """eˣ that vectorises, unlike the library's: 2ⁿ · eʳ with an integer n and a polynomial for |r| < 0.35
    (coefficients of Moshier's Cephes library). Accurate to about one unit in the last place."""
    x = min(max(x, _LOWEST), _HIGHEST)
    n = np.rint(x * LOG2_E)
    r = x - n * LN_2_MOST - n * LN_2_REST
    p = ((((E_7 * r + E_6) * r + E_5) * r + E_4) * r + E_3) * r + HALF
    return (p * r * r + r + ONE) * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


_LOWEST, _HIGHEST, LOG2_E = np.float32(-87), np.float32(88), np.float32(1.44269504)
LN_2_MOST, LN_2_REST = np.float32(0.693359375), np.float32(-2.12194440e-4)
E_7, E_6, E_5 = np.float32(1.9875691e-4), np.float32(1.3981999e-3), np.float32(8.3334519e-3)
E_4, E_3 = np.float32(4.1665796e-2), np.float32(1.6666665e-1)
# no reassociation: otherwise the two parts of log 2 would be added first, and rounded
exp = numba.njit(nogil=True, error_model="numpy", fastmath={"contract", "nnan", "nsz"})(_exp) if numba else _exp


def _find_maximum(x: Float32s, lanes: Float32s) -> np.float32:
    """The maximum of (n,), which must not contain NaN; `lanes` (LANES,) is scratch memory."""
    for lane in range(LANES):
        lanes[lane] = -np.inf
    whole = x.size // LANES * LANES
    for begin in range(0, whole, LANES):  # the compiler vectorises across lanes, not across neighbours
        for lane in range(LANES):
            lanes[lane] = max(lanes[lane], x[begin + lane])
    most = lanes[0]
    for lane in range(LANES):
        most = max(most, lanes[lane])
    for place in range(whole, x.size):
        most = max(most, x[place])
    return most


LANES = 64
# assuming no NaN, comparisons can be vectorised
find_maximum = numba.njit(nogil=True, fastmath={"nnan", "nsz"})(_find_maximum) if numba else _find_maximum


def _softmax_row(scores: Float32s, length: int) -> None:
    """softmax, in place"""
    most = scores[0]
    for t in range(length):
        most = max(most, scores[t])
    total = ZERO
    for t in range(length):
        scores[t] = exp(scores[t] - most)
        total += scores[t]
    for t in range(length):
        scores[t] /= total


softmax_row = compile_inner(_softmax_row)


def _to_single(typing: Any, x: Any) -> Any:
    """A float32 unchanged; the 16 bits of a half-precision number as a float32."""
    ir, types = importlib.import_module("llvmlite.ir"), numba.types

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (bits,) = arguments
        if signature.args[0] == types.float32:
            return bits
        return builder.fpext(builder.bitcast(bits, ir.HalfType()), ir.FloatType())

    return types.float32(x), code


def _to_stored(typing: Any, x: Any, like: Any) -> Any:
    """The inverse of `to_single`: a float32 in the storage type of `like`, clipped to the range of half precision."""
    ir, types = importlib.import_module("llvmlite.ir"), numba.types

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, _ = arguments
        if signature.args[1].dtype == types.float32:
            return number
        for compared, limit in (("<", -LARGEST_HALF), (">", LARGEST_HALF)):
            end = ir.Constant(ir.FloatType(), limit)
            # an ordered comparison is false for NaN, which is preserved
            number = builder.select(builder.fcmp_ordered(compared, number, end), end, number)
        return builder.bitcast(builder.fptrunc(number, ir.HalfType()), ir.IntType(16))

    return like.dtype(types.float32, like), code


intrinsic: Any = importlib.import_module("numba.extending").intrinsic if numba else lambda function: function
to_single, to_stored = intrinsic(_to_single), intrinsic(_to_stored)


PRODUCT_BYTES = 64
"""Bytes multiplied at a time; the instruction needs rows of a multiple of this."""
_ROWS = 4
INSTRUCTION = "llvm.x86.avx512.vpdpbusd.256"
PRODUCT_SETTINGS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
Sums = tuple[np.int32, np.int32, np.int32, np.int32]


def sum_products(
    x: NDArray[np.uint8], r0: int, r1: int, r2: int, r3: int, weight: NDArray[np.int8], at: int, width: int
) -> Sums:
    """Four rows x[r …] times weight[at …], `width` bytes each, so that every weight is read once. Arrays are flat."""
    # views indexed from 0: the compiler cannot prove that a computed index is not negative
    w, x0, x1 = weight[at : at + width], x[r0 : r0 + width], x[r1 : r1 + width]
    x2, x3 = x[r2 : r2 + width], x[r3 : r3 + width]
    s0 = s1 = s2 = s3 = np.int32(0)
    for i in range(width):
        s0 = np.int32(s0 + np.int32(np.int32(x0[i]) * np.int32(w[i])))
        s1 = np.int32(s1 + np.int32(np.int32(x1[i]) * np.int32(w[i])))
        s2 = np.int32(s2 + np.int32(np.int32(x2[i]) * np.int32(w[i])))
        s3 = np.int32(s3 + np.int32(np.int32(x3[i]) * np.int32(w[i])))
    return s0, s1, s2, s3


def sum_products_of_one(x: NDArray[np.uint8], r0: int, weight: NDArray[np.int8], at: int, width: int) -> np.int32:
    w, x0 = weight[at : at + width], x[r0 : r0 + width]
    s0 = np.int32(0)
    for i in range(width):
        s0 = np.int32(s0 + np.int32(np.int32(x0[i]) * np.int32(w[i])))
    return s0


def has_instruction() -> bool:
    if numba is None:
        return False
    features = importlib.import_module("llvmlite.binding").get_host_cpu_features()
    return bool((features.get("avx512vnni") and features.get("avx512vl")) or features.get("avxvnni"))


def _emit_sums(context: Any, builder: Any, arrays: tuple[Any, Any], types: tuple[Any, Any], starts: Any) -> list[Any]:
    """The sums of len(starts) - 2 rows: `starts` are the rows' starts, the weights' start and the width."""
    ir, cgutils = importlib.import_module("llvmlite.ir"), importlib.import_module("numba.core.cgutils")
    byte, number = ir.IntType(8), ir.IntType(32)
    eight = ir.VectorType(number, 8)
    x, weight = (context.make_array(kind)(context, builder, one).data for kind, one in zip(types, arrays, strict=True))
    *rows, at, width = starts
    multiply = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(eight, [eight, eight, eight]), INSTRUCTION
    )
    add = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(number, [eight]), "llvm.vector.reduce.add.v8i32"
    )
    nothing = ir.Constant(eight, [0] * 8)
    # two sums per row, so that a multiplication need not wait for the previous one
    sums = [[cgutils.alloca_once_value(builder, nothing) for _ in range(2)] for _ in rows]

    def part(base: Any, begin: Any, offset: Any) -> Any:
        place = builder.gep(base, [builder.add(begin, offset)], source_etype=byte)
        return builder.load(builder.bitcast(place, eight.as_pointer()), align=1, typ=eight)

    step = ir.Constant(width.type, PRODUCT_BYTES)
    with cgutils.for_range_slice(builder, ir.Constant(width.type, 0), width, step, intp=width.type) as (i, _):
        for half in range(2):
            offset = builder.add(i, ir.Constant(width.type, half * PRODUCT_BYTES // 2))
            w = part(weight, at, offset)
            for row, own in zip(rows, sums, strict=True):
                found = builder.call(multiply, [builder.load(own[half], typ=eight), part(x, row, offset), w])
                builder.store(found, own[half])
    both = [builder.add(*(builder.load(one, typ=eight) for one in own)) for own in sums]
    return [builder.call(add, [one]) for one in both]


@cache
def choose_sums() -> tuple[Any, Any]:
    """`sum_products` and `sum_products_of_one`, or the instruction, which needs multiples of PRODUCT_BYTES."""
    if has_instruction():
        return _make_intrinsics()
    compiled = numba.njit(**PRODUCT_SETTINGS)
    return compiled(sum_products), compiled(sum_products_of_one)


def _make_intrinsics() -> tuple[Any, Any]:
    intrinsic: Any = importlib.import_module("numba.extending").intrinsic
    types = numba.types

    def four(typing: Any, x: Any, r0: Any, r1: Any, r2: Any, r3: Any, weight: Any, at: Any, width: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            found = _emit_sums(
                context,
                builder,
                (arguments[0], arguments[5]),
                (signature.args[0], signature.args[5]),
                [*arguments[1:5], *arguments[6:]],
            )
            return context.make_tuple(builder, signature.return_type, found)

        place = types.intp
        return types.UniTuple(types.int32, _ROWS)(x, place, place, place, place, weight, place, place), code

    def single(typing: Any, x: Any, r0: Any, weight: Any, at: Any, width: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            places = [arguments[1], *arguments[3:]]
            kinds = (signature.args[0], signature.args[2])
            return _emit_sums(context, builder, (arguments[0], arguments[2]), kinds, places)[0]

        place = types.intp
        return types.int32(x, place, weight, place, place), code

    return intrinsic(four), intrinsic(single)
