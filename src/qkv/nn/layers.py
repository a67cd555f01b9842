"""Records of a network's layers: input, attention or recurrence, output.

Every network has a method `layers` that yields `Layer` records lazily, computed by the same blocks and cells as
`forward`. `AttentionRecord` is one attention of a layer, with its queries, keys and values; `Recurrence` is a cell that
read the rows in one direction. Nothing is stored on a module.

    for layer in network.layers(batch):
        layer.part, layer.entered, layer.left            # "encoder", (N, D), (N, D)
        layer.inputs                                     # first layer only: token, segment, position and their sum
        layer.attention("self").weights()                # (H, Q, T), if the layer attends
        layer.recurrences                                # if it recurs

Records are of packed rows. The weights of several rows are one matrix, with zeros between different rows.

Shapes: N tokens of all rows, D width, H heads, Q queries, T keys, K head width.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from qkv.nn.attention import causal_mask, dot_scores, masked_softmax
from qkv.nn.multihead import Attend
from qkv.nn.recurrent import Cell, State


class AttentionKind(NamedTuple):
    """A kind of attention in every layer of one part of a network."""

    name: str  # "self", "causal", "encoder", "decoder" or "cross"
    part: str  # of the network: `Layer.part`
    attention: str  # in such a layer: `Layer.attention`
    layers: int
    heads: int
    is_causal: bool = False  # a token sees itself and those before it
    # whether a row belongs to the token being predicted rather than the one just read (the previous state is the query)
    asks_for_next: bool = False

    @property
    def looks_at_source(self) -> bool:
        """Whether the target attends to the source."""
        return self.attention == "cross"


@dataclass(frozen=True)
class AttentionRecord:
    """One attention of one layer: softmax(q Kᵀ × scale) V, or with `direction` softmax(vᵀ tanh(q + k)) V."""

    query: Tensor  # (H, Q, K)
    key: Tensor  # (H, T, K)
    value: Tensor  # (H, T, K or another width)
    scale: float = 1.0
    mask: Tensor | None = None  # (Q, T), True where visible; None: everywhere
    direction: Tensor | None = None  # (K,), v of additive scores
    score: str = "scaled"  # how queries and keys are compared

    def of(self, head: int, rows: slice) -> "AttentionRecord":
        """One head (H is 1) with some of its queries."""
        one, mask = slice(head, head + 1), None if self.mask is None else self.mask[rows]
        return replace(self, query=self.query[one, rows], key=self.key[one], value=self.value[one], mask=mask)

    def scores(self, scale: float = 1.0) -> Tensor:
        """(H, Q, T): the scores of queries and keys, times `scale`"""
        if self.direction is None:
            return dot_scores(self.query, self.key, scale)
        # query by query: all at once would take Q × T × K numbers
        rows = [torch.tanh(query[:, None] + self.key) @ self.direction for query in self.query.unbind(1)]
        return torch.stack(rows, dim=1) * scale

    def weights(self) -> Tensor:
        """(H, Q, T); a row sums to 1"""
        return masked_softmax(self.scores(self.scale), self.mask)


class PackedAttend(Attend, Protocol):
    """An `Attend` with known rows: `Packed` and `Across` of multihead.py."""

    @property
    def lengths(self) -> tuple[int, ...]: ...
    @property
    def key_lengths(self) -> tuple[int, ...]: ...
    @property
    def causal(self) -> bool: ...


class RecordingAttend:
    """Wraps an `Attend` and records its arguments."""

    def __init__(self, attend: PackedAttend) -> None:
        self.attend = attend
        self._asked: tuple[Tensor, Tensor, Tensor, float] | None = None

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor | None]:
        """(Q, H, K) and (T, H, K)"""
        self._asked = query, key, value, query.size(-1) ** -0.5 if scale is None else scale
        return self.attend(query, key, value, scale=scale, dropout=dropout)

    def record(self) -> AttentionRecord:
        assert self._asked is not None, "the layer did not attend"
        *sides, scale = self._asked
        query, key, value = (side.transpose(0, 1) for side in sides)
        way = self.attend
        return AttentionRecord(
            query, key, value, scale, rows_mask(way.lengths, way.key_lengths, way.causal, query.device)
        )


def rows_mask(
    lengths: tuple[int, ...], key_lengths: tuple[int, ...], causal: bool = False, device: torch.device | None = None
) -> Tensor | None:
    """(Q, T): each row sees the row of the same index, up to itself if `causal`; None if everything is visible.

    >>> rows_mask((1, 2), (2, 1)).int().tolist()
    [[1, 1, 0], [0, 0, 1], [0, 0, 1]]
    """
    if len(lengths) == 1:
        return causal_mask(lengths[0], key_lengths[0], device) if causal else None
    rows, keys = (torch.tensor(side, device=device) for side in (lengths, key_lengths))
    row_of, row_of_key = (torch.repeat_interleave(side) for side in (rows, keys))
    same = row_of[:, None] == row_of_key[None]
    return same & causal_mask(len(row_of), len(row_of_key), device) if causal else same


class Recurrence(NamedTuple):
    """A cell that read rows (N, D) in one direction."""

    direction: str  # "forward" or "backward"
    cell: Cell
    entered: Tensor  # (N, D)
    left: Tensor  # (N, P)
    after: State  # (R, …) each: the state after every row
    adds_input: bool = False  # residual: `left` is the cell's output plus `entered`


@dataclass(frozen=True)
class Layer:
    part: str  # of the network: "encoder", "decoder", "language_model", "elmo", "reader"
    entered: Tensor  # (N, D)
    left: Tensor  # (N, D'); of the last layer after the network's final norm
    inputs: Mapping[str, Tensor] = field(default_factory=dict)  # first layer only: the summands of its input, by name
    recurrences: tuple[Recurrence, ...] = ()
    recorded: Mapping[str, RecordingAttend | AttentionRecord] = field(default_factory=dict)

    @property
    def attentions(self) -> tuple[str, ...]:
        """ "self", "cross" """
        return tuple(self.recorded)

    def attention(self, name: str) -> AttentionRecord:
        found = self.recorded[name]
        return found.record() if isinstance(found, RecordingAttend) else found


class SourceMemories(NamedTuple):
    """The source's keys and values for the blocks of a decoder."""

    memories: Sequence[tuple[Tensor, Tensor]]  # keys and values (N, H, K), of every block
    attend: PackedAttend


def run_blocks(
    part: str,
    blocks: Iterable[nn.Module],
    norm: nn.Module,
    inputs: Mapping[str, Tensor],
    dropout: nn.Module,
    attend: PackedAttend,
    asking: SourceMemories | None = None,
) -> Iterator[Layer]:
    """Run blocks on the last of `inputs` (N, D), with cross-attention if `asking` is given, and yield their records.
    `norm` follows the last block."""
    modules, x = list(blocks), dropout([*inputs.values()][-1])
    for number, block in enumerate(modules):
        ways = {"self": RecordingAttend(attend)}
        if asking is None:
            left, _ = block(x, ways["self"])
        else:
            ways["cross"] = RecordingAttend(asking.attend)
            left, _ = block(x, asking.memories[number], ways["self"], ways["cross"])
        handed_on = norm(left) if number == len(modules) - 1 else left
        yield Layer(part, x, handed_on, {} if number else inputs, recorded=ways)
        x = left


def attention_records(kind: AttentionKind, layers: Iterable[Layer]) -> Iterator[AttentionRecord]:
    """The records of one kind of attention, layer by layer, computed lazily."""
    for layer in layers:
        if layer.part == kind.part and kind.attention in layer.attentions:
            yield layer.attention(kind.attention)
