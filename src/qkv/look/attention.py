"""The attention view: the tokens on both sides, the inputs of the first layer, overview, one layer, one head.

    bert          self                          a text, or two in one row (then its name is "pair")
    gpt           causal                        a text; every token sees itself and those before it
    transformer   encoder | decoder | cross     source to source; translation to itself; translation to source
    seq2seq       cross                         translation to source, one layer and one head

If no translation is given, the model generates it once; it is cached for questions about other layers. The rows of a
Transformer's decoder are the tokens it reads (the begin token, then all but the end token), those of a seq2seq the
tokens it predicts, because there the query is the state before a token.

Not here: the attention itself (attention.py).
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.api.model import show_tokens, strip_unlearned
from qkv.api.translator import Translator
from qkv.data.batch import Batch
from qkv.look.subject import Subject
from qkv.look.wire import TEXT_LIMIT, Asked, RefusalError, Reply, check_length, empty_refusal, to_float32
from qkv.models.encoder import Layered
from qkv.nn.attention import masked_softmax
from qkv.nn.layers import AttentionKind, AttentionRecord, Layer, attention_records
from qkv.report.attention import Token
from qkv.tasks.translate import source_spans, target_spans, translate_batch
from qkv.text.alignment import WordSpan, word_spans

CACHED_TRANSLATIONS = 64  # translations


@dataclass(frozen=True)
class Side:
    """One text, or two in one row, as the network reads it."""

    ids: tuple[int, ...]
    tokens: tuple[Token, ...]
    unknown: int = -1  # id of the unknown token

    @property
    def lost(self) -> list[int]:
        """Indices of unknown tokens."""
        rows = enumerate(zip(self.ids, self.tokens, strict=True))
        return [
            place
            for place, (number, token) in rows
            # not a literal [UNK] in the text, nor the special tokens to which byte-level vocabularies give this id
            if number == self.unknown and not token.special and token.text.strip() not in ("", token.token)
        ]

    @property
    def segments(self) -> list[int]:
        return [token.segment for token in self.tokens]


@dataclass(frozen=True)
class Scene:
    subject: Subject
    attention: AttentionKind
    name: str  # the kind, or "pair"
    left: Side  # queries
    right: Side  # keys
    texts: tuple[str, ...]  # the texts that token spans refer to, by segment
    source: Side | None = None  # input of a translator's encoder
    target: tuple[int, ...] | None = None  # input of its decoder, if needed

    @property
    def kind(self) -> str:
        return self.attention.name

    @property
    def same(self) -> bool:
        """Whether both sides are the same text."""
        return not self.attention.looks_at_source

    @property
    def sees_all(self) -> bool:
        """Whether every token is visible to every other."""
        return not self.attention.is_causal

    def layers(self) -> Iterator[Layer]:
        """The layers of the network on these tokens."""
        first = self.left if self.source is None else self.source
        batches = [Batch.of([first.ids], segments=[first.segments])]
        if self.target is not None:
            batches.append(Batch.of([self.target]))
        network: Layered = self.subject.network
        return network.layers(*(batch.to(self.subject.device) for batch in batches))


@dataclass(frozen=True)
class Question:
    """The texts and the kind of attention of a request."""

    subject: Subject
    kind: str
    text: str
    pair: str | None
    output: str | None

    @classmethod
    def read(cls, subject: Subject, asked: Asked) -> "Question":
        """Read the fields text, pair, kind and output. Raises RefusalError for a model without attention."""
        kinds = [kind.name for kind in find_attentions(subject)]
        kind = asked.choice("kind", kinds, kinds[0])
        text = asked.text()
        pair = None if subject.translates else asked.maybe_text("pair")
        return cls(subject, kind, text, pair, asked.maybe_text("output") if subject.translates else None)

    @property
    def network(self) -> Layered:
        return self.subject.network

    @property
    def attention(self) -> AttentionKind:
        return next(kind for kind in self.network.attentions if kind.name == self.kind)

    @property
    def layers(self) -> int:
        return self.attention.layers

    @property
    def heads(self) -> int:
        return self.attention.heads

    def scene(self) -> Scene:
        """The tokens of both sides; generates a translation if none was given."""
        subject, kind = self.subject, self.attention
        if not subject.translates:
            side = _make_model_side(subject, kind, self.text, self.pair)
            texts = (self.text,) if self.pair is None else (self.text, self.pair)
            name = kind.name if self.pair is None or kind.is_causal else "pair"
            return Scene(subject, kind, name, side, side, texts)
        source = _make_source_side(subject.translator, self.text, 1 if kind.looks_at_source else 0)
        if kind.part == "encoder":
            return Scene(subject, kind, kind.name, source, source, (self.text,), source)
        output, target, read = _make_target_side(subject, kind, self.text, self.output)
        right, texts = (source, (output, self.text)) if kind.looks_at_source else (target, (output,))
        return Scene(subject, kind, kind.name, target, right, texts, source, read)


def find_attentions(subject: Subject) -> tuple[AttentionKind, ...]:
    """The kinds of attention of a model. Raises RefusalError if it has none."""
    found = () if subject.is_table else subject.network.attentions
    if not found:
        if subject.translates:
            context = subject.translator.network.context
            raise subject.refusal("no_attention", f"whose decoder has no attention: its context is {context}")
        raise subject.refusal("no_attention", "which has no attention")
    return found


def _make_model_side(subject: Subject, kind: AttentionKind, text: str, pair: str | None) -> Side:
    model = subject.model
    untaught = kind.is_causal and not model.network.heads
    sizes = subject.facts.sizes
    if pair is not None and (untaught or sizes is None or not sizes.pairs):
        raise subject.refusal("no_pair", "which reads single texts")
    texts = (text,) if pair is None else (text, pair)
    for name, one in zip(("text", "pair"), texts, strict=False):
        if model.tokenizer.is_empty(one):
            raise empty_refusal(name)
    encoded = model.tokenizer.encode(text, pair)
    if untaught:
        encoded = strip_unlearned(encoded, model.tokenizer)
    check_length(len(encoded.ids), model.config.max_length)
    tokens = show_tokens(encoded, texts, model.tokenizer.special_ids)
    return Side(tuple(encoded.ids), tokens, model.tokenizer.unk_id)


def _make_source_side(translator: Translator, text: str, segment: int) -> Side:
    languages = translator.languages
    encoded, spans = languages.source.encode(text, special=False), source_spans(languages.source, text)
    if not encoded.ids:
        raise empty_refusal("text")
    check_length(len(encoded.ids) + 1, translator.max_length)
    unknown = languages.source.unk_id  # SentencePiece spells unknown tokens as in the text
    read = [
        languages.source.token(number) if number == unknown else token
        for number, token in zip(encoded.ids, encoded.tokens, strict=True)
    ]
    tokens = _make_tokens(read, spans, text, segment)
    end = Token(languages.source.token(languages.source_end), "", 0, 0, segment, special=True)
    return Side((*encoded.ids, languages.source_end), (*tokens, end), unknown)


def _make_target_side(
    subject: Subject, kind: AttentionKind, text: str, output: str | None
) -> tuple[str, Side, tuple[int, ...]]:
    """The translation, its tokens as rows of the attention, and the input ids of the decoder."""
    translator = subject.translator
    languages = translator.languages
    if output is None:
        ids, output, spans = _translation(subject, text)
    else:
        ids = tuple(languages.target.encode(output, special=False).ids)
        spans = tuple(source_spans(languages.target, output))
        if not ids:
            raise empty_refusal("output")
        check_length(len(ids) + 1, translator.max_length)
    tokens = _make_tokens([languages.target.token(number) for number in ids], spans, output, 0)
    read = (languages.begin, *ids)
    if kind.asks_for_next:
        end = Token(languages.target.token(languages.end), "", 0, 0, special=True)
        return output, Side((*ids, languages.end), (*tokens, end), languages.target.unk_id), read
    begin = Token(languages.target.token(languages.begin), "", 0, 0, special=True)
    return output, Side(read, (begin, *tokens), languages.target.unk_id), read


@lru_cache(maxsize=CACHED_TRANSLATIONS)
def _translation(subject: Subject, text: str) -> tuple[tuple[int, ...], str, tuple[tuple[int, int], ...]]:
    """The generated tokens, which may differ from those of the tokenised text; the text; the tokens' spans."""
    translator = subject.translator
    source = translator.languages.read([text])
    best = translate_batch(translator.network, translator.languages, source, translator.decoding)[0][0]
    written, spans = target_spans(translator.languages.target, best.tokens)
    return best.tokens, written, tuple(spans)


