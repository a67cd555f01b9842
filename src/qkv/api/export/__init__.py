"""Models that leave qkv: an encoder as an ONNX graph. `qkv.export(model, out)` calls export.folder.export."""

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Union

from qkv.api.export.formats import LEAST_COSINE, MOST_LOSS

if TYPE_CHECKING:
    from qkv.api.model import Model


class _Callable(ModuleType):
    """A package that can be called: `qkv.export` is the function of the Python API and the package of `qkv export`."""

    def __call__(
        self,
        model: Union[str, os.PathLike[str], "Model"],
        out: str | os.PathLike[str],
        *,
        to: str = "onnx",
        head: str | None = None,
        packed: bool = False,
        int8: bool = False,
        check: str | os.PathLike[str] | None = None,
        least_cosine: float = LEAST_COSINE,
        most_loss: float = MOST_LOSS,
        overwrite: bool = False,
    ) -> dict[str, Any]:
        """Write an encoder of BERT's family as a folder that onnxruntime runs without qkv; return export.json.

        head: sequence, token, span, choice, masked or none (default: that of the task). packed: also a graph that
        computes no padding. int8: also a quantised graph, compared with float32 on `check` (a file of texts or labelled
        examples; default: the run's development examples, or texts of the package) and refused below `least_cosine`, or
        when a task loses more than `most_loss` of its score.
        """
        from qkv.api.export.folder import export

        return export(
            model,
            out,
            to=to,
            head=head,
            packed=packed,
            int8=int8,
            check=check,
            least_cosine=least_cosine,
            most_loss=most_loss,
            overwrite=overwrite,
        )


sys.modules[__name__].__class__ = _Callable
