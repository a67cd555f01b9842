"""What happens inside a model, as numbers and as a page. `qkv.look(model, text)` calls notebook.look."""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that can be called: `qkv.look` is the function of the Python API and the package of `qkv look`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from qkv.look.page import look

        return look(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
