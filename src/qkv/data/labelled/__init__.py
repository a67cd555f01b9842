"""Labelled files of any format as examples: detection, reading, repair, checks, splits."""

from typing import Any


def __getattr__(name: str) -> Any:
    """`labelled`, when it is asked for: examples are needed by many who read no files."""
    if name != "labelled":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from qkv.data.labelled.reader import labelled

    return labelled
