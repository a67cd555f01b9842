"""Which tokens make up a word, so that a page may show words where a model has pieces.

By their characters, whatever a vocabulary marks its pieces with (##ing, Ġthe, ▁the, the</w>): a word is a run of
letters and digits, with what stands inside it (isn't, 3.5), and every 汉字 and every other sign is one by itself. A
character that is several tokens (the bytes of a 汉字) is one word, a piece that is only the space before a word belongs
to that word, a mark around a text stands alone, and every token is in one word.
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
from qkv.look.wire import MOST_CHARACTERS, Asked, Reply
from qkv.nn.attention import masked_softmax
from qkv.report.attention_map import Token
from qkv.text.alignment import Span, word_spans

_SPACES = ("Ġ", "▁")
"""What byte pairs and SentencePiece write for the space before a word."""


def word_ranges(tokens: Sequence[Token], texts: Sequence[str]) -> list[list[int]]:
    """[first, last] of every word, both counted in: together all tokens, in their order.

    >>> pieces = [("[CLS]", 0, 0), ("un", 0, 2), ("##happy", 2, 7), ("猫", 7, 8), ("狗", 8, 9), ("[SEP]", 0, 0)]
    >>> text = "unhappy猫狗"
    >>> tokens = [Token(one, text[start:end], start, end, 0, one[0] == "[") for one, start, end in pieces]
    >>> word_ranges(tokens, [text])
    [[0, 0], [1, 2], [3, 3], [4, 4], [5, 5]]
    """
    words = [word_spans(text) for text in texts]
    found: list[list[int]] = []
    before: tuple[int, int] | None = None  # segment and number of the word that the last token ended in
    opened = False  # the last token was a space before what comes now
    for place, token in enumerate(tokens):
        first, last = _find_words(token, words[token.segment])
        if first is not None and (opened or before == (token.segment, first)):
            found[-1][1] = place
        else:
            found.append([place, place])
        opened = token.token in _SPACES and not token.special and first is None
        before = None if last is None else (token.segment, last)
    return found


def _find_words(token: Token, words: Sequence[Span]) -> tuple[int, int] | tuple[None, None]:
    """The first and the last word that a token has characters of; of a mark or a space, none."""
    if token.special or not token.text.strip():
        return None, None
    start = token.start + len(token.text) - len(token.text.lstrip())
    end = token.start + len(token.text.rstrip())
    first = bisect_right(words, start, key=lambda word: word.end)
    last = bisect_right(words, end - 1, key=lambda word: word.end)
    return first, last


# --- One row of one head, step by step, with its real numbers: softmax(q Kᵀ ÷ √K) V.
#
#     q           (K)      what the token asks for
#     k           (T, K)   what every token offers
#     scores      (T)      q · k
#     scaled      (T)      ÷ √K: `scale` times the scores, whatever the network's scale is
#     weights     (T)      softmax; 0 where a token may not be seen
#     v           (T, K)   what every token says
#     output      (K)      the sum of weights × v, which the layer's last product mixes with the other heads'
#
# The scores of a seq2seq may be others: `score` says how they were made, and of additive ones `direction` (K) is the
# vector that weighs tanh(q + k).
#
# Shapes: T tokens that are looked at, K width of a head.


def show_steps(subject: Subject, asked: Asked) -> Reply:
    """Fields as of `attention`, and layer, head and row, the token that looks, all counted from 0.

    Without a row those of all tokens at once, of texts that are not long: every array but k and v then has a row for
    each token that looks, and `masked` is one of them.
    """
    question = Question.read(subject, asked)
    layer = asked.number("layer", 0, question.layers - 1)
    number = asked.number("head", 0, question.heads - 1)
    row = asked.maybe_number("row", 0, MOST_CHARACTERS)
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


# --- Who looks at whom, in every head of every layer, and in one layer to the last byte.
#
# Without a layer a page gets an overview: a small map of each head, in which a cell is the maximum of its block of
# the
# whole map, so that a lone line stays to be seen; and five measures, by which heads are sorted:
#
#     entropy     0: a token looks at one other, 1: at all alike; a row's, over ln of how many may be seen
#     distance    how far from itself a token looks, as a share of the text
#     ends        what goes to the marks around a text: [CLS], [SEP] and their like
#     separators  of that, what goes to marks behind a text, [SEP] and its like: to all but one that stands first
#     itself      what a token keeps to itself; 0 where two texts face each other
#
# each the mean over all tokens that look. With a layer it gets that layer's weights, one byte each, round(255 · w).
#
# Shapes: L layers, H heads, Q tokens that look, T tokens that are looked at, S cells of a small map.

_SMALL = 48
"""Cells of a small map, at most, on a side."""
MEASURES = ("entropy", "distance", "ends", "separators", "itself")


def attention(subject: Subject, asked: Asked) -> Reply:
    """Fields text, pair (bert, and a gpt that was fine-tuned), kind, output (translators), and layer, if one is meant.

    Arrays small (L, H, S, S) and measures (L, H, 5); or, with a layer, attn (H, Q, T) of it and nothing else.
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
        "unknown": {"left": scene.left.lost, "right": scene.right.lost},  # places of tokens
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
    for look in layer_records(scene):  # one layer's weights at a time: at 512 tokens those of a BERT are 150 MB
        scores = look.scores(look.scale)
        weights = masked_softmax(scores, look.mask)
        small.append(_bytes(block_maximum(weights)))  # rounding keeps the order, so that it may come last
        measures.append(measure(scores.float(), weights.float()).cpu().numpy())
    return {"small": np.stack(small), "measures": np.stack(measures)}


