"""The cells of nn/recurrent.py opened: one step, with everything that its equation names.

A cell's own `step` gives the next state alone, and its kernels not even the steps. Here the same equations are written
out so that the gates can be seen; tests hold the states equal to those of the network.

    rnn        h
    lstm       i, f, g, o, c, h; with a projection also m, which h is projected from
    peephole   the same, of gates that see c
    coupled    f, g, o, c, h: what is forgotten is what is taken in, 1 − f
    gru        r, z, n, h

Shapes: G blocks, H width of a cell, P width of its output. A step is of one row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qkv.look.subject import Subject
from qkv.look.translating import spelled
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.models.elmo.network import DIRECTIONS, BothWays, Elmo, ElmoVectors
from qkv.models.plain.network import Reader, Recurrent
from qkv.models.rnnlm.network import RNNLM, RNNStates, StateVectors
from qkv.models.seq2seq.network import Seq2Seq
from qkv.nn.characters import spell
from qkv.nn.recurrent import GRU, LSTM, RNN, Cell, CoupledLSTM, PeepholeLSTM, State, clipped
from qkv.nn.recurrent_stack import Bidirectional, Stack
from qkv.report.attention_map import Token
from qkv.tasks.translate import source_spans
from qkv.text.sentencepiece import MarianTokenizer
from qkv.text.tokenizer import Encoded, Tokenizer

_Parts = dict[str, Tensor]
"""By the letter of the equation: (H,), of h (P,)."""


class OpenedStep(NamedTuple):
    """What one step computed."""

    parts: _Parts  # with h, and c where there is one
    from_state: Tensor  # (G, H): U h, with its bias where it has one

    def state(self) -> State:
        """What the next step goes on from, (1, …) each."""
        return tuple(self.parts[letter][None] for letter in ("h", "c") if letter in self.parts)


@dataclass(frozen=True)
class Equations:
    name: str  # as a config has it
    blocks: tuple[str, ...]  # letters, in the order of the blocks of W, U and b
    gates: frozenset[str]  # those from 0 to 1
    lines: tuple[str, ...]  # as in the docstring of nn/recurrent.py
    take: Callable[[Cell, Tensor, State], OpenedStep]  # W x + b (G, H) and the state


def _from_state(cell: Cell, state: State) -> Tensor:
    found: Tensor = cell.from_state(state[0])[0].unflatten(0, (cell.blocks, cell.width))
    return found


def _rnn(cell: Cell, given: Tensor, state: State) -> OpenedStep:
    added = _from_state(cell, state)  # (1, H)
    return OpenedStep({"h": torch.tanh(given + added)[0]}, added)


def _lstm(cell: Cell, given: Tensor, state: State) -> OpenedStep:
    assert isinstance(cell, LSTM)
    added, (c,) = _from_state(cell, state), state[1]
    i, f, g, o = given + added
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    c = clipped(f * c + i * g, cell.cell_clip)
    h = o * torch.tanh(c)
    parts = {"i": i, "f": f, "g": g, "o": o, "c": c}
    if cell.project is None:
        return OpenedStep(parts | {"h": h}, added)
    return OpenedStep(parts | {"m": h, "h": clipped(cell.project(h), cell.projection_clip)}, added)


def _peephole(cell: Cell, given: Tensor, state: State) -> OpenedStep:
    assert isinstance(cell, PeepholeLSTM)
    added, (c,) = _from_state(cell, state), state[1]
    to_i, to_f, to_o = cell.peepholes
    i, f, g, o = given + added
    i, f, g = torch.sigmoid(i + to_i * c), torch.sigmoid(f + to_f * c), torch.tanh(g)
    c = f * c + i * g
    o = torch.sigmoid(o + to_o * c)
    return OpenedStep({"i": i, "f": f, "g": g, "o": o, "c": c, "h": o * torch.tanh(c)}, added)


def _coupled(cell: Cell, given: Tensor, state: State) -> OpenedStep:
    added, (c,) = _from_state(cell, state), state[1]
    f, g, o = given + added
    f, g, o = torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    c = f * c + (1 - f) * g
    return OpenedStep({"f": f, "g": g, "o": o, "c": c, "h": o * torch.tanh(c)}, added)


def _gru(cell: Cell, given: Tensor, state: State) -> OpenedStep:
    added, (h,) = _from_state(cell, state), state[0]
    r, z = torch.sigmoid(given[:2] + added[:2])
    n = torch.tanh(given[2] + r * added[2])
    return OpenedStep({"r": r, "z": z, "n": n, "h": (1 - z) * n + z * h}, added)


_lines = ("c' = f c + i g", "h' = o tanh(c')")
EQUATIONS: dict[type[Cell], Equations] = {
    RNN: Equations("rnn", ("h",), frozenset(), ("h' = tanh(W x + U h + b)",), _rnn),
    LSTM: Equations(
        "lstm",
        ("i", "f", "g", "o"),
        frozenset("ifo"),
        ("i, f, o = σ(W x + U h + b)", "g = tanh(W x + U h + b)", *_lines),
        _lstm,
    ),
    PeepholeLSTM: Equations(
        "peephole",
        ("i", "f", "g", "o"),
        frozenset("ifo"),
        ("i, f = σ(W x + U h + b + p c)", "g = tanh(W x + U h + b)", "o = σ(W x + U h + b + p c')", *_lines),
        _peephole,
    ),
    CoupledLSTM: Equations(
        "coupled",
        ("f", "g", "o"),
        frozenset("fo"),
        ("f, o = σ(W x + U h + b)", "g = tanh(W x + U h + b)", "c' = f c + (1 − f) g", _lines[1]),
        _coupled,
    ),
    GRU: Equations(
        "gru",
        ("r", "z", "n"),
        frozenset("rz"),
        ("r, z = σ(W x + U h + b)", "n = tanh(W x + b + r (U h + b'))", "h' = (1 − z) n + z h"),
        _gru,
    ),
}


class Read(NamedTuple):
    """A row that a cell has read, in the order of the text whichever way it was read."""

    parts: _Parts  # (T, H) each, of h (T, P)
    given: Tensor  # (T, G, H): W x + b
    from_state: Tensor  # (T, G, H)


def read(cell: Cell, x: Tensor, *, reverse: bool = False) -> Read:
    """x (T, D), from nothing seen."""
    take = EQUATIONS[type(cell)].take
    given: Tensor = cell.from_input(x).unflatten(1, (cell.blocks, cell.width))  # (T, G, H)
    state = cell.begin(1)
    steps: list[OpenedStep] = []
    for now in given.flip(0) if reverse else given:
        steps.append(take(cell, now, state))
        state = steps[-1].state()
    if reverse:
        steps.reverse()
    parts = {letter: torch.stack([step.parts[letter] for step in steps]) for letter in steps[0].parts}
    return Read(parts, given, torch.stack([step.from_state for step in steps]))


# --- What recurrent layers remember while they read a text: states and gates at every token; and what a language
# model
# expects next.
#
# `states`       one layer in one direction at a time ("way"): hidden state, cell and each gate, with what the
# equation
#                makes them of (recurrence.py). The head names all ways there are:
#                    rnnlm     its layers                       elmo      two directions, which never meet
#                    seq2seq   the encoder's layers             reader    both directions of each layer, and below
# them
#                                                                         those of a language model it stands on
# `next_words`   of a language model (rnnlm, elmo): the likeliest tokens after each token, backward before each
#
# A row begins with nothing seen, as wherever else vectors of a text are asked for. Numbers are in the order of the
# text,
# also of what is read backward.
#
# Shapes: T tokens, D width of what goes in, G blocks, H width of a cell, P width of its output, V vocabulary.

_MOST = 256
"""Tokens: every number of every layer is sent."""
_WAYS = 64
PROJECTED = ("m = o tanh(c')", "h' = P m")
"""The last line of an LSTM's equations, where its output is projected."""


