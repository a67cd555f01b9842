"""Nodes and constants of an ONNX graph, added one by one: a thin layer above onnx.helper.

Names are numbered in the order of the calls, so that the same model always gives the same bytes. Operators are those of
`ai.onnx`, version 17, which every runtime of the last years has: no operator of one vendor.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.errors import InputError

OPSET = 17
"""The first with LayerNormalization."""
IR_VERSION = 8
"""Of the file format, as old as the operators."""
LARGEST_FILE = 1_900_000_000
"""Bytes of weights in the graph's own file: a protobuf holds 2 GB. Beyond, they are in a second file."""
WEIGHTS_SUFFIX = "_data"
"""Of that second file, after the name of the first."""

Array = NDArray[Any]


def import_onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise InputError(
            "An ONNX graph is written with onnx, which is not installed: pip install 'qkv[onnx]'."
        ) from None
    return onnx


class Nodes:
    """A graph under construction. A value is known by its name, which every method returns."""

    def __init__(self) -> None:
        self.onnx = import_onnx()
        self.nodes: list[Any] = []
        self.weights: dict[str, Array] = {}
        self._small: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def weight(self, name: str, value: Array) -> str:
        """A named tensor of the model; the same name is stored once (layers may share their weights)."""
        self.weights.setdefault(name, np.asarray(value, order="C"))
        return name

    def constant(self, value: Array) -> str:
        """A small tensor without a name; equal ones are stored once."""
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._small:
            self._small[key] = self.weight(f"constant_{len(self._small)}", value)
        return self._small[key]

    def floats(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def call(self, operator: str, *inputs: str, **attributes: Any) -> str:
        return self.split(operator, 1, *inputs, **attributes)[0]

    def split(self, operator: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """The same, of an operator with several outputs."""
        number = len(self.nodes)
        names = [f"{operator}_{number}" + (f"_{part}" if outputs > 1 else "") for part in range(outputs)]
        self.nodes.append(
            self.onnx.helper.make_node(operator, inputs, names, name=f"{operator}_{number}", **attributes)
        )
        return names

    def name_output(self, value: str, name: str) -> None:
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name], name=name))

    def write(
        self,
        file: Path,
        inputs: Mapping[str, Sequence[str]],
        outputs: Mapping[str, Sequence[str | int]],
        about: str,
    ) -> None:
        """Write the file; `inputs` are int64 and `outputs` float32, each with the names or sizes of its dimensions."""
        onnx, helper, kinds = self.onnx, self.onnx.helper, self.onnx.TensorProto
        tensors = [onnx.numpy_helper.from_array(value, name) for name, value in self.weights.items()]
        graph = helper.make_graph(
            self.nodes,
            "encoder",
            [helper.make_tensor_value_info(name, kinds.INT64, list(shape)) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, kinds.FLOAT, list(shape)) for name, shape in outputs.items()],
            tensors,
        )
        model = helper.make_model(
            graph,
            producer_name="qkv",
            doc_string=about,
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        if sum(value.nbytes for value in self.weights.values()) > LARGEST_FILE:
            onnx.save_model(
                model, str(file), save_as_external_data=True, location=file.name + WEIGHTS_SUFFIX, size_threshold=1024
            )
        else:
            file.write_bytes(model.SerializeToString(deterministic=True))
