"""Questions and passages as rows, and where in each row the answer stands: what extractive reading is trained on.

    [CLS] question [SEP] part of the passage [SEP]        or between the marks of a GPT (models/gpt/tokenizer.py)

The question stands whole in every window of its passage. The target of a window is the answer's first and last token,
or twice [CLS] where the window does not hold the whole answer, or where there is none (BERT §4.3); of a GPT, whose
first mark has seen nothing, twice its last. Training reads every window of a passage, and of several accepted answers
the first.

An answer is a span of characters. Its tokens are all that share a character with it, so an answer that ends inside a
word is trained as the whole word. Two answers cannot be trained on, and their questions are left out of training (not
of evaluation): one that no token stands for, and one that is longer than a window. `faults` names all three.

Each distinct passage is encoded once, however many questions are asked about it.

Shapes: E examples (questions), R rows (windows), C tokens of the distinct passages, U units (rows that are trained on).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from qkv.data.batch import Batch, Integers, chunks
from qkv.data.labelled.examples import NO_PLACE, AnswerExample, Fault, Place
from qkv.data.windows import Windowed, room_beside
from qkv.errors import InputError
from qkv.text.tokenizer import Marks, Tokenizer

START, END = "start", "end"
"""The labels of a batch: (R,) where in its row an answer's first and last token stand."""


class Passages:
    """Distinct texts as tokens, each with the characters it came from, end to end."""

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
        self.ids: list[list[int]] = []
        spans = []
        # a chunk at a time: offsets as Python tuples take thirty times the room that they need in an array
        for chunk in chunks(texts, 256, len, 1 << 20):
            for encoded in tokenizer.encode_batch(chunk, special=False):
                self.ids.append(encoded.ids)
                spans.append(np.array(encoded.offsets, np.int64).reshape(-1, 2))
        both = np.concatenate(spans) if spans else np.empty((0, 2), np.int64)
        self.starts: Integers = both[:, 0].copy()  # (C,)
        self.ends: Integers = both[:, 1].copy()
        sizes = np.fromiter(map(len, self.ids), np.int64, count=len(self.ids))
        self.begins: Integers = np.cumsum(sizes) - sizes  # where each text's tokens begin in the two above

    def tokens_of(self, texts: Integers, starts: Integers, ends: Integers) -> tuple[Integers, Integers]:
        """First and last token that share a character with text[start:end]; none do where last < first. All (E,)."""
        # one sorted array for all texts: within a text spans never run backwards, and text follows text
        stride = int(self.ends.max(initial=0)) + int(ends.max(initial=0)) + 1
        text_of_token = np.repeat(np.arange(len(self.ids)), np.diff(self.begins, append=len(self.starts)))
        first = np.searchsorted(text_of_token * stride + self.ends, texts * stride + starts, side="right")
        after = np.searchsorted(text_of_token * stride + self.starts, texts * stride + ends, side="left")
        return first - self.begins[texts], after - 1 - self.begins[texts]


