"""Decoding, watched: every beginning that lived, what the network scored after it, and where it looked.

`generate` is called as for any translation, with a step that writes down what passes through it and a state that knows
which node of the tree each of its rows is. So what is shown is what happened, whatever the way of searching.

    node       a beginning: its last token, the node before it, and the log probability of its tokens
    scored     of a node that was gone on from: the best next tokens with their logits, and log Σ exp(z / T) over the
               vocabulary at every temperature T of TEMPERATURES, so that a share at any of them is one division away
    leaf       a node that nothing follows: a text that ended, or one that was given up

Shapes: Q rows, V vocabulary, S tokens of the source, N nodes that were gone on from, C best next tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.api.translator import Translator
from qkv.data.batch import Batch
from qkv.data.pairs.batching import Coder, Languages
from qkv.errors import InputError
from qkv.look.subject import Subject
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.report.attention_map import Token
from qkv.search.decoding import DecoderState, EncoderDecoder, Hypothesis, Stepped
from qkv.search.options import GenerateConfig
from qkv.search.search import generate
from qkv.tasks.translate import source_spans, target_spans, translate_batch
from qkv.text.alignment import align, word_attention
from qkv.text.sentencepiece import MarianTokenizer
from qkv.text.tokenizer import Tokenizer

_State = TypeVar("_State", bound=DecoderState)
TEMPERATURES = tuple(round(0.1 * number, 1) for number in range(1, 21))
"""From nearly certain to nearly even; 1 is the network's own."""
BEST = 10
"""Next tokens that are told of a node."""
NOWHERE = -1


@dataclass(frozen=True)
class Node:
    parent: int  # NOWHERE: nothing is written yet
    token: int
    length: int  # tokens written, this one included
    log_probability: float


@dataclass(frozen=True)
class _Scored:
    ids: Tensor  # (C,) best first, of what may be written
    logits: Tensor  # (C,)
    log_totals: Tensor  # (TEMPERATURES,)
    attention: Tensor | None  # (S,): where it looked to choose what follows


class _Watched(Generic[_State]):
    """A decoder's state, and which node each of its rows is."""

    def __init__(self, state: _State, nodes: Sequence[int]) -> None:
        self.state, self.nodes = state, nodes

    def select(self, rows: Tensor) -> "_Watched[_State]":
        return _Watched(self.state.select(rows), [self.nodes[row] for row in rows.tolist()])


class Tree:
    """Grows with every step. Rows that count for nothing are copies of others, and make no nodes of their own."""

    def __init__(self, languages: Languages, config: GenerateConfig) -> None:
        self.nodes: list[Node] = []
        self.scored: list[_Scored] = []  # of the nodes, as far as they were gone on from
        self._never = torch.tensor(sorted({*languages.never}), dtype=torch.int64)
        self._end, self._shortest, self._renormalise = languages.end, config.min_length, config.renormalise
        self._places: dict[tuple[int, int], int] = {}
        self._living: dict[int, Tensor] = {}  # (V,) log probabilities after each node of the last step

    def after(self, parent: int, token: int) -> int:
        """The node of a parent and one more token."""
        if (found := self._places.get((parent, token))) is not None:
            return found
        before = None if parent == NOWHERE else self.nodes[parent]
        length, total = (0, 0.0) if before is None else (before.length + 1, before.log_probability)
        if before is not None:
            total += float(self._living[parent][token])
        self.nodes.append(Node(parent, token, length, total))
        self._places[parent, token] = len(self.nodes) - 1
        return len(self.nodes) - 1

    def score(self, nodes: Sequence[int], logits: Tensor, attention: Tensor | None) -> None:
        """(Q, V) and (Q, S), of all rows of a step."""
        living: dict[int, Tensor] = {}
        for row, node in enumerate(nodes):
            if node in living:
                continue
            assert node == len(self.scored), "nodes are gone on from in the order of their numbers"
            own = logits[row].detach().float().cpu().clone()  # what is forbidden is written into the network's own
            allowed = own.index_fill(0, self._never, -torch.inf)
            if self._renormalise:
                own = allowed
            if self.nodes[node].length < self._shortest:
                allowed = allowed.index_fill(0, torch.tensor([self._end]), -torch.inf)
            living[node] = own.log_softmax(0)
            best = allowed.topk(min(BEST, int(allowed.isfinite().sum())))
            totals = torch.stack([(own / temperature).logsumexp(0) for temperature in TEMPERATURES])
            looked = None if attention is None else attention[row].detach().float().cpu()
            self.scored.append(_Scored(best.indices, best.values, totals, looked))
        self._living = living

    def leaf(self, found: Hypothesis) -> int:
        """The node of a text that is done, which no step has gone on from; made where there is none."""
        node, written = 0, [*found.tokens, *([self._end] if found.finished else [])]
        for token in written[:-1]:
            node = self._places[node, token]
        key = node, written[-1]
        if key not in self._places:
            self.nodes.append(Node(*key, len(written), found.log_probability))
            self._places[key] = len(self.nodes) - 1
        return self._places[key]


