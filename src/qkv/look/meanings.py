"""The view of meanings: the vectors of one word in several sentences, layer by layer.

In word2vec a word is one point in every context; in ELMo and BERT its vectors separate by meaning, more so in higher
layers (Peters et al. 2018; Ethayarajh 2019, "How Contextual are Contextualized Word Representations?").

The word is found by its characters, ignoring case: 苹果 also inside 苹果树, "it" not inside "bit". A word of several
subwords has the mean of their vectors, and the reply lists the subwords.

Shapes: K layers including the embeddings, n occurrences, D width.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from qkv.look.subject import Subject
from qkv.look.token_layers import VectorArray, find_table_tokenizer, project_layers, read_token_layers
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.models.word2vec.folder import WordVectors, near_spellings
from qkv.text.wordpiece import CHINESE

MOST_SENTENCES, LONGEST_SENTENCE, MOST_WORD_CHARACTERS = 60, 2_000, 60
MOST_OCCURRENCES = 200
_chinese = re.compile(f"[{CHINESE}]")


@dataclass(frozen=True)
class Occurrence:
    sentence: int
    start: int
    end: int
    written: str
    pieces: tuple[str, ...] = ()  # the subwords that its vector is the mean of

    def to_dict(self) -> dict[str, Any]:
        return {
            "sentence": self.sentence,
            "start": self.start,
            "end": self.end,
            "written": self.written,
            "pieces": list(self.pieces),
        }


def compare_meanings(subject: Subject, asked: Asked) -> Reply:
    word = asked.text("word", longest=MOST_WORD_CHARACTERS).strip()
    sentences = asked.texts("sentences", most=MOST_SENTENCES, longest=LONGEST_SENTENCE)
    layer = asked.maybe_number("layer", 0, 1_000)
    asked.done()
    found = [Occurrence(number, *span, sentences[number][slice(*span)])
             for number, sentence in enumerate(sentences) for span in find_spans(word, sentence)]  # fmt: skip
    if not found:
        raise RefusalError(
            "word_not_found", f"None of the {len(sentences)} sentences contains '{word}'.", word=word, near=""
        )
    if len(found) > MOST_OCCURRENCES:
        raise RefusalError(
            "number",
            f"'{word}' occurs {len(found)} times; the maximum is {MOST_OCCURRENCES}.",
            most=MOST_OCCURRENCES,
        )
    of = _look_up if subject.is_table else _encode_in_context
    vectors, unknown = of(subject, sentences, found)
    if layer is not None and layer >= len(next(iter(vectors.values()))):
        raise RefusalError("range", f"There is no layer {layer}.", low=0, high=len(next(iter(vectors.values()))) - 1)
    chosen = range(len(next(iter(vectors.values())))) if layer is None else [layer]
    drawn = project_layers([np.stack([of_one[number] for of_one in vectors.values()]) for number in chosen])
    head = {
        "word": word,
        "model": subject.title,
        "kind": subject.kind,
        "layers": list(chosen),
        "occurrences": [one.to_dict() for one in vectors],
        "without": sorted(set(range(len(sentences))) - {one.sentence for one in found}),
        "unknown": [one.to_dict() for one in unknown],
        # several occurrences with the same vector
        "one_point": subject.is_table and len(vectors) > 1 and not drawn.points.any(),
    }
    return Reply(head, drawn._asdict())


def find_spans(word: str, text: str) -> list[tuple[int, int]]:
    """The spans of a word, ignoring case, except inside a longer word.

    >>> find_spans("it", "It bit it."), find_spans("苹果", "苹果树上的苹果")
    ([(0, 2), (7, 9)], [(0, 2), (5, 7)])
    """
    spans = [match.span() for match in re.finditer(re.escape(word), text, re.IGNORECASE)]
    return [(start, end) for start, end in spans if not (is_inside_word(text, start) or is_inside_word(text, end))]


def is_inside_word(text: str, place: int) -> bool:
    """Whether there are letters or digits other than 汉字 on both sides of a position.

    >>> is_inside_word("bit", 1), is_inside_word("a bit", 2), is_inside_word("苹果", 1)
    (True, False, False)
    """
    both = text[place - 1 : place + 1] if place > 0 else ""
    return len(both) == 2 and all(letter.isalnum() and not _chinese.match(letter) for letter in both)


OccurrenceVectors = tuple[dict[Occurrence, list[VectorArray]], list[Occurrence]]
"""K vectors (D,) by occurrence, and the occurrences without vectors."""


def _encode_in_context(subject: Subject, sentences: list[str], found: list[Occurrence]) -> OccurrenceVectors:
    named = sorted({one.sentence for one in found})
    read = dict(zip(named, read_token_layers(subject, [sentences[number] for number in named]), strict=True))
    vectors: dict[Occurrence, list[VectorArray]] = {}
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


def _look_up(subject: Subject, sentences: list[str], found: list[Occurrence]) -> OccurrenceVectors:
    """The vectors of a table: the same in every context."""
    del sentences
    table = subject.vectors
    vectors: dict[Occurrence, list[VectorArray]] = {}
    unknown: list[Occurrence] = []
    for one in found:
        pieces = find_pieces(subject, table, one.written)
        if pieces:
            rows = [table.rows[piece] for piece in pieces]
            known = Occurrence(one.sentence, one.start, one.end, one.written, tuple(pieces))
            vectors[known] = [table.vectors[rows].mean(0).numpy()]
        else:
            unknown.append(one)
    if not vectors:
        raise _no_vector(subject, found[0].written, near_spellings(found[0].written, table.words))
    return vectors, unknown


def find_pieces(subject: Subject, table: WordVectors, word: str) -> list[str]:
    """The word itself or its subwords; empty if the table lacks one of them."""
    if (row := table.find(word)) is not None:
        return [table.words[row]]
    pieces = find_table_tokenizer(subject).encode(word, special=False).tokens
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