def block_maximum(weights: Tensor, most: int = _SMALL) -> Tensor:
    """(H, Q, T) → (H, S, S'): cell i is the maximum of i · Q / S to (i + 1) · Q / S, rounded down; columns alike.

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
    """The five measures of the heads of a layer; what they need to know of the tokens is worked out once."""

    def __init__(self, scene: Scene) -> None:
        left, right = len(scene.left.tokens), len(scene.right.tokens)
        seen = torch.full((left,), float(right)) if scene.sees_all else torch.arange(1.0, left + 1)
        self.has_choice = (seen > 1).float()  # (Q,), who has only one token to look at
        self.most = seen.log().clamp_min(1e-9)  # (Q,), the largest entropy there is
        places = torch.arange(left)[:, None] / left, torch.arange(right)[None] / right
        self.distance = (places[0] - places[1]).abs().flatten()  # (Q · T,)
        ends = torch.tensor([float(token.special) for token in scene.right.tokens])
        behind = (torch.arange(right) > 0).float()
        self.marks = torch.stack([ends, ends * behind], dim=-1)  # (T, 2), all of them, and the separators
        self.same = scene.same

    def __call__(self, scores: Tensor, weights: Tensor) -> Tensor:
        """(H, Q, T) each, of one layer → (H, 5)"""
        scores, weights = scores.cpu(), weights.cpu()
        queries = weights.size(1)
        best, place = weights.max(dim=-1, keepdim=True)  # (H, Q, 1)
        # −Σ w ln w with ln w = s − ln Σ exp s, of which the sum is read off the largest weight: no logarithm a weight
        total = scores.gather(-1, place) - best.log()
        entropy = (total[..., 0] - (weights * scores).sum(-1)).clamp_min(0) / self.most  # (H, Q)
        entropy = (entropy * self.has_choice).sum(-1) / self.has_choice.sum().clamp_min(1)
        distance = weights.flatten(1) @ self.distance / queries
        ends, separators = (weights @ self.marks).mean(1).unbind(-1)
        itself = weights.diagonal(dim1=1, dim2=2).mean(-1) if self.same else torch.zeros_like(ends)
        return torch.stack([entropy, distance, ends, separators, itself], dim=-1).clamp(0, 1)


def _bytes(weights: Tensor) -> NDArray[np.uint8]:
    return (weights.float() * 255).round().to(torch.uint8).cpu().numpy()
