"""The network of models/bert/network.py as an ONNX graph, node by node from its weights: no tracing, no exporter.

Two layouts of the same rows, as in the network itself:

    padded   input_ids, attention_mask and token_type_ids (B, T), as every consumer of BERT gives them
    packed   input_ids and token_type_ids (N,) of all rows end to end, and lengths (B,). Matrix products, norms and
             activations see no padding; rows are padded only between the projections and the output of an attention.
             Positions are counted from the lengths.

All linear layers read two dimensions, so that a runtime has one matrix product for them. 1 / √K is part of the query's
weights; what is equal for every token (RoBERTa's one segment, ERNIE's task) is part of the position table. Where only
the first vector of a row is read, the last layer computes no other.

Not here: a CRF, temperatures and thresholds, windows of long texts; they are described in export.json (folder.py).

Shapes: B rows, T tokens, N tokens of all rows, … B · T or N, E width of the tables, D width, H heads, K head width,
V vocabulary, L labels.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from qkv.api.export.int8 import linear_int8, look_up_int8
from qkv.api.export.nodes import Nodes
from qkv.models.bert.network import BertWithHeads

IDS, MASK, SEGMENTS, LENGTHS = "input_ids", "attention_mask", "token_type_ids", "lengths"
HIDDEN, SENTENCE, LOGITS, STARTS, ENDS = (
    *("last_hidden_state", "sentence_embedding"),
    *("logits", "start_logits", "end_logits"),
)
"""Names that transformers and optimum use; `lengths` is ours."""
BATCH, LENGTH, CHOICES, TOKENS = "batch_size", "sequence_length", "num_choices", "tokens"
"""Names of dimensions."""
ROW_HEADS = frozenset({"sequence", "choice"})
_HIDDEN_FROM = float(np.finfo(np.float32).min) / 2
"""Added to the scores of padding: finite, so that a row of nothing but padding is no NaN."""

Floats = NDArray[np.float32]
Outputs = dict[str, tuple[str | int, ...]]


@dataclass(frozen=True)
class ExportedNetwork:
    """A network, and what of it is exported."""

    network: BertWithHeads
    head: str  # of EXPORTED_HEADS (formats.py)
    pooling: str | None = (
        None  # of a row: cls (through the pooler), first or mean; for "none" of sentence vectors, cls or mean
    )
    normalize: bool = False

    @property
    def reads_segments(self) -> bool:
        return self.network.config.segments > 1

    @property
    def reads_first_only(self) -> bool:
        return self.head in ROW_HEADS and self.pooling != "mean"


class _Layout(Protocol):
    """Where the rows of a batch are."""

    inputs: dict[str, tuple[str, ...]]
    rows: tuple[str, ...]  # the dimensions of a value for every token
    ids: str
    segments: str
    real: str  # (B, T) 1.0 for a token, 0.0 for padding

    def positions(self, table: str) -> str:
        """(P, E) → what is added to the looked-up ids."""

    def spread(self, x: str, width: int) -> str:
        """(…, W) → (B, T, W)"""

    def collect(self, x: str, width: int) -> str:
        """(B, T, …) of W numbers → (…, W)"""

    def first(self, x: str, width: int) -> str:
        """(…, W) → (B, W)"""

    def shaped(self, x: str, width: int) -> str:
        """(…, W) → as an output: (B, T, W) or (N, W)"""


class _Padded:
    def __init__(self, nodes: Nodes, reads_segments: bool, choices: bool) -> None:
        self.nodes = nodes
        given: tuple[str, ...] = (BATCH, CHOICES, LENGTH) if choices else (BATCH, LENGTH)
        names = (IDS, MASK, SEGMENTS) if reads_segments else (IDS, MASK)
        self.inputs = dict.fromkeys(names, given)
        self.rows: tuple[str, ...] = (BATCH, LENGTH)
        flat = {
            name: nodes.call("Reshape", name, nodes.call("Concat", nodes.ints(-1), self._length(name), axis=0))
            if choices
            else name
            for name in names
        }
        self.ids, self.segments = flat[IDS], flat.get(SEGMENTS, "")
        self.length = nodes.call("Shape", self.ids, start=1)  # (1,)
        self.sizes = nodes.call("Shape", self.ids)  # (2,)
        self.real = nodes.call("Cast", flat[MASK], to=nodes.onnx.TensorProto.FLOAT)

    def _length(self, name: str) -> str:
        return self.nodes.call("Shape", name, start=2)

    def positions(self, table: str) -> str:
        nodes = self.nodes
        return nodes.call("Slice", table, nodes.ints(0), self.length, nodes.ints(0))

    def spread(self, x: str, width: int) -> str:
        nodes = self.nodes
        return nodes.call("Reshape", x, nodes.call("Concat", self.sizes, nodes.ints(width), axis=0))

    def collect(self, x: str, width: int) -> str:
        return self.nodes.call("Reshape", x, self.nodes.ints(-1, width))

    def first(self, x: str, width: int) -> str:
        nodes = self.nodes
        return nodes.call("Gather", self.spread(x, width), nodes.constant(np.array(0, np.int64)), axis=1)

    def shaped(self, x: str, width: int) -> str:
        return self.spread(x, width)


class _Packed:
    def __init__(self, nodes: Nodes, reads_segments: bool) -> None:
        self.nodes = nodes
        self.inputs: dict[str, tuple[str, ...]] = {
            IDS: (TOKENS,),
            **({SEGMENTS: (TOKENS,)} if reads_segments else {}),
            LENGTHS: (BATCH,),
        }
        self.rows: tuple[str, ...] = (TOKENS,)
        self.ids, self.segments = IDS, SEGMENTS
        zero, one = (nodes.constant(np.array(value, np.int64)) for value in (0, 1))
        self.longest = nodes.call("ReduceMax", LENGTHS, keepdims=0)  # T
        counted = nodes.call("Unsqueeze", nodes.call("Range", zero, self.longest, one), nodes.ints(0))  # (1, T)
        is_real = nodes.call("Less", counted, nodes.call("Unsqueeze", LENGTHS, nodes.ints(1)))  # (B, T)
        self.starts = nodes.call("CumSum", LENGTHS, zero, exclusive=1)  # (B,)
        places = nodes.call("Add", nodes.call("Unsqueeze", self.starts, nodes.ints(1)), counted)
        last = nodes.call("Sub", nodes.call("Shape", IDS), nodes.ints(1))
        self.padded_from = nodes.call("Min", places, last)  # (B, T) of padding any token
        flat = nodes.call("Reshape", is_real, nodes.ints(-1))
        self.packed_from = nodes.call("Squeeze", nodes.call("NonZero", flat), nodes.ints(0))  # (N,) in B · T
        self.real = nodes.call("Cast", is_real, to=nodes.onnx.TensorProto.FLOAT)

    def positions(self, table: str) -> str:
        return self.nodes.call("Gather", table, self.nodes.call("Mod", self.packed_from, self.longest))

    def spread(self, x: str, width: int) -> str:
        return self.nodes.call("Gather", x, self.padded_from)

    def collect(self, x: str, width: int) -> str:
        nodes = self.nodes
        return nodes.call("Gather", nodes.call("Reshape", x, nodes.ints(-1, width)), self.packed_from)

    def first(self, x: str, width: int) -> str:
        return self.nodes.call("Gather", x, self.starts)

    def shaped(self, x: str, width: int) -> str:
        return x


def _gelu(nodes: Nodes, x: str) -> str:
    erf = nodes.call("Erf", nodes.call("Div", x, nodes.floats(math.sqrt(2))))
    return nodes.call("Mul", nodes.call("Mul", x, nodes.call("Add", erf, nodes.floats(1.0))), nodes.floats(0.5))


def _gelu_tanh(nodes: Nodes, x: str) -> str:
    cube = nodes.call("Mul", nodes.call("Mul", x, x), x)
    inner = nodes.call("Add", x, nodes.call("Mul", cube, nodes.floats(0.044715)))
    tanh = nodes.call("Tanh", nodes.call("Mul", inner, nodes.floats(math.sqrt(2 / math.pi))))
    return nodes.call("Mul", nodes.call("Mul", x, nodes.call("Add", tanh, nodes.floats(1.0))), nodes.floats(0.5))


_ACTIVATIONS: Mapping[str, Callable[[Nodes, str], str]] = {
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": lambda nodes, x: nodes.call("Relu", x),
    "silu": lambda nodes, x: nodes.call("Mul", x, nodes.call("Sigmoid", x)),
    "tanh": lambda nodes, x: nodes.call("Tanh", x),
}


class _Writer:
    """The equations of the network, on the names of a graph."""

    def __init__(self, exported: ExportedNetwork, packed: bool, int8: bool) -> None:
        self.exported, self.config, self.int8 = exported, exported.network.config, int8
        self.state = {name: value.detach().float().cpu() for name, value in exported.network.state_dict().items()}
        self.nodes = Nodes()
        reads = exported.reads_segments
        choices = exported.head == "choice" and not packed
        self.layout: _Layout = _Packed(self.nodes, reads) if packed else _Padded(self.nodes, reads, choices)

    def array(self, name: str) -> Floats:
        return self.state[name].numpy()

    def linear(self, x: str, name: str) -> str:
        """(…, I) → (…, O) in float32"""
        nodes = self.nodes
        weight = nodes.weight(f"{name}.weight", self.array(f"{name}.weight"))
        bias = [nodes.weight(f"{name}.bias", self.array(f"{name}.bias"))] if f"{name}.bias" in self.state else []
        return nodes.call("Gemm", x, weight, *bias, transB=1)

    def block_linear(self, x: str, name: str, weight: Floats, bias: Floats, after: str | None = None) -> str:
        """A linear layer of a block, weight (O, I); in 8 bits if asked for. `after`: the activation before it."""
        if self.int8:
            return linear_int8(self.nodes, x, name, weight.T, bias, after)
        nodes = self.nodes
        stored = nodes.weight(f"{name}.weight", weight.T)
        return nodes.call("Gemm", x, stored, nodes.weight(f"{name}.bias", bias))

    def norm(self, x: str, name: str) -> str:
        nodes = self.nodes
        parts = [nodes.weight(f"{name}.{kind}", self.array(f"{name}.{kind}")) for kind in ("weight", "bias")]
        return nodes.call("LayerNormalization", x, *parts, axis=-1, epsilon=self.config.norm_epsilon)

    def activate(self, x: str, activation: str) -> str:
        return _ACTIVATIONS[activation](self.nodes, x)

    def embedding(self) -> str:
        """→ (…, D)"""
        nodes, config, layout, prefix = self.nodes, self.config, self.layout, "encoder.embedding"
        positions = self.array(f"{prefix}.position.weight")[config.position_offset :]
        if config.segments == 1:
            positions = positions + self.array(f"{prefix}.segment.weight")[0]
        if f"{prefix}.task.weight" in self.state:
            positions = positions + self.array(f"{prefix}.task.weight")[0]
        name = f"{prefix}.token.weight"
        if self.int8 and not (self.exported.head == "masked" and config.tied):
            x = look_up_int8(nodes, layout.ids, name, self.array(name))
        else:
            x = nodes.call("Gather", nodes.weight(name, self.array(name)), layout.ids)
        if config.segments > 1:
            name = f"{prefix}.segment.weight"
            x = nodes.call("Add", x, nodes.call("Gather", nodes.weight(name, self.array(name)), layout.segments))
        x = nodes.call("Add", x, layout.positions(nodes.weight(f"{prefix}.position.weight", positions)))
        x = self.norm(x, f"{prefix}.norm")
        if isinstance(layout, _Padded):
            x = layout.collect(x, config.table_width)
        return self.linear(x, f"{prefix}.project") if f"{prefix}.project.weight" in self.state else x

    def attention(self, x: str, name: str, hidden_from: str, first: bool) -> str:
        """(…, D) → (…, D), or (B, D) with `first`: of the first token of each row"""
        nodes, layout, width = self.nodes, self.layout, self.config.width
        heads = self.config.heads
        weight, bias = self.array(f"{name}.qkv.weight").copy(), self.array(f"{name}.qkv.bias").copy()
        scale = 1 / math.sqrt(width // heads)
        weight[:width] *= scale
        bias[:width] *= scale
        if first:
            query = self.block_linear(layout.first(x, width), f"{name}.query", weight[:width], bias[:width])
            query = nodes.call("Unsqueeze", query, nodes.ints(1))  # (B, 1, D)
            rest = self.block_linear(x, f"{name}.key_value", weight[width:], bias[width:])
            parts = [query, *self._parted(layout.spread(rest, 2 * width), 2)]
        else:
            whole = self.block_linear(x, f"{name}.qkv", weight, bias)
            parts = self._parted(layout.spread(whole, 3 * width), 3)
        by_head = nodes.ints(0, 0, heads, width // heads)
        query, key, value = (nodes.call("Reshape", part, by_head) for part in parts)  # (B, T, H, K)
        scores = nodes.call(
            "MatMul", nodes.call("Transpose", query, perm=[0, 2, 1, 3]), nodes.call("Transpose", key, perm=[0, 2, 3, 1])
        )
        weights = nodes.call("Softmax", nodes.call("Add", scores, hidden_from), axis=-1)  # (B, H, T, T)
        answer = nodes.call("MatMul", weights, nodes.call("Transpose", value, perm=[0, 2, 1, 3]))
        answer = nodes.call("Transpose", answer, perm=[0, 2, 1, 3])  # (B, T, H, K)
        answer = nodes.call("Reshape", answer, nodes.ints(-1, width)) if first else layout.collect(answer, width)
        return self.block_linear(
            answer, f"{name}.out", self.array(f"{name}.out.weight"), self.array(f"{name}.out.bias")
        )

    def _parted(self, x: str, number: int) -> list[str]:
        nodes = self.nodes
        return nodes.split("Split", number, x, nodes.ints(*[self.config.width] * number), axis=-1)

    def blocks(self, x: str, first_only: bool) -> str:
        nodes, config = self.nodes, self.config
        # (B, 1, 1, T)
        hidden_from = nodes.call(
            "Mul", nodes.call("Sub", nodes.floats(1.0), self.layout.real), nodes.floats(_HIDDEN_FROM)
        )
        hidden_from = nodes.call("Unsqueeze", hidden_from, nodes.ints(1, 2))
        per_block = config.layers / config.own_layers
        for layer in range(config.layers):
            name = f"encoder.blocks.{int(layer / per_block)}"
            first = first_only and layer == config.layers - 1
            answer = self.attention(x, f"{name}.attention", hidden_from, first)
            x = self.layout.first(x, config.width) if first else x
            x = self.norm(nodes.call("Add", x, answer), f"{name}.attention_norm")
            up, down = f"{name}.feed_forward.up", f"{name}.feed_forward.down"
            inner = self.block_linear(x, up, self.array(f"{up}.weight"), self.array(f"{up}.bias"))
            inner = self.activate(inner, config.activation)
            answer = self.block_linear(
                inner, down, self.array(f"{down}.weight"), self.array(f"{down}.bias"), config.activation
            )
            x = self.norm(nodes.call("Add", x, answer), f"{name}.feed_forward_norm")
        return x

    def mean(self, x: str) -> str:
        """(…, D) → (B, D), of the tokens of each row"""
        nodes, real = self.nodes, self.layout.real
        rows = nodes.call("Mul", self.layout.spread(x, self.config.width), nodes.call("Unsqueeze", real, nodes.ints(2)))
        number = nodes.call("Max", nodes.call("ReduceSum", real, nodes.ints(1), keepdims=1), nodes.floats(1.0))
        return nodes.call("Div", nodes.call("ReduceSum", rows, nodes.ints(1), keepdims=0), number)

    def unit(self, x: str, length: float = 1.0) -> str:
        """(B, D) scaled to a length"""
        nodes = self.nodes
        norm = nodes.call("Max", nodes.call("ReduceL2", x, axes=[-1], keepdims=1), nodes.floats(1e-12))
        return nodes.call("Mul", nodes.call("Div", x, norm), nodes.floats(length))

    def row_vectors(self, x: str, x_is_first: bool) -> str:
        """What a head of rows reads: (…, D), or (B, D) of first tokens → (B, D)"""
        exported, width = self.exported, self.config.width
        first = x if x_is_first else self.layout.first(x, width)
        vectors = self.mean(x) if exported.pooling == "mean" else first
        if exported.pooling in (None, "cls"):
            if exported.network.encoder.pooler is None:
                return vectors
            return self.activate(self.linear(vectors, "encoder.pooler.dense"), self.config.dense_activation)
        return self.unit(vectors, math.sqrt(width)) if exported.normalize else vectors

    def word_scores(self, x: str) -> str:
        """(…, D) → (…, V)"""
        config, name = self.config, "heads.masked"
        x = self.activate(self.linear(x, f"{name}.dense"), config.masked_activation or config.activation)
        x = self.norm(x, f"{name}.norm")
        table = "encoder.embedding.token.weight" if config.tied else f"{name}.table"
        nodes = self.nodes
        bias = nodes.weight(f"{name}.bias", self.array(f"{name}.bias"))
        return nodes.call("Gemm", x, nodes.weight(table, self.array(table)), bias, transB=1)

    def outputs(self, hidden: bool) -> Outputs:
        """Write the whole graph; return its outputs with their dimensions. `hidden`: the vectors of tokens among
        them, whatever the head."""
        exported, config, layout, nodes = self.exported, self.config, self.layout, self.nodes
        found: Outputs = {}
        first_only = exported.reads_first_only and not hidden
        x = self.blocks(self.embedding(), first_only)
        if hidden or exported.head == "none":
            nodes.name_output(layout.shaped(x, config.width), HIDDEN)
            found[HIDDEN] = (*layout.rows, config.width)
        if exported.head == "none" and exported.pooling is not None:
            vectors = self.mean(x) if exported.pooling == "mean" else layout.first(x, config.width)
            nodes.name_output(self.unit(vectors) if exported.normalize else vectors, SENTENCE)
            found[SENTENCE] = (BATCH, config.width)
        elif exported.head in ROW_HEADS:
            scores = self.linear(self.row_vectors(x, first_only), f"heads.{exported.head}.linear")
            number = len(self.array(f"heads.{exported.head}.linear.weight"))
            found[LOGITS] = (BATCH, number)
            if isinstance(layout, _Padded) and exported.head == "choice":
                scores = nodes.call("Reshape", scores, nodes.call("Shape", IDS, end=2))
                found[LOGITS] = (BATCH, CHOICES)
            nodes.name_output(scores, LOGITS)
        elif exported.head == "masked":
            nodes.name_output(layout.shaped(self.word_scores(x), config.vocabulary_size), LOGITS)
            found[LOGITS] = (*layout.rows, config.vocabulary_size)
        elif exported.head == "token":
            number = len(self.array("heads.token.linear.weight"))
            nodes.name_output(layout.shaped(self.linear(x, "heads.token.linear"), number), LOGITS)
            found[LOGITS] = (*layout.rows, number)
        elif exported.head == "span":
            both = layout.shaped(self.linear(x, "heads.span.linear"), 2)
            parts = nodes.split("Split", 2, both, nodes.ints(1, 1), axis=-1)
            for part, name in zip(parts, (STARTS, ENDS), strict=True):
                nodes.name_output(nodes.call("Squeeze", part, nodes.ints(-1)), name)
                found[name] = layout.rows
        return found


def write_graph(
    file: Path, exported: ExportedNetwork, *, packed: bool = False, int8: bool = False, hidden: bool = False
) -> tuple[list[str], list[str]]:
    """Write a graph; return the names of its inputs and outputs."""
    writer = _Writer(exported, packed, int8)
    outputs = writer.outputs(hidden)
    about = f"{type(exported.network.encoder).__name__}, head {exported.head}, {'packed' if packed else 'padded'}"
    writer.nodes.write(file, writer.layout.inputs, outputs, about + (", int8" if int8 else ""))
    return list(writer.layout.inputs), list(outputs)