def _make_tokens(tokens: Sequence[str], spans: Sequence[tuple[int, int]], text: str, segment: int) -> tuple[Token, ...]:
    return tuple(
        Token(token, text[start:end], start, end, segment) for token, (start, end) in zip(tokens, spans, strict=True)
    )


# --- The inputs of the first layer, and the attention records of all layers.
#
#     bert          token + segment + position, then a norm
#     gpt           token + position
#     transformer   token × √D + sinusoids
#
# A recurrent network adds nothing to its token vectors.
#
# A network yields its layers with their attention (nn/layers.py). Weights are computed for one layer at a time, and
# layers above the last requested one are not run.
#
# Shapes: T tokens, D width.

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
    found = {name: to_float32(part[rows] if row is None else part[row]) for name, part in parts.items()}
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


def layer_records(scene: Scene) -> Iterator[AttentionRecord]:
    """The records of all layers from the lowest, computed lazily."""
    return attention_records(scene.attention, scene.layers())


@torch.inference_mode()
def layer_record(scene: Scene, layer: int) -> AttentionRecord:
    found = layer_records(scene)
    for _ in range(layer):
        next(found)
    return next(found)


# --- The attention view: an overview of all heads, the weights of one layer, and one head step by step.
#
# Overview: a small map of each head, where a cell is the maximum of its block, so that thin lines stay visible; and
# five measures for sorting heads, each a mean over all queries:
#
#     entropy     0: all weight on one token, 1: uniform; normalised by ln of the number of visible tokens
#     distance    mean distance of the attended tokens, as a share of the text length
#     ends        weight on special tokens ([CLS], [SEP] etc.)
#     separators  of that, weight on special tokens after the text ([SEP] etc.): all but the first token
#     itself      weight on the token itself; 0 in cross-attention
#
# One layer: its weights, one byte each, round(255 · w).
#
# One row of one head, softmax(q Kᵀ ÷ √K) V (`show_steps`):
#
#     q           (K)      query of the token
#     k           (T, K)   keys
#     scores      (T)      q · k
#     scaled      (T)      scores × `scale`, the network's scale (1 / √K)
#     weights     (T)      softmax; 0 where masked
#     v           (T, K)   values
#     output      (K)      Σ weights × v, which the layer's output projection mixes with the other heads
#
# A seq2seq may use other scores: `score` names them, and for additive scores `direction` (K) is the vector v in vᵀ
# tanh(q + k).
#
# Words: `word_ranges` groups tokens to words by their characters, whatever the vocabulary's markers (##ing, Ġthe, ▁the,
# the</w>). A word is a run of letters and digits with inner punctuation (isn't, 3.5); every 汉字 and every other
# punctuation character is a word of its own. A character of several tokens is one word, a token that is only the space
# before a word belongs to that word, special tokens stay separate, and every token is in exactly one word.
#
# Shapes: L layers, H heads, Q queries, T keys, S cells of a small map, K head width.

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
        arrays = {name: to_float32(part) for name, part in (by_row | whole).items()}
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
