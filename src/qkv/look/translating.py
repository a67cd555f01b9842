"""The view of translation: candidates with word alignment, and beam search step by step.

Question `translate`: the best translations; for each the attention of its words to the source words, and the alignment
links read off it (text/alignment.py). A decoder with a fixed context vector C has no attention; C is returned instead.

Question `beam_steps`: the same search as a tree of partial texts. `generate` is called as for any translation, with a
step that records its results and a state that knows the tree node of each row, so that the tree shows the actual
search.

    node       a partial text: its last token, its parent node, and the log probability of its tokens
    scored     of an expanded node: the best next tokens with their logits, and log Σ exp(z / T) over the vocabulary at
               every temperature T of TEMPERATURES, from which the page computes probabilities
    leaf       a node without children: an ended text or a dropped one

Both use the model's decoding options, except for the number of beams, and never sample.

Shapes: Q rows, V vocabulary, T, S tokens of a translation and of the source (S includes the end token), W, X words of
them, N expanded nodes, C best next tokens, K temperatures, E width of C.
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
from qkv.look.wire import Asked, Reply, check_length, empty_refusal, to_float32
from qkv.report.attention import Token
from qkv.search.beam import generate
from qkv.search.decoding import DecoderState, EncoderDecoder, Hypothesis, Stepped
from qkv.search.options import GenerateConfig
from qkv.tasks.translate import source_spans, target_spans, translate_batch
from qkv.text.alignment import align, word_attention

_State = TypeVar("_State", bound=DecoderState)
TEMPERATURES = tuple(round(0.1 * number, 1) for number in range(1, 21))
"""From nearly deterministic to nearly uniform; 1 is the network's own distribution."""
BEST_TOKENS = 10
"""Next tokens listed per node."""
NO_PARENT = -1


@dataclass(frozen=True)
class Node:
    parent: int  # NO_PARENT: the root
    token: int
    length: int  # tokens so far, including this one
    log_probability: float


@dataclass(frozen=True)
class _NodeScores:
    ids: Tensor  # (C,) allowed tokens, best first
    logits: Tensor  # (C,)
    log_totals: Tensor  # (TEMPERATURES,)
    attention: Tensor | None  # (S,): weights on the source for the next token


class _WatchedState(Generic[_State]):
    """A decoder's state and the node of each row."""

    def __init__(self, state: _State, nodes: Sequence[int]) -> None:
        self.state, self.nodes = state, nodes

    def select(self, rows: Tensor) -> "_WatchedState[_State]":
        return _WatchedState(self.state.select(rows), [self.nodes[row] for row in rows.tolist()])


class Tree:
    """The tree of a search, extended at every step. Padding rows are copies of others and add no nodes."""

    def __init__(self, languages: Languages, config: GenerateConfig) -> None:
        self.nodes: list[Node] = []
        self.scored: list[_NodeScores] = []  # of the expanded nodes
        self._never = torch.tensor(sorted({*languages.never}), dtype=torch.int64)
        self._end, self._shortest, self._renormalise = languages.end, config.min_length, config.renormalise
        self._places: dict[tuple[int, int], int] = {}
        self._living: dict[int, Tensor] = {}  # (V,) log probabilities after each node of the last step

    def after(self, parent: int, token: int) -> int:
        """The child of a node by one token, created if needed."""
        if (found := self._places.get((parent, token))) is not None:
            return found
        before = None if parent == NO_PARENT else self.nodes[parent]
        length, total = (0, 0.0) if before is None else (before.length + 1, before.log_probability)
        if before is not None:
            total += float(self._living[parent][token])
        self.nodes.append(Node(parent, token, length, total))
        self._places[parent, token] = len(self.nodes) - 1
        return len(self.nodes) - 1

    def score(self, nodes: Sequence[int], logits: Tensor, attention: Tensor | None) -> None:
        """Record the logits (Q, V) and attention (Q, S) of all rows of a step."""
        living: dict[int, Tensor] = {}
        for row, node in enumerate(nodes):
            if node in living:
                continue
            assert node == len(self.scored), "nodes are expanded in the order of their numbers"
            own = logits[row].detach().float().cpu().clone()  # the search changes the network's logits in place
            allowed = own.index_fill(0, self._never, -torch.inf)
            if self._renormalise:
                own = allowed
            if self.nodes[node].length < self._shortest:
                allowed = allowed.index_fill(0, torch.tensor([self._end]), -torch.inf)
            living[node] = own.log_softmax(0)
            best = allowed.topk(min(BEST_TOKENS, int(allowed.isfinite().sum())))
            totals = torch.stack([(own / temperature).logsumexp(0) for temperature in TEMPERATURES])
            looked = None if attention is None else attention[row].detach().float().cpu()
            self.scored.append(_NodeScores(best.indices, best.values, totals, looked))
        self._living = living

    def leaf(self, found: Hypothesis) -> int:
        """The node of a finished text, created if needed."""
        node, written = 0, [*found.tokens, *([self._end] if found.finished else [])]
        for token in written[:-1]:
            node = self._places[node, token]
        key = node, written[-1]
        if key not in self._places:
            self.nodes.append(Node(*key, len(written), found.log_probability))
            self._places[key] = len(self.nodes) - 1
        return self._places[key]


