"""What happens inside a model, as numbers and as a page. `qkv.look(model, text)` calls look.page.look."""

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from qkv.api.model import Model
    from qkv.look.page import LookPage


class _Callable(ModuleType):
    """A package that can be called: `qkv.look` is the function of the Python API and the package of `qkv look`."""

    def __call__(
        self,
        model: Union[str, os.PathLike[str], "Model"] = "qkv-mini",
        text: str | None = None,
        pair: str | None = None,
        view: str | None = None,
        lang: str | None = None,
    ) -> "LookPage":
        """The page about a model, for a notebook cell or a file: see qkv.look.page.look.

        model: a loaded one, a folder, a run, a file of word vectors, or a name. text, pair: what the page is about
        (default: the first example of every view). view: attention, fill, next, meanings, positions, translation,
        vectors, tasks or recurrence. lang: en or zh (default: that of the browser). The result has `save(file)`.
        """
        from qkv.look.page import look

        return look(model, text, pair, view, lang)


sys.modules[__name__].__class__ = _Callable
