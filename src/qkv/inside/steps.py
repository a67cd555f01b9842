"""One row of one head, step by step, with its real numbers: softmax(q Kᵀ ÷ √K) V.

    q           (K)      what the token asks for
    k           (T, K)   what every token offers
    scores      (T)      q · k
    scaled      (T)      ÷ √K: `scale` times the scores, whatever the network's scale is
    weights     (T)      softmax; 0 where a token may not be seen
    v           (T, K)   what every token says
    output      (K)      the sum of weights × v, which the layer's last product mixes with the other heads'

The scores of a seq2seq may be others: `score` says how they were made, and of additive ones `direction` (K) is the
vector that weighs tanh(q + k).

Shapes: T tokens that are looked at, K width of a head.
"""

from dataclasses import asdict
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.inside.asked import LONGEST, Asked
from qkv.inside.inputs import chosen_rows
from qkv.inside.looks import look_at
from qkv.inside.reply import Reply
from qkv.inside.scene import Question
from qkv.inside.subject import Subject
from qkv.models.seq2seq import Seq2Seq


def steps(subject: Subject, asked: Asked) -> Reply:
    """Fields as of `attention`, and layer, head and row, the token that looks, all counted from 0.

    Without a row those of all tokens at once, of texts that are not long: every array but k and v then has a row for
    each token that looks, and `masked` is one of them.
    """
    question = Question.read(subject, asked)
    layer = asked.number("layer", 0, question.layers - 1)
    number = asked.number("head", 0, question.heads - 1)
    row = asked.maybe_number("row", 0, LONGEST)
    asked.done()
    scene = question.scene()
    rows = chosen_rows(row, scene.left, scene.right)
    with torch.inference_mode():
        look = look_at(scene, layer).of(number, rows)
        scores, weights, value = look.scores()[0], look.weights()[0], look.value[0]  # (Q, T) twice, (T, K)
        by_row = {
            "q": look.query[0],
            "scores": scores,
            "scaled": scores * look.scale,
            "weights": weights,
            "output": weights @ value,
        }
        by_row = {name: part if row is None else part[0] for name, part in by_row.items()}
        whole = {"k": look.key[0], "v": value} | ({} if look.direction is None else {"direction": look.direction})
        masked = torch.zeros_like(weights, dtype=torch.bool) if look.mask is None else ~look.mask  # (Q, T)
        arrays = {name: _floats(part) for name, part in (by_row | whole).items()}
    head = {
        "kind": scene.kind,
        "layer": layer,
        "head": number,
        "tokens": [asdict(token) for token in scene.right.tokens],
        "score": _score(subject),
        "scale": round(look.scale, 6),
        "divided_by": round(1 / look.scale, 6),
        "width": look.query.size(-1),
    }
    if row is None:
        arrays["masked"] = masked.to(torch.uint8).cpu().numpy()
        return Reply(head | {"left": [asdict(token) for token in scene.left.tokens]}, arrays)
    one = {"row": row, "token": asdict(scene.left.tokens[row]), "masked": masked[0].tolist()}
    return Reply(head | one, arrays)


def _score(subject: Subject) -> str:
    if subject.kind == "seq2seq" and isinstance(network := subject.translator.network, Seq2Seq):
        return network.config.score
    return "scaled"


def _floats(part: Tensor) -> NDArray[Any]:
    return part.float().cpu().numpy()
