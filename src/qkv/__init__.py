"""qkv: BERT and what led to it. `qkv.load()` gives a model that fills blanks, embeds texts and shows attention.

Public names are looked up when they are used, so `import qkv` costs nothing: torch comes in with the first model.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qkv.api.classifier import Classifier as Classifier
    from qkv.api.model import Model as Model
    from qkv.api.model import load as load
    from qkv.data.batch import Batch as Batch
    from qkv.errors import InputError as InputError
    from qkv.models.bert.network import Bert as Bert
    from qkv.models.bert.network import BertConfig as BertConfig
    from qkv.models.bert.network import BertWithHeads as BertWithHeads
    from qkv.report.attention_map import AttentionMap as AttentionMap
    from qkv.text.tokenizer import Tokenizer as Tokenizer

    __version__: str

_PLACES = {
    "AttentionMap": "qkv.report.attention_map",
    "Batch": "qkv.data.batch",
    "Bert": "qkv.models.bert.network",
    "BertConfig": "qkv.models.bert.network",
    "BertWithHeads": "qkv.models.bert.network",
    "Classifier": "qkv.api.classifier",
    "InputError": "qkv.errors",
    "Model": "qkv.api.model",
    "Tokenizer": "qkv.text.tokenizer",
    "load": "qkv.api.model",
}

__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("qkv")
        except PackageNotFoundError:  # run from a source tree that is not installed
            return "0"
    if name not in _PLACES:
        from qkv.errors import did_you_mean

        raise AttributeError(f"qkv has no '{name}'.{did_you_mean(name, _PLACES)} It has: {', '.join(_PLACES)}.")
    import importlib

    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
