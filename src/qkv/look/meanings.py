"""One word, many meanings: the vectors of a word in the sentences it stands in, by layer.

To word2vec a word is one point whatever stands around it; to ELMo and BERT it is a cloud that comes apart by meaning,
the more the higher the layer (Peters et al. 2018; Ethayarajh 2019, "How Contextual are Contextualized Word
Representations?").

The word is looked for as characters: 苹果 inside of 苹果树 too, "it" not inside of "bit"; Python and python are the
same word, told apart by what they stand in. What a vocabulary cuts into pieces has the mean of their vectors, and the
reply names the pieces.

Shapes: K layers and what lies below them, n occurrences, D width.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from qkv.look.plane import Floats, planes
from qkv.look.subject import Subject
from qkv.look.token_layers import token_layers, tokenizer_of
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.models.word2vec.folder import WordVectors, near_spellings
from qkv.text.wordpiece import CHINESE

SENTENCES, LONGEST_SENTENCE, LONGEST_WORD = 60, 2_000, 60
OCCURRENCES = 200
_chinese = re.compile(f"[{CHINESE}]")


@dataclass(frozen=True)
class Occurrence:
    sentence: int
    start: int
    end: int
    written: str
    pieces: tuple[str, ...] = ()  # as the vocabulary spells what its vector is the mean of

    def to_dict(self) -> dict[str, Any]:
        return {
            "sentence": self.sentence,
            "start": self.start,
            "end": self.end,
            "written": self.written,
            "pieces": list(self.pieces),
        }


def meanings(subject: Subject, asked: Asked) -> Reply:
    word = asked.text("word", longest=LONGEST_WORD).strip()
    sentences = asked.texts("sentences", most=SENTENCES, longest=LONGEST_SENTENCE)
    layer = asked.maybe_number("layer", 0, 1_000)
    asked.done()
    found = [Occurrence(number, *span, sentences[number][slice(*span)])
             for number, sentence in enumerate(sentences) for span in spans_of(word, sentence)]  # fmt: skip
    if not found:
        raise RefusalError(
            "word_not_found", f"None of the {len(sentences)} sentences contains '{word}'.", word=word, near=""
        )
    if len(found) > OCCURRENCES:
        raise RefusalError(
            "number", f"'{word}' is found {len(found)} times; {OCCURRENCES} are shown at most.", most=OCCURRENCES
        )
    of = _looked_up if subject.is_table else _in_context
    vectors, unknown = of(subject, sentences, found)
    if layer is not None and layer >= len(next(iter(vectors.values()))):
        raise RefusalError("range", f"There is no layer {layer}.", low=0, high=len(next(iter(vectors.values()))) - 1)
    chosen = range(len(next(iter(vectors.values())))) if layer is None else [layer]
    drawn = planes([np.stack([of_one[number] for of_one in vectors.values()]) for number in chosen])
    head = {
        "word": word,
        "model": subject.title,
        "kind": subject.kind,
        "layers": list(chosen),
        "occurrences": [one.to_dict() for one in vectors],
        "without": sorted(set(range(len(sentences))) - {one.sentence for one in found}),
        "unknown": [one.to_dict() for one in unknown],
        # several places, and nothing that could tell them apart
        "one_point": subject.is_table and len(vectors) > 1 and not drawn.points.any(),
    }
    return Reply(head, drawn._asdict())


def spans_of(word: str, text: str) -> list[tuple[int, int]]:
    """Where a word stands, in whatever case; letters that would make it part of a longer word are not beside it.

    >>> spans_of("it", "It bit it."), spans_of("苹果", "苹果树上的苹果")
    ([(0, 2), (7, 9)], [(0, 2), (5, 7)])
    """
    spans = [match.span() for match in re.finditer(re.escape(word), text, re.IGNORECASE)]
    return [(start, end) for start, end in spans if not (runs_on(text, start) or runs_on(text, end))]


def runs_on(text: str, place: int) -> bool:
    """Whether a word goes on across a place: letters or digits on both sides of it, and no 汉字.

    >>> runs_on("bit", 1), runs_on("a bit", 2), runs_on("苹果", 1)
    (True, False, False)
    """
    beside = text[place - 1 : place + 1] if place > 0 else ""
    return len(beside) == 2 and all(letter.isalnum() and not _chinese.match(letter) for letter in beside)


Found = tuple[dict[Occurrence, list[Floats]], list[Occurrence]]
"""By occurrence K vectors (D,), and the occurrences that have none."""


def _in_context(subject: Subject, sentences: list[str], found: list[Occurrence]) -> Found:
    named = sorted({one.sentence for one in found})
    read = dict(zip(named, token_layers(subject, [sentences[number] for number in named]), strict=True))
    vectors: dict[Occurrence, list[Floats]] = {}
    unknown: list[Occurrence] = []
    for one in found:
        text = read[one.sentence]
        places = [
            place for place, (a, b) in enumerate(text.offsets) if a < one.end and b > one.start and text.known[place]
        ]
        pieces = Occurrence(one.sentence, one.start, one.end, one.written, tuple(text.tokens[at] for at in places))
        if places:
            vectors[pieces] = [layer[places].mean(0) for layer in text.layers]
        else:
            unknown.append(one)
    if not vectors:
        raise _no_vector(subject, found[0].written, [])
    return vectors, unknown


def _looked_up(subject: Subject, sentences: list[str], found: list[Occurrence]) -> Found:
    """The same vector wherever the word stands."""
    del sentences
    table = subject.vectors
    vectors: dict[Occurrence, list[Floats]] = {}
    unknown: list[Occurrence] = []
    for one in found:
        pieces = pieces_in_table(subject, table, one.written)
        if pieces:
            rows = [table.rows[piece] for piece in pieces]
            known = Occurrence(one.sentence, one.start, one.end, one.written, tuple(pieces))
            vectors[known] = [table.vectors[rows].mean(0).numpy()]
        else:
            unknown.append(one)
    if not vectors:
        raise _no_vector(subject, found[0].written, near_spellings(found[0].written, table.words))
    return vectors, unknown


def pieces_in_table(subject: Subject, table: WordVectors, word: str) -> list[str]:
    """The word itself, or what its vocabulary cuts it into; none where it lacks one of them."""
    if (row := table.find(word)) is not None:
        return [table.words[row]]
    pieces = tokenizer_of(subject).encode(word, special=False).tokens
    return pieces if all(piece in table.rows for piece in pieces) else []


def _no_vector(subject: Subject, word: str, near: list[str]) -> RefusalError:
    hint = f" Near it: {', '.join(near)}." if near else ""
    return RefusalError(
        "no_vector",
        f"'{word}' has no vector in {subject.title}.{hint}",
        word=word,
        model=subject.title,
        near=", ".join(near),
    )
