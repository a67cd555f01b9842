"""What the collection of examples in src has to leave out on a machine that lacks an optional library."""

from importlib.util import find_spec

if find_spec("triton") is None:  # it comes with torch for GPUs, and with the extra dev on Linux
    collect_ignore = [f"src/qkv/nn/{name}.py" for name in ("kernels", "short_attention", "word_kernels")]
