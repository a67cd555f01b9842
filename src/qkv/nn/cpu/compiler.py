"""Whether numba (extra `fast`) can compile kernels here, and for what kind of CPU: asked without importing it."""

import importlib
import os
from functools import cache
from importlib.util import find_spec

LARGEST_HALF = 65_504.0
"""The largest number of half precision."""
OTHER_CPU_SETTINGS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")


def has_numba() -> bool:
    """Whether it is installed, and compiles."""
    try:
        return find_spec("numba") is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"
    except ValueError:  # somebody put something else in its place
        return False


@cache
def has_half_precision() -> bool:
    """Whether what numba compiles here makes numbers of half precision single by an instruction."""
    # told to compile for another CPU, it would call a function that does not exist
    if not has_numba() or any(os.environ.get(name) for name in OTHER_CPU_SETTINGS):
        return False
    try:
        return bool(importlib.import_module("llvmlite.binding").get_host_cpu_features().get("f16c"))
    except RuntimeError:  # a kind of CPU that tells nothing
        return False
