"""What the collection of examples in src has to leave out on a machine that lacks an optional library."""

from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "src"

if find_spec("triton") is None:  # it comes with torch for GPUs, and with the extra dev on Linux
    collect_ignore = [
        "src/qkv/nn/gpu/kernels.py",
        "src/qkv/nn/gpu/short_attention.py",
        "src/qkv/nn/gpu/word_kernels.py",
    ]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Most files of src have no examples, and looking for them in all that a module has is slow."""
    is_source = SOURCE in collection_path.parents and collection_path.suffix == ".py"
    return True if is_source and ">>>" not in collection_path.read_text(encoding="utf-8") else None
