"""How long labelled texts are, in characters and in a model's tokens, and whether spans end where tokens end."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qkv.data.examples import AnswerExample, ChoiceExample, Example, TagExample, TextExample
from qkv.tokenizer import Encoded, Tokenizer

AT_ONCE = 256  # examples to tokenize


@dataclass(frozen=True)
class Lengths:
    """Of examples: a pair, or a question with its text, counts as one. In tokens with [CLS] and [SEP]."""

    median: int
    p90: int
    p99: int
    longest: int
    limit: int | None = None  # of the model, in tokens
    over: int = 0  # examples above it, which will be read in windows


def lengths_of(values: "array[int]", limit: int | None = None) -> Lengths | None:
    if not values:
        return None
    numbers = np.frombuffer(values, np.uint32)
    median, p90, p99 = (int(value) for value in np.percentile(numbers, (50, 90, 99), method="higher"))
    over = 0 if limit is None else int(np.count_nonzero(numbers > limit))
    return Lengths(median, p90, p99, int(numbers.max()), limit, over)


def parts_of(example: Example) -> tuple[str, str | None]:
    """What a model reads of an example, as one text or two."""
    if isinstance(example, TextExample):
        return example.text, example.pair
    if isinstance(example, TagExample):
        return example.text, None
    if isinstance(example, AnswerExample):
        return example.question, example.text
    assert isinstance(example, ChoiceExample)
    return example.text, " ".join((example.question, max(example.choices, key=len))).strip()


class TokenLengths:
    """Counts tokens, some hundred examples at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._waiting: list[tuple[int, Example]] = []

    def add(self, source: int, example: Example) -> Iterator[tuple[int, Example, int, str]]:
        """Examples whose turn has come, each with its tokens and a span that cuts through one ("" where none does)."""
        self._waiting.append((source, example))
        if len(self._waiting) >= AT_ONCE:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[int, Example, int, str]]:
        waiting, self._waiting = self._waiting, []
        texts: dict[str, int] = {}
        for _, example in waiting:
            texts.update((part, len(texts)) for part in parts_of(example) if part and part not in texts)
        encoded = self._tokenizer.encode_batch(list(texts), special=False)
        for source, example in waiting:
            first, second = parts_of(example)
            count = 2 + (len(encoded[texts[first]].ids) if first else 0)
            if second:
                count += 1 + len(encoded[texts[second]].ids)
            cut = _cut_span(example, encoded[texts[example.text]]) if isinstance(example, TagExample) else ""
            yield source, example, count, cut


def _cut_span(example: TagExample, encoded: Encoded) -> str:
    """The first span that begins or ends inside a token."""
    if not example.spans:
        return ""
    starts = {start for start, _ in encoded.offsets}
    ends = {end for _, end in encoded.offsets}
    for start, end, label in example.spans:
        if start not in starts or end not in ends:
            return f"{label} {example.text[start:end]!r} at {start}–{end}"
    return ""
