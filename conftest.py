"""What the collection of examples in src has to leave out on a machine that lacks an optional library."""

from importlib.util import find_spec

if find_spec("triton") is None:  # it comes with torch for GPUs, and with the extra dev on Linux
    collect_ignore = [
        "src/qkv/nn/gpu/kernels.py",
        "src/qkv/nn/gpu/short_attention.py",
        "src/qkv/nn/gpu/word_kernels.py",
    ]
