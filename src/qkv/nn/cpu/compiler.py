"""Whether numba (extra `fast`) is available, and what the CPU supports; found without importing numba."""

import importlib
import os
from functools import cache
from importlib.util import find_spec

LARGEST_HALF = 65_504.0
"""The largest half-precision number."""
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
