"""qkv: BERT and what led to it. `qkv.load()` gives a model that fills blanks, embeds texts and shows attention.

Public names are looked up when they are used, so `import qkv` costs nothing: torch is imported with the first model.
Modules that the documents of 0.1 named keep working under their former names.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader as Loader_of_module

    from qkv.api.classifier import Classifier as Classifier
    from qkv.api.export.folder import export as export
    from qkv.api.generator import Generator as Generator
    from qkv.api.model import Model as Model
    from qkv.api.model import load as load
    from qkv.api.search_index import SearchIndex as SearchIndex
    from qkv.api.translator import load_translator as load_translator
    from qkv.api.vector_scores import load_vectors as load_vectors
    from qkv.data.batch import Batch as Batch
    from qkv.errors import InputError as InputError
    from qkv.look.page import look as look
    from qkv.models.bert.network import Bert as Bert
    from qkv.models.bert.network import BertConfig as BertConfig
    from qkv.models.bert.network import BertWithHeads as BertWithHeads
    from qkv.report.attention import AttentionMap as AttentionMap
    from qkv.text.tokenizer import Tokenizer as Tokenizer

    __version__: str
else:
    Loader_of_module = object  # importlib.abc takes longer to import than all of this file

_PLACES = {
    "AttentionMap": "qkv.report.attention",
    "Batch": "qkv.data.batch",
    "Bert": "qkv.models.bert.network",
    "BertConfig": "qkv.models.bert.network",
    "BertWithHeads": "qkv.models.bert.network",
    "Classifier": "qkv.api.classifier",
    "Generator": "qkv.api.generator",
    "InputError": "qkv.errors",
    "Model": "qkv.api.model",
    "SearchIndex": "qkv.api.search_index",
    "Tokenizer": "qkv.text.tokenizer",
    "export": "qkv.api.export.folder",
    "load": "qkv.api.model",
    "load_translator": "qkv.api.translator",
    "load_vectors": "qkv.api.vector_scores",
    "look": "qkv.look.page",
}

_FORMER = {
    "qkv.batch": "qkv.data.batch",
    "qkv.data.digit_pairs": "qkv.jobs.translate.data",
    "qkv.data.examples": "qkv.data.labelled.examples",
    "qkv.generate.options": "qkv.search.options",
    "qkv.generate.sampling": "qkv.search.sampling",
    "qkv.generate.search": "qkv.search.beam",
    "qkv.inside.asked": "qkv.look.wire",
    "qkv.inside.attention": "qkv.look.attention",
    "qkv.inside.subject": "qkv.look.subject",
    "qkv.interop.gpt2": "qkv.models.gpt.folder",
    "qkv.interop.hf": "qkv.models.bert.folder",
    "qkv.jobs.translate.example": "qkv.jobs.translate.data",
    "qkv.models.decoding": "qkv.search.decoding",
    "qkv.nn.fused": "qkv.nn.multihead",
    "qkv.nn.recurrent_fused": "qkv.nn.recurrent_stack",
    "qkv.nn.timeline": "qkv.nn.recurrent",
    "qkv.objectives.causal": "qkv.models.gpt.objective",
    "qkv.objectives.masked": "qkv.models.bert.objective",
    "qkv.run.generate": "qkv.api.generator",
    "qkv.run.translate": "qkv.api.translator",
    "qkv.search.search": "qkv.search.beam",
    "qkv.search.stream": "qkv.search.sampling",
    "qkv.tasks.alignment": "qkv.text.alignment",
    "qkv.tokenizer": "qkv.text.tokenizer",
}
"""Documented module names of 0.1, and where their contents are now."""

__all__ = ["__version__", *_PLACES]


class _Former(Loader_of_module):
    """Finds modules by their former names. It is asked last, after every real module."""

    packages = frozenset(name.rpartition(".")[0] for name in _FORMER)

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname in _FORMER or fullname in self.packages:
            return ModuleSpec(fullname, self, is_package=fullname in self.packages)
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        """The default module will do."""

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in _FORMER:
            import importlib

            now = importlib.import_module(_FORMER[module.__name__])
            module.__dict__.update({name: value for name, value in vars(now).items() if not name.startswith("__")})


sys.meta_path.append(_Former())


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