def watched(
    network: EncoderDecoder[_State], languages: Languages, source: Sequence[int], config: GenerateConfig
) -> tuple[Tree, list[Hypothesis]]:
    """One source, as `Languages.read` gives it: the tree, and the texts that won, best first."""
    batch = Batch.of([source])
    tree = Tree(languages, config)
    longest = config.limit(len(source))
    state = network.start(batch.ids, batch.packing, hypotheses=config.hypotheses, longest=longest)

    def step(tokens: Tensor, before: _Watched[_State]) -> Stepped[_Watched[_State]]:
        nodes = [tree.after(node, token) for node, token in zip(before.nodes, tokens.tolist(), strict=True)]
        found = network.step(tokens, before.state)
        tree.score(nodes, found.logits, found.attention)
        return Stepped(found.logits, _Watched(found.state, nodes), found.attention)

    (found,) = generate(
        step,
        _Watched(state, [NOWHERE] * config.hypotheses),
        torch.full((1,), languages.begin),
        languages.end,
        config,
        source_lengths=batch.lengths,
        never=languages.never,
    )
    return tree, found


# --- What a model that translates did with a text: its translations with where each word came from, and how they
# grew.
#
# `translate`   the few best translations; of each the attention of its words to the words of the text, and the links
#               that are read off it (text/alignment.py). A network whose decoder sees nothing but one fixed vector C
# has
#               no attention: the vector itself is given instead
# `beam_steps`  the same search step by step (translating.py): every beginning that lived, the logits of the best
# next tokens,
#               what probabilities are made of, and where the network looked
#
# Both decode as the model's makers do, but for the number of beams, and never by chance.
#
# Shapes: W, X words of a translation and of the text, T, S tokens of them, the end of the text included in S alone,
# N beginnings that were gone on from, C best next tokens, K temperatures, E width of the vector C.

BEAMS = 8
"""Beginnings that are kept at most: as many as a person can follow."""
_USUAL = 4
_LONGEST = 512
"""Tokens that are written at most, if `most` does not say fewer."""


@torch.inference_mode()
def translate(subject: Subject, asked: Asked) -> Reply:
    """Fields: text, beams. Arrays, for candidate n: alignment{n} (W, X), rest{n} (W,), looks{n} (T, S)."""
    text, beams = asked.text(), asked.number("beams", 1, BEAMS, _USUAL)
    asked.done()
    translator = subject.translator
    source = _read(translator, text)
    (found,) = translate_batch(translator.network, translator.languages, [source], _decoding(translator, beams))
    spans = source_spans(translator.languages.source, text)
    candidates, arrays = [], dict[str, NDArray[Any]]()
    for number, one in enumerate(found):
        told, own = _candidate(translator, text, spans, one)
        candidates.append(told)
        arrays |= {f"{name}{number}": array for name, array in own.items()}
    head, context = _about(subject, translator, text, source)
    unknown = [list(span) for span in translator.languages.unknown(text, source)]
    return Reply({**head, "beams": beams, "unknown": unknown, "candidates": candidates}, arrays | context)


@torch.inference_mode()
def beam_steps(subject: Subject, asked: Asked) -> Reply:
    """Fields: text, beams, most (tokens that are written). Arrays: ids and logits (N, C), log_totals (N, K) of the
    head's temperatures, n_scored (N,) how many of the C there are, attention (N, S)."""
    text, beams = asked.text(), asked.number("beams", 1, BEAMS, _USUAL)
    most = asked.number("most", 1, _LONGEST, _LONGEST)
    asked.done()
    translator = subject.translator
    source = _read(translator, text)
    config = _decoding(translator, beams)
    config = replace(config, max_length=min(most, config.max_length), min_length=min(config.min_length, most - 1))
    languages = translator.languages
    network: EncoderDecoder[Any] = translator.network
    tree, found = watched(network, languages, source, config)
    hypotheses = [
        {
            "node": tree.leaf(one),
            "text": languages.target.decode(one.tokens),
            "score": _rounded(one.score),
            "log_probability": _rounded(one.log_probability),
            "finished": one.finished,
        }
        for one in found
    ]
    head, context = _about(subject, translator, text, source)
    told = {
        **head,
        "beams": beams,
        "temperatures": list(TEMPERATURES),
        "steps": 1 + max(tree.nodes[number].length for number in range(len(tree.scored))),
        "nodes": _nodes(tree, languages.target, languages.end),
        "hypotheses": hypotheses,
        "vocabulary": _vocabulary(tree, languages.target),
        "vocabulary_size": languages.target.size,
        "renormalised": config.renormalise,
        "forbids_repeats": config.no_repeat > 0 or config.repetition_penalty != 1,  # which no logit shows
        "length_penalty": config.length_penalty,
    }
    return Reply(told, _scored(tree) | context)


def _decoding(translator: Translator, beams: int) -> GenerateConfig:
    made_with = translator.decoding
    return replace(made_with, beams=beams, n_best=beams, sample=False, temperature=1.0, top_k=None, top_p=1.0)


