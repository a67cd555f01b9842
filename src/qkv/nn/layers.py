"""What happens inside a network, layer by layer: what goes in, what attends or recurs, what comes out.

Every network has a method `layers` that yields a `Layer` after another, each computed when it is asked for, by the same
blocks and cells that `forward` runs. `AttentionRecord` is one attention of a layer, with its queries, keys and values;
`Recurrence` is a cell that read the rows in one direction. Nothing is kept on a module.

    for layer in network.layers(batch):
        layer.part, layer.entered, layer.left            # "encoder", (N, D), (N, D)
        layer.inputs                                     # of the first: token, segment, position and their sum
        layer.attention("self").weights()                # (H, Q, T), where the layer attends
        layer.recurrences                                # where it recurs

Records are of packed rows. Of several rows the weights are one matrix, with zeros where rows do not see each other.

Shapes: N tokens of all rows, D width, H heads, Q tokens that ask, T tokens that are looked at, K width of a head.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from qkv.nn.attention import causal_mask, dot_scores, masked_softmax
from qkv.nn.fused import Attend
from qkv.nn.recurrent import Cell, State


class AttentionKind(NamedTuple):
    """An attention that a network has, in every layer of one part."""

    name: str  # "self", "causal", "encoder", "decoder" or "cross"
    part: str  # of the network: `Layer.part`
    attention: str  # in such a layer: `Layer.attention`
    layers: int
    heads: int
    is_causal: bool = False  # a token sees itself and those before it
    # whether a row is of the token that it writes, and not of the one that it reads: a state asks before it knows
    asks_for_next: bool = False

    @property
    def looks_at_source(self) -> bool:
        """Whether one text looks at another."""
        return self.attention == "cross"


@dataclass(frozen=True)
class AttentionRecord:
    """One attention of one layer: softmax(q Kᵀ × scale) V, or with `direction` softmax(vᵀ tanh(q + k)) V."""

    query: Tensor  # (H, Q, K)
    key: Tensor  # (H, T, K)
    value: Tensor  # (H, T, K), or of another width
    scale: float = 1.0
    mask: Tensor | None = None  # (Q, T), True where something may be seen; None: everywhere
    direction: Tensor | None = None  # (K,), v of additive scores
    score: str = "scaled"  # how queries and keys are compared

    def of(self, head: int, rows: slice) -> "AttentionRecord":
        """One head, H is 1, and of its queries these."""
        one, mask = slice(head, head + 1), None if self.mask is None else self.mask[rows]
        return replace(self, query=self.query[one, rows], key=self.key[one], value=self.value[one], mask=mask)

    def scores(self, scale: float = 1.0) -> Tensor:
        """(H, Q, T): how well queries and keys fit, times `scale`"""
        if self.direction is None:
            return dot_scores(self.query, self.key, scale)
        # query by query: all at once would be Q × T × K numbers
        rows = [torch.tanh(query[:, None] + self.key) @ self.direction for query in self.query.unbind(1)]
        return torch.stack(rows, dim=1) * scale

    def weights(self) -> Tensor:
        """(H, Q, T), a row adds up to 1"""
        return masked_softmax(self.scores(self.scale), self.mask)


class PackedAttend(Attend, Protocol):
    """A way to attend that knows its rows: `Packed` and `Across` of fused.py."""

    @property
    def lengths(self) -> tuple[int, ...]: ...
    @property
    def key_lengths(self) -> tuple[int, ...]: ...
    @property
    def causal(self) -> bool: ...


class RecordingAttend:
    """Attends as another does, and keeps what it was asked."""

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
    """(Q, T): each row sees the row of the same number, `causal` up to itself; None where everything is seen.

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
    after: State  # (R, …) each: after every row
    adds_input: bool = False  # what is left is what the cell gave and what entered


@dataclass(frozen=True)
class Layer:
    part: str  # of the network: "encoder", "decoder", "language_model", "elmo", "reader"
    entered: Tensor  # (N, D)
    left: Tensor  # (N, D'); of the last layer as the network hands it on, after its last norm
    inputs: Mapping[str, Tensor] = field(default_factory=dict)  # of the first: what is added up to what enters, by name
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
    """What the blocks of a decoder ask of the source."""

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
    """Blocks on the last of `inputs` (N, D), with self-attention, and where something is asked of a source, attention
    to it. `norm` comes after the last block."""
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
    """One kind of attention, layer after layer; a layer is run when its record is asked for."""
    for layer in layers:
        if layer.part == kind.part and kind.attention in layer.attentions:
            yield layer.attention(kind.attention)
