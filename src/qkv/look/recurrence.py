"""The view of recurrence: states and gates of recurrent layers at every token. The next words that the view shows of a
language model are next_words.py.

Question `states`: one layer in one direction ("way") with all variables of its equations (nn/recurrent.py). The head
lists all ways of a model:

    rnnlm     its layers                       elmo      two independent directions
    seq2seq   the encoder's layers             reader    both directions of each layer, after those of a language model
                                                         below it

    rnn        h
    lstm       i, f, g, o, c, h; with a projection also m, the output before it
    peephole   the same; gates read c
    coupled    f, g, o, c, h; i = 1 − f
    gru        r, z, n, h

Rows start from the zero state. Arrays are in text order, also for the backward direction.

Shapes: T tokens, D input width, G blocks, H width of a cell, P width of its output.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qkv.data.batch import Batch
from qkv.look.next_words import describe_tokens
from qkv.look.subject import Subject
from qkv.look.wire import Asked, RefusalError, Reply, check_length, empty_refusal, to_float32
from qkv.nn.layers import Layer, Recurrence
from qkv.nn.recurrent import GRU, LSTM, RNN, Cell, CoupledLSTM, PeepholeLSTM
from qkv.nn.words import spell
from qkv.tasks.translate import source_spans
from qkv.text.tokenizer import Encoded


@dataclass(frozen=True)
class Equations:
    name: str  # in configs
    blocks: tuple[str, ...]  # letters, in the order of the blocks of W, U and b
    gates: frozenset[str]  # letters of values from 0 to 1
    lines: tuple[str, ...]  # as in the docstring of nn/recurrent.py


_lines = ("c' = f c + i g", "h' = o tanh(c')")
EQUATIONS: dict[type[Cell], Equations] = {
    RNN: Equations("rnn", ("h",), frozenset(), ("h' = tanh(W x + U h + b)",)),
    LSTM: Equations(
        "lstm",
        ("i", "f", "g", "o"),
        frozenset("ifo"),
        ("i, f, o = σ(W x + U h + b)", "g = tanh(W x + U h + b)", *_lines),
    ),
    PeepholeLSTM: Equations(
        "peephole",
        ("i", "f", "g", "o"),
        frozenset("ifo"),
        ("i, f = σ(W x + U h + b + p c)", "g = tanh(W x + U h + b)", "o = σ(W x + U h + b + p c')", *_lines),
    ),
    CoupledLSTM: Equations(
        "coupled",
        ("f", "g", "o"),
        frozenset("fo"),
        ("f, o = σ(W x + U h + b)", "g = tanh(W x + U h + b)", "c' = f c + (1 − f) g", _lines[1]),
    ),
    GRU: Equations(
        "gru",
        ("r", "z", "n"),
        frozenset("rz"),
        ("r, z = σ(W x + U h + b)", "n = tanh(W x + b + r (U h + b'))", "h' = (1 − z) n + z h"),
    ),
}


class CellRun(NamedTuple):
    """The variables of a cell over one row, in text order for both directions."""

    parts: dict[str, Tensor]  # by letter of the equations: (T, H) each, h (T, P)
    given: Tensor  # (T, G, H): W x + b
    from_state: Tensor  # (T, G, H): U h, with its bias if there is one


def run_cell(cell: Cell, x: Tensor, *, reverse: bool = False) -> CellRun:
    """Run the cell over x (T, D) from the zero state."""
    given: Tensor = cell.from_input(x)  # (T, G · H)
    state = cell.begin(1)
    steps: list[dict[str, Tensor]] = []
    before: list[Tensor] = []
    for now in (given.flip(0) if reverse else given).split(1):
        before.append(state[0])
        steps.append(cell.equations(now, state))
        state = cell.state_in(steps[-1])
    if reverse:
        steps.reverse()
        before.reverse()
    parts = {letter: torch.cat([step[letter] for step in steps]) for letter in steps[0]}
    blocks = (cell.blocks, cell.width)
    return CellRun(parts, given.unflatten(1, blocks), cell.from_state(torch.cat(before)).unflatten(1, blocks))


_MOST = 256
"""Maximum number of tokens: all values of a layer are sent."""
_WAYS = 64
PROJECTED = ("m = o tanh(c')", "h' = P m")
"""Replaces the last line of an LSTM's equations if it has a projection."""