def watch_search(
    network: EncoderDecoder[_State], languages: Languages, source: Sequence[int], config: GenerateConfig
) -> tuple[Tree, list[Hypothesis]]:
    """Search for one source, as returned by `Languages.read` → the tree, and the best texts, best first."""
    batch = Batch.of([source])
    tree = Tree(languages, config)
    longest = config.limit(len(source))
    state = network.start(batch.ids, batch.packing, hypotheses=config.hypotheses, longest=longest)

    def step(tokens: Tensor, before: _WatchedState[_State]) -> Stepped[_WatchedState[_State]]:
        nodes = [tree.after(node, token) for node, token in zip(before.nodes, tokens.tolist(), strict=True)]
        found = network.step(tokens, before.state)
        tree.score(nodes, found.logits, found.attention)
        return Stepped(found.logits, _WatchedState(found.state, nodes), found.attention)

    (found,) = generate(
        step,
        _WatchedState(state, [NO_PARENT] * config.hypotheses),
        torch.full((1,), languages.begin),
        languages.end,
        config,
        source_lengths=batch.lengths,
        never=languages.never,
    )
    return tree, found


MOST_BEAMS = 8
"""Maximum beam width that stays readable on the page."""
_USUAL = 4
_LONGEST = 512
"""Maximum number of generated tokens."""


@torch.inference_mode()
def show_translation(subject: Subject, asked: Asked) -> Reply:
    """Fields: text, beams. Arrays, for candidate n: alignment{n} (W, X), rest{n} (W,), looks{n} (T, S)."""
    text, beams = asked.text(), asked.number("beams", 1, MOST_BEAMS, _USUAL)
    asked.done()
    translator = subject.translator
    source = _read(translator, text)
    (found,) = translate_batch(translator.network, translator.languages, [source], _decoding(translator, beams))
    spans = source_spans(translator.languages.source, text)
    candidates, arrays = [], dict[str, NDArray[Any]]()
    for number, one in enumerate(found):
        candidate, own = _candidate(translator, text, spans, one)
        candidates.append(candidate)
        arrays |= {f"{name}{number}": array for name, array in own.items()}
    head, context = _describe_text(subject, translator, text, source)
    unknown = [list(span) for span in translator.languages.unknown(text, source)]
    return Reply({**head, "beams": beams, "unknown": unknown, "candidates": candidates}, arrays | context)


@torch.inference_mode()
def show_beam_steps(subject: Subject, asked: Asked) -> Reply:
    """Fields: text, beams, most (maximum number of tokens). Arrays: ids and logits (N, C), log_totals (N, K) at the
    head's temperatures, n_scored (N,), the number of valid entries of C, attention (N, S)."""
    text, beams = asked.text(), asked.number("beams", 1, MOST_BEAMS, _USUAL)
    most = asked.number("most", 1, _LONGEST, _LONGEST)
    asked.done()
    translator = subject.translator
    source = _read(translator, text)
    config = _decoding(translator, beams)
    config = replace(config, max_length=min(most, config.max_length), min_length=min(config.min_length, most - 1))
    languages = translator.languages
    network: EncoderDecoder[Any] = translator.network
    tree, found = watch_search(network, languages, source, config)
    hypotheses = [
        {
            "node": tree.leaf(one),
            "text": languages.target.decode(one.tokens),
            "score": _round(one.score),
            "log_probability": _round(one.log_probability),
            "finished": one.finished,
        }
        for one in found
    ]
    head, context = _describe_text(subject, translator, text, source)
    described = {
        **head,
        "beams": beams,
        "temperatures": list(TEMPERATURES),
        "steps": 1 + max(tree.nodes[number].length for number in range(len(tree.scored))),
        "nodes": _describe_nodes(tree, languages.target, languages.end),
        "hypotheses": hypotheses,
        "vocabulary": _vocabulary(tree, languages.target),
        "vocabulary_size": languages.target.size,
        "renormalised": config.renormalise,
        "forbids_repeats": config.no_repeat > 0 or config.repetition_penalty != 1,  # not visible in the logits
        "length_penalty": config.length_penalty,
    }
    return Reply(described, _score_arrays(tree) | context)