def _read(translator: Translator, text: str) -> list[int]:
    (source,) = translator.languages.read([text])
    if len(source) < 2:  # nothing but an end
        raise RefusalError("empty", "There is nothing in the text that the model could read.", field="text")
    if len(source) > translator.max_length:
        raise RefusalError(
            "too_many_tokens",
            f"The text has {len(source):,} tokens, and this model translates {translator.max_length:,} at most. "
            "Shorten it, or translate it sentence by sentence: nothing is cut silently.",
            tokens=len(source),
            most=translator.max_length,
        )
    return source


def _about(
    subject: Subject, translator: Translator, text: str, source: Sequence[int]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What both replies say about the model and the text; and C, where that is all the decoder knows of it."""
    coder = translator.languages.source
    read = coder.encode(text, special=False)
    tokens = [
        asdict(Token(token, text[start:end], start, end))
        for token, (start, end) in zip(read.tokens, source_spans(coder, text), strict=True)
    ]
    tokens.append(asdict(Token(spelled(coder, source[-1]), "", len(text), len(text), special=True)))
    batch = Batch.of([source])
    fixed = translator.network.fixed_context(batch.ids, batch.packing)
    arrays: dict[str, NDArray[Any]] = {} if fixed is None else {"context": _f4(fixed[0])}  # (E,)
    head = {
        "kind": subject.kind,
        "name": "translate",
        "context": translator.network.context,  # "attention", "fixed", "every_step": see models/seq2seq/network.py
        "languages": [translator.source_language, translator.target_language],
        "text": text,
        "source": tokens,
        "n_tokens": len(source),
    }
    return head, arrays


def _candidate(
    translator: Translator, text: str, spans: Sequence[tuple[int, int]], found: Hypothesis
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    coder = translator.languages.target
    written, places = target_spans(coder, found.tokens)
    told: dict[str, Any] = {
        "text": written,
        "score": _rounded(found.score),
        "log_probability": _rounded(found.log_probability),
        "finished": found.finished,
        "tokens": [
            asdict(Token(spelled(coder, token), written[start:end], start, end, 1))
            for token, (start, end) in zip(found.tokens, places, strict=True)
        ],
    }
    if found.attention is None:
        return told, {}
    looks = found.attention.float().cpu().numpy()
    words = word_attention(looks, text, spans, written, places)
    told |= {
        "source_words": [list(span) for span in words.source_words],
        "target_words": [list(span) for span in words.target_words],
        "links": [one.to_dict(text, written) for one in align(words)],
    }
    weights, rest = words.weights.astype(np.float32), words.rest.astype(np.float32)
    return told, {"alignment": weights, "rest": rest, "looks": looks.astype(np.float32)}


def _nodes(tree: Tree, coder: Coder, end: int) -> list[dict[str, Any]]:
    paths: list[list[int]] = []
    told = []
    for number, node in enumerate(tree.nodes):
        is_root, ends = node.parent == NOWHERE, node.token == end and node.parent != NOWHERE
        paths.append([] if is_root else [*paths[node.parent], node.token])
        told.append(
            {
                "parent": node.parent,
                "id": node.token,
                "token": spelled(coder, node.token),
                "text": coder.decode(paths[-1][:-1] if ends else paths[-1]),
                "length": node.length,
                "log_probability": _rounded(node.log_probability),
                "ended": ends,
                "scored": number < len(tree.scored),
            }
        )
    return told


def _vocabulary(tree: Tree, coder: Coder) -> Mapping[str, str]:
    """How the tokens that are told are spelled, by id."""
    known = {id for one in tree.scored for id in one.ids.tolist()} | {node.token for node in tree.nodes}
    return {str(id): spelled(coder, id) for id in sorted(known)}


def _scored(tree: Tree) -> dict[str, NDArray[Any]]:
    """Rows of one width; where there are fewer next tokens than that, n_scored says so."""
    numbers = np.array([len(one.ids) for one in tree.scored], np.int32)
    ids = np.full((len(numbers), numbers.max()), -1, np.int32)
    logits = np.zeros(ids.shape, np.float32)
    for row, one in enumerate(tree.scored):
        ids[row, : numbers[row]], logits[row, : numbers[row]] = one.ids.numpy(), one.logits.numpy()
    totals = np.stack([one.log_totals.numpy() for one in tree.scored])
    found = {"ids": ids, "logits": logits, "n_scored": numbers, "log_totals": totals}
    looks = [one.attention.numpy() for one in tree.scored if one.attention is not None]
    return found | ({"attention": np.stack(looks)} if looks else {})


def spelled(coder: Coder, id: int) -> str:
    """As the vocabulary writes it. Ids may have gaps, and a network scores them all the same: those are told as #7."""
    assert isinstance(coder, Tokenizer | MarianTokenizer)
    try:
        return coder.token(id)
    except InputError:
        return f"#{id}"


def _f4(values: torch.Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = values.float().cpu().numpy()
    return found


def _rounded(value: float) -> float:
    return round(value, 6)
