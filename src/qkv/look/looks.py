"""What a network reads for one token, before any layer: the vectors that are looked up, and their sum.

    bert          token + segment + position, then a norm
    gpt           token + position
    transformer   token × √D + the waves of the position

A recurrent network adds nothing to its tokens: it knows where it stands from what it has read.

Shapes: T tokens, D width.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qkv.data.batch import Batch
from qkv.look.scene import Question, Scene, Side, check_length
from qkv.look.subject import Subject
from qkv.look.wire import LONGEST, Asked, RefusalError, Reply
from qkv.models.bert.network import Bert
from qkv.models.encoder import Encoder
from qkv.models.gpt.encoder import GPTEncoder
from qkv.models.seq2seq.network import Seq2Seq
from qkv.models.transformer.network import Transformer
from qkv.nn.attention import causal_mask, dot_scores, masked_softmax
from qkv.nn.block import memories
from qkv.nn.fused import Across, Attend, Packed
from qkv.nn.recurrent_decoder import AttentionDecoder, CurrentDecoder
from qkv.nn.source_attention import AdditiveScore

_AT_ONCE = 64
"""Tokens of a text of which all rows are given in one answer."""


def inputs(subject: Subject, asked: Asked) -> Reply:
    """Fields text, pair (bert), kind and output (translators), row: the token, counted from 0, of the left side where
    there are two. Without a row those of all tokens, (T, D) each, of a text that is not long."""
    question = Question.read(subject, asked)
    if subject.kind == "seq2seq":
        raise subject.refusal("no_positions", "which adds nothing to its tokens")
    row = asked.maybe_number("row", 0, LONGEST)
    asked.done()
    scene = question.scene()
    rows = chosen_rows(row, scene.left)
    parts = input_parts(subject, scene.left, scene.kind)
    found = {name: _floats(part[rows] if row is None else part[row]) for name, part in parts.items()}
    head = {"kind": scene.kind, "parts": list(found), "n_tokens": len(scene.left.tokens)}
    if row is None:
        tokens: dict[str, Any] = {"tokens": [asdict(token) for token in scene.left.tokens]}
    else:
        token = scene.left.tokens[row]
        tokens = {"row": row, "token": asdict(token)} | ({"segment": token.segment} if "segment" in found else {})
    return Reply(head | {"width": found["sum"].shape[-1]} | tokens, found)


def chosen_rows(row: int | None, *sides: Side) -> slice:
    """One row of the first side, or all, where no side is long: an answer to look at, not the whole of a book."""
    if row is None:
        for side in sides:
            check_length(len(side.tokens), _AT_ONCE)
        return slice(None)
    last = len(sides[0].tokens) - 1
    if row > last:
        raise RefusalError("range", f"'row' is {row}; it goes from 0 to {last}.", field="row", low=0, high=last)
    return slice(row, row + 1)


@torch.inference_mode()
def input_parts(subject: Subject, side: Side, kind: str) -> dict[str, Tensor]:
    """(T, D) each, in the order in which they are added up; the last one is what the first layer reads."""
    if subject.kind in ("bert", "gpt"):
        encoder = subject.model.network.encoder
        ids, places = _placed(side, encoder)
        if isinstance(encoder, Bert):
            layer = encoder.embedding
            token, segment = layer.token(ids), layer.segment(torch.tensor(side.segments, device=ids.device))
            position = layer.position(places)
            total = token + segment + position
            return {"token": token, "segment": segment, "position": position, "sum": total, "normed": layer.norm(total)}
        assert isinstance(encoder, GPTEncoder), f"{type(encoder).__name__} does not attend"
        token, position = encoder.embedding.token(ids), encoder.embedding.position(places)
        return {"token": token, "position": position, "sum": token + position}
    network = subject.translator.network
    assert isinstance(network, Transformer), "the recurrent one has no positions"
    ids, places = _placed(side, network)
    read_with = network.source_embedding if kind == "encoder" else None
    token = (network.embedding if read_with is None else read_with)(ids) * network.scale
    position = network.positions(places, token.dtype)
    return {"token": token, "position": position, "sum": token + position}


def _placed(side: Side, network: nn.Module) -> tuple[Tensor, Tensor]:
    """Ids and positions (T,), where the weights are."""
    device = next(network.parameters()).device
    return torch.tensor(side.ids, device=device), torch.arange(len(side.ids), device=device)


def _floats(part: Tensor) -> NDArray[np.float32]:
    return part.float().cpu().numpy()


# --- Queries, keys and values of one layer after another, as the network itself computes them, and what follows from
# them.
#
# Every layer is handed its way to attend (nn/fused.py). Here it is handed the usual one with somebody beside it who
# takes
# down what is asked: nothing is kept on a module, and what goes on to the next layer does not change. The weights are
# then the equation itself, of the layers that are looked at alone, and one layer's at a time; layers above the last
# one
# looked at are not run.
#
# The recurrent decoder asks with a state, a step at a time, and scores as source_attention.py says; its one layer
# has one
# head.
#
# Shapes: H heads, Q tokens that ask, T tokens that are looked at, K width of a head, D width.


@dataclass(frozen=True)
class Look:
    """One attention of one layer."""

    query: Tensor  # (H, Q, K)
    key: Tensor  # (H, T, K)
    value: Tensor  # (H, T, K), or of another width
    scale: float = 1.0
    mask: Tensor | None = None  # (Q, T), True where something may be seen; None: everywhere
    direction: Tensor | None = None  # (K,), v of additive scores: vᵀ tanh(q + k)

    def of(self, head: int, rows: slice) -> "Look":
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


class _Watched:
    """A way to attend, and what was asked of it last."""

    def __init__(self, attend: Attend, causal: bool = False) -> None:
        self.attend, self.causal = attend, causal
        self.look: Look | None = None

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor | None]:
        """(Q, H, K) and (T, H, K), of one row"""
        used = query.size(-1) ** -0.5 if scale is None else scale
        mask = causal_mask(query.size(0), key.size(0), query.device) if self.causal else None
        by_head = [x.transpose(0, 1) for x in (query, key, value)]
        self.look = Look(by_head[0], by_head[1], by_head[2], used, mask)
        return self.attend(query, key, value, scale=scale, dropout=dropout)

    def seen(self) -> Look:
        assert self.look is not None, "nobody asked"
        return self.look


def looks(scene: Scene) -> Iterator[Look]:
    """Layer by layer, from the lowest, each computed when it is asked for."""
    if scene.subject.kind in ("bert", "gpt"):
        return _of_blocks(scene, scene.subject.model.network.encoder)
    network = scene.subject.translator.network
    if isinstance(network, Seq2Seq):
        return iter([_of_states(scene, network)])
    return _of_blocks(scene, network) if scene.kind == "encoder" else _of_decoder(scene, network)


@torch.inference_mode()
def look_at(scene: Scene, layer: int) -> Look:
    found = looks(scene)
    for _ in range(layer):
        next(found)
    return next(found)


def _of_blocks(scene: Scene, network: Encoder | Transformer) -> Iterator[Look]:
    blocks = network.encoder if isinstance(network, Transformer) else network.blocks
    assert isinstance(blocks, nn.ModuleList)
    causal, x = not scene.sees_all, _entering(scene)
    attend = Packed(*_row(scene.left.ids, x.device).packing, causal=causal)
    for block in blocks:
        watched = _Watched(attend, causal)
        x, _ = block(x, watched)
        yield watched.seen()


def _of_decoder(scene: Scene, network: Transformer) -> Iterator[Look]:
    assert scene.source is not None, "a translator has read one"
    x = _entering(scene)
    source, target = _row(scene.source.ids, x.device), _row(scene.left.ids, x.device)
    attend, crossing = Packed(*target.packing, causal=True), scene.kind == "cross"
    attend_to_source = Across(attend, Packed(*source.packing))
    encoded = network.encode(source.ids, source.packing)  # (T, D)
    for block, memory in zip(network.decoder, memories(list(network.decoder), encoded), strict=True):
        watched = _Watched(attend_to_source if crossing else attend, causal=not crossing)
        x, _ = block(x, memory, attend if crossing else watched, watched if crossing else attend_to_source)
        yield watched.seen()


def _of_states(scene: Scene, network: Seq2Seq) -> Look:
    """The decoder is led along the translation, and its states are what asks."""
    decoder, device = network.decoder, network.embedding.weight.device
    assert isinstance(decoder, AttentionDecoder), "the others were refused"
    source, begin = _row(scene.right.ids, device), scene.subject.translator.languages.begin
    state = network.start(source.ids, source.packing)
    asked = []
    for token in (begin, *scene.left.ids[:-1]):
        before = state.states[0][0]  # (1, P) of the lowest layer, which asks with the state before
        state = network.step(torch.tensor([token], device=device), state).state
        asked.append(state.states[-1][0] if isinstance(decoder, CurrentDecoder) else before)
    query, keys = torch.stack(asked, dim=1), state.source.keys  # (1, Q, P), (1, T, K)
    assert keys is not None
    if isinstance(decoder.score, AdditiveScore):
        return Look(
            decoder.score.query(query), keys, state.source.states, direction=decoder.score.score.weight[0].detach()
        )
    return Look(query, keys, state.source.states)


def _entering(scene: Scene) -> Tensor:
    """(Q, D): what the first layer reads"""
    *_, last = input_parts(scene.subject, scene.left, scene.kind).values()
    return last


def _row(ids: tuple[int, ...], device: torch.device) -> Batch:
    return Batch.of([ids]).to(device)