@dataclass(frozen=True)
class Way:
    """One layer, read in one direction."""

    part: str  # what it belongs to: "language_model", "elmo", "encoder" or "reader"
    layer: int
    direction: str
    cell: Cell
    read: Read
    adds_input: bool  # what goes on to the next layer is h and what came in

    def about(self) -> dict[str, Any]:
        return {
            "part": self.part,
            "layer": self.layer,
            "direction": self.direction,
            "cell": EQUATIONS[type(self.cell)].name,
            "width": self.cell.width,
            "output_width": self.cell.output_width,
        }


class OpenedText(NamedTuple):
    encoded: Encoded
    ways: list[Way]


@torch.inference_mode()
def states(subject: Subject, asked: Asked) -> Reply:
    """Fields: text, way. Arrays: h (T, P), and by the equation's letters c, i, f, g, o, m, r, z, n (T, H); given and
    from_state (T, G, H), W x + b and U h; peepholes (3, H)."""
    text, number = asked.text(), asked.number("way", 0, _WAYS - 1, 0)
    asked.done()
    encoded, ways = _opened(subject, text)
    if number >= len(ways):
        raise RefusalError(
            "range", f"'way' is {number}; it goes from 0 to {len(ways) - 1}.", field="way", low=0, high=len(ways) - 1
        )
    way = ways[number]
    cell, equations = way.cell, EQUATIONS[type(way.cell)]
    arrays = {letter: _f4(values) for letter, values in way.read.parts.items()}
    arrays |= {"given": _f4(way.read.given), "from_state": _f4(way.read.from_state)}
    if isinstance(cell, PeepholeLSTM):
        arrays["peepholes"] = _f4(cell.peepholes)
    clips = (cell.cell_clip, cell.projection_clip) if isinstance(cell, LSTM) else (None, None)
    head = {
        "name": "states",
        "kind": subject.kind,
        "text": text,
        "tokens": _tokens(encoded, text),
        "way": number,
        "ways": [one.about() for one in ways],
        **way.about(),
        "blocks": list(equations.blocks),
        "parts": [
            {"letter": letter, "range": "gate" if letter in equations.gates else "cell" if letter == "c" else "signed"}
            for letter in way.read.parts
        ],
        "equations": [*equations.lines[:-1], *PROJECTED] if "m" in way.read.parts else list(equations.lines),
        "projected": "m" in way.read.parts,
        "clips": list(clips),
        "adds_input": way.adds_input,
    }
    return Reply(head, arrays)


