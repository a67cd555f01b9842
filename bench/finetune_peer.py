"""Labelled examples as a plain transformers script takes them: rows, padding, answers from logits. And one scorer.

What bench/finetune.py and bench/finetune_scores.py share. A script of this kind cuts a text that is too long, labels a
word at its first piece, reads a passage in windows and takes the best of the pairs of the n best starts and ends. The
scorer knows neither side: both hand it labels, entities counted in words, or the text of an answer. transformers is
imported where it is used, so that it is no part of the memory of the other side.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from qkv.data.labelled.examples import AnswerExample, Span, TagExample, TextExample
from qkv.data.labelled.reader import labelled
from qkv.metrics.spans import EntityChunk, EntityCounts, find_chunks, squad_exact, squad_f1

IGNORED = -100  # what transformers' losses leave out
LONGEST = {"classify": 512, "tag": 512, "answer": 384}
STRIDE, N_BEST, LONGEST_ANSWER = 128, 20, 30  # of BERT's own script for SQuAD
ROWS_AT_ONCE = 1000  # of offsets in memory


@dataclass(frozen=True)
class Set:
    task: str
    train: str
    dev: str


SETS = {
    "sst2": Set("classify", "sst2/train.tsv", "sst2/dev.tsv"),
    "mrpc": Set("classify", "mrpc/msr_paraphrase_train.txt", "mrpc/msr_paraphrase_test.txt"),
    "conll2003": Set("tag", "conll2003/eng.train", "conll2003/eng.testa"),
    "squad": Set("answer", "squad_v1.1/train-v1.1.json.xz", "squad_v1.1/dev-v1.1.json.xz"),
}


def read(data: Path, name: str, train: int | None, dev: int | None) -> tuple[list[Any], list[Any]]:
    """Training examples, drawn where fewer are wanted, and the first held-out ones."""
    chosen = SETS[name]
    first, second = (list(labelled(data / file, chosen.task)) for file in (chosen.train, chosen.dev))
    if train is not None and train < len(first):
        first = random.Random(0).sample(first, train)
    return first, second[:dev]


class Rows(NamedTuple):
    inputs: list[dict[str, Any]]  # of the model, labels included
    places: list[Any]  # of each row, what decoding has to know


@dataclass(frozen=True)
class Texts:
    """One text or a pair, one label."""

    tokenizer: Any
    labels: tuple[str, ...]
    model_class: str = "AutoModelForSequenceClassification"

    def rows(self, examples: Sequence[TextExample]) -> Rows:
        pairs = [example.pair or "" for example in examples] if examples[0].pair is not None else None
        encoded = self.tokenizer(
            [example.text for example in examples], pairs, truncation=True, max_length=LONGEST["classify"]
        )
        inputs = [
            {key: encoded[key][i] for key in encoded} | {"labels": self.labels.index(str(example.label))}
            for i, example in enumerate(examples)
        ]
        return Rows(inputs, [None] * len(inputs))

    def answers(self, examples: Sequence[TextExample], rows: Rows, logits: Sequence[Any]) -> list[str]:
        return [self.labels[int(np.argmax(row))] for row in logits]


@dataclass(frozen=True)
class Words:
    """A tag a word, read and written at its first piece."""

    tokenizer: Any
    labels: tuple[str, ...]
    model_class: str = "AutoModelForTokenClassification"

    def rows(self, examples: Sequence[TagExample]) -> Rows:
        words = [[example.text[start:end] for start, end in example.units or ()] for example in examples]
        encoded = self.tokenizer(words, is_split_into_words=True, truncation=True, max_length=LONGEST["tag"])
        inputs, places = [], []
        for i, example in enumerate(examples):
            numbers = encoded.word_ids(i)
            first = [
                word is not None and (place == 0 or numbers[place - 1] != word) for place, word in enumerate(numbers)
            ]
            tags = self._tags(example)
            labels = [tags[word] if is_first else IGNORED for word, is_first in zip(numbers, first, strict=True)]
            inputs.append({key: encoded[key][i] for key in encoded} | {"labels": labels})
            places.append([(word, place) for place, word in enumerate(numbers) if first[place]])
        return Rows(inputs, places)

    def _tags(self, example: TagExample) -> list[int]:
        tags = ["O"] * len(example.units or ())
        for start, end, label in in_words(example, example.spans or ()):
            tags[start:end] = [f"B-{label}", *[f"I-{label}"] * (end - start - 1)]
        return [self.labels.index(tag) for tag in tags]

    def answers(self, examples: Sequence[TagExample], rows: Rows, logits: Sequence[Any]) -> list[list[EntityChunk]]:
        found = []
        for example, places, row in zip(examples, rows.places, logits, strict=True):
            tags = ["O"] * len(example.units or ())
            for word, place in places:
                tags[word] = self.labels[int(np.argmax(row[place]))]
            found.append(find_chunks(tags))
        return found


@dataclass(frozen=True)
class Passages:
    """Windows of a passage behind its question; the answer's first and last token, or [CLS] where it is not there."""

    tokenizer: Any
    labels: tuple[str, ...] = ()
    model_class: str = "AutoModelForQuestionAnswering"

    def rows(self, examples: Sequence[AnswerExample]) -> Rows:
        found = Rows([], [])
        for begin in range(0, len(examples), ROWS_AT_ONCE):
            self._add(examples[begin : begin + ROWS_AT_ONCE], begin, found)
        return found

    def _add(self, examples: Sequence[AnswerExample], begin: int, found: Rows) -> None:
        encoded = self.tokenizer(
            [example.question.lstrip() for example in examples],
            [example.text for example in examples],
            truncation="only_second",
            max_length=LONGEST["answer"],
            stride=STRIDE,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        keys = [key for key in encoded if key not in ("overflow_to_sample_mapping", "offset_mapping")]
        for row, number in enumerate(encoded["overflow_to_sample_mapping"]):
            sides = encoded.sequence_ids(row)
            low, high = sides.index(1), len(sides) - sides[::-1].index(1)  # the passage's tokens
            spans = np.array(encoded["offset_mapping"][row], np.int32)[low:high]
            answers = examples[number].answers
            assert answers, "every question of SQuAD 1.1 has an answer"
            start, text = answers[0]
            first, last = low, low
            if spans[0, 0] <= start and spans[-1, 1] >= start + len(text):
                first += int(np.searchsorted(spans[:, 0], start, side="right")) - 1
                last += int(np.searchsorted(spans[:, 1], start + len(text), side="left"))
            else:
                first = last = 0
            inputs = {key: encoded[key][row] for key in keys}
            found.inputs.append(inputs | {"start_positions": first, "end_positions": last})
            found.places.append((begin + number, low, spans))

    def answers(self, examples: Sequence[AnswerExample], rows: Rows, logits: Sequence[Any]) -> list[str]:
        best = [(-np.inf, "")] * len(examples)
        for (number, low, spans), row in zip(rows.places, logits, strict=True):
            scores = np.asarray(row)[low : low + len(spans)]  # (T, 2)
            starts, ends = (np.argsort(scores[:, side])[::-1][:N_BEST] for side in (0, 1))
            sums = scores[starts, 0][:, None] + scores[ends, 1][None]
            length = ends[None] - starts[:, None] + 1
            sums = np.where((length > 0) & (length <= LONGEST_ANSWER), sums, -np.inf)
            i, j = np.unravel_index(int(sums.argmax()), sums.shape)
            if sums[i, j] > best[number][0]:
                text = examples[number].text[spans[starts[i], 0] : spans[ends[j], 1]]
                best[number] = (float(sums[i, j]), text)
        return [text for _, text in best]


Peer = Texts | Words | Passages


def peer_for(name: str, model: Path, train: Sequence[Any]) -> Peer:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    task = SETS[name].task
    if task == "classify":
        return Texts(tokenizer, tuple(sorted({example.label for example in train})))
    if task == "tag":
        types = sorted({span.label for example in train for span in example.spans or ()})
        return Words(tokenizer, ("O", *(f"{letter}-{one}" for one in types for letter in "BI")))
    return Passages(tokenizer)


def network(peer: Peer, model: Path, seed: int, **changes: Any) -> Any:
    """The pretrained weights with a new head; in float32, however they are stored."""
    import transformers

    torch.manual_seed(seed)
    numbers = {"num_labels": len(peer.labels)} if peer.labels else {}
    names = {"id2label": dict(enumerate(peer.labels))} if peer.labels else {}
    kind: Any = getattr(transformers, peer.model_class)
    return kind.from_pretrained(model, dtype=torch.float32, **numbers, **names, **changes)


@dataclass(frozen=True)
class Padding:
    """Rows of one batch, each as long as the longest of them."""

    pad_id: int
    fillers: dict[str, int] = field(default_factory=lambda: {"labels": IGNORED})

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        found = {}
        for key, value in rows[0].items():
            if isinstance(value, int):
                found[key] = torch.tensor([row[key] for row in rows])
            else:
                filler = self.pad_id if key == "input_ids" else self.fillers.get(key, 0)
                parts = [torch.tensor(row[key]) for row in rows]
                found[key] = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=filler)
        return found


