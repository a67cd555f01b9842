"""The attention view: an overview of all heads, the weights of one layer, and one head step by step.

Overview: a small map of each head, where a cell is the maximum of its block, so that thin lines stay visible; and five
measures for sorting heads, each a mean over all queries:

    entropy     0: all weight on one token, 1: uniform; normalised by ln of the number of visible tokens
    distance    mean distance of the attended tokens, as a share of the text length
    ends        weight on special tokens ([CLS], [SEP] etc.)
    separators  of that, weight on special tokens after the text ([SEP] etc.): all but the first token
    itself      weight on the token itself; 0 in cross-attention

One layer: its weights, one byte each, round(255 · w).

One row of one head, softmax(q Kᵀ ÷ √K) V (`show_steps`):

    q           (K)      query of the token
    k           (T, K)   keys
    scores      (T)      q · k
    scaled      (T)      scores × `scale`, the network's scale (1 / √K)
    weights     (T)      softmax; 0 where masked
    v           (T, K)   values
    output      (K)      Σ weights × v, which the layer's output projection mixes with the other heads

A seq2seq may use other scores: `score` names them, and for additive scores `direction` (K) is the vector v in
vᵀ tanh(q + k).

Words: `word_ranges` groups tokens to words by their characters, whatever the vocabulary's markers (##ing, Ġthe, ▁the,
the</w>). A word is a run of letters and digits with inner punctuation (isn't, 3.5); every 汉字 and every other
punctuation character is a word of its own. A character of several tokens is one word, a token that is only the space
before a word belongs to that word, special tokens stay separate, and every token is in exactly one word.

Shapes: L layers, H heads, Q queries, T keys, S cells of a small map, K head width.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.look.looks import choose_rows, layer_record, layer_records
from qkv.look.scene import Question, Scene
from qkv.look.subject import Subject
from qkv.look.wire import TEXT_LIMIT, Asked, Reply
from qkv.nn.attention import masked_softmax
from qkv.report.attention_map import Token
from qkv.text.alignment import WordSpan, word_spans

_SPACES = ("Ġ", "▁")
"""Space markers of byte-level BPE and SentencePiece."""


def word_ranges(tokens: Sequence[Token], texts: Sequence[str]) -> list[list[int]]:
    """[first, last] token of every word, inclusive; together they cover all tokens in order.

    >>> pieces = [("[CLS]", 0, 0), ("un", 0, 2), ("##happy", 2, 7), ("猫", 7, 8), ("狗", 8, 9), ("[SEP]", 0, 0)]
    >>> text = "unhappy猫狗"
    >>> tokens = [Token(one, text[start:end], start, end, 0, one[0] == "[") for one, start, end in pieces]
    >>> word_ranges(tokens, [text])
    [[0, 0], [1, 2], [3, 3], [4, 4], [5, 5]]
    """
    words = [word_spans(text) for text in texts]
    found: list[list[int]] = []
    before: tuple[int, int] | None = None  # segment and index of the word that the previous token ended in
    opened = False  # the previous token was a space before this one
    for place, token in enumerate(tokens):
        first, last = _find_words(token, words[token.segment])
        if first is not None and (opened or before == (token.segment, first)):
            found[-1][1] = place
        else:
            found.append([place, place])
        opened = token.token in _SPACES and not token.special and first is None
        before = None if last is None else (token.segment, last)
    return found


def _find_words(token: Token, words: Sequence[WordSpan]) -> tuple[int, int] | tuple[None, None]:
    """The first and last word that share characters with a token; None for special tokens and spaces."""
    if token.special or not token.text.strip():
        return None, None
    start = token.start + len(token.text) - len(token.text.lstrip())
    end = token.start + len(token.text.rstrip())
    first = bisect_right(words, start, key=lambda word: word.end)
    last = bisect_right(words, end - 1, key=lambda word: word.end)
    return first, last


def show_steps(subject: Subject, asked: Asked) -> Reply:
    """Fields as of `attention`, and layer, head and row (the query token), all counted from 0.

    Without a row, for short texts: all queries at once; every array but k and v then has a row per query, and `masked`
    is an array too.
    """
    question = Question.read(subject, asked)
    layer = asked.number("layer", 0, question.layers - 1)
    number = asked.number("head", 0, question.heads - 1)
    row = asked.maybe_number("row", 0, TEXT_LIMIT)
    asked.done()
    scene = question.scene()
    rows = choose_rows(row, scene.left, scene.right)
    with torch.inference_mode():
        look = layer_record(scene, layer).of(number, rows)
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
        "score": look.score,
        "scale": round(look.scale, 6),
        "divided_by": round(1 / look.scale, 6),
        "width": look.query.size(-1),
    }
    if row is None:
        arrays["masked"] = masked.to(torch.uint8).cpu().numpy()
        return Reply(head | {"left": [asdict(token) for token in scene.left.tokens]}, arrays)
    one = {"row": row, "token": asdict(scene.left.tokens[row]), "masked": masked[0].tolist()}
    return Reply(head | one, arrays)


def _floats(part: Tensor) -> NDArray[Any]:
    return part.float().cpu().numpy()


_SMALL = 48
"""Maximum number of cells on a side of a small map."""
MEASURES = ("entropy", "distance", "ends", "separators", "itself")


def attention(subject: Subject, asked: Asked) -> Reply:
    """Fields: text, pair (bert and fine-tuned gpt), kind, output (translators), layer (optional).

    Arrays: small (L, H, S, S) and measures (L, H, 5); with a layer only attn (H, Q, T).
    """
    question = Question.read(subject, asked)
    layer = asked.maybe_number("layer", 0, question.layers - 1)
    asked.done()
    scene = question.scene()
    head = {
        "name": scene.name,
        "kind": scene.kind,
        "layers": list(range(question.layers)),
        "heads": question.heads,
        "left": [asdict(token) for token in scene.left.tokens],
        "right": [asdict(token) for token in scene.right.tokens],
        "texts": list(scene.texts),
        "words": {
            "left": word_ranges(scene.left.tokens, scene.texts),
            "right": word_ranges(scene.right.tokens, scene.texts),
        },
        "unknown": {"left": scene.left.lost, "right": scene.right.lost},  # token indices
        "measures": list(MEASURES),
        "n_tokens": len(scene.left.tokens),
    }
    if layer is not None:
        return Reply(head | {"layer": layer}, {"attn": _bytes(_weights(scene, layer))})
    return Reply(head, _overview(scene))


@torch.inference_mode()
def _weights(scene: Scene, layer: int) -> Tensor:
    return layer_record(scene, layer).weights()


@torch.inference_mode()
def _overview(scene: Scene) -> dict[str, NDArray[Any]]:
    small, measures, measure = [], [], Measure(scene)
    for look in layer_records(scene):  # one layer at a time: all weights of a BERT at 512 tokens are 150 MB
        scores = look.scores(look.scale)
        weights = masked_softmax(scores, look.mask)
        small.append(_bytes(block_maximum(weights)))  # rounding is monotonic, so it can come after the maximum
        measures.append(measure(scores.float(), weights.float()).cpu().numpy())
    return {"small": np.stack(small), "measures": np.stack(measures)}


def block_maximum(weights: Tensor, most: int = _SMALL) -> Tensor:
    """(H, Q, T) → (H, S, S'): row cell i is the maximum over rows i · Q / S to (i + 1) · Q / S, rounded down; columns
    likewise.

    >>> block_maximum(torch.tensor([[[0.1, 0.9, 0.0], [0.2, 0.3, 0.5]]]), most=2).tolist() == [
    ...     [[torch.tensor(0.1).item(), torch.tensor(0.9).item()], [torch.tensor(0.2).item(), 0.5]]]
    True
    """
    for dim in (1, 2):
        length = weights.size(dim)
        cells = min(length, most)
        if cells < length:
            edges = [cell * length // cells for cell in range(cells + 1)]
            blocks = weights.split([after - before for before, after in pairwise(edges)], dim=dim)
            weights = torch.stack([block.amax(dim=dim) for block in blocks], dim=dim)
    return weights


class Measure:
    """The five measures of the heads of a layer; token tables are computed once per text."""

    def __init__(self, scene: Scene) -> None:
        left, right = len(scene.left.tokens), len(scene.right.tokens)
        seen = torch.full((left,), float(right)) if scene.sees_all else torch.arange(1.0, left + 1)
        self.has_choice = (seen > 1).float()  # (Q,), 0 if only one token is visible
        self.most = seen.log().clamp_min(1e-9)  # (Q,), the maximum entropy
        places = torch.arange(left)[:, None] / left, torch.arange(right)[None] / right
        self.distance = (places[0] - places[1]).abs().flatten()  # (Q · T,)
        ends = torch.tensor([float(token.special) for token in scene.right.tokens])
        behind = (torch.arange(right) > 0).float()
        self.marks = torch.stack([ends, ends * behind], dim=-1)  # (T, 2): all special tokens, and the separators
        self.same = scene.same

    def __call__(self, scores: Tensor, weights: Tensor) -> Tensor:
        """(H, Q, T) each, of one layer → (H, 5)"""
        scores, weights = scores.cpu(), weights.cpu()
        queries = weights.size(1)
        best, place = weights.max(dim=-1, keepdim=True)  # (H, Q, 1)
        # −Σ w ln w with ln w = s − ln Σ exp s; the log sum follows from the largest weight, without a log per weight
        total = scores.gather(-1, place) - best.log()
        entropy = (total[..., 0] - (weights * scores).sum(-1)).clamp_min(0) / self.most  # (H, Q)
        entropy = (entropy * self.has_choice).sum(-1) / self.has_choice.sum().clamp_min(1)
        distance = weights.flatten(1) @ self.distance / queries
        ends, separators = (weights @ self.marks).mean(1).unbind(-1)
        itself = weights.diagonal(dim1=1, dim2=2).mean(-1) if self.same else torch.zeros_like(ends)
        return torch.stack([entropy, distance, ends, separators, itself], dim=-1).clamp(0, 1)


def _bytes(weights: Tensor) -> NDArray[np.uint8]:
    return (weights.float() * 255).round().to(torch.uint8).cpu().numpy()