@torch.inference_mode()
def next_words(subject: Subject, asked: Asked) -> Reply:
    """Fields: text, k. For each direction: {direction} (T, k) probabilities of the tokens that the head names, and
    {direction}_came (T,), the probability of what came, with its place {direction}_rank (T,) from 0; -1: nothing did.
    """
    text, k = asked.text(), asked.number("k", 1, 50, 8)
    asked.done()
    encoded, ways = _opened(subject, text)
    network, tokenizer = _language_model(subject)
    told, arrays = dict[str, Any](), dict[str, NDArray[Any]]()
    for direction in DIRECTIONS:
        mine = [way for way in ways if way.direction == direction]
        if not mine:
            continue
        hidden = _output(mine)  # (T, P)
        logits = network.predict(hidden) if isinstance(network, RNNLM) else network.scores(hidden, hidden)
        probabilities = logits.float().softmax(1)  # (T, V)
        best = probabilities.topk(min(k, probabilities.size(1)))
        told[direction] = [[spelled(tokenizer, id) for id in row] for row in best.indices.tolist()]
        arrays[direction] = _f4(best.values)
        arrays |= _what_came(direction, probabilities, encoded.ids)
    return Reply({"name": "next_words", "text": text, "tokens": _tokens(encoded, text), "words": told}, arrays)


def _opened(subject: Subject, text: str) -> OpenedText:
    """A text as the model reads it, and all its recurrent layers after they have."""
    if subject.kind == "rnnlm":
        return _rnnlm(subject, text)
    if subject.kind == "elmo":
        return _elmo(subject, text)
    if subject.kind == "seq2seq":
        return _seq2seq(subject, text)
    if subject.kind == "reader":
        return _reader(subject, text)
    raise subject.refusal("no_recurrence", "which has no recurrent layer")


def _rnnlm(subject: Subject, text: str) -> OpenedText:
    network = subject.recurrent
    found = subject.opened.tokenizer.encode(text)
    # a text that may go on has no end yet
    encoded = _checked(Encoded(found.ids[:-1], found.segments[:-1], found.offsets[:-1], found.tokens[:-1]))
    return OpenedText(encoded, list(_through_states(network, torch.tensor(encoded.ids))))


def _elmo(subject: Subject, text: str) -> OpenedText:
    network, tokenizer = subject.recurrent, subject.opened.tokenizer  # no word is unknown to it
    encoded = _checked(tokenizer.encode(text))
    spelled = spell([tokenizer.token(id) for id in encoded.ids], network.config.longest)
    return OpenedText(encoded, list(_both_ways(network, network.characters(spelled))))


def _seq2seq(subject: Subject, text: str) -> OpenedText:
    translator = subject.translator
    network, coder = translator.network, translator.languages.source
    assert isinstance(network, Seq2Seq) and isinstance(coder, Tokenizer | MarianTokenizer)
    (ids,) = translator.languages.read([text])
    found = coder.encode(text, special=False)
    end = len(text), len(text)
    encoded = Encoded(ids, [0] * len(ids), [*source_spans(coder, text), end], [*found.tokens, coder.token(ids[-1])])
    _checked(encoded, min(_MOST, translator.max_length))
    table = network.embedding if network.source_embedding is None else network.source_embedding
    x = table(torch.tensor(ids)) * network.scale  # (T, D)
    return OpenedText(encoded, list(_layers("encoder", network.encoder, x)))