class AnswerFeatures:
    """Questions about passages as rows; a unit of training is a row."""

    def __init__(self, tokenizer: Tokenizer, examples: Sequence[AnswerExample], max_length: int, overlap: int) -> None:
        """Windows share `overlap` tokens, but never more than a third of `max_length`."""
        self.examples = examples
        overlap = min(overlap, max_length // 3)
        numbers: dict[str, int] = {}
        passage_of = [numbers.setdefault(example.text, len(numbers)) for example in examples]
        self.passages = Passages(tokenizer, list(numbers))
        self.passage_of: Integers = np.array(passage_of, np.int64)  # (E,)
        questions = tokenizer.encode_ids([example.question for example in examples])
        contexts = [self.passages.ids[number] for number in passage_of]
        marks = tokenizer.marks
        for number, (example, question, context) in enumerate(zip(examples, questions, contexts, strict=True), 1):
            check_room(
                *(len(question), len(context), max_length, overlap, marks),
                f"{name_place(example.place, number)}: the question",
            )
        self.rows = Windowed(
            questions,
            contexts,
            marks,
            max_length=max_length,
            overlap=overlap,
            keep="first",
        )
        self.n_tokens, self.n_windows, self.row_counts = self.rows.n_tokens, self.rows.n_windows, self.rows.n_rows
        # (R,) the place in its row that stands for "not here": one that has seen the passage
        self.nothing: Integers = self.rows.lengths - 1 if marks.leftward else np.zeros_like(self.rows.lengths)
        self._place_answers()
        self.memo: dict[str, Any] = {}  # what decoding would compute again for every temperature

    def _place_answers(self) -> None:
        rows, number = self.rows, len(self.examples)
        self.labelled = all(example.answers is not None for example in self.examples)
        answered = np.zeros(number, bool)
        spans = np.zeros((number, 2), np.int64)
        for index, example in enumerate(self.examples):
            if example.answers:
                start, text = example.answers[0]
                answered[index] = True
                spans[index] = start, start + len(text)
        self.answered, self.answer_starts, self.answer_ends = answered, spans[:, 0], spans[:, 1]  # (E,)
        self.first_tokens, self.last_tokens = self.passages.tokens_of(self.passage_of, spans[:, 0], spans[:, 1])  # (E,)
        self.has_token = answered & (self.first_tokens <= self.last_tokens)
        of_row = rows.examples
        # (R,) which windows hold the whole answer
        self.holds = (
            self.has_token[of_row]
            & (self.first_tokens[of_row] >= rows.b.starts)
            & (self.last_tokens[of_row] < rows.b.ends)
        )
        shift = rows.b_begins(np.arange(len(rows))) - rows.b.starts  # passage token → position in the row
        self.targets: tuple[Integers, Integers] = (
            np.where(self.holds, self.first_tokens[of_row] + shift, self.nothing),
            np.where(self.holds, self.last_tokens[of_row] + shift, self.nothing),
        )
        self.reachable = np.bincount(of_row[self.holds], minlength=number) > 0  # (E,)
        self.units: Integers = np.flatnonzero((self.reachable | ~answered)[of_row])  # (U,) rows
        self.unit_tokens: Integers = rows.lengths[self.units]  # (U,)

    def batch(self, units: Integers, draw: np.random.Generator) -> Batch:
        assert self.labelled, "training needs labels"
        rows = self.units[units]
        rows = rows[np.argsort(self.rows.lengths[rows], kind="stable")]  # a CPU attends rows of equal length together
        start, end = (torch.from_numpy(target[rows]) for target in self.targets)
        return self.rows.collate(rows, {START: start, END: end})

    def count_token(self, number: int | None) -> Integers:
        return self.rows.count_token(number)

    def faults(self) -> list[Fault]:
        """First answers that training could not take as they stand, and what was done."""
        found = []
        passages, begins = self.passages, self.passages.begins[self.passage_of]
        for index in np.flatnonzero(self.answered).tolist():
            example = self.examples[index]
            text = (example.answers or ())[0].text
            if not self.has_token[index]:
                message = f"the tokenizer has no token for the answer {text!r}; not trained on"
                found.append(Fault(example.place, "answer without a token", message, "dropped"))
            elif not self.reachable[index]:
                size = int(self.last_tokens[index] - self.first_tokens[index]) + 1
                message = f"the answer of {size} tokens is longer than a window; not trained on: {_short(text)!r}"
                found.append(Fault(example.place, "answer longer than a window", message, "dropped"))
            else:
                start = int(passages.starts[begins[index] + self.first_tokens[index]])
                end = int(passages.ends[begins[index] + self.last_tokens[index]])
                if (start, end) != (self.answer_starts[index], self.answer_ends[index]):
                    trained = _short(example.text[start:end])
                    message = f"the answer {_short(text)!r} does not begin and end with a token; trained as {trained!r}"
                    found.append(Fault(example.place, "answer beside token edges", message, "noted"))
        return found


def check_room(standing: int, moving: int, max_length: int, overlap: int, marks: Marks, what: str) -> None:
    """Refuse a side that must stand whole in every window and leaves no room for the other."""
    room = room_beside(max_length, overlap, marks)
    if standing + moving > max_length - marks.around_pair and standing > room:
        raise InputError(
            f"{what} has {standing} tokens, and at most {max(room, 0)} leave room for the text beside it in a window "
            f"of {max_length}. Shorten it, or allow longer windows (max_length) if the model has them."
        )


def name_place(place: Place, number: int) -> str:
    """How to name an example in a message; `number` counts from 1, for one that came from no file."""
    return str(place) if place != NO_PLACE else f"Example {number}"


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