def in_words(example: TagExample, spans: Sequence[Any]) -> list[EntityChunk]:
    """Spans of characters as spans of words; one that cuts a word is kept, as a span that nobody expects."""
    starts = {start: number for number, (start, _) in enumerate(example.units or ())}
    ends = {end: number + 1 for number, (_, end) in enumerate(example.units or ())}
    return [EntityChunk(starts.get(span[0], -1), ends.get(span[1], -1), span[2]) for span in spans]


def answer_of(task: str, example: Any, result: Any) -> Any:
    """What qkv said, in the form that is scored."""
    if task == "classify":
        return result.label
    if task == "tag":
        return in_words(example, [Span(one.start, one.end, one.label) for one in result.entities])
    return result.text


def score(task: str, examples: Sequence[Any], answers: Sequence[Any]) -> dict[str, float]:
    """The first figure is the one that counts."""
    return SCORERS[task](examples, answers)


def _labels(examples: Sequence[TextExample], answers: Sequence[str]) -> dict[str, float]:
    wanted = [example.label for example in examples]
    both = list(zip(wanted, answers, strict=True))
    hits = sum(a == b == "1" for a, b in both)
    named = sum((a == "1") + (b == "1") for a, b in both)
    return {"accuracy": sum(a == b for a, b in both) / len(both), "f1": 2 * hits / named if named else 0.0}


def _entities(examples: Sequence[TagExample], answers: Sequence[Sequence[EntityChunk]]) -> dict[str, float]:
    counts = EntityCounts()
    for example, answered in zip(examples, answers, strict=True):
        counts.add(in_words(example, example.spans or ()), answered)
    micro = counts.micro()
    return {"f1": micro.f1, "precision": micro.precision, "recall": micro.recall}


def _spans(examples: Sequence[AnswerExample], answers: Sequence[str]) -> dict[str, float]:
    accepted = [[answer.text for answer in example.answers or ()] for example in examples]
    both = list(zip(answers, accepted, strict=True))
    return {
        "f1": sum(squad_f1(*pair) for pair in both) / len(both),
        "exact": sum(squad_exact(*pair) for pair in both) / len(both),
    }


SCORERS: dict[str, Callable[[Any, Any], dict[str, float]]] = {"classify": _labels, "tag": _entities, "answer": _spans}
