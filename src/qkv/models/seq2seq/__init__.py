"""Seq2seq with and without attention (Sutskever et al. 2014; Bahdanau et al. 2015).

Names of its network are imported when they are used: a folder is described without torch.
"""

from importlib import import_module
from typing import Any

_SHOWN = ("Seq2Seq", "Seq2SeqConfig")


def __getattr__(name: str) -> Any:
    if name not in _SHOWN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("qkv.models.seq2seq.network"), name)
