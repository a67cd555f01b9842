"""The inputs of the first layer, and the attention records of all layers.

    bert          token + segment + position, then a norm
    gpt           token + position
    transformer   token × √D + sinusoids

A recurrent network adds nothing to its token vectors.

A network yields its layers with their attention (nn/layers.py). Weights are computed for one layer at a time, and
layers above the last requested one are not run.

Shapes: T tokens, D width.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.look.scene import Question, Scene, Side, check_length
from qkv.look.subject import Subject
from qkv.look.wire import TEXT_LIMIT, Asked, RefusalError, Reply
from qkv.nn.layers import AttentionRecord, attention_records

_AT_ONCE = 64
"""Maximum number of tokens for which all rows are returned in one reply."""


def show_inputs(subject: Subject, asked: Asked) -> Reply:
    """Fields: text, pair (bert), kind and output (translators), row: index of the token, on the left side if there are
    two. Without a row, for short texts: all tokens, (T, D) each."""
    question = Question.read(subject, asked)
    if question.network.position_encoding is None:
        raise subject.refusal("no_positions", "which adds nothing to its tokens")
    row = asked.maybe_number("row", 0, TEXT_LIMIT)
    asked.done()
    scene = question.scene()
    rows = choose_rows(row, scene.left)
    parts = input_parts(scene)
    found = {name: _floats(part[rows] if row is None else part[row]) for name, part in parts.items()}
    head = {"kind": scene.kind, "parts": list(found), "n_tokens": len(scene.left.tokens)}
    if row is None:
        tokens: dict[str, Any] = {"tokens": [asdict(token) for token in scene.left.tokens]}
    else:
        token = scene.left.tokens[row]
        tokens = {"row": row, "token": asdict(token)} | ({"segment": token.segment} if "segment" in found else {})
    return Reply(head | {"width": found["sum"].shape[-1]} | tokens, found)


def choose_rows(row: int | None, *sides: Side) -> slice:
    """One row of the first side, or all rows if no side is long."""
    if row is None:
        for side in sides:
            check_length(len(side.tokens), _AT_ONCE)
        return slice(None)
    last = len(sides[0].tokens) - 1
    if row > last:
        raise RefusalError("range", f"'row' is {row}; it goes from 0 to {last}.", field="row", low=0, high=last)
    return slice(row, row + 1)


@torch.inference_mode()
def input_parts(scene: Scene) -> Mapping[str, Tensor]:
    """(T, D) each, in the order of the sum; the last is the input of the first layer."""
    return next(layer.inputs for layer in scene.layers() if layer.part == scene.attention.part)


def _floats(part: Tensor) -> NDArray[np.float32]:
    return part.float().cpu().numpy()


def layer_records(scene: Scene) -> Iterator[AttentionRecord]:
    """The records of all layers from the lowest, computed lazily."""
    return attention_records(scene.attention, scene.layers())


@torch.inference_mode()
def layer_record(scene: Scene, layer: int) -> AttentionRecord:
    found = layer_records(scene)
    for _ in range(layer):
        next(found)
    return next(found)
