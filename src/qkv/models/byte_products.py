"""Sums of products of bytes, for kernels that numba compiles: on CPUs that have an instruction for them, by it.

    s = Σ_i x_i w_i        x whole numbers from 0 to 255, w from -128 to 127

VNNI multiplies 32 pairs and adds them up in one instruction. A compiler does not find it by itself: it widens every
byte first, and takes ten times as long. So the instruction is written here by its name, and where a CPU lacks it, the
loop stands as it is. Sums are whole and below 2³¹, so that both are the same.

Shapes: I inputs.
"""

import importlib
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 64
"""Bytes that are multiplied at a time: rows of fewer, or of a rest, are left to the loop."""
ROWS = 4
INSTRUCTION, SUM = "llvm.x86.avx512.vpdpbusd.256", "llvm.vector.reduce.add.v8i32"

# It has no types. Without it this file can be imported, and nothing more.
numba: Any = importlib.import_module("numba") if find_spec("numba") else None
SETTINGS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
Sums = tuple[np.int32, np.int32, np.int32, np.int32]


def loop(
    x: NDArray[np.uint8], r0: int, r1: int, r2: int, r3: int, weight: NDArray[np.int8], at: int, width: int
) -> Sums:
    """Four rows x[r …] against weight[at …], `width` bytes each: every weight is read once. Both arrays are flat."""
    # views that begin at 0: of a place that is put together, a compiler does not know whether it is negative
    w, x0, x1 = weight[at : at + width], x[r0 : r0 + width], x[r1 : r1 + width]
    x2, x3 = x[r2 : r2 + width], x[r3 : r3 + width]
    s0 = s1 = s2 = s3 = np.int32(0)
    for i in range(width):
        s0 = np.int32(s0 + np.int32(np.int32(x0[i]) * np.int32(w[i])))
        s1 = np.int32(s1 + np.int32(np.int32(x1[i]) * np.int32(w[i])))
        s2 = np.int32(s2 + np.int32(np.int32(x2[i]) * np.int32(w[i])))
        s3 = np.int32(s3 + np.int32(np.int32(x3[i]) * np.int32(w[i])))
    return s0, s1, s2, s3


def loop_of_one(x: NDArray[np.uint8], r0: int, weight: NDArray[np.int8], at: int, width: int) -> np.int32:
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


def _emitted(context: Any, builder: Any, arrays: tuple[Any, Any], types: tuple[Any, Any], starts: Any) -> list[Any]:
    """The sums of len(starts) - 2 rows: `starts` are theirs, the weights', and the width."""
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
    # two sums a row, so that one multiplication need not wait for the last
    sums = [[cgutils.alloca_once_value(builder, nothing) for _ in range(2)] for _ in rows]

    def part(base: Any, begin: Any, offset: Any) -> Any:
        place = builder.gep(base, [builder.add(begin, offset)], source_etype=byte)
        return builder.load(builder.bitcast(place, eight.as_pointer()), align=1, typ=eight)

    step = ir.Constant(width.type, BLOCK)
    with cgutils.for_range_slice(builder, ir.Constant(width.type, 0), width, step, intp=width.type) as (i, _):
        for half in range(2):
            offset = builder.add(i, ir.Constant(width.type, half * BLOCK // 2))
            w = part(weight, at, offset)
            for row, own in zip(rows, sums, strict=True):
                found = builder.call(multiply, [builder.load(own[half], typ=eight), part(x, row, offset), w])
                builder.store(found, own[half])
    both = [builder.add(*(builder.load(one, typ=eight) for one in own)) for own in sums]
    return [builder.call(add, [one]) for one in both]


@cache
def sums() -> tuple[Any, Any]:
    """What kernels call, `loop` and `loop_of_one`. Only the loops take a width that is no multiple of BLOCK."""
    if has_instruction():
        return _instructed()
    compiled = numba.njit(**SETTINGS)
    return compiled(loop), compiled(loop_of_one)


def _instructed() -> tuple[Any, Any]:
    intrinsic: Any = importlib.import_module("numba.extending").intrinsic
    types = numba.types

    def four(typing: Any, x: Any, r0: Any, r1: Any, r2: Any, r3: Any, weight: Any, at: Any, width: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            found = _emitted(
                context,
                builder,
                (arguments[0], arguments[5]),
                (signature.args[0], signature.args[5]),
                [*arguments[1:5], *arguments[6:]],
            )
            return context.make_tuple(builder, signature.return_type, found)

        place = types.intp
        return types.UniTuple(types.int32, ROWS)(x, place, place, place, place, weight, place, place), code

    def single(typing: Any, x: Any, r0: Any, weight: Any, at: Any, width: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            places = [arguments[1], *arguments[3:]]
            kinds = (signature.args[0], signature.args[2])
            return _emitted(context, builder, (arguments[0], arguments[2]), kinds, places)[0]

        place = types.intp
        return types.int32(x, place, weight, place, place), code

    return intrinsic(four), intrinsic(single)