def _reader(subject: Subject, text: str) -> OpenedText:
    encoder = subject.recurrent.encoder
    assert isinstance(encoder, Reader)
    encoded = _checked(subject.opened.tokenizer.encode(text), min(_MOST, encoder.config.max_length))
    ids = torch.tensor(encoded.ids)
    below, ways = encoder.embedding, list[Way]()
    x = below(ids, (len(ids),))
    if isinstance(below, StateVectors):
        ways += _through_states(below.network, ids)
    elif isinstance(below, ElmoVectors):
        different, place = ids.unique(return_inverse=True)
        ways += _both_ways(below.network, below.network.characters(below.bytes_of(different))[place])
    if isinstance(encoder, Recurrent):
        ways += _layers("reader", encoder.stack, x if encoder.mix is None else encoder.mix(x))
    return OpenedText(encoded, ways)


def _through_states(network: RNNStates, ids: Tensor) -> Iterator[Way]:
    return _layers("language_model", network.stack, network.embedding(ids) * network.scale)


def _both_ways(network: BothWays, x: Tensor) -> Iterator[Way]:
    for direction in DIRECTIONS:
        yield from _layers("elmo", network.stack(direction), x)


def _layers(part: str, layers: Stack | Bidirectional, x: Tensor) -> Iterator[Way]:
    """x (T, D) through all of them. Nothing is dropped out: what is looked at is not trained."""
    if isinstance(layers, Stack):
        direction = DIRECTIONS[layers.reverse]
        for number, cell in enumerate(layers.cells):
            adds_input = layers.residual and number > 0
            way = _way(part, number, direction, cell, x, adds_input)
            yield way
            x = way.read.parts["h"] + (x if adds_input else 0)
        return
    for number, pair in enumerate(layers.layers):
        assert isinstance(pair, nn.ModuleList)
        ways = [_way(part, number, *both, x, False) for both in zip(DIRECTIONS, pair, strict=True)]
        yield from ways
        x = torch.cat([way.read.parts["h"] for way in ways], dim=-1)


def _way(part: str, layer: int, direction: str, cell: nn.Module, x: Tensor, adds_input: bool) -> Way:
    assert isinstance(cell, Cell)
    return Way(part, layer, direction, cell, read(cell, x, reverse=direction == "backward"), adds_input)


def _output(ways: Sequence[Way]) -> Tensor:
    """(T, P): what the last of these layers hands on."""
    last = ways[-1]
    hidden = last.read.parts["h"]
    return hidden + _output(ways[:-1]) if last.adds_input else hidden


def _language_model(subject: Subject) -> tuple[RNNLM | Elmo, Tokenizer]:
    if subject.kind in ("rnnlm", "elmo"):
        return subject.recurrent, subject.opened.tokenizer
    raise subject.refusal("no_next_words", "which does not predict the next word")


def _what_came(direction: str, probabilities: Tensor, ids: Sequence[int]) -> dict[str, NDArray[Any]]:
    """(T, V): how likely each token was that came after, or backward before; the last has none."""
    vocabulary = probabilities.size(1)
    came, ranks = np.full(len(ids), -1, np.float32), np.full(len(ids), -1, np.int32)
    step = 1 if direction == "forward" else -1
    for place in range(len(ids)):
        if 0 <= place + step < len(ids) and (id := ids[place + step]) < vocabulary:  # else it was spelled, not known
            row = probabilities[place]
            came[place], ranks[place] = float(row[id]), int((row > row[id]).sum())
    return {f"{direction}_came": came, f"{direction}_rank": ranks}


def _checked(encoded: Encoded, most: int = _MOST) -> Encoded:
    if not any(start < end for start, end in encoded.offsets):
        raise RefusalError("empty", "There is nothing in the text that the model could read.", field="text")
    if len(encoded.ids) > most:
        raise RefusalError(
            "too_many_shown" if most == _MOST else "too_many_tokens",
            f"The text has {len(encoded.ids):,} tokens, and "
            f"{f'this view shows {most:,}' if most == _MOST else f'the model reads {most:,}'} at most. Shorten it.",
            tokens=len(encoded.ids),
            most=most,
        )
    return encoded


def _tokens(encoded: Encoded, text: str) -> list[dict[str, Any]]:
    return [
        asdict(Token(token, text[start:end], start, end, special=start == end))
        for token, (start, end) in zip(encoded.tokens, encoded.offsets, strict=True)
    ]


def _f4(values: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = values.float().cpu().numpy()
    return found