def _decoding(translator: Translator, beams: int) -> GenerateConfig:
    made_with = translator.decoding
    return replace(made_with, beams=beams, n_best=beams, sample=False, temperature=1.0, top_k=None, top_p=1.0)


def _read(translator: Translator, text: str) -> list[int]:
    (source,) = translator.languages.read([text])
    if len(source) < 2:  # only the end token
        raise empty_refusal("text")
    check_length(len(source), translator.max_length)
    return source


def _describe_text(
    subject: Subject, translator: Translator, text: str, source: Sequence[int]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The part of the head common to both replies; and C, if the decoder has a fixed context."""
    coder = translator.languages.source
    read = coder.encode(text, special=False)
    tokens = [
        asdict(Token(token, text[start:end], start, end))
        for token, (start, end) in zip(read.tokens, source_spans(coder, text), strict=True)
    ]
    tokens.append(asdict(Token(spell_token(coder, source[-1]), "", len(text), len(text), special=True)))
    batch = Batch.of([source])
    fixed = translator.network.fixed_context(batch.ids, batch.packing)
    arrays: dict[str, NDArray[Any]] = {} if fixed is None else {"context": to_float32(fixed[0])}  # (E,)
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
    candidate: dict[str, Any] = {
        "text": written,
        "score": _round(found.score),
        "log_probability": _round(found.log_probability),
        "finished": found.finished,
        "tokens": [
            asdict(Token(spell_token(coder, token), written[start:end], start, end, 1))
            for token, (start, end) in zip(found.tokens, places, strict=True)
        ],
    }
    if found.attention is None:
        return candidate, {}
    looks = to_float32(found.attention)
    words = word_attention(looks, text, spans, written, places)
    candidate |= {
        "source_words": [list(span) for span in words.source_words],
        "target_words": [list(span) for span in words.target_words],
        "links": [one.to_dict(text, written) for one in align(words)],
    }
    weights, rest = words.weights.astype(np.float32), words.rest.astype(np.float32)
    return candidate, {"alignment": weights, "rest": rest, "looks": looks.astype(np.float32)}


def _describe_nodes(tree: Tree, coder: Coder, end: int) -> list[dict[str, Any]]:
    paths: list[list[int]] = []
    described = []
    for number, node in enumerate(tree.nodes):
        is_root, ends = node.parent == NO_PARENT, node.token == end and node.parent != NO_PARENT
        paths.append([] if is_root else [*paths[node.parent], node.token])
        described.append(
            {
                "parent": node.parent,
                "id": node.token,
                "token": spell_token(coder, node.token),
                "text": coder.decode(paths[-1][:-1] if ends else paths[-1]),
                "length": node.length,
                "log_probability": _round(node.log_probability),
                "ended": ends,
                "scored": number < len(tree.scored),
            }
        )
    return described


def _vocabulary(tree: Tree, coder: Coder) -> Mapping[str, str]:
    """The spelling of all listed tokens, by id."""
    known = {id for one in tree.scored for id in one.ids.tolist()} | {node.token for node in tree.nodes}
    return {str(id): spell_token(coder, id) for id in sorted(known)}


def _score_arrays(tree: Tree) -> dict[str, NDArray[Any]]:
    """The recorded scores as arrays, padded to one width; `n_scored` is the number of valid entries per row."""
    numbers = np.array([len(one.ids) for one in tree.scored], np.int32)
    ids = np.full((len(numbers), numbers.max()), -1, np.int32)
    logits = np.zeros(ids.shape, np.float32)
    for row, one in enumerate(tree.scored):
        ids[row, : numbers[row]], logits[row, : numbers[row]] = one.ids.numpy(), one.logits.numpy()
    totals = np.stack([one.log_totals.numpy() for one in tree.scored])
    found = {"ids": ids, "logits": logits, "n_scored": numbers, "log_totals": totals}
    looks = [one.attention.numpy() for one in tree.scored if one.attention is not None]
    return found | ({"attention": np.stack(looks)} if looks else {})


def spell_token(coder: Coder, id: int) -> str:
    """The spelling in the vocabulary; #7 for an id without a token, which the network scores too."""
    try:
        return coder.token(id)
    except InputError:
        return f"#{id}"


def _round(value: float) -> float:
    return round(value, 6)
