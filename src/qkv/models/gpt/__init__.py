"""GPT (Radford et al. 2018) and GPT-2.

Names of its network are imported when they are used: a folder is described without torch.
"""

from importlib import import_module
from typing import Any

_SHOWN = ("GPT", "GPTConfig")


def __getattr__(name: str) -> Any:
    if name not in _SHOWN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("qkv.models.gpt.network"), name)
