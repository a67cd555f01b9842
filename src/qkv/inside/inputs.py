"""What a network reads for one token, before any layer: the vectors that are looked up, and their sum.

    bert          token + segment + position, then a norm
    gpt           token + position
    transformer   token × √D + the waves of the position

A recurrent network adds nothing to its tokens: it knows where it stands from what it has read.

Shapes: T tokens, D width.
"""

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qkv.inside.asked import LONGEST, Asked
from qkv.inside.reply import RefusalError, Reply
from qkv.inside.scene import Question, Side, check_length
from qkv.inside.subject import Subject
from qkv.models.bert import Bert
from qkv.models.gpt_reader import GPTEncoder
from qkv.models.transformer import Transformer

AT_ONCE = 64
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
            check_length(len(side.tokens), AT_ONCE)
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