@dataclass(frozen=True)
class Way:
    """One layer in one direction."""

    part: str  # "language_model", "elmo", "encoder" or "reader"
    layer: int
    recurrence: Recurrence
    read: CellRun

    @property
    def cell(self) -> Cell:
        return self.recurrence.cell

    @property
    def direction(self) -> str:
        return self.recurrence.direction

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
def show_states(subject: Subject, asked: Asked) -> Reply:
    """Fields: text, way. Arrays: h (T, P), and by letter of the equations c, i, f, g, o, m, r, z, n (T, H); given and
    from_state (T, G, H), W x + b and U h; peepholes (3, H)."""
    text, number = asked.text(), asked.number("way", 0, _WAYS - 1, 0)
    asked.done()
    encoded, ways = _open_text(subject, text)
    if number >= len(ways):
        raise RefusalError(
            "range", f"'way' is {number}; it goes from 0 to {len(ways) - 1}.", field="way", low=0, high=len(ways) - 1
        )
    way = ways[number]
    cell, equations = way.cell, EQUATIONS[type(way.cell)]
    arrays = {letter: to_float32(values) for letter, values in way.read.parts.items()}
    arrays |= {"given": to_float32(way.read.given), "from_state": to_float32(way.read.from_state)}
    if isinstance(cell, PeepholeLSTM):
        arrays["peepholes"] = to_float32(cell.peepholes)
    clips = (cell.cell_clip, cell.projection_clip) if isinstance(cell, LSTM) else (None, None)
    head = {
        "name": "states",
        "kind": subject.kind,
        "text": text,
        "tokens": describe_tokens(encoded, text),
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
        "adds_input": way.recurrence.adds_input,
    }
    return Reply(head, arrays)


def _open_text(subject: Subject, text: str) -> OpenedText:
    """The encoded text, and all recurrent layers run over it."""
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
    network, tokenizer = subject.recurrent, subject.opened.tokenizer
    found = tokenizer.encode(text)
    # without the end token: the text may continue
    encoded = _check_tokens(Encoded(found.ids[:-1], found.segments[:-1], found.offsets[:-1], found.tokens[:-1]))
    return OpenedText(encoded, _ways(network.layers(torch.tensor(encoded.ids), (len(encoded.ids),))))


def _elmo(subject: Subject, text: str) -> OpenedText:
    network, tokenizer = subject.recurrent, subject.opened.tokenizer  # it has no unknown words
    encoded = _check_tokens(tokenizer.encode(text))
    spelled = spell([tokenizer.token(id) for id in encoded.ids], network.config.longest)
    return OpenedText(encoded, _ways(network.layers(network.characters(spelled), (len(encoded.ids),))))


def _seq2seq(subject: Subject, text: str) -> OpenedText:
    translator = subject.translator
    coder = translator.languages.source
    (ids,) = translator.languages.read([text])
    found = coder.encode(text, special=False)
    end = len(text), len(text)
    encoded = Encoded(ids, [0] * len(ids), [*source_spans(coder, text), end], [*found.tokens, coder.token(ids[-1])])
    _check_tokens(encoded, min(_MOST, translator.max_length))
    return OpenedText(encoded, _ways(translator.network.layers(Batch.of([ids]))))


def _reader(subject: Subject, text: str) -> OpenedText:
    encoder = subject.recurrent.encoder
    encoded = _check_tokens(subject.opened.tokenizer.encode(text), min(_MOST, encoder.config.max_length))
    return OpenedText(encoded, _ways(encoder.layers(Batch.of([encoded.ids]))))


def _ways(layers: Iterable[Layer]) -> list[Way]:
    """The recurrences of the layers, numbered from 0 in each part of the network and each direction."""
    found: list[Way] = []
    numbers: Counter[tuple[str, str]] = Counter()
    for layer in layers:
        for one in layer.recurrences:
            opened = run_cell(one.cell, one.entered, reverse=one.direction == "backward")
            found.append(Way(layer.part, numbers[layer.part, one.direction], one, opened))
            numbers[layer.part, one.direction] += 1
    return found


def _check_tokens(encoded: Encoded, most: int = _MOST) -> Encoded:
    if not any(start < end for start, end in encoded.offsets):
        raise empty_refusal("text")
    check_length(len(encoded.ids), most, shown=most == _MOST)
    return encoded
